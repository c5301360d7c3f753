//! Errors of queries, and their conversions from and to [`DataFusionError`].

use std::io;
use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use strata_store::unavailable::ResourceUnavailable;
use strata_store::{StorageError, temp_file};

use crate::principal_quota::SpillQuotaExceededError;

#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error("the query took longer than {seconds} s")]
    Timeout { seconds: u64 },
    /// All queries together would exceed `query.memory_bytes`. A retry can succeed.
    #[error("the query ran out of memory: {0}")]
    OutOfMemory(String),
    /// The query ran out of memory although no other query used memory.
    #[error("the query exceeded the memory limit for one client ({limit_bytes} bytes): {cause}")]
    TooMuchMemory { limit_bytes: u64, cause: String },
    #[error("the query ran out of disk space: {0}")]
    OutOfDisk(String),
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
            DataFusionError::Shared(cause) => match Arc::try_unwrap(cause) {
                Ok(cause) => QueryError::from(cause),
                Err(cause) => {
                    clone_resource_error(&cause).unwrap_or_else(|| QueryError::Engine(DataFusionError::Shared(cause)))
                }
            },
            DataFusionError::External(cause) => match cause.downcast::<StorageError>().map(|error| *error) {
                Ok(StorageError::Io(error)) => from_disk_error(error),
                Ok(storage) => QueryError::Storage(storage),
                Err(other) => QueryError::Engine(DataFusionError::External(other)),
            },
            DataFusionError::IoError(error) => from_disk_error(error),
            DataFusionError::ArrowError(error, trace) => match *error {
                ArrowError::IoError(_, error) => from_disk_error(error),
                error => QueryError::Engine(DataFusionError::ArrowError(Box::new(error), trace)),
            },
            other => clone_resource_error(&other).unwrap_or(QueryError::Engine(other)),
        }
    }
}

/// Copies an error that several operators share. `None` if the error is not about memory or the disk.
fn clone_resource_error(cause: &DataFusionError) -> Option<QueryError> {
    match cause {
        DataFusionError::ResourcesExhausted(what) => Some(QueryError::OutOfMemory(what.clone())),
        DataFusionError::IoError(error) => Some(from_disk_error(clone_io_error(error))),
        DataFusionError::ArrowError(error, _) => match error.as_ref() {
            ArrowError::IoError(_, error) => Some(from_disk_error(clone_io_error(error))),
            _ => None,
        },
        DataFusionError::Context(_, cause) | DataFusionError::Diagnostic(_, cause) => clone_resource_error(cause),
        DataFusionError::Shared(cause) => clone_resource_error(cause),
        _ => None,
    }
}

fn from_disk_error(error: io::Error) -> QueryError {
    match SpillQuotaExceededError::from_io(&error) {
        Some(exceeded) => QueryError::OutOfDisk(exceeded.to_string()),
        None => QueryError::Storage(error.into()),
    }
}

fn clone_io_error(error: &io::Error) -> io::Error {
    if let Some(exceeded) = SpillQuotaExceededError::from_io(error) {
        return io::Error::other(exceeded.clone());
    }
    let copy = temp_file::clone_temp_dir_error(error);
    let copy = copy.or_else(|| error.raw_os_error().map(io::Error::from_raw_os_error));
    copy.unwrap_or_else(|| io::Error::new(error.kind(), error.to_string()))
}

/// Returns the error of a failed spill: an error of the disk or of a principal's spill quota remains, and any other
/// error becomes `ResourcesExhausted`.
pub fn spill_error(what: &str, error: io::Error) -> DataFusionError {
    match ResourceUnavailable::from_error(&error).is_some() || SpillQuotaExceededError::from_io(&error).is_some() {
        true => to_external_error(StorageError::Io(error)),
        false => DataFusionError::ResourcesExhausted(format!("failed to spill {what}: {error}")),
    }
}

pub(crate) fn to_external_error(error: StorageError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl From<QueryError> for DataFusionError {
    fn from(error: QueryError) -> DataFusionError {
        match error {
            QueryError::Storage(storage) => to_external_error(storage),
            QueryError::OutOfMemory(what) => DataFusionError::ResourcesExhausted(what),
            other => DataFusionError::External(Box::new(other)),
        }
    }
}
