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
