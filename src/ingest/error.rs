//! The errors of ingestion, with their positions in the source.

use std::fmt;
use std::io;

use strata_store::spool_quota::SpoolQuotaExceeded;

use crate::egress::EgressUrlError;

/// The reason why a source yields no entities. The variants differ in who must act: owner, publisher, or operator.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The URL is invalid or its address is not allowed (400).
    #[error("the source URL cannot be used: {reason}")]
    UnusableUrl { reason: String },
    /// The server did not respond, returned an error status, or interrupted the transfer (502).
    #[error("failed to fetch the source: {reason}")]
    Unreachable {
        /// The reason, without the credentials and the query of the URL.
        reason: String,
    },
    /// The document is malformed (422).
    #[error("{}", format_with_position(.position, .reason))]
    InvalidDocument { position: Option<SourcePosition>, reason: String },
    /// The document or an item exceeds a limit (413).
    #[error("{}", format_with_position(.position, .reason))]
    TooLarge { position: Option<SourcePosition>, reason: String },
    /// The pushed body has an invalid envelope (400).
    #[error("{reason}")]
    InvalidBody { reason: String },
    /// The pushed body was interrupted (400).
    #[error("the body is incomplete: {reason}")]
    Interrupted { reason: String },
    /// The pushed body arrived too slowly (408).
    #[error(
        "the body arrived more slowly than limits.body_min_bytes_per_s ({bytes_per_s} bytes per second, measured over \
         {seconds} s)"
    )]
    TooSlow { bytes_per_s: u64, seconds: u64 },
    #[error(transparent)]
    DiskQuotaExceeded(#[from] SpoolQuotaExceeded),
    /// Reading a local file or writing the temporary copy failed.
    #[error("failed to read the source: {0}")]
    Io(#[source] io::Error),
}

/// A position in a source. All numbers start at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourcePosition {
    pub item: u64,
    /// The line of the item, or of the error within a JSON item; `None` in formats without lines.
    pub line: Option<u64>,
    /// The column of the error in characters, in JSON.
    pub column: Option<u64>,
}

impl fmt::Display for SourcePosition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (Some(line), Some(column)) => write!(formatter, "item {} (line {line}, column {column})", self.item),
            (Some(line), None) => write!(formatter, "item {} (line {line})", self.item),
            (None, _) => write!(formatter, "item {}", self.item),
        }
    }
}

impl SourceError {
    pub(crate) fn invalid_document(reason: impl Into<String>) -> Self {
        SourceError::InvalidDocument { position: None, reason: reason.into() }
    }

    pub(crate) fn invalid_item(position: SourcePosition, reason: impl Into<String>) -> Self {
        SourceError::InvalidDocument { position: Some(position), reason: reason.into() }
    }

    pub(crate) fn entity_too_large(position: SourcePosition, limit_bytes: usize) -> Self {
        let reason = format!("the entity is larger than limits.entity_bytes ({limit_bytes})");
        SourceError::TooLarge { position: Some(position), reason }
    }

    /// Returns the error for an edit that produces an entity larger than `limit_bytes`.
    pub fn edit_too_large(index: usize, limit_bytes: u64) -> Self {
        let reason = format!("edits[{index}]: an entity is larger than limits.entity_bytes ({limit_bytes})");
        SourceError::TooLarge { position: None, reason }
    }
}

impl From<EgressUrlError> for SourceError {
    fn from(error: EgressUrlError) -> Self {
        SourceError::UnusableUrl { reason: error.to_string() }
    }
}

impl From<io::Error> for SourceError {
    /// Unwraps the `SourceError` that `into_io_error` wrapped. Any other error is an I/O error of this machine.
    fn from(error: io::Error) -> Self {
        error.downcast::<SourceError>().unwrap_or_else(SourceError::Io)
    }
}

/// Wraps an error to pass it through `Read`; `SourceError::from` unwraps it.
pub(crate) fn into_io_error(error: SourceError) -> io::Error {
    io::Error::other(error)
}

const MAX_QUOTED_NAME_CHARACTERS: usize = 60;

pub(super) fn quote_name(name: &str) -> String {
    let beginning: String = name.chars().take(MAX_QUOTED_NAME_CHARACTERS).collect();
    let more = if beginning.len() < name.len() { "…" } else { "" };
    format!("{beginning:?}{more}")
}

fn format_with_position(position: &Option<SourcePosition>, reason: &str) -> String {
    position.map_or_else(|| reason.to_owned(), |position| format!("{position}: {reason}"))
}
