//! Paths, lists of paths, and the path before a value.

use strata_reference::path;
use strata_types::path::Path;

use crate::harness::text;

pub fn check(bytes: &[u8]) {
    let text = text(bytes);
    let keys = |path: &Path| path.keys().to_vec();

    let parsed = Path::parse(text).ok();
    assert_eq!(parsed.as_ref().map(keys), path::parse(text));
    let list = Path::parse_list(text);
    assert_eq!(list.iter().map(keys).collect::<Vec<_>>(), path::parse_list(text));
    let prefix = Path::parse_prefix(text).ok();
    assert_eq!(prefix.as_ref().map(|(path, value)| (keys(path), *value)), path::parse_prefix(text));

    // What is written is read as the same.
    for path in parsed.iter().chain(&list) {
        let written = path.to_string();
        assert_eq!(Path::parse(&written).as_ref(), Ok(path), "{written:?}");
        assert_eq!(Path::parse_list(&written), std::slice::from_ref(path), "{written:?}");
        assert_eq!(Path::parse_prefix(&format!("{written}:x:y")), Ok((path.clone(), "x:y")), "{written:?}");
    }
}
