//! Errors of version files and of their store.
//!
//! Problem: the same failed read can mean a damaged file, a missing disk, or an exhausted resource, and each of them
//! needs a different response. Therefore, an error gets its meaning in two steps:
//!
//! 1. A function that reads bytes returns the error of its library ([`StorageError::ObjectStore`],
//!    [`StorageError::Parquet`], [`StorageError::Arrow`]) or [`StorageError::InvalidFile`].
//! 2. The reader knows the file and the part, and converts these errors to [`StorageError::Damaged`] or
//!    [`StorageError::Unreadable`]. For example: `the version file versions/1f.parquet is damaged: the footer: it does
//!    not match its checksum`.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use strata_runtime::blocking::thread_exhaustion_error;
use tokio::task::JoinError;

/// The part of [`StorageError::Damaged`] if a delta file is intact, but a file that it refers to is not.
pub const BASE_PART_NAME: &str = "its base";
pub type Result<T, E = StorageError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// `url` is the URL or the directory path of the store.
    #[error("store.url `{url}`: {reason}")]
    InvalidUrl { url: String, reason: String },
    /// A request to the store failed.
    #[error("object store: {0}")]
    ObjectStore(#[from] object_store::Error),
    /// The file is damaged or is not a Parquet file.
    #[error("version file: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    #[error("arrow: {0}")]
    Arrow(#[from] arrow::error::ArrowError),
    /// The file is not a version file that this build can read, or a part of it is damaged. The text continues a
    /// sentence about the file or the part, for example `it cannot be decoded`.
    #[error("version file: {0}")]
    InvalidFile(String),
    /// A version file is missing or differs from the written file. The error is not cached, so a restored file works.
    /// `path` is the path in the store, and `part` is a noun phrase, for example `the footer` or [`BASE_PART_NAME`].
    #[error("the version file {path} is damaged: {part}: {cause}")]
    Damaged { path: String, part: String, cause: String },
    /// The store failed to return a part of a version file, for a reason other than a missing file.
    #[error("the version file {path} cannot be fetched: {source}")]
    Unreadable { path: String, source: object_store::Error },
    #[error("{0}")]
    StoreMissing(#[source] StoreMissingError),
    #[error("{0}")]
    StoreUnresponsive(#[source] StoreUnresponsiveError),
    #[error("temporary file: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    SpoolQuota(#[from] super::spool_quota::SpoolQuotaExceeded),
    /// A worker thread panicked, or ended early after it reported its own error.
    #[error("a storage worker stopped before it finished")]
    WorkerStopped,
    /// The error of one call, shared by all callers that waited for the call's result.
    #[error("{0}")]
    Shared(#[source] Arc<StorageError>),
}

impl StorageError {
    /// Converts the error of a task: [`StorageError::Io`] if no thread could be started, and otherwise
    /// [`StorageError::WorkerStopped`].
    pub fn from_join_error(error: JoinError) -> StorageError {
        thread_exhaustion_error(error).map_or(StorageError::WorkerStopped, StorageError::Io)
    }

    pub fn is_base_file_damaged(&self) -> bool {
        match self {
            StorageError::Damaged { part, .. } => part == BASE_PART_NAME,
            StorageError::Shared(error) => error.is_base_file_damaged(),
            _ => false,
        }
    }

    pub fn store_missing(reason: &'static str) -> StorageError {
        StorageError::StoreMissing(StoreMissingError { reason })
    }

    pub fn checksum_mismatch() -> StorageError {
        StorageError::InvalidFile("it does not match its checksum".to_owned())
    }

    /// Error for a cached part whose type differs from the type that its key implies.
    pub fn wrong_part_kind() -> StorageError {
        StorageError::InvalidFile("the cache contains a different part under this key".to_owned())
    }

    /// Error for bytes that made a decoder panic; they may be damaged.
    pub fn undecodable() -> StorageError {
        StorageError::InvalidFile("it cannot be decoded".to_owned())
    }
}

/// The store is not mounted, or another one is in its place. `ResourceUnavailable` finds this type in error chains.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the store is missing: {reason}")]
pub struct StoreMissingError {
    pub reason: &'static str,
}

/// The file system of the store does not complete a read. `ResourceUnavailable` finds this type in error chains.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the store has not responded for {} s", StoreUnresponsiveError::TIMEOUT.as_secs())]
pub struct StoreUnresponsiveError;

impl StoreUnresponsiveError {
    /// Timeout for a file. Shorter than the timeout of a query (`query.timeout_s`), so that users see the cause.
    pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
}

/// The directory of all local files does not exist. The error is the source of an [`io::Error`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the data directory is missing")]
pub struct DataDirectoryMissingError;

impl From<DataDirectoryMissingError> for io::Error {
    fn from(missing: DataDirectoryMissingError) -> io::Error {
        io::Error::new(io::ErrorKind::NotFound, missing)
    }
}

/// The directory of temporary files cannot be created or written to. The error is the source of an [`io::Error`].
#[derive(Clone, Debug, thiserror::Error)]
#[error("the directory for temporary files ({}) cannot be used: {cause}", .directory.display())]
pub struct TempDirUnusableError {
    pub directory: PathBuf,
    /// Error of the operating system, shared by all callers that waited for the same temporary file.
    pub cause: Arc<io::Error>,
}

impl From<TempDirUnusableError> for io::Error {
    fn from(unusable: TempDirUnusableError) -> io::Error {
        // With the kind of `cause`, callers would take it for an error of one file instead of the directory.
        io::Error::other(unusable)
    }
}
