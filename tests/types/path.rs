//! Paths and lists of them, with escapes.

use strata_types::path::{Path, PathError};

#[track_caller]
fn check(text: &str, keys: &[&str]) {
    let path = Path::parse(text).expect("a path");
    assert_eq!(path.keys(), keys);
}

#[test]
fn escapes() {
    check("a", &["a"]);
    check("a.b", &["a", "b"]);
    check(r"a\.b", &["a.b"]);
    check(r"a\\.b", &[r"a\", "b"]);
    check(r"a\\\.b", &[r"a\.b"]);
    check(r"\n\", &[r"\n\"]);
    check(r"a\,b\:c\ d", &["a,b:c d"]);
    check("a,b:c d", &["a,b:c d"]);
    check("a..b", &["a", "", "b"]);
    check(".", &["", ""]);
    check(" a ", &[" a "]);
    assert_eq!(Path::parse(""), Err(PathError::Empty));
}

#[test]
fn lists() {
    let keys = |text| -> Vec<Vec<String>> { Path::parse_list(text).iter().map(|path| path.keys().to_vec()).collect() };
    assert_eq!(keys("a, b.c ,,\t"), [vec!["a"], vec!["b", "c"]]);
    assert_eq!(keys(r"a\,b,\ c,d\ ,e\\ "), [["a,b"], [" c"], ["d "], [r"e\"]]);
    assert_eq!(keys("first name"), [["first name"]]);
    assert!(keys(" , ,").is_empty());
    assert!(keys("").is_empty());
}

#[test]
fn prefixes() {
    let split = |text| Path::parse_prefix(text).map(|(path, value)| (path.to_string(), value));
    assert_eq!(split("a.b:c:d"), Ok(("a.b".to_owned(), "c:d")));
    assert_eq!(split(r"a\:b:\,"), Ok((r"a\:b".to_owned(), r"\,")));
    assert_eq!(split("a:"), Ok(("a".to_owned(), "")));
    assert_eq!(split("name"), Err(PathError::NoColon));
    assert_eq!(split(r"name\:x"), Err(PathError::NoColon));
    assert_eq!(split(":x"), Err(PathError::Empty));
}

#[test]
fn only_what_can_be_written() {
    assert_eq!(Path::from_keys([""; 1]), Err(PathError::Empty));
    assert_eq!(Path::from_keys([""; 0]), Err(PathError::Empty));
    let path = Path::from_keys(["", " a b ", "\t"]).expect("a path");
    assert_eq!(path.to_string(), ". a b .\\\t");
}
