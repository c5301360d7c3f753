//! The errors of version files and their store.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use strata_runtime::blocking::refusal;
use tokio::task::JoinError;

pub const BASE: &str = "its base";

pub type Result<T, E = StorageError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// `store.url` is not one that the service can open.
    #[error("store.url `{url}`: {reason}")]
    Url { url: String, reason: String },
    #[error("object store: {0}")]
    Store(#[from] object_store::Error),
    /// The file is not Parquet, or is damaged.
    #[error("version file: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    #[error("arrow: {0}")]
    Arrow(#[from] arrow::error::ArrowError),
    /// The file is Parquet, but not a version file that this build can read.
    #[error("version file: {0}")]
    Layout(String),
    /// A version file is missing or not what was written. Restoring it ends this; nothing of it is kept.
    #[error("the version file {path} is damaged: {part}: {cause}")]
    Damaged { path: String, part: String, cause: String },
    /// The store does not give the bytes of a version file.
    #[error("the version file {path} cannot be fetched: {source}")]
    Unreadable { path: String, source: object_store::Error },
    #[error("{0}")]
    Gone(#[source] StoreGone),
    /// The store has been asked, and does not answer.
    #[error("{0}")]
    Silent(#[source] StoreSilent),
    /// A local file failed: a spool, or one of a query.
    #[error("temporary file: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Full(#[from] super::budget::SpoolFull),
    /// A worker ended early; its own error was reported elsewhere, or it panicked.
    #[error("a storage worker stopped before it finished")]
    Worker,
    /// Another reader of the same part failed; the cache shares its error.
    #[error("{0}")]
    Shared(#[source] Arc<StorageError>),
}

/// A directory that is not mounted, or another one in its place. A cause of its own, so that it is found behind errors
/// that are shared.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the store is missing: {reason}")]
pub struct StoreGone {
    pub reason: &'static str,
}

/// A directory whose system does not end a read. A cause of its own, as [`StoreGone`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the store has not responded for 20 s")]
pub struct StoreSilent;

/// The directory that all local files lie in is not there. Carried by an [`io::Error`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the data directory is missing")]
pub struct DirectoryGone;

impl From<DirectoryGone> for io::Error {
    fn from(gone: DirectoryGone) -> io::Error {
        io::Error::new(io::ErrorKind::NotFound, gone)
    }
}

/// The directory of temporary files takes none: it cannot be made again, or does not let this process. Carried by an
/// [`io::Error`].
#[derive(Clone, Debug, thiserror::Error)]
#[error("the directory for temporary files ({}) cannot be used: {cause}", .directory.display())]
pub struct NoTemporaryFiles {
    pub directory: PathBuf,
    /// What the system says. Several may wait for one file.
    pub cause: Arc<io::Error>,
}

impl From<NoTemporaryFiles> for io::Error {
    fn from(refused: NoTemporaryFiles) -> io::Error {
        // Not of the cause's kind, which would be taken for a file's own.
        io::Error::other(refused)
    }
}

impl StorageError {
    /// Why a task ended before its work was done.
    pub fn of_task(ended: JoinError) -> StorageError {
        refusal(ended).map_or(StorageError::Worker, StorageError::Io)
    }

    /// Whether an edited file cannot be read because its base is damaged, or missing.
    pub fn is_of_base(&self) -> bool {
        match self {
            StorageError::Damaged { part, .. } => part == BASE,
            StorageError::Shared(error) => error.is_of_base(),
            _ => false,
        }
    }

    pub fn gone(reason: &'static str) -> StorageError {
        StorageError::Gone(StoreGone { reason })
    }

    pub fn unverified() -> StorageError {
        StorageError::Layout("it does not match its checksum".to_owned())
    }

    /// That the cache holds a part of another kind under a key.
    pub fn wrong_part() -> StorageError {
        StorageError::Layout("the cache contains a different part under this key".to_owned())
    }

    /// That bytes which may be damaged make a decoder panic.
    pub fn undecodable() -> StorageError {
        StorageError::Layout("it cannot be decoded".to_owned())
    }
}
