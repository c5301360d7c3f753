//! Paths of reads.

use strata_http::read::path::{ReadPathError, parse_path};
use strata_types::ids::DatasetId;
use strata_types::version::{VersionNumber, VersionSelector};

#[track_caller]
fn check(path: &str, dataset: u64, name_slug: &str, version: VersionSelector, alt: bool) {
    let parsed = parse_path(path).expect(path);
    assert_eq!(parsed.target.dataset, DatasetId::new(dataset), "{path}");
    assert_eq!(parsed.target.name_slug, name_slug, "{path}");
    assert_eq!(parsed.target.version, version, "{path}");
    assert_eq!(parsed.alt, alt, "{path}");
}

fn number(number: u64) -> VersionSelector {
    VersionSelector::Number(VersionNumber::new(number))
}

#[test]
fn trailing_slash_is_optional() {
    check("/api/7/world/active", 7, "world", VersionSelector::Active, false);
    check("/api/7/world/active/", 7, "world", VersionSelector::Active, false);
    check("/api/7/world/latest/alt", 7, "world", VersionSelector::Latest, true);
    check("/api/7/world/v12/alt/", 7, "world", number(12), true);
}

#[test]
fn nonexistent_numbers_are_valid() {
    check("/api/7/world/v0", 7, "world", number(0), false);
    check(&format!("/api/{0}/world/v{0}", "9".repeat(40)), u64::MAX, "world", number(u64::MAX), false);
}

#[test]
fn slug_is_percent_decoded() {
    check("/api/1/k%C3%B6ln/v1", 1, "köln", number(1), false);
    check("/api/1/köln/v1", 1, "köln", number(1), false);
    check("/api/1/a%2Fb+c/v1", 1, "a/b+c", number(1), false);
    check("/api/1/%2525/v1", 1, "%25", number(1), false);
}

#[test]
fn first_invalid_segment_is_reported() {
    use ReadPathError::{AfterVersion, DatasetId, Missing, NameSlug, Version};
    for (path, expected) in [
        ("/api", Missing("dataset_id")),
        ("/api/", Missing("dataset_id")),
        ("/api//", Missing("dataset_id")),
        ("/api//x/v1", Missing("dataset_id")),
        ("/api/0/x/v1", DatasetId("0".into())),
        ("/api/01/x/v1", DatasetId("01".into())),
        ("/api/-1/x/v1", DatasetId("-1".into())),
        ("/api/%31/x/v1", DatasetId("%31".into())),
        ("/api/x/%zz/new", DatasetId("x".into())),
        ("/api/1", Missing("name_slug")),
        ("/api/1/", Missing("name_slug")),
        ("/api/1//v1", Missing("name_slug")),
        ("/api/1/%/v1", NameSlug("%".into())),
        ("/api/1/a%4/v1", NameSlug("a%4".into())),
        ("/api/1/%zz/v1", NameSlug("%zz".into())),
        ("/api/1/%FF/v1", NameSlug("%FF".into())),
        ("/api/1/x", Missing("version")),
        ("/api/1/x/", Missing("version")),
        ("/api/1/x//alt", Missing("version")),
        ("/api/1/x/Active", Version("Active".into())),
        ("/api/1/x/1", Version("1".into())),
        ("/api/1/x/v01", Version("v01".into())),
        ("/api/1/x/alt", Version("alt".into())),
        ("/api/1/x/v1/ALT", AfterVersion("ALT".into())),
        ("/api/1/x/v1//", AfterVersion("".into())),
        ("/api/1/x/v1//alt", AfterVersion("/alt".into())),
        ("/api/1/x/v1/alt/more", AfterVersion("alt/more".into())),
    ] {
        assert_eq!(parse_path(path).map(|_| ()), Err(expected), "{path}");
    }
}
