//! The errors of reads, which callers map to HTTP responses.

use std::sync::Arc;
use std::time::Instant;

use strata_catalog::{CatalogError, UnavailableReason};
use strata_encode::EntityTooLarge;
use strata_json::TooManyColumnsError;
use strata_query::QueryError;
use strata_store::StorageError;
use strata_types::field_path::FieldPath;
use strata_types::version::{VersionNumber, VersionSelector, describe_versions};

use crate::Overloaded;

pub(crate) type Result<T, E = ReadError> = std::result::Result<T, E>;

/// The error of a read. All callers that wait for the same response get the same error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// No dataset has both this ID and this slug. Either of them can be wrong.
    #[error("no such dataset")]
    DatasetNotFound,
    #[error("the user cannot read a dataset with this ID")]
    NotReadable,
    /// The dataset is private, and the request has no `Authorization` header.
    #[error("the dataset is private")]
    Unauthorized,
    /// The dataset is private, and the `Authorization` header does not contain its key.
    #[error("the private key is wrong")]
    Forbidden,
    #[error("the dataset is frozen")]
    Frozen,
    #[error("no version {selector}; {}", describe_versions(*latest))]
    VersionNotFound { selector: VersionSelector, latest: Option<VersionNumber> },
    #[error("version {0} has no alternate")]
    AltNotFound(VersionNumber),
    #[error("the query took longer than {seconds} s")]
    Timeout { seconds: u64 },
    #[error("the query ran out of memory")]
    OutOfMemory,
    #[error("{0}")]
    OutOfDisk(String),
    #[error("the query needs more than {limit_bytes} bytes of disk space, the limit per client")]
    SpillTooLarge { limit_bytes: u64 },
    #[error("the query needs more than {limit_bytes} bytes of memory, the limit per client")]
    QueryTooLarge { limit_bytes: u64 },
    #[error("the response needs {needed_bytes} bytes of memory, but the limit per client is {limit_bytes} bytes")]
    TooMuchMemory { needed_bytes: u64, limit_bytes: u64 },
    #[error("the response needs {needed_bytes} bytes of disk space, but the limit per client is {limit_bytes} bytes")]
    TooMuchDisk { needed_bytes: u64, limit_bytes: u64 },
    #[error(transparent)]
    Busy(#[from] Overloaded),
    #[error("the table would have more than {limit} columns")]
    TooManyColumns { limit: usize },
    #[error("unknown fields in the request: {}", .0.len())]
    UnknownFields(Arc<[UnknownField]>),
    #[error("the metadata database is unavailable")]
    CatalogUnavailable { reason: UnavailableReason, source: Arc<CatalogError> },
    #[error("an entity exceeds {limit_bytes} bytes in this format")]
    EntityTooLarge { limit_bytes: usize },
    #[error("failed to read the version")]
    Unreadable(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

impl ReadError {
    pub(crate) fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> ReadError {
        ReadError::Unreadable(Arc::new(error))
    }

    /// Returns whether a request that waited for another caller's run of the same work should run the work itself,
    /// because the error concerns only the other caller's share of a resource.
    pub(crate) fn is_retryable_by_waiter(&self, since: Instant) -> bool {
        match self {
            ReadError::Busy(overloaded) => overloaded.is_worth_retrying(since),
            // The caller that ran the work may have a smaller share of memory or disk space.
            error => error.is_quota_exceeded(),
        }
    }

    pub(crate) fn is_quota_exceeded(&self) -> bool {
        use ReadError::{Busy, OutOfDisk, OutOfMemory, QueryTooLarge, SpillTooLarge, TooMuchDisk, TooMuchMemory};
        matches!(
            self,
            Busy(_)
                | OutOfMemory
                | OutOfDisk(_)
                | QueryTooLarge { .. }
                | SpillTooLarge { .. }
                | TooMuchMemory { .. }
                | TooMuchDisk { .. }
        )
    }
}

impl From<CatalogError> for ReadError {
    fn from(error: CatalogError) -> ReadError {
        ReadError::from(Arc::new(error))
    }
}

impl From<Arc<CatalogError>> for ReadError {
    fn from(source: Arc<CatalogError>) -> ReadError {
        match source.unavailability() {
            Some(reason) => ReadError::CatalogUnavailable { reason, source },
            None => ReadError::Unreadable(source),
        }
    }
}

impl From<StorageError> for ReadError {
    fn from(error: StorageError) -> ReadError {
        ReadError::Unreadable(Arc::new(error))
    }
}

impl From<TooManyColumnsError> for ReadError {
    fn from(error: TooManyColumnsError) -> ReadError {
        ReadError::TooManyColumns { limit: error.limit }
    }
}

impl From<EntityTooLarge> for ReadError {
    fn from(error: EntityTooLarge) -> ReadError {
        ReadError::EntityTooLarge { limit_bytes: error.limit_bytes }
    }
}

impl From<QueryError> for ReadError {
    fn from(error: QueryError) -> ReadError {
        match error {
            QueryError::Timeout { seconds } => ReadError::Timeout { seconds },
            QueryError::OutOfMemory(_) => ReadError::OutOfMemory,
            QueryError::TooMuchMemory { limit_bytes, .. } => ReadError::QueryTooLarge { limit_bytes },
            error @ QueryError::OutOfDisk(_) => ReadError::OutOfDisk(error.to_string()),
            QueryError::TooMuchDisk { limit_bytes } => ReadError::SpillTooLarge { limit_bytes },
            other => ReadError::Unreadable(Arc::new(other)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    pub parameter: &'static str,
    pub path: FieldPath,
    pub cause: UnknownFieldCause,
}

impl UnknownField {
    /// Returns the nearest path of an unknown `sort` field if that path is nested, which `sort` does not support.
    pub fn nearest_nested_sort_path(&self) -> Option<&str> {
        match &self.cause {
            UnknownFieldCause::Absent { nearest: Some(nearest) }
                if self.parameter == "sort" && FieldPath::is_nested_path(nearest) =>
            {
                Some(nearest)
            }
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownFieldCause {
    Absent { nearest: Option<String> },
    Removed { step: &'static str },
}
