//! Versions of datasets: numbers, files, and selectors in requests.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};

use super::ids::{DatasetId, VersionFileId, ids, parse_decimal};

ids! {
    /// The number of a version, starting at 1. Displayed without the `v` of URLs and `X-Dataset-Version`. A request can
    /// contain any number, including 0, and a number that was never assigned is not found.
    VersionNumber
}

/// The version that a request selects (docs/reference/query-semantics.md, Path of a read).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VersionSelector {
    /// The pinned version, or the newest version if none is pinned.
    Active,
    Latest,
    Number(VersionNumber),
}

impl fmt::Display for VersionSelector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VersionSelector::Active => formatter.write_str("active"),
            VersionSelector::Latest => formatter.write_str("latest"),
            VersionSelector::Number(number) => write!(formatter, "v{number}"),
        }
    }
}

/// The list of entities of a version that a request selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionVariant {
    Original,
    Alternate,
}

impl VersionVariant {
    /// Returns the variant that the query parameter `alt` selects; the alternate is an edited copy.
    pub fn from_alt(alt: bool) -> VersionVariant {
        if alt { VersionVariant::Alternate } else { VersionVariant::Original }
    }

    pub fn is_alternate(self) -> bool {
        self == VersionVariant::Alternate
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version; valid: active, latest, or v followed by a version number")]
pub struct InvalidVersionSelector(pub String);

pub const VERSION_SYNTAX: &str = "active, latest, or a version number, such as 3 or v3";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version; valid: {VERSION_SYNTAX}")]
pub struct InvalidVersion(pub String);

impl FromStr for VersionSelector {
    type Err = InvalidVersionSelector;

    /// Parses `active`, `latest`, or `v` and a number without leading zeros. A number above `u64::MAX` becomes
    /// `u64::MAX`, which no version has.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "active" => Ok(VersionSelector::Active),
            "latest" => Ok(VersionSelector::Latest),
            _ => text
                .strip_prefix('v')
                .and_then(parse_decimal)
                .map(|number| VersionSelector::Number(VersionNumber(number)))
                .ok_or_else(|| InvalidVersionSelector(text.to_owned())),
        }
    }
}

impl VersionSelector {
    /// Like [`VersionSelector::from_str`], but also accepts a number from 1 without the `v`.
    pub fn parse_with_bare_number(text: &str) -> Result<VersionSelector, InvalidVersion> {
        match parse_decimal(text).filter(|number| *number > 0) {
            Some(number) => Ok(VersionSelector::Number(VersionNumber(number))),
            None => text.parse().map_err(|_| InvalidVersion(text.to_owned())),
        }
    }
}

/// Describes the versions of a dataset for error messages. Numbers are consecutive, starting at 1.
pub fn describe_versions(latest: Option<VersionNumber>) -> String {
    match latest.map(VersionNumber::get) {
        None => "it has no versions yet".to_owned(),
        Some(1) => "its only version is 1".to_owned(),
        Some(latest) => format!("its versions are 1 to {latest}"),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetVersion {
    pub dataset: DatasetId,
    pub number: VersionNumber,
    /// The file of the version. Other versions can share it.
    pub file: VersionFile,
    /// The alternate: an edited copy of the version, which requests read with `alt=true`.
    pub alternate: Option<VersionFile>,
    pub created_at: DateTime<Utc>,
}

/// An immutable file of entities that is recorded in the metadata database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionFile {
    pub id: VersionFileId,
    /// The path of the file relative to the store; never shown to clients.
    pub path: String,
    pub size_bytes: u64,
    pub entity_count: u64,
    /// Content hash in lowercase hex. Equal hashes mean equal entities. The converse does not hold for the
    /// delta files of edits.
    pub content_hash: String,
}

/// A complete file that is not yet recorded in the metadata database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVersionFile {
    /// The path of the new file relative to the store, which no other file has used before.
    pub path: String,
    pub size_bytes: u64,
    pub entity_count: u64,
    pub content_hash: String,
    /// The paths of the base files of a delta file: all files whose rows it uses, including the bases of its bases.
    /// Empty if the file contains all its rows.
    pub bases: Vec<String>,
}
