//! The errors of a query.

use std::io;
use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use strata_store::StorageError;
use strata_store::shortage::Shortage;
use strata_store::temporary;

use crate::tenants::DiskShareUsed;

#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The query exceeded `query.timeout_s`, or the diff exceeded `query.diff_timeout_s`.
    #[error("the query took longer than {seconds} s")]
    Timeout { seconds: u64 },
    /// All queries together would exceed `query.memory_bytes`.
    #[error("the query ran out of memory: {0}")]
    OutOfMemory(String),
    /// The query ran out of memory although no other query used any.
    #[error("the query exceeded the memory limit for one client ({limit_bytes} bytes): {cause}")]
    TooMuchMemory { limit_bytes: u64, cause: String },
    /// The client can currently not spill more.
    #[error("the query ran out of disk space: {0}")]
    OutOfDisk(String),
    /// The query would spill more than its client can ever have.
    #[error("the query exceeded the disk space limit for one client ({limit_bytes} bytes)")]
    TooMuchDisk { limit_bytes: u64 },
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("query engine: {0}")]
    Engine(DataFusionError),
    #[error("the query task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl From<DataFusionError> for QueryError {
    fn from(error: DataFusionError) -> QueryError {
        match error {
            DataFusionError::Context(_, cause) | DataFusionError::Diagnostic(_, cause) => QueryError::from(*cause),
            // The error of a task that several operators await.
            DataFusionError::Shared(cause) => match Arc::try_unwrap(cause) {
                Ok(cause) => QueryError::from(cause),
                Err(cause) => copied(&cause).unwrap_or_else(|| QueryError::Engine(DataFusionError::Shared(cause))),
            },
            DataFusionError::External(cause) => match cause.downcast::<StorageError>().map(|error| *error) {
                Ok(StorageError::Io(error)) => disk_error(error),
                Ok(storage) => QueryError::Storage(storage),
                Err(other) => QueryError::Engine(DataFusionError::External(other)),
            },
            DataFusionError::IoError(error) => disk_error(error),
            DataFusionError::ArrowError(error, trace) => match *error {
                ArrowError::IoError(_, error) => disk_error(error),
                error => QueryError::Engine(DataFusionError::ArrowError(Box::new(error), trace)),
            },
            other => copied(&other).unwrap_or(QueryError::Engine(other)),
        }
    }
}

/// A copy of an error that other operators have, too. `None` if it is not about memory or the disk.
fn copied(cause: &DataFusionError) -> Option<QueryError> {
    match cause {
        DataFusionError::ResourcesExhausted(what) => Some(QueryError::OutOfMemory(what.clone())),
        DataFusionError::IoError(error) => Some(disk_error(copy_of(error))),
        DataFusionError::ArrowError(error, _) => match error.as_ref() {
            ArrowError::IoError(_, error) => Some(disk_error(copy_of(error))),
            _ => None,
        },
        DataFusionError::Context(_, cause) | DataFusionError::Diagnostic(_, cause) => copied(cause),
        DataFusionError::Shared(cause) => copied(cause),
        _ => None,
    }
}

/// An I/O error of a query comes from the disk.
fn disk_error(error: io::Error) -> QueryError {
    match DiskShareUsed::from_io(&error) {
        Some(used) => QueryError::OutOfDisk(used.to_string()),
        None => QueryError::Storage(error.into()),
    }
}

fn copy_of(error: &io::Error) -> io::Error {
    if let Some(used) = DiskShareUsed::from_io(error) {
        return io::Error::other(used.clone());
    }
    temporary::copy_of(error).unwrap_or_else(|| match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    })
}

/// The error of a failed spill. Without a fault of the disk, the limit of the spill space was exceeded.
pub fn not_spilled(what: &str, error: io::Error) -> DataFusionError {
    match Shortage::of(&error).is_some() || DiskShareUsed::from_io(&error).is_some() {
        true => external(StorageError::Io(error)),
        false => DataFusionError::ResourcesExhausted(format!("failed to spill {what}: {error}")),
    }
}

/// Carries a storage error through DataFusion.
pub(crate) fn external(error: StorageError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl From<QueryError> for DataFusionError {
    fn from(error: QueryError) -> DataFusionError {
        match error {
            QueryError::Storage(storage) => external(storage),
            QueryError::OutOfMemory(what) => DataFusionError::ResourcesExhausted(what),
            other => DataFusionError::External(Box::new(other)),
        }
    }
}
