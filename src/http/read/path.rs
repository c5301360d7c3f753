//! The path of a read: `/api/{dataset_id}/{name_slug}/{version}/`, with `alt/` after it for the alternate.
//!
//! Parsed here and not by the router, because an answer must name the part that is wrong, because escapes count only in
//! the slug, and because a slug that is not UTF-8 is an error (docs/reference/query-semantics.md, Path of a read).
//!
//! 1. Take `/api/` off, and one final `/` if there is one.
//! 2. Split at `/`, before anything is decoded: an escaped slash belongs to the slug.
//! 3. Read the parts from left to right; the first wrong one is the error.

use axum::http::StatusCode;
use percent_encoding::percent_decode_str;
use strata_service::ReadTarget;
use strata_types::ids::DatasetId;
use strata_types::version::VersionSelector;

use crate::error::HttpError;
use crate::text::quoted;

#[derive(Clone, Debug)]
pub struct ReadPath {
    /// The dataset and the version. Numbers too large to exist are well formed, and found by nobody.
    pub target: ReadTarget,
    pub alt: bool,
}

/// Why a path under `/api/` is not that of a read. The text names the part and what would be valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadPathError {
    /// The path ends too early; holds the name of the first missing part.
    #[error(
        "{0} is missing; valid: /api/{{dataset_id}}/{{name_slug}}/{{version}}/, followed by alt/ for the alternate"
    )]
    Missing(&'static str),
    #[error("dataset_id is {}; valid: a positive integer in decimal digits, without leading zeros", quoted(.0))]
    DatasetId(String),
    /// The second part has an escape that is not two hexadecimal digits, or is not UTF-8.
    #[error("name_slug is {}; valid: percent-encoded UTF-8", quoted(.0))]
    NameSlug(String),
    #[error(
        "version is {}; valid: active, latest, or v followed by a version number without leading zeros",
        quoted(.0)
    )]
    Version(String),
    #[error("{} after the version is not valid; valid: alt, or nothing", quoted(.0))]
    AfterVersion(String),
}

impl From<ReadPathError> for HttpError {
    fn from(error: ReadPathError) -> Self {
        HttpError::Invalid { status: StatusCode::BAD_REQUEST, text: format!("Invalid path: {error}.") }
    }
}

/// Parses the path of a request, still percent-encoded, that starts with `/api`.
pub fn parse(path: &str) -> Result<ReadPath, ReadPathError> {
    let path = path.strip_prefix("/api").unwrap_or(path);
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    let mut parts = path.splitn(4, '/');
    let mut part = |name| match parts.next() {
        None | Some("") => Err(ReadPathError::Missing(name)),
        Some(part) => Ok(part),
    };

    let dataset = part("dataset_id")?;
    let dataset: DatasetId = dataset.parse().map_err(|_| ReadPathError::DatasetId(dataset.to_owned()))?;
    let name_slug = part("name_slug")?;
    let name_slug = decode(name_slug).ok_or_else(|| ReadPathError::NameSlug(name_slug.to_owned()))?;
    let version = part("version")?;
    let version: VersionSelector = version.parse().map_err(|_| ReadPathError::Version(version.to_owned()))?;
    let alt = match parts.next() {
        None => false,
        Some("alt") => true,
        Some(rest) => return Err(ReadPathError::AfterVersion(rest.to_owned())),
    };
    Ok(ReadPath { target: ReadTarget { dataset, name_slug, version }, alt })
}

/// A part of a path as text; `None` when an escape is malformed or the bytes are not UTF-8. A `+` stands for itself.
fn decode(part: &str) -> Option<String> {
    let mut bytes = part.bytes();
    while let Some(byte) = bytes.next() {
        let escape = |digit: Option<u8>| digit.is_some_and(|digit| digit.is_ascii_hexdigit());
        if byte == b'%' && !(escape(bytes.next()) && escape(bytes.next())) {
            return None;
        }
    }
    percent_decode_str(part).decode_utf8().ok().map(|text| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_types::version::VersionNumber;

    #[track_caller]
    fn check(path: &str, dataset: u64, name_slug: &str, version: VersionSelector, alt: bool) {
        let parsed = parse(path).expect(path);
        assert_eq!(parsed.target.dataset, DatasetId::new(dataset), "{path}");
        assert_eq!(parsed.target.name_slug, name_slug, "{path}");
        assert_eq!(parsed.target.version, version, "{path}");
        assert_eq!(parsed.alt, alt, "{path}");
    }

    fn number(number: u64) -> VersionSelector {
        VersionSelector::Number(VersionNumber::new(number))
    }

    #[test]
    fn both_forms_with_and_without_the_final_slash() {
        check("/api/7/world/active", 7, "world", VersionSelector::Active, false);
        check("/api/7/world/active/", 7, "world", VersionSelector::Active, false);
        check("/api/7/world/latest/alt", 7, "world", VersionSelector::Latest, true);
        check("/api/7/world/v12/alt/", 7, "world", number(12), true);
    }

    #[test]
    fn numbers_that_nothing_has_are_well_formed() {
        check("/api/7/world/v0", 7, "world", number(0), false);
        check(&format!("/api/{0}/world/v{0}", "9".repeat(40)), u64::MAX, "world", number(u64::MAX), false);
    }

    #[test]
    fn escapes_count_in_the_slug() {
        check("/api/1/k%C3%B6ln/v1", 1, "köln", number(1), false);
        check("/api/1/köln/v1", 1, "köln", number(1), false);
        check("/api/1/a%2Fb+c/v1", 1, "a/b+c", number(1), false);
        check("/api/1/%2525/v1", 1, "%25", number(1), false);
    }

    #[test]
    fn the_first_wrong_part_is_named() {
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
            assert_eq!(parse(path).map(|_| ()), Err(expected), "{path}");
        }
    }
}
