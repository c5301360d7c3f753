//! Errors of version files and of their store.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use strata_runtime::blocking::thread_exhaustion_error;
use tokio::task::JoinError;

pub const BASE_PART_NAME: &str = "its base";
pub type Result<T, E = StorageError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error("store.url `{url}`: {reason}")]
    InvalidUrl { url: String, reason: String },
    #[error("object store: {0}")]
    ObjectStore(#[from] object_store::Error),
    /// The file is damaged or is not a Parquet file.
    #[error("version file: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    #[error("arrow: {0}")]
    Arrow(#[from] arrow::error::ArrowError),
    /// The file is a Parquet file, but this build cannot read it as a version file.
    #[error("version file: {0}")]
    InvalidFile(String),
    /// A version file is missing or differs from the written file. The error is not cached, so a restored file works.
    #[error("the version file {path} is damaged: {part}: {cause}")]
    Damaged { path: String, part: String, cause: String },
    #[error("the version file {path} cannot be fetched: {source}")]
    Unreadable { path: String, source: object_store::Error },
    #[error("{0}")]
    StoreMissing(#[source] StoreMissing),
    #[error("{0}")]
    StoreUnresponsive(#[source] StoreUnresponsive),
    #[error("temporary file: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    SpoolQuota(#[from] super::spool_quota::SpoolQuotaExceeded),
    /// A worker panicked, or ended early after it reported its own error.
    #[error("a storage worker stopped before it finished")]
    WorkerStopped,
    #[error("{0}")]
    Shared(#[source] Arc<StorageError>),
}

/// The store is not mounted, or another one is in its place. A separate type, which `Error::source` chains reveal.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the store is missing: {reason}")]
pub struct StoreMissing {
    pub reason: &'static str,
}

/// The file system of the store does not complete a read. A separate type for the same reason as [`StoreMissing`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the store has not responded for 20 s")]
pub struct StoreUnresponsive;

/// The directory of all local files does not exist. The error is the source of an [`io::Error`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the data directory is missing")]
pub struct DataDirectoryMissing;

impl From<DataDirectoryMissing> for io::Error {
    fn from(missing: DataDirectoryMissing) -> io::Error {
        io::Error::new(io::ErrorKind::NotFound, missing)
    }
}

/// The directory of temporary files cannot be created or written to. The error is the source of an [`io::Error`].
#[derive(Clone, Debug, thiserror::Error)]
#[error("the directory for temporary files ({}) cannot be used: {cause}", .directory.display())]
pub struct TempDirUnusable {
    pub directory: PathBuf,
    /// Error of the operating system, shared by all waiters for one file.
    pub cause: Arc<io::Error>,
}

impl From<TempDirUnusable> for io::Error {
    fn from(unusable: TempDirUnusable) -> io::Error {
        // With the kind of `cause`, callers would handle it as an error of a single file.
        io::Error::other(unusable)
    }
}

impl StorageError {
    pub fn from_join_error(error: JoinError) -> StorageError {
        thread_exhaustion_error(error).map_or(StorageError::WorkerStopped, StorageError::Io)
    }

    pub fn is_base_damaged(&self) -> bool {
        match self {
            StorageError::Damaged { part, .. } => part == BASE_PART_NAME,
            StorageError::Shared(error) => error.is_base_damaged(),
            _ => false,
        }
    }

    pub fn store_missing(reason: &'static str) -> StorageError {
        StorageError::StoreMissing(StoreMissing { reason })
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
