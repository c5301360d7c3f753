//! Why a refresh made no version.

use strata_types::causes::Causes;
use strata_types::path::PathError;

use crate::catalog::CatalogError;
use crate::service::admission::semaphore::Refused;
use crate::source::{ReceiveError, SourceError};
use crate::storage::StorageError;
use crate::storage::budget::SpoolFull;
use crate::storage::shortage::Shortage;

#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    #[error("there is no such dataset")]
    NotFound,
    #[error("the dataset is frozen; unfreeze it first")]
    Frozen,
    #[error("another refresh of the dataset is running; try again when it has ended")]
    Busy,
    #[error("the dataset's source is push, so there is nothing to fetch: send the entities, or give it a source URL")]
    NothingToFetch,
    #[error("the dataset has a source URL, so entities cannot be pushed: set its source to push first")]
    NotPushed,
    #[error(transparent)]
    Source(SourceError),
    #[error("writing the version")]
    Storage(#[source] StorageError),
    #[error("the catalog")]
    Catalog(#[source] CatalogError),
    #[error("the dataset's records_path")]
    RecordsPath(#[from] PathError),
    #[error(transparent)]
    Full(#[from] SpoolFull),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("the refresh lost its lease: the catalog did not answer in time, or another refresh took over")]
    LeaseLost,
    #[error("this server makes no versions (server.roles has no refresh); ask one that does")]
    NotHere,
    #[error("the service stopped before the refresh ended")]
    Stopping,
    #[error("the refresh's worker ended early")]
    Worker,
}

impl From<SourceError> for RefreshError {
    fn from(error: SourceError) -> RefreshError {
        match error {
            SourceError::Full(full) => RefreshError::Full(full),
            other => RefreshError::Source(other),
        }
    }
}

impl From<StorageError> for RefreshError {
    fn from(error: StorageError) -> RefreshError {
        match error {
            StorageError::Full(full) => RefreshError::Full(full),
            other => RefreshError::Storage(other),
        }
    }
}

impl From<ReceiveError> for RefreshError {
    fn from(error: ReceiveError) -> RefreshError {
        match error {
            ReceiveError::Source(error) => error.into(),
            ReceiveError::Io(error) => RefreshError::Storage(error.into()),
        }
    }
}

impl From<CatalogError> for RefreshError {
    fn from(error: CatalogError) -> RefreshError {
        match error {
            CatalogError::NotFound => RefreshError::NotFound,
            CatalogError::Frozen => RefreshError::Frozen,
            CatalogError::Busy => RefreshError::Busy,
            CatalogError::LeaseLost => RefreshError::LeaseLost,
            other => RefreshError::Catalog(other),
        }
    }
}

impl RefreshError {
    /// The reason as the owner may read it: what failed inside the service is logged, and not shown.
    pub(crate) fn for_the_owner(&self) -> String {
        if let Some(shortage) = Shortage::of(self) {
            tracing::error!(cause = %Causes(self), "a refresh failed");
            return format!("the service could not make the version: {shortage}");
        }
        match self {
            RefreshError::Catalog(error) if error.unavailability().is_some() => {
                tracing::warn!(cause = %Causes(self), "a refresh failed");
                error.to_string()
            }
            RefreshError::Storage(_)
            | RefreshError::Catalog(_)
            | RefreshError::RecordsPath(_)
            | RefreshError::Worker => {
                tracing::error!(cause = %Causes(self), "a refresh failed");
                "the service failed to make the version; the failure was logged".to_owned()
            }
            other => other.to_string(),
        }
    }
}
