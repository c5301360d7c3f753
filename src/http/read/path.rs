//! The paths of reads: `/api/{dataset_id}/{name_slug}/{version}/`, with `alt/` after it for the edited copy, the path
//! of the changes since another version, `/changes/{dataset_id}/{name_slug}/{version}/`, and the paths of files,
//! `/files/{dataset_id}/{name_slug}/{version}.{format}`.
//!
//! The router does not parse the path, because errors must contain the invalid segment, only the slug can contain
//! escapes, and a slug that is not UTF-8 is an error (docs/reference/query-semantics.md, Path of a read).
//!
//! 1. Remove the first segment and, unless the path is a file, one trailing `/`.
//! 2. Split at `/` before decoding anything: an escaped slash belongs to the slug.
//! 3. Parse the segments from left to right. The first invalid segment is the error.

use std::sync::LazyLock;

use axum::http::StatusCode;
use percent_encoding::percent_decode_str;
use strata_service::ReadTarget;
use strata_types::ids::DatasetId;
use strata_types::read_request::ResponseFormat;
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
    #[error("{} is missing; valid: {}", .0, .1.syntax())]
    Missing(&'static str, ReadRoute),
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
    #[error("{} after the version is not valid; valid: {}", quote_for_display(.0), .1.valid_after_version())]
    AfterVersion(String, ReadRoute),
    #[error("file name {} has no extension of a format; valid: {}", quote_for_display(.0), FILE_EXTENSIONS.join(", "))]
    FileExtension(String),
}

/// The extensions of files, which are the names of the formats.
static FILE_EXTENSIONS: LazyLock<Vec<&str>> =
    LazyLock::new(|| ResponseFormat::FILE_FORMATS.map(ResponseFormat::name).to_vec());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadRoute {
    Api,
    Changes,
    Files,
}

impl ReadRoute {
    fn prefix(self) -> &'static str {
        match self {
            ReadRoute::Api => "/api",
            ReadRoute::Changes => "/changes",
            ReadRoute::Files => "/files",
        }
    }

    fn syntax(self) -> &'static str {
        match self {
            ReadRoute::Api => "/api/{dataset_id}/{name_slug}/{version}/, followed by alt/ for the alternate",
            ReadRoute::Changes => "/changes/{dataset_id}/{name_slug}/{version}/?since=vN",
            ReadRoute::Files => {
                "/files/{dataset_id}/{name_slug}/{version}.{format}, with -alt before the dot for the alternate"
            }
        }
    }

    fn valid_after_version(self) -> &'static str {
        match self {
            ReadRoute::Api => "alt, or nothing",
            ReadRoute::Changes | ReadRoute::Files => "nothing",
        }
    }
}

impl From<ReadPathError> for HttpError {
    fn from(error: ReadPathError) -> Self {
        HttpError::InvalidRequest { status: StatusCode::BAD_REQUEST, text: format!("Invalid path: {error}.") }
    }
}

/// Parses a percent-encoded path that starts with `/api`.
pub fn parse_path(path: &str) -> Result<ReadPath, ReadPathError> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let (target, rest) = parse_target(path, ReadRoute::Api, |version| version.parse().ok())?;
    match rest {
        None => Ok(ReadPath { target, alt: false }),
        Some("alt") => Ok(ReadPath { target, alt: true }),
        Some(rest) => Err(ReadPathError::AfterVersion(rest.to_owned(), ReadRoute::Api)),
    }
}

/// Parses a percent-encoded path that starts with `/changes`.
pub fn parse_changes_path(path: &str) -> Result<ReadTarget, ReadPathError> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let (target, rest) = parse_target(path, ReadRoute::Changes, |version| version.parse().ok())?;
    match rest {
        None => Ok(target),
        Some(rest) => Err(ReadPathError::AfterVersion(rest.to_owned(), ReadRoute::Changes)),
    }
}

/// Parses a percent-encoded path that starts with `/files`. Also returns the format of the file.
pub fn parse_file_path(path: &str) -> Result<(ReadPath, ResponseFormat), ReadPathError> {
    let mut alt = false;
    let mut format = None;
    let parse_file_name = |name: &str| {
        let (version, extension) = name.split_once('.')?;
        format = ResponseFormat::FILE_FORMATS.into_iter().find(|format| format.name() == extension);
        let version = match version.strip_suffix("-alt") {
            Some(original) => {
                alt = true;
                original
            }
            None => version,
        };
        version.parse().ok()
    };
    let (target, rest) = parse_target(path, ReadRoute::Files, parse_file_name)?;
    if let Some(rest) = rest {
        return Err(ReadPathError::AfterVersion(rest.to_owned(), ReadRoute::Files));
    }
    let file_name = path.rsplit('/').next().unwrap_or_default();
    let format = format.ok_or_else(|| ReadPathError::FileExtension(file_name.to_owned()))?;
    Ok((ReadPath { target, alt }, format))
}

/// Parses the segments after the prefix of a route. Also returns the rest of the path after the version.
fn parse_target(
    path: &str,
    route: ReadRoute,
    parse_version: impl FnOnce(&str) -> Option<VersionSelector>,
) -> Result<(ReadTarget, Option<&str>), ReadPathError> {
    let path = path.strip_prefix(route.prefix()).unwrap_or(path);
    let mut segments = path.strip_prefix('/').unwrap_or(path).splitn(4, '/');
    let mut segment = |name| match segments.next() {
        None | Some("") => Err(ReadPathError::Missing(name, route)),
        Some(segment) => Ok(segment),
    };
    let dataset = segment("dataset_id")?;
    let dataset: DatasetId = dataset.parse().map_err(|_| ReadPathError::DatasetId(dataset.to_owned()))?;
    let name_slug = segment("name_slug")?;
    let name_slug = decode_segment(name_slug).ok_or_else(|| ReadPathError::NameSlug(name_slug.to_owned()))?;
    let version = segment("version")?;
    let version = parse_version(version).ok_or_else(|| ReadPathError::Version(version.to_owned()))?;
    Ok((ReadTarget { dataset, name_slug, version }, segments.next()))
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
