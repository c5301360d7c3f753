//! Paths, lists of paths, and paths with a value.

use strata_reference::path;
use strata_types::field_path::FieldPath;

use crate::harness::text;

pub fn check(bytes: &[u8]) {
    let text = text(bytes);
    let keys = |path: &FieldPath| path.keys().to_vec();

    let parsed = FieldPath::parse(text).ok();
    assert_eq!(parsed.as_ref().map(keys), path::parse(text));
    let list = FieldPath::parse_list(text);
    assert_eq!(list.iter().map(keys).collect::<Vec<_>>(), path::parse_list(text));
    let prefix = FieldPath::parse_path_value(text).ok();
    assert_eq!(prefix.as_ref().map(|(path, value)| (keys(path), *value)), path::parse_prefix(text));

    // A formatted path parses to the same path.
    for path in parsed.iter().chain(&list) {
        let written = path.to_string();
        assert_eq!(FieldPath::parse(&written).as_ref(), Ok(path), "{written:?}");
        assert_eq!(FieldPath::parse_list(&written), std::slice::from_ref(path), "{written:?}");
        assert_eq!(FieldPath::parse_path_value(&format!("{written}:x:y")), Ok((path.clone(), "x:y")), "{written:?}");
    }
}
