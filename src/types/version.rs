//! Versions of a dataset: their numbers, their files, and their names in requests.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};

use super::ids::{DatasetId, FileId, ids, parse_decimal};

ids! {
    /// The number of a version: 1 for a dataset's first, one more for each that follows. It is displayed bare;
    /// `X-Dataset-Version` and URLs put a `v` before it.
    ///
    /// A request may name any number, also 0. A number that was never assigned is not found.
    VersionNumber
}

/// Which version a reader asks for (docs/reference/query-semantics.md, Path of a read).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VersionSelector {
    /// `active`: the pinned version, or the newest where none is pinned.
    Active,
    Latest,
    /// `vN`: this one and no other.
    Number(VersionNumber),
}

impl fmt::Display for VersionSelector {
    /// The path segment: `active`, `latest` or `vN`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VersionSelector::Active => formatter.write_str("active"),
            VersionSelector::Latest => formatter.write_str("latest"),
            VersionSelector::Number(number) => write!(formatter, "v{number}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version; valid: active, latest, or v followed by a version number")]
pub struct InvalidVersionSelector(pub String);

/// The names of a version outside of URLs of reads, for errors.
pub const VERSION_FORM: &str = "active, latest, or a version number, such as 3 or v3";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version; valid: {VERSION_FORM}")]
pub struct InvalidVersion(pub String);

impl FromStr for VersionSelector {
    type Err = InvalidVersionSelector;

    /// Parses `active`, `latest`, or `v` with `0` or `[1-9][0-9]*`; lower case only (docs/reference/query-semantics.md,
    /// Path of a read). A number past `u64` is well formed. It becomes `u64::MAX`, which no version has.
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
    /// As [`VersionSelector::from_str`], and also a bare number from 1, which people write outside of URLs of reads.
    pub fn parse_or_number(text: &str) -> Result<VersionSelector, InvalidVersion> {
        match parse_decimal(text).filter(|number| *number > 0) {
            Some(number) => Ok(VersionSelector::Number(VersionNumber(number))),
            None => text.parse().map_err(|_| InvalidVersion(text.to_owned())),
        }
    }
}

/// Which versions a dataset has, for errors: numbers are consecutive, from 1.
pub fn there_are(latest: Option<VersionNumber>) -> String {
    match latest.map(VersionNumber::get) {
        None => "it has no versions yet".to_owned(),
        Some(1) => "its only version is 1".to_owned(),
        Some(latest) => format!("its versions are 1 to {latest}"),
    }
}

/// A permanent version of a dataset, as the catalog records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub dataset: DatasetId,
    pub number: VersionNumber,
    /// Its entities. Other versions may share this file.
    pub file: VersionFile,
    /// Its alternate: a separate copy of the entity list, read with `alt=true`.
    pub alt: Option<VersionFile>,
    /// When it was recorded, to the microsecond.
    pub created_at: DateTime<Utc>,
}

/// One immutable file of entities that the catalog has recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionFile {
    pub id: FileId,
    /// Its path within the store; never shown to the public.
    pub path: String,
    /// Its size in the store, in bytes.
    pub size_bytes: u64,
    pub entity_count: u64,
    /// A hash over its content, as lower-case hex. Equal ones tell equal entity lists; those of lists that were written
    /// whole are equal if the lists are.
    pub content_hash: String,
}

/// A finished file that the catalog has not yet recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// Its path within the store: a name never used before.
    pub path: String,
    pub size_bytes: u64,
    pub entity_count: u64,
    /// As [`VersionFile::content_hash`].
    pub content_hash: String,
}
