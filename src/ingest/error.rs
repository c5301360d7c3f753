//! The errors between a source and its entities, with their place in the source.

use std::fmt;
use std::io;

use strata_store::budget::SpoolFull;

use crate::net::AddressError;

/// Why a source gave no entities. The variants differ by who must act: the owner of the address, the publisher of the
/// document, or the operator of this machine.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Sources may not have this address (400: docs/reference/refreshes.md, A version or nothing).
    #[error("the source URL cannot be used: {reason}")]
    BadAddress { reason: String },
    /// The source did not answer, answered with an error status, or broke off (502).
    #[error("failed to fetch the source: {reason}")]
    Unreachable {
        /// What happened, without credentials or query strings of the address.
        reason: String,
    },
    /// The document came, and cannot be used (422).
    #[error("{}", describe(.place, .reason))]
    BadDocument { place: Option<Place>, reason: String },
    /// The document, or one item of it, is larger than it may be (413).
    #[error("{}", describe(.place, .reason))]
    TooLarge { place: Option<Place>, reason: String },
    /// The pushed body is not the object that it should be, apart from its entities (400).
    #[error("{reason}")]
    BadBody { reason: String },
    /// The pushed body broke off (400, though the client may have left).
    #[error("the body is incomplete: {reason}")]
    Interrupted { reason: String },
    /// The pushed body came too slowly (408).
    #[error(
        "the body arrived more slowly than limits.body_min_bytes_per_s ({bytes_per_s} bytes per second, measured over \
         {seconds} s)"
    )]
    TooSlow { bytes_per_s: u64, seconds: u64 },
    #[error(transparent)]
    Full(#[from] SpoolFull),
    /// Reading a local file or writing the temporary copy failed on this machine.
    #[error("failed to read the source: {0}")]
    Io(#[source] io::Error),
}

/// A place in a source as people count: items and lines from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The position of the item among the items, from 1.
    pub item: u64,
    /// The line on which the item begins, from 1, in the formats that have lines; in JSON the line of what is wrong.
    pub line: Option<u64>,
    /// The character of the line at which that is, from 1, in JSON.
    pub column: Option<u64>,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (Some(line), Some(column)) => write!(formatter, "item {} (line {line}, column {column})", self.item),
            (Some(line), None) => write!(formatter, "item {} (line {line})", self.item),
            (None, _) => write!(formatter, "item {}", self.item),
        }
    }
}

impl SourceError {
    pub(crate) fn document(reason: impl Into<String>) -> Self {
        SourceError::BadDocument { place: None, reason: reason.into() }
    }

    pub(crate) fn item(place: Place, reason: impl Into<String>) -> Self {
        SourceError::BadDocument { place: Some(place), reason: reason.into() }
    }

    pub(crate) fn too_large(place: Place, limit_bytes: usize) -> Self {
        let reason = format!("the entity is larger than limits.entity_bytes ({limit_bytes})");
        SourceError::TooLarge { place: Some(place), reason }
    }

    /// One edit of a list brings an entity that is longer than `limit_bytes`.
    pub fn edit_too_large(index: usize, limit_bytes: u64) -> Self {
        let reason = format!("edits[{index}]: an entity is larger than limits.entity_bytes ({limit_bytes})");
        SourceError::TooLarge { place: None, reason }
    }
}

impl From<AddressError> for SourceError {
    fn from(error: AddressError) -> Self {
        SourceError::BadAddress { reason: error.to_string() }
    }
}

impl From<io::Error> for SourceError {
    /// Unpacks the `SourceError` that `into_io` packed. Any other error is this machine's.
    fn from(error: io::Error) -> Self {
        error.downcast::<SourceError>().unwrap_or_else(SourceError::Io)
    }
}

/// Packs an error so that it can travel through `Read`; `SourceError::from` unpacks it.
pub(crate) fn into_io(error: SourceError) -> io::Error {
    io::Error::other(error)
}

const NAME_CHARACTERS: usize = 60;

pub(super) fn quoted_name(name: &str) -> String {
    let beginning: String = name.chars().take(NAME_CHARACTERS).collect();
    let more = if beginning.len() < name.len() { "…" } else { "" };
    format!("{beginning:?}{more}")
}

fn describe(place: &Option<Place>, reason: &str) -> String {
    place.map_or_else(|| reason.to_owned(), |place| format!("{place}: {reason}"))
}
