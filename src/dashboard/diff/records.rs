//! The records of a diff in JSON lines.

use strata_diff::ChangeType;
use strata_json::Scalar;

pub(super) struct Record<'a> {
    pub(super) change_type: ChangeType,
    pub(super) positions: [Option<u64>; 2],
    pub(super) entities: [Option<&'a [u8]>; 2],
}

impl<'a> Record<'a> {
    pub(super) fn parse(line: &'a [u8]) -> Option<Record<'a>> {
        let Some(Scalar::String(id)) = strata_json::member(line, "id").and_then(Scalar::read) else { return None };
        let id = id.unescape();
        let (first, positions) = id.split_at_checked(1)?;
        let (change_type, positions) = match (first, positions.split_once('-')) {
            ("m", Some((v1, v2))) => (ChangeType::Modified, [v1.parse().ok(), v2.parse().ok()]),
            ("s", None) => (ChangeType::Subtracted, [positions.parse().ok(), None]),
            ("a", None) => (ChangeType::Added, [None, positions.parse().ok()]),
            _ => return None,
        };
        let entity = |name| strata_json::member(line, name).filter(|entity| *entity != b"null");
        Some(Record { change_type, positions, entities: [entity("v1"), entity("v2")] })
    }
}
