//! The records of a diff in JSON Lines, such as `{"id":"m3-4","v1":{…},"v2":{…}}`.

use strata_diff::ChangeType;
use strata_json::JsonScalar;

pub(super) struct DiffRecord<'a> {
    pub(super) change_type: ChangeType,
    pub(super) positions: [Option<u64>; 2],
    pub(super) entities: [Option<&'a [u8]>; 2],
}

impl<'a> DiffRecord<'a> {
    pub(super) fn parse(line: &'a [u8]) -> Option<DiffRecord<'a>> {
        let id = JsonScalar::parse(strata_json::find_member(line, "id")?)?;
        let JsonScalar::String(id) = id else { return None };
        let id = id.unescape();
        let (first, positions) = id.split_at_checked(1)?;
        let (change_type, positions) = match (first, positions.split_once('-')) {
            ("m", Some((v1, v2))) => (ChangeType::Modified, [v1.parse().ok(), v2.parse().ok()]),
            ("s", None) => (ChangeType::Subtracted, [positions.parse().ok(), None]),
            ("a", None) => (ChangeType::Added, [None, positions.parse().ok()]),
            _ => return None,
        };
        let entity = |name| strata_json::find_member(line, name).filter(|entity| *entity != b"null");
        Some(DiffRecord { change_type, positions, entities: [entity("v1"), entity("v2")] })
    }
}
