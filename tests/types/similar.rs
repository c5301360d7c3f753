//! Suggestions for misspelled names.

use strata_types::suggest::find_similar_name;

#[test]
fn typo_finds_similar_name() {
    let known = "limit filter filter_contains filter_gt keep_field keywords dataset_id v1 v2 alt".split(' ');
    for (name, expected) in [
        ("limt", Some("limit")),
        ("lmit", Some("limit")),
        ("ilmit", Some("limit")),
        ("LIMIT", Some("limit")),
        ("fliter", Some("filter")),
        ("keepfield", Some("keep_field")),
        ("filter_contain", Some("filter_contains")),
        ("keyword", Some("keywords")),
        ("dataset", Some("dataset_id")),
        ("filter_eq", Some("filter")),
        ("filter_gr", Some("filter_gt")),
        ("filter_conta", Some("filter_contains")),
        ("filter_g", Some("filter_gt")),
        ("filter_between", None),
        ("v3", None),
        ("a", None),
        ("", None),
        ("page", None),
        ("country", None),
    ] {
        assert_eq!(find_similar_name(name, known.clone()), expected, "{name}");
    }
    assert_eq!(find_similar_name(&"x".repeat(10_000), ["x"]), None);
    assert_eq!(find_similar_name(&"x".repeat(64), ["x".repeat(65).as_str()]), None);
    assert_eq!(find_similar_name("regoin", ["name", "region", "regions"]), Some("region"));
}
