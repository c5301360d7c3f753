//! Settings of indexed columns.

use strata_types::index::{INDEX_PATH_BYTES, INDEX_PATHS, IndexSettings, InvalidIndex};
use strata_types::path::Path;

#[test]
fn an_index_is_the_same_however_it_is_written() {
    let one = IndexSettings::try_new(&["b", "a.x", "a\\.x", "b"], &["c\\:"]).expect("an index");
    let other = IndexSettings::try_new(&["a\\.x", "a.x", "b"], &["c:"]).expect("an index");
    assert_eq!(one, other);
    let json = serde_json::to_string(&one).expect("JSON");
    assert_eq!(json, r#"{"always":["a.x","a\\.x","b"],"never":["c\\:"]}"#);
    assert_eq!(serde_json::from_str::<IndexSettings>(&json).expect("an index"), one);
    assert!(serde_json::from_str::<IndexSettings>("{}").expect("an index").is_empty());
}

#[test]
fn what_cannot_be_an_index_is_refused() {
    let long = "x".repeat(INDEX_PATH_BYTES);
    assert!(IndexSettings::try_new(&[long.as_str()], &[]).is_ok());
    let longer = format!("{long}x");
    let colons = ":".repeat(INDEX_PATH_BYTES / 2 + 1);
    let names: Vec<String> = (0..=INDEX_PATHS).map(|number| number.to_string()).collect();
    assert!(IndexSettings::try_new(&names[1..], &[]).is_ok());
    for (always, never) in [(&names[..], &names[..0]), (&names[..1], &names[..])] {
        assert_eq!(IndexSettings::try_new(always, never), Err(InvalidIndex::TooMany(INDEX_PATHS + 1)));
    }
    let both = Path::parse("a.b").expect("a path");
    for (always, never, error) in [
        ("", "a", InvalidIndex::NoPath(String::new())),
        ("a", "", InvalidIndex::NoPath(String::new())),
        (&longer, "a", InvalidIndex::LongPath(INDEX_PATH_BYTES + 1)),
        // Too long in the stored form, with escapes.
        (&colons, "a", InvalidIndex::LongPath(INDEX_PATH_BYTES + 2)),
        ("a.b", "a.b", InvalidIndex::Both(both)),
    ] {
        assert_eq!(IndexSettings::try_new(&[always], &[never]), Err(error));
    }
}
