//! The common part of management: the errors of requests of owners, and the work after every write.

use std::sync::Arc;

use strata_catalog::CatalogError;
use strata_store::StorageError;
use strata_types::ids::UserId;
use strata_types::version::{VersionNumber, there_are};

use crate::admission::catalog::CatalogGates;
use crate::{Lookups, Overloaded};

/// Why a management request failed. Nothing has changed, unless a variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum ManageError {
    #[error("{field}: {problem}")]
    Invalid { field: &'static str, problem: String },
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
    CloneNotFound,
    #[error("the dataset to clone has no versions")]
    NothingToClone,
    #[error("no such version")]
    VersionNotFound,
    #[error("the dataset has no versions yet")]
    NoVersionYet,
    #[error("there is no version {number}; {there_are}")]
    NoVersionOf {
        number: VersionNumber,
        /// The existing versions: `its versions are 1 to 4`.
        there_are: String,
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
    Public,
    #[error("another refresh of the dataset is running")]
    Busy,
    #[error("the record has changed in the meantime")]
    Stale,
    #[error("the dataset to clone has changed in the meantime")]
    SourceChanged,
    #[error(transparent)]
    Refused(#[from] Overloaded),
    /// The catalog failed. After a failed commit, the change can be effective.
    #[error("{0}")]
    Catalog(#[source] CatalogError),
    #[error("storage error")]
    Storage(#[source] StorageError),
    #[error("{0}")]
    Failed(String),
}

impl From<CatalogError> for ManageError {
    fn from(error: CatalogError) -> ManageError {
        match error {
            CatalogError::NotFound => ManageError::DatasetNotFound,
            CatalogError::NoVersion => ManageError::VersionNotFound,
            CatalogError::NoAlternate => ManageError::AltNotFound,
            CatalogError::NoWebhook => ManageError::WebhookNotFound,
            CatalogError::PlanLimit { limit } => ManageError::PlanLimit { limit },
            CatalogError::TooManyTokens { limit } => ManageError::TooManyTokens { limit },
            CatalogError::NameTaken => ManageError::NameTaken,
            CatalogError::TokenNameTaken => ManageError::TokenNameTaken,
            CatalogError::Frozen => ManageError::Frozen,
            CatalogError::NotFrozen => ManageError::NotFrozen,
            CatalogError::HasVersions => ManageError::HasVersions,
            CatalogError::Busy => ManageError::Busy,
            CatalogError::Conflict => ManageError::Stale,
            CatalogError::Nul { field } => {
                ManageError::Invalid { field, problem: "it must not contain the character U+0000".to_owned() }
            }
            CatalogError::OutOfRange { field, .. } => {
                ManageError::Invalid { field, problem: "the number is too large".to_owned() }
            }
            other => ManageError::Catalog(other),
        }
    }
}

impl ManageError {
    /// Adds the version that was not found, and the existing ones.
    pub(crate) fn naming(self, number: VersionNumber, latest: Option<VersionNumber>) -> ManageError {
        match self {
            ManageError::VersionNotFound => ManageError::NoVersionOf { number, there_are: there_are(latest) },
            other => other,
        }
    }
}

/// Makes reads see a change when it is dropped, also after a cancelled request or a failure, which can follow a commit.
struct NotifyOnDrop<'a>(&'a Lookups);

impl Drop for NotifyOnDrop<'_> {
    fn drop(&mut self) {
        self.0.catalog_changed();
    }
}

pub(crate) struct OwnerWrites {
    pub(crate) gates: Arc<CatalogGates>,
    pub(crate) lookups: Arc<Lookups>,
}

impl OwnerWrites {
    /// Runs a write with a permit of the owner. The reads of this process see it at once.
    pub(crate) async fn run<T, E>(
        &self,
        owner: UserId,
        write: impl Future<Output = Result<T, E>>,
    ) -> Result<T, ManageError>
    where
        ManageError: From<E>,
    {
        let _permit = self.gates.write(owner).await?;
        let _notify = NotifyOnDrop(&self.lookups);
        Ok(write.await?)
    }
}
