//! The errors of refreshes.

use strata_catalog::CatalogError;
use strata_ingest::{ReceiveError, SourceError};
use strata_store::StorageError;
use strata_store::budget::SpoolFull;
use strata_store::shortage::Shortage;
use strata_types::causes::Causes;
use strata_types::path::PathError;

use crate::Overloaded;

#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    #[error("the dataset does not exist")]
    NotFound,
    #[error("the dataset is frozen; unfreeze it first")]
    Frozen,
    #[error("another refresh of the dataset is running; try again after that refresh has finished")]
    Busy,
    #[error("the dataset's source is push, so there is nothing to fetch; push the entities, or set a source URL")]
    NothingToFetch,
    #[error("the dataset has a source URL, so you cannot push entities; first set its source to push")]
    NotPushed,
    #[error(transparent)]
    Source(SourceError),
    #[error("failed to write the version")]
    Storage(#[source] StorageError),
    #[error("{0}")]
    Catalog(#[source] CatalogError),
    #[error("the dataset's records_path is invalid")]
    RecordsPath(#[from] PathError),
    #[error(transparent)]
    Full(#[from] SpoolFull),
    #[error(transparent)]
    Refused(#[from] Overloaded),
    #[error("the refresh lost its lease: the metadata database did not respond in time, or another refresh took over")]
    LeaseLost,
    #[error(
        "this node does not run refreshes (server.roles does not include refresh); send the request to a node that does"
    )]
    NotHere,
    #[error("the service stopped before the refresh finished")]
    Stopping,
    #[error("the refresh worker stopped unexpectedly")]
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
    /// The reason for the owner. Internal errors are logged, and their reasons are not shown.
    pub(crate) fn for_the_owner(&self) -> String {
        if let Some(shortage) = Shortage::of(self) {
            tracing::error!(error = %Causes(self), "failed to create version");
            return format!("the service could not create the version: {shortage}");
        }
        match self {
            RefreshError::Catalog(error) if error.unavailability().is_some() => {
                tracing::warn!(error = %Causes(self), "failed to create version");
                error.to_string()
            }
            RefreshError::Storage(_)
            | RefreshError::Catalog(_)
            | RefreshError::RecordsPath(_)
            | RefreshError::Worker => {
                tracing::error!(error = %Causes(self), "failed to create version");
                "the service failed to create the version; the failure was logged".to_owned()
            }
            other => other.to_string(),
        }
    }
}
