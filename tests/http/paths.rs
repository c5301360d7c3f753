//! Paths of reads.

use strata_http::read::path::{ReadPathError, ReadRoute, parse_changes_path, parse_file_path, parse_path};
use strata_types::ids::DatasetId;
use strata_types::read_request::ResponseFormat;
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
        ("/api", Missing("dataset_id", ReadRoute::Api)),
        ("/api/", Missing("dataset_id", ReadRoute::Api)),
        ("/api//", Missing("dataset_id", ReadRoute::Api)),
        ("/api//x/v1", Missing("dataset_id", ReadRoute::Api)),
        ("/api/0/x/v1", DatasetId("0".into())),
        ("/api/01/x/v1", DatasetId("01".into())),
        ("/api/-1/x/v1", DatasetId("-1".into())),
        ("/api/%31/x/v1", DatasetId("%31".into())),
        ("/api/x/%zz/new", DatasetId("x".into())),
        ("/api/1", Missing("name_slug", ReadRoute::Api)),
        ("/api/1/", Missing("name_slug", ReadRoute::Api)),
        ("/api/1//v1", Missing("name_slug", ReadRoute::Api)),
        ("/api/1/%/v1", NameSlug("%".into())),
        ("/api/1/a%4/v1", NameSlug("a%4".into())),
        ("/api/1/%zz/v1", NameSlug("%zz".into())),
        ("/api/1/%FF/v1", NameSlug("%FF".into())),
        ("/api/1/x", Missing("version", ReadRoute::Api)),
        ("/api/1/x/", Missing("version", ReadRoute::Api)),
        ("/api/1/x//alt", Missing("version", ReadRoute::Api)),
        ("/api/1/x/Active", Version("Active".into())),
        ("/api/1/x/1", Version("1".into())),
        ("/api/1/x/v01", Version("v01".into())),
        ("/api/1/x/alt", Version("alt".into())),
        ("/api/1/x/v1/ALT", AfterVersion("ALT".into(), ReadRoute::Api)),
        ("/api/1/x/v1//", AfterVersion("".into(), ReadRoute::Api)),
        ("/api/1/x/v1//alt", AfterVersion("/alt".into(), ReadRoute::Api)),
        ("/api/1/x/v1/alt/more", AfterVersion("alt/more".into(), ReadRoute::Api)),
    ] {
        assert_eq!(parse_path(path).map(|_| ()), Err(expected), "{path}");
    }
}

#[test]
fn changes_path_has_no_alternate() {
    for path in ["/changes/7/world/v3", "/changes/7/world/v3/"] {
        let target = parse_changes_path(path).expect(path);
        assert_eq!((target.dataset, &*target.name_slug, target.version), (DatasetId::new(7), "world", number(3)));
    }
    let after = |rest: &str| ReadPathError::AfterVersion(rest.into(), ReadRoute::Changes);
    for (path, expected) in [
        ("/changes", ReadPathError::Missing("dataset_id", ReadRoute::Changes)),
        ("/changes/1/x", ReadPathError::Missing("version", ReadRoute::Changes)),
        ("/changes/1/x/3", ReadPathError::Version("3".into())),
        ("/changes/1/x/v1/alt/", after("alt")),
    ] {
        assert_eq!(parse_changes_path(path).map(|_| ()), Err(expected), "{path}");
    }
}

#[test]
fn file_name_contains_version_and_format() {
    let check = |path: &str, version, alt, format| {
        let (parsed, found) = parse_file_path(path).expect(path);
        assert_eq!((parsed.target.version, parsed.alt, found), (version, alt, format), "{path}");
        assert_eq!(&*parsed.target.name_slug, "a.b", "{path}");
    };
    check("/files/7/a.b/active.jsonl", VersionSelector::Active, false, ResponseFormat::Jsonl);
    check("/files/7/a.b/latest.parquet", VersionSelector::Latest, false, ResponseFormat::Parquet);
    check("/files/7/a.b/v3-alt.csv", number(3), true, ResponseFormat::Csv);
    let version = |name: &str| ReadPathError::Version(name.into());
    for (path, expected) in [
        ("/files/", ReadPathError::Missing("dataset_id", ReadRoute::Files)),
        ("/files/1/x", ReadPathError::Missing("version", ReadRoute::Files)),
        ("/files/1/x/v1", version("v1")),
        ("/files/1/x/v01.json", version("v01.json")),
        ("/files/1/x/v1-alt-alt.json", version("v1-alt-alt.json")),
        ("/files/1/x/v1.JSON", ReadPathError::FileExtension("v1.JSON".into())),
        ("/files/1/x/v1.", ReadPathError::FileExtension("v1.".into())),
        ("/files/1/x/v1.json.gz", ReadPathError::FileExtension("v1.json.gz".into())),
        ("/files/1/x/v1.json/", ReadPathError::AfterVersion("".into(), ReadRoute::Files)),
        ("/files/1/x/v1.json/alt", ReadPathError::AfterVersion("alt".into(), ReadRoute::Files)),
    ] {
        assert_eq!(parse_file_path(path).map(|_| ()), Err(expected), "{path}");
    }
}
