//! The path of a read: `/api/{dataset_id}/{name_slug}/{version}/`, with `alt/` after it for the edited copy.
//!
//! The router does not parse the path, because errors must contain the invalid segment, only the slug can contain
//! escapes, and a slug that is not UTF-8 is an error (docs/reference/query-semantics.md, Path of a read).
//!
//! 1. Remove `/api/` and one trailing `/`.
//! 2. Split at `/` before decoding anything: an escaped slash belongs to the slug.
//! 3. Parse the segments from left to right. The first invalid segment is the error.

use axum::http::StatusCode;
use percent_encoding::percent_decode_str;
use strata_service::ReadTarget;
use strata_types::ids::DatasetId;
use strata_types::version::VersionSelector;

use crate::display_text::quote_for_display;
use crate::error::HttpError;

#[derive(Clone, Debug)]
pub struct ReadPath {
    /// The dataset and the version in the path. Numbers that are too large are valid here, but never found.
    pub target: ReadTarget,
    pub alt: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadPathError {
    /// The path is too short. The error contains the name of the first missing segment.
    #[error(
        "{0} is missing; valid: /api/{{dataset_id}}/{{name_slug}}/{{version}}/, followed by alt/ for the alternate"
    )]
    Missing(&'static str),
    #[error(
        "dataset_id is {}; valid: a positive integer in decimal digits, without leading zeros",
        quote_for_display(.0)
    )]
    DatasetId(String),
    #[error("name_slug is {}; valid: percent-encoded UTF-8", quote_for_display(.0))]
    NameSlug(String),
    #[error(
        "version is {}; valid: active, latest, or v followed by a version number without leading zeros",
        quote_for_display(.0)
    )]
    Version(String),
    #[error("{} after the version is not valid; valid: alt, or nothing", quote_for_display(.0))]
    AfterVersion(String),
}

impl From<ReadPathError> for HttpError {
    fn from(error: ReadPathError) -> Self {
        HttpError::InvalidRequest { status: StatusCode::BAD_REQUEST, text: format!("Invalid path: {error}.") }
    }
}

/// Parses a percent-encoded path that starts with `/api`.
pub fn parse_path(path: &str) -> Result<ReadPath, ReadPathError> {
    let path = path.strip_prefix("/api").unwrap_or(path);
    let path = path.strip_prefix('/').unwrap_or(path);
    let mut segments = path.strip_suffix('/').unwrap_or(path).splitn(4, '/');
    let mut segment = |name| match segments.next() {
        None | Some("") => Err(ReadPathError::Missing(name)),
        Some(segment) => Ok(segment),
    };

    let dataset = segment("dataset_id")?;
    let dataset: DatasetId = dataset.parse().map_err(|_| ReadPathError::DatasetId(dataset.to_owned()))?;
    let name_slug = segment("name_slug")?;
    let name_slug = decode_segment(name_slug).ok_or_else(|| ReadPathError::NameSlug(name_slug.to_owned()))?;
    let version = segment("version")?;
    let version: VersionSelector = version.parse().map_err(|_| ReadPathError::Version(version.to_owned()))?;
    let alt = match segments.next() {
        None => false,
        Some("alt") => true,
        Some(rest) => return Err(ReadPathError::AfterVersion(rest.to_owned())),
    };
    Ok(ReadPath { target: ReadTarget { dataset, name_slug, version }, alt })
}

/// Decodes a segment of a path. Returns `None` if an escape is malformed or the bytes are not UTF-8. `+` is literal.
fn decode_segment(segment: &str) -> Option<String> {
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        let is_digit = |digit: Option<u8>| digit.is_some_and(|digit| digit.is_ascii_hexdigit());
        if byte == b'%' && !(is_digit(bytes.next()) && is_digit(bytes.next())) {
            return None;
        }
    }
    percent_decode_str(segment).decode_utf8().ok().map(|text| text.into_owned())
}
