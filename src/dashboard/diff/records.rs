//! The records of a diff, as the operation gives them on lines.

use strata_diff::ChangeType;
use strata_json::Scalar;

pub(super) struct Record<'a> {
    pub(super) change_type: ChangeType,
    pub(super) positions: [Option<u64>; 2],
    pub(super) entities: [Option<&'a [u8]>; 2],
}

impl<'a> Record<'a> {
    /// The one of a line; `None` for no record.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_from_its_line() {
        let line = br#"{"id":"m3-14","change_type":"modified","source":"","v1":{"a":1},"v2":{"a":2},"field_diffs":[]}"#;
        let record = Record::parse(line).expect("a record");
        assert_eq!((record.change_type, record.positions), (ChangeType::Modified, [Some(3), Some(14)]));
        assert_eq!(record.entities, [Some(&b"{\"a\":1}"[..]), Some(b"{\"a\":2}")]);
        let record = Record::parse(br#"{"id":"a7","v1":null,"v2":{}}"#).expect("a record");
        assert_eq!((record.positions, record.entities), ([None, Some(7)], [None, Some(&b"{}"[..])]));
        assert!(Record::parse(br#"{"id":"x7"}"#).is_none() && Record::parse(br#"{"id":""}"#).is_none());
    }
}
