//! The errors of refreshes.

use strata_catalog::CatalogError;
use strata_checks::{CheckReport, InvalidChecks};
use strata_ingest::{ReceiveError, SourceError};
use strata_store::StorageError;
use strata_store::spool_quota::SpoolQuotaExceeded;
use strata_store::unavailable::ResourceUnavailable;
use strata_types::error_chain::ErrorChain;
use strata_types::field_path::FieldPathError;

use crate::Overloaded;

pub(crate) type Result<T, E = RefreshError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    #[error("the dataset does not exist")]
    DatasetNotFound,
    #[error("the dataset is frozen; unfreeze it first")]
    Frozen,
    #[error("another refresh of the dataset is running; try again after that refresh has finished")]
    RefreshRunning,
    #[error("the dataset's source is push, so there is nothing to fetch; push the entities, or set a source URL")]
    NothingToFetch,
    #[error("the dataset has a source URL, so you cannot push entities; first set its source to push")]
    SourceIsUrl,
    #[error(transparent)]
    Source(SourceError),
    #[error("failed to write the version")]
    Storage(#[source] StorageError),
    #[error("{0}")]
    Catalog(#[source] CatalogError),
    #[error("the dataset's records_path is invalid")]
    RecordsPath(#[from] FieldPathError),
    #[error("the new entities fail {}", describe_failures(.0))]
    ChecksFailed(CheckReport),
    #[error("the dataset's checks are invalid, so they could not run: {0}; change them")]
    InvalidChecks(InvalidChecks),
    #[error(transparent)]
    DiskQuotaExceeded(#[from] SpoolQuotaExceeded),
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
    #[error("the refresh lost its lease: the metadata database did not respond in time, or another refresh took over")]
    LeaseLost,
    #[error(
        "this node does not run refreshes (server.roles does not include refresh); send the request to a node that does"
    )]
    RoleDisabled,
    #[error("the service stopped before the refresh finished")]
    Stopping,
    #[error("the refresh worker stopped unexpectedly")]
    WorkerStopped,
}

fn describe_failures(report: &CheckReport) -> String {
    let failed = report.results.iter().filter(|result| !result.has_passed()).count();
    let total = report.results.len();
    let noun = if total == 1 { "check" } else { "checks" };
    format!("{failed} of {total} {noun}: {}", report.failure_text())
}

impl From<SourceError> for RefreshError {
    fn from(error: SourceError) -> RefreshError {
        match error {
            SourceError::DiskQuotaExceeded(error) => RefreshError::DiskQuotaExceeded(error),
            other => RefreshError::Source(other),
        }
    }
}

impl From<StorageError> for RefreshError {
    fn from(error: StorageError) -> RefreshError {
        match error {
            StorageError::SpoolQuota(error) => RefreshError::DiskQuotaExceeded(error),
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
            CatalogError::NotFound => RefreshError::DatasetNotFound,
            CatalogError::Frozen => RefreshError::Frozen,
            CatalogError::RefreshRunning => RefreshError::RefreshRunning,
            CatalogError::LeaseLost => RefreshError::LeaseLost,
            other => RefreshError::Catalog(other),
        }
    }
}

impl RefreshError {
    /// Returns the message that the owner of the dataset sees. Details of internal errors are only logged.
    pub(crate) fn owner_message(&self) -> String {
        if let Some(resource) = ResourceUnavailable::from_error(self) {
            tracing::error!(error = %ErrorChain(self), "failed to create version");
            return format!("the service could not create the version: {resource}");
        }
        match self {
            RefreshError::Catalog(error) if error.unavailability().is_some() => {
                tracing::warn!(error = %ErrorChain(self), "failed to create version");
                error.to_string()
            }
            RefreshError::Storage(_)
            | RefreshError::Catalog(_)
            | RefreshError::RecordsPath(_)
            | RefreshError::WorkerStopped => {
                tracing::error!(error = %ErrorChain(self), "failed to create version");
                "the service failed to create the version; the failure was logged".to_owned()
            }
            other => other.to_string(),
        }
    }
}
