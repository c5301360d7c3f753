//! The errors of a query.

use std::io;

use datafusion::error::DataFusionError;

use crate::storage::StorageError;
use crate::storage::shortage::Shortage;

/// A query failed.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// It took longer than `query.timeout_s`, or a diff than `query.diff_timeout_s`.
    #[error("the query took longer than {seconds} s")]
    Timeout {
        /// The limit.
        seconds: u64,
    },
    /// It needed more than `query.memory_bytes`, with what other queries held at the time.
    #[error("the query needed more memory than queries may hold: {0}")]
    OutOfMemory(String),
    /// The version file could not be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The plan failed for another reason.
    #[error("query engine: {0}")]
    Engine(DataFusionError),
    /// The task that ran the query ended early.
    #[error("the query's task ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl From<DataFusionError> for QueryError {
    fn from(error: DataFusionError) -> QueryError {
        match error {
            DataFusionError::ResourcesExhausted(what) => QueryError::OutOfMemory(what),
            // Of a disk: nothing else is read or written through it.
            DataFusionError::IoError(error) => QueryError::Storage(error.into()),
            DataFusionError::Context(_, cause) => QueryError::from(*cause),
            DataFusionError::External(cause) => match cause.downcast::<StorageError>() {
                Ok(storage) => QueryError::Storage(*storage),
                Err(other) => QueryError::Engine(DataFusionError::External(other)),
            },
            other => QueryError::Engine(other),
        }
    }
}

/// What it means that something cannot be spilled. A disk that is full, or refuses, is told as such; the bound of what
/// may be spilled is a matter of room, as with memory.
pub(crate) fn not_spilled(what: &str, error: io::Error) -> DataFusionError {
    match Shortage::of(&error) {
        Some(_) => through_engine(StorageError::Io(error)),
        None => DataFusionError::ResourcesExhausted(format!("{what} cannot be spilled: {error}")),
    }
}

/// Carries a storage error through DataFusion.
pub(crate) fn through_engine(error: StorageError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_the_bound_of_what_may_be_spilled() {
        let of = |error| QueryError::from(not_spilled("rows", error));
        let full = of(io::Error::from_raw_os_error(28));
        assert!(matches!(full, QueryError::Storage(_)) && Shortage::of(&full) == Some(Shortage::DiskFull), "{full:?}");
        assert!(matches!(of(io::Error::other("as much as may be")), QueryError::OutOfMemory(_)));
    }
}
