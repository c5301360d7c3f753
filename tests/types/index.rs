//! Settings of indexed columns.

use strata_types::field_path::FieldPath;
use strata_types::index_settings::{IndexSettings, InvalidIndexSettings, MAX_INDEX_PATH_BYTES, MAX_INDEX_PATHS};

#[test]
fn equivalent_index_settings_are_equal() {
    let one = IndexSettings::try_new(&["b", "a.x", "a\\.x", "b"], &["c\\:"]).expect("failed to parse index");
    let other = IndexSettings::try_new(&["a\\.x", "a.x", "b"], &["c:"]).expect("failed to parse index");
    assert_eq!(one, other);
    let json = serde_json::to_string(&one).expect("failed to write JSON");
    assert_eq!(json, r#"{"always":["a.x","a\\.x","b"],"never":["c\\:"]}"#);
    assert_eq!(serde_json::from_str::<IndexSettings>(&json).expect("failed to parse index"), one);
    assert!(serde_json::from_str::<IndexSettings>("{}").expect("failed to parse index").is_empty());
}

#[test]
fn invalid_index_settings_are_rejected() {
    let long = "x".repeat(MAX_INDEX_PATH_BYTES);
    assert!(IndexSettings::try_new(&[long.as_str()], &[]).is_ok());
    let longer = format!("{long}x");
    let colons = ":".repeat(MAX_INDEX_PATH_BYTES / 2 + 1);
    let names: Vec<String> = (0..=MAX_INDEX_PATHS).map(|number| number.to_string()).collect();
    assert!(IndexSettings::try_new(&names[1..], &[]).is_ok());
    for (always, never) in [(&names[..], &names[..0]), (&names[..1], &names[..])] {
        assert_eq!(IndexSettings::try_new(always, never), Err(InvalidIndexSettings::TooManyPaths(MAX_INDEX_PATHS + 1)));
    }
    let both = FieldPath::parse("a.b").expect("failed to parse path");
    for (always, never, error) in [
        ("", "a", InvalidIndexSettings::NotAPath(String::new())),
        ("a", "", InvalidIndexSettings::NotAPath(String::new())),
        (&longer, "a", InvalidIndexSettings::PathTooLong(MAX_INDEX_PATH_BYTES + 1)),
        // Too long in the stored form, which includes escapes.
        (&colons, "a", InvalidIndexSettings::PathTooLong(MAX_INDEX_PATH_BYTES + 2)),
        ("a.b", "a.b", InvalidIndexSettings::PathInBothLists(both)),
    ] {
        assert_eq!(IndexSettings::try_new(&[always], &[never]), Err(error));
    }
}
