//! The error of a read.

use std::sync::Arc;
use std::time::Instant;

use strata_catalog::{CatalogError, Unavailability};
use strata_encode::EntityTooLarge;
use strata_json::TooManyColumns;
use strata_query::QueryError;
use strata_store::StorageError;
use strata_types::path::Path;
use strata_types::version::{VersionNumber, VersionSelector, there_are};

use crate::Overloaded;

/// Why there is no response, or only the beginning of one. All callers that waited for the same response get the same
/// error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// No dataset with this ID has this slug. Either can be wrong.
    #[error("no such dataset")]
    DatasetNotFound,
    #[error("the user cannot read a dataset with this ID")]
    NotReadable,
    /// The dataset is private and there was no `Authorization`.
    #[error("the dataset is private")]
    Unauthorized,
    /// The dataset is private and the `Authorization` is not its key.
    #[error("the private key is wrong")]
    Forbidden,
    #[error("the dataset is frozen")]
    Frozen,
    #[error("no version {selector}; {}", there_are(*latest))]
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
    SpillTooLarge {
        /// What `query.spill_bytes` allows.
        limit_bytes: u64,
    },
    #[error("the query needs more than {limit_bytes} bytes of memory, the limit per client")]
    QueryTooLarge {
        /// What `query.memory_bytes` allows.
        limit_bytes: u64,
    },
    #[error("the response needs {needed_bytes} bytes of memory, but the limit per client is {limit_bytes} bytes")]
    TooMuchMemory {
        needed_bytes: u64,
        /// What `query.memory_bytes` allows.
        limit_bytes: u64,
    },
    #[error("the response needs {needed_bytes} bytes of disk space, but the limit per client is {limit_bytes} bytes")]
    TooMuchDisk {
        needed_bytes: u64,
        /// What `query.spill_bytes` allows.
        limit_bytes: u64,
    },
    /// Too many requests run and wait, of this client or in total.
    #[error(transparent)]
    Busy(#[from] Overloaded),
    /// The table would have more columns than `limits.columns`.
    #[error("the table would have more than {limit} columns")]
    TooManyColumns { limit: usize },
    #[error("unknown fields in the request: {}", .0.len())]
    UnknownFields(Arc<[UnknownField]>),
    #[error("the metadata database is unavailable")]
    CatalogUnavailable { reason: Unavailability, source: Arc<CatalogError> },
    /// An entity would have more bytes than `limits.encoded_entity_bytes`.
    #[error("an entity exceeds {limit_bytes} bytes in this format")]
    EntityTooLarge { limit_bytes: usize },
    #[error("failed to read the version")]
    Unreadable(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

impl ReadError {
    /// Whether a caller that has waited since then for the work of another caller should run the work itself, because
    /// only the share of the other one was used up.
    pub(crate) fn is_anothers(&self, since: Instant) -> bool {
        match self {
            ReadError::Busy(refused) => refused.is_worth_retrying(since),
            // The other one may have a smaller share.
            error => error.is_of_a_share(),
        }
    }

    /// Whether the share of a principal was used up.
    pub(crate) fn is_of_a_share(&self) -> bool {
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

impl From<TooManyColumns> for ReadError {
    fn from(error: TooManyColumns) -> ReadError {
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
    pub path: Path,
    pub cause: UnknownCause,
}

impl UnknownField {
    /// The nearest path of an unknown `sort` if it is nested, which `sort` does not support.
    pub fn deep_sort(&self) -> Option<&str> {
        match &self.cause {
            UnknownCause::Absent { nearest: Some(nearest) } if self.parameter == "sort" && Path::is_deep(nearest) => {
                Some(nearest)
            }
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownCause {
    Absent {
        /// The nearest path, if one was searched and found.
        nearest: Option<String>,
    },
    /// This step has removed it from all entities.
    Taken { step: &'static str },
}
