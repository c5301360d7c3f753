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
    /// It took longer than `query.timeout_s`, or a diff than `query.diff_timeout_s`.
    #[error("the query took longer than {seconds} s")]
    Timeout { seconds: u64 },
    /// It needed more than `query.memory_bytes`, with what other queries held at the time.
    #[error("the query ran out of memory: {0}")]
    OutOfMemory(String),
    /// It needed more than it can ever have: no other query held any.
    #[error("the query exceeded the memory limit for one client ({limit_bytes} bytes): {cause}")]
    TooMuchMemory {
        /// What `query.memory_bytes` allows.
        limit_bytes: u64,
        cause: String,
    },
    /// It would spill more than its client may now.
    #[error("the query ran out of disk space: {0}")]
    OutOfDisk(String),
    /// It would spill more than its client ever may.
    #[error("the query exceeded the disk space limit for one client ({limit_bytes} bytes)")]
    TooMuchDisk {
        /// What `query.spill_bytes` allows.
        limit_bytes: u64,
    },
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
            DataFusionError::ResourcesExhausted(what) => QueryError::OutOfMemory(what),
            DataFusionError::IoError(error) => of_disk(error),
            DataFusionError::ArrowError(error, _) if matches!(*error, ArrowError::IoError(..)) => match *error {
                ArrowError::IoError(_, error) => of_disk(error),
                error => QueryError::Engine(error.into()),
            },
            DataFusionError::Context(_, cause) | DataFusionError::Diagnostic(_, cause) => QueryError::from(*cause),
            // Of a task that several operators wait for. Who else holds it gets what it says.
            DataFusionError::Shared(cause) => match Arc::try_unwrap(cause) {
                Ok(cause) => QueryError::from(cause),
                Err(cause) => match not_shared(&cause) {
                    Some(error) => error,
                    None => QueryError::Engine(DataFusionError::Shared(cause)),
                },
            },
            DataFusionError::External(cause) => match cause.downcast::<StorageError>().map(|error| *error) {
                Ok(StorageError::Io(error)) => of_disk(error),
                Ok(storage) => QueryError::Storage(storage),
                Err(other) => QueryError::Engine(DataFusionError::External(other)),
            },
            other => QueryError::Engine(other),
        }
    }
}

/// The causes that matter to who asked, of an error that others hold, too.
fn not_shared(cause: &DataFusionError) -> Option<QueryError> {
    match cause {
        DataFusionError::ResourcesExhausted(what) => Some(QueryError::OutOfMemory(what.clone())),
        DataFusionError::IoError(error) => Some(copy_of(error)),
        DataFusionError::ArrowError(error, _) => match error.as_ref() {
            ArrowError::IoError(_, error) => Some(copy_of(error)),
            _ => None,
        },
        DataFusionError::Context(_, cause) | DataFusionError::Diagnostic(_, cause) => not_shared(cause),
        DataFusionError::Shared(cause) => not_shared(cause),
        _ => None,
    }
}

/// Of a disk: nothing else is read or written through it.
fn of_disk(error: io::Error) -> QueryError {
    match DiskShareUsed::of(&error) {
        Some(used) => QueryError::OutOfDisk(used.to_string()),
        None => QueryError::Storage(error.into()),
    }
}

fn copy_of(error: &io::Error) -> QueryError {
    if let Some(used) = DiskShareUsed::of(error) {
        return QueryError::OutOfDisk(used.to_string());
    }
    let copy = temporary::copy_of(error).unwrap_or_else(|| match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    });
    QueryError::Storage(copy.into())
}

/// What it means that something cannot be spilled. A disk that is full, or refuses, is told as such; the bound of what
/// may be spilled is a matter of room, as with memory.
pub fn not_spilled(what: &str, error: io::Error) -> DataFusionError {
    match Shortage::of(&error).is_some() || DiskShareUsed::of(&error).is_some() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_however_deep_it_is_wrapped() {
        let full = || io::Error::from_raw_os_error(28);
        let wrapped = || ArrowError::IoError("IO error".to_owned(), full());
        let shared = Arc::new(DataFusionError::from(wrapped()).context("a sort"));
        let held = shared.clone();
        for error in [
            not_spilled("rows", full()),
            DataFusionError::from(wrapped()),
            DataFusionError::from(wrapped()).context("spilled"),
            DataFusionError::Shared(Arc::new(wrapped().into())),
            DataFusionError::Shared(shared),
        ] {
            let told = QueryError::from(error);
            assert!(
                matches!(told, QueryError::Storage(_)) && Shortage::of(&told) == Some(Shortage::DiskFull),
                "{told:?}"
            );
        }
        drop(held);
        let bounded = not_spilled("rows", io::Error::other("as much as may be"));
        assert!(matches!(QueryError::from(bounded), QueryError::OutOfMemory(_)));
    }
}
