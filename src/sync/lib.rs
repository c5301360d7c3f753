//! Keeps a local copy of a dataset up to date: downloads a version as JSON Lines once, and then only the changes.
//!
//! ```text
//! strata sync https://data.example.org/files/7/countries/active.jsonl countries.jsonl
//!
//! no countries.jsonl.version     GET /files/7/countries/active.jsonl            -> all entities, written to FILE
//! countries.jsonl.version is v3  GET /changes/7/countries/active/?since=v3      -> edits, applied to FILE
//! ```
//!
//! Invariants:
//! - The new content is written to a temporary file next to FILE, and replaces it only if its SHA-256 is the one that
//!   the server has sent. On failure, both files stay unchanged.
//! - If FILE is not the version that FILE.version names, the digest differs, and the whole version is downloaded.
//! - Memory does not depend on the size of the version or of an entity: all streams are processed in parts.
//!
//! Input and output block the thread, because a sync does one thing at a time.

mod client;
mod edit_parser;
mod local_copy;
mod sync_url;

use std::io;
use std::path::{Path, PathBuf};

use strata_types::version::{VersionNumber, VersionSelector};

use client::{SyncClient, WholeVersion};
use edit_parser::{EditParser, ScriptError, ScriptSummary};
use local_copy::{CopyDigest, EditTarget, FilePair, NewCopy};
pub use sync_url::{InvalidSyncUrl, SyncUrl};

#[derive(Clone, Debug)]
pub struct SyncRequest {
    pub url: SyncUrl,
    pub file: PathBuf,
    /// The private key of a private dataset.
    pub key: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncOutcome {
    /// The file was missing or was not the recorded version, so the whole version was downloaded.
    Downloaded {
        version: VersionNumber,
    },
    Updated {
        since: VersionNumber,
        version: VersionNumber,
        edits: u64,
    },
    Unchanged {
        version: VersionNumber,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    #[error("failed to create the HTTP client")]
    Client(#[source] reqwest::Error),
    #[error("the key contains characters that are not allowed in a header; valid: the private key of the dataset")]
    InvalidKey,
    #[error("failed to connect to the server: {reason}")]
    Connect { reason: String },
    #[error("the server returned {status}: {text}")]
    Status { status: u16, text: String },
    #[error("the server redirects to {location}; use a URL of this server instead")]
    Redirect { location: String },
    #[error("the response has no header {0}, so the server is perhaps not strata or has an older version")]
    MissingHeader(&'static str),
    #[error("the response was interrupted: {reason}")]
    Interrupted { reason: String },
    #[error("the response ended before its last line")]
    Truncated,
    #[error("the response is not a list of changes: {0}")]
    Script(#[from] ScriptError),
    #[error("the downloaded entities do not have the digest that the server sent; try again")]
    DigestMismatch,
    #[error("{} is not a regular file; valid: a new path, or a file that may be replaced", .0.display())]
    NotRegularFile(PathBuf),
    #[error("failed to {action} {}", path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
}

impl SyncError {
    fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SyncError {
        move |source| SyncError::File { action, path: path.to_owned(), source }
    }
}

/// Updates a local copy to the version that the URL names.
pub async fn sync(request: &SyncRequest) -> Result<SyncOutcome, SyncError> {
    let client = SyncClient::new(request.key.as_deref())?;
    let files = FilePair::open(&request.file)?;
    if let Some(since) = files.recorded_version()
        && let Some(outcome) = apply_changes(&client, request, &files, since).await?
    {
        return Ok(outcome);
    }
    download(&client, request, &files).await
}

/// Downloads the changes since a version and applies them. Returns `None` if the server does not know this version, or
/// if the file is not this version.
async fn apply_changes(
    client: &SyncClient,
    request: &SyncRequest,
    files: &FilePair,
    since: VersionNumber,
) -> Result<Option<SyncOutcome>, SyncError> {
    let Some(mut response) = client.changes(&request.url, since).await? else { return Ok(None) };
    let mut parser = EditParser::default();
    let mut target = EditTarget::open(files)?;
    while let Some(bytes) = response.next_bytes().await? {
        parser.feed(&bytes, &mut target)?;
    }
    let summary: ScriptSummary = parser.finish()?.ok_or(SyncError::Truncated)?;
    let Some(copy) = target.finish()? else { return Ok(None) };
    if *copy.digest() != CopyDigest::from_hex(&summary.content_sha256) {
        return Ok(None);
    }
    let version = VersionNumber::new(summary.version);
    if summary.edit_count == 0 && version == since {
        return Ok(Some(SyncOutcome::Unchanged { version }));
    }
    files.replace(copy, version)?;
    Ok(Some(SyncOutcome::Updated { since, version, edits: summary.edit_count }))
}

async fn download(client: &SyncClient, request: &SyncRequest, files: &FilePair) -> Result<SyncOutcome, SyncError> {
    let WholeVersion { version, digest, mut body } = client.whole_version(&request.url).await?;
    let mut copy = NewCopy::create(files)?;
    while let Some(bytes) = body.next_bytes().await? {
        copy.write(&bytes)?;
    }
    let copy = copy.finish()?;
    if *copy.digest() != digest {
        return Err(SyncError::DigestMismatch);
    }
    files.replace(copy, version)?;
    Ok(SyncOutcome::Downloaded { version })
}

/// Parses `vN`.
fn parse_version(text: &str) -> Option<VersionNumber> {
    match text.parse() {
        Ok(VersionSelector::Number(number)) => Some(number),
        _ => None,
    }
}
