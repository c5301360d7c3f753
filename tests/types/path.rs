//! Paths and lists of them, with escapes.

use strata_types::field_path::{FieldPath, FieldPathError};

#[track_caller]
fn check(text: &str, keys: &[&str]) {
    let path = FieldPath::parse(text).expect("failed to parse path");
    assert_eq!(path.keys(), keys);
}

#[test]
fn escaped_paths_are_parsed() {
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
    assert_eq!(FieldPath::parse(""), Err(FieldPathError::Empty));
}

#[test]
fn path_lists_are_split_and_trimmed() {
    let keys =
        |text| -> Vec<Vec<String>> { FieldPath::parse_list(text).iter().map(|path| path.keys().to_vec()).collect() };
    assert_eq!(keys("a, b.c ,,\t"), [vec!["a"], vec!["b", "c"]]);
    assert_eq!(keys(r"a\,b,\ c,d\ ,e\\ "), [["a,b"], [" c"], ["d "], [r"e\"]]);
    assert_eq!(keys("first name"), [["first name"]]);
    assert!(keys(" , ,").is_empty());
    assert!(keys("").is_empty());
}

#[test]
fn path_value_is_split_at_first_colon() {
    let split = |text| FieldPath::parse_path_value(text).map(|(path, value)| (path.to_string(), value));
    assert_eq!(split("a.b:c:d"), Ok(("a.b".to_owned(), "c:d")));
    assert_eq!(split(r"a\:b:\,"), Ok((r"a\:b".to_owned(), r"\,")));
    assert_eq!(split("a:"), Ok(("a".to_owned(), "")));
    assert_eq!(split("name"), Err(FieldPathError::MissingColon));
    assert_eq!(split(r"name\:x"), Err(FieldPathError::MissingColon));
    assert_eq!(split(":x"), Err(FieldPathError::Empty));
}

#[test]
fn path_must_have_written_form() {
    assert_eq!(FieldPath::from_keys([""; 1]), Err(FieldPathError::Empty));
    assert_eq!(FieldPath::from_keys([""; 0]), Err(FieldPathError::Empty));
    let path = FieldPath::from_keys(["", " a b ", "\t"]).expect("failed to parse path");
    assert_eq!(path.to_string(), ". a b .\\\t");
}
