//! Errors of management requests, and the permit and cache invalidation that every write of an owner needs.

use std::sync::Arc;

use strata_catalog::CatalogError;
use strata_store::StorageError;
use strata_store::spool_quota::SpoolQuotaExceeded;
use strata_types::ids::UserId;
use strata_types::version::{VersionNumber, describe_versions};

use crate::admission::catalog_limits::CatalogLimits;
use crate::{LookupService, Overloaded};

pub(crate) type Result<T, E = ManageError> = std::result::Result<T, E>;

/// An error of a management request. Nothing has changed, unless a variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum ManageError {
    #[error("{field}: {problem}")]
    InvalidField { field: &'static str, problem: String },
    #[error("wrong email address or password")]
    WrongCredentials,
    #[error("wrong old password")]
    WrongPassword,
    #[error("too many logins; try again in {retry_after_s} s")]
    TooManyLogins { retry_after_s: u64 },
    #[error("too many concurrent logins")]
    LoginsBusy,
    #[error("no such dataset")]
    DatasetNotFound,
    #[error("the dataset to clone does not exist")]
    CloneSourceNotFound,
    #[error("the dataset to clone has no versions")]
    CloneSourceEmpty,
    #[error("no such version")]
    VersionNotFound,
    #[error("the dataset has no versions yet")]
    NoVersionYet,
    #[error("there is no version {number}; {existing_versions}")]
    UnknownVersion {
        number: VersionNumber,
        /// Describes which versions exist, for example `its versions are 1 to 4`.
        existing_versions: String,
    },
    #[error("the version has no alternate")]
    AltNotFound,
    #[error("the dataset has no webhook")]
    WebhookNotFound,
    #[error("no such token")]
    TokenNotFound,
    #[error("no such session")]
    SessionNotFound,
    #[error("the plan allows at most {limit} active datasets")]
    PlanLimit { limit: u64 },
    #[error("the plan does not include webhooks")]
    PlanWebhooks,
    #[error("at most {limit} tokens are allowed")]
    TooManyTokens { limit: usize },
    #[error("the name is taken")]
    NameTaken,
    #[error("the token name is taken")]
    TokenNameTaken,
    #[error("the dataset is frozen")]
    Frozen,
    #[error("the dataset is not frozen")]
    NotFrozen,
    #[error("the dataset has versions")]
    HasVersions,
    #[error("the dataset is public")]
    NotPrivate,
    #[error("another refresh of the dataset is running")]
    RefreshRunning,
    #[error("the record has changed in the meantime")]
    Stale,
    #[error("the dataset to clone has changed in the meantime")]
    CloneSourceChanged,
    #[error("the checks were stopped after {seconds} s")]
    CheckTimeout { seconds: u64 },
    #[error(transparent)]
    CheckQuotaExceeded(SpoolQuotaExceeded),
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
    /// A catalog failure. If the commit failed, the change can be effective.
    #[error("{0}")]
    Catalog(#[source] CatalogError),
    #[error("storage error")]
    Storage(#[source] StorageError),
    #[error("{0}")]
    Internal(String),
}

impl From<CatalogError> for ManageError {
    fn from(error: CatalogError) -> ManageError {
        match error {
            CatalogError::NotFound => ManageError::DatasetNotFound,
            CatalogError::NoVersion => ManageError::VersionNotFound,
            CatalogError::NoAlternate => ManageError::AltNotFound,
            CatalogError::NoWebhook => ManageError::WebhookNotFound,
            CatalogError::TooManyDatasets { limit } => ManageError::PlanLimit { limit },
            CatalogError::TooManyTokens { limit } => ManageError::TooManyTokens { limit },
            CatalogError::NameTaken => ManageError::NameTaken,
            CatalogError::TokenNameTaken => ManageError::TokenNameTaken,
            CatalogError::Frozen => ManageError::Frozen,
            CatalogError::NotFrozen => ManageError::NotFrozen,
            CatalogError::HasVersions => ManageError::HasVersions,
            CatalogError::RefreshRunning => ManageError::RefreshRunning,
            CatalogError::Conflict => ManageError::Stale,
            CatalogError::NulCharacter { field } => {
                ManageError::InvalidField { field, problem: "it must not contain the character U+0000".to_owned() }
            }
            CatalogError::OutOfRange { field, .. } => {
                ManageError::InvalidField { field, problem: "the number is too large".to_owned() }
            }
            other => ManageError::Catalog(other),
        }
    }
}

impl ManageError {
    /// Adds the missing version and the existing versions to [`ManageError::VersionNotFound`].
    pub(crate) fn with_version_details(self, number: VersionNumber, latest: Option<VersionNumber>) -> ManageError {
        match self {
            ManageError::VersionNotFound => {
                ManageError::UnknownVersion { number, existing_versions: describe_versions(latest) }
            }
            other => other,
        }
    }
}

/// Invalidates the lookup cache on drop, because a cancelled or failed request can have committed.
struct NotifyCatalogChangeOnDrop<'a>(&'a LookupService);

impl Drop for NotifyCatalogChangeOnDrop<'_> {
    fn drop(&mut self) {
        self.0.notify_catalog_change();
    }
}

pub(crate) struct OwnerWriter {
    pub(crate) catalog_limits: Arc<CatalogLimits>,
    pub(crate) lookups: Arc<LookupService>,
}

impl OwnerWriter {
    /// Runs a write with a permit of the owner. Later reads in this process see the change.
    pub(crate) async fn run_write<T, E>(&self, owner: UserId, write: impl Future<Output = Result<T, E>>) -> Result<T>
    where
        ManageError: From<E>,
    {
        let _permit = self.catalog_limits.acquire_write(owner).await?;
        let _notify = NotifyCatalogChangeOnDrop(&self.lookups);
        Ok(write.await?)
    }
}
