//! The common part of all management: why an owner's request is refused, and what follows every write.

use std::sync::Arc;

use crate::catalog::CatalogError;
use crate::model::ids::UserId;
use crate::model::version::{VersionNumber, there_are};
use crate::service::admission::catalog::CatalogGates;
use crate::service::admission::semaphore::Refused;
use crate::service::lookup::Lookups;
use crate::storage::StorageError;

/// Why a management request is not done. Unless a variant says otherwise, nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum ManageError {
    /// A value cannot be used.
    #[error("{field}: {problem}")]
    Invalid {
        /// The field of the request.
        field: &'static str,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// E-mail address and password are not those of a user.
    #[error("wrong e-mail address or password")]
    WrongCredentials,
    /// The old password is not the user's.
    #[error("wrong old password")]
    WrongPassword,
    /// Too many log-ins were tried.
    #[error("too many log-ins; try again in {retry_after_s} s")]
    TooManyLogins { retry_after_s: u64 },
    /// As many passwords are being checked as can be.
    #[error("too many log-ins at once")]
    LoginsBusy,
    /// The caller has no such dataset.
    #[error("no such dataset")]
    DatasetNotFound,
    /// There is no such dataset that the caller may clone.
    #[error("no such dataset to clone")]
    CloneNotFound,
    /// The dataset that is to be cloned has no version yet.
    #[error("nothing to clone")]
    NothingToClone,
    /// The dataset has no such version.
    #[error("no such version")]
    VersionNotFound,
    /// The dataset has no version yet.
    #[error("the dataset has no version yet")]
    NoVersionYet,
    /// The dataset has no version of this number.
    #[error("there is no version {number}; {there_are}")]
    NoVersionOf {
        /// The one that was asked for.
        number: VersionNumber,
        /// Which there are: `its versions are 1 to 4`.
        there_are: String,
    },
    /// The version has no alternate.
    #[error("no alternate")]
    AltNotFound,
    /// The dataset has no webhook.
    #[error("no webhook")]
    WebhookNotFound,
    /// The caller has no API token of that name.
    #[error("no such token")]
    TokenNotFound,
    /// The caller has no session of that id.
    #[error("no such session")]
    SessionNotFound,
    /// The caller has as many active datasets as the plan allows.
    #[error("the plan allows at most {limit} active datasets")]
    PlanLimit { limit: u64 },
    /// The caller's plan has no webhooks.
    #[error("the plan has no webhooks")]
    PlanWebhooks,
    /// The caller has as many API tokens as there may be.
    #[error("at most {limit} tokens")]
    TooManyTokens {
        /// How many there may be.
        limit: usize,
    },
    /// The caller has another dataset of that name.
    #[error("the name is taken")]
    NameTaken,
    /// The caller has another API token of that name.
    #[error("the token's name is taken")]
    TokenNameTaken,
    #[error("the dataset is frozen")]
    Frozen,
    /// The dataset is not frozen.
    #[error("the dataset is not frozen")]
    NotFrozen,
    /// The dataset has versions, so that it stays.
    #[error("the dataset has versions")]
    HasVersions,
    /// The dataset is public, so it has no key.
    #[error("the dataset is public")]
    Public,
    /// Another refresh of the dataset is running.
    #[error("another refresh of the dataset is running")]
    Busy,
    /// What the change was based on is no longer so.
    #[error("the record has changed meanwhile")]
    Stale,
    /// The version that was to be cloned is no longer as it was when its files were read.
    #[error("the dataset to clone has changed meanwhile")]
    SourceChanged,
    /// Too many others are at it, or too many calls of this one.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The catalog failed. After a failed commit the change may have been made.
    #[error("the catalog")]
    Catalog(#[source] CatalogError),
    /// A file cannot be written.
    #[error("storage")]
    Storage(#[source] StorageError),
    /// Something else inside the service failed.
    #[error("{0}")]
    Failed(String),
}

impl From<CatalogError> for ManageError {
    /// The meaning of an error for an owner who named one dataset.
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
                ManageError::Invalid { field, problem: "it must not hold the character U+0000".to_owned() }
            }
            CatalogError::OutOfRange { field, .. } => {
                ManageError::Invalid { field, problem: "the number is too large".to_owned() }
            }
            other => ManageError::Catalog(other),
        }
    }
}

impl ManageError {
    /// Names the version that was not found, and those that there are.
    pub(in crate::service) fn naming(self, number: VersionNumber, latest: Option<VersionNumber>) -> ManageError {
        match self {
            ManageError::VersionNotFound => ManageError::NoVersionOf { number, there_are: there_are(latest) },
            other => other,
        }
    }
}

/// Makes a change seen when it is dropped: also after a failure, which may have come after the commit, and when the
/// request was given up half way.
struct Seen<'a>(&'a Lookups);

impl Drop for Seen<'_> {
    fn drop(&mut self) {
        self.0.catalog_changed();
    }
}

/// The writes of owners in the catalog: all of them go through here.
pub(in crate::service) struct OwnerWrites {
    gates: Arc<CatalogGates>,
    lookups: Arc<Lookups>,
}

impl OwnerWrites {
    pub(in crate::service) fn new(gates: Arc<CatalogGates>, lookups: Arc<Lookups>) -> OwnerWrites {
        OwnerWrites { gates, lookups }
    }

    /// Runs a write of an owner, in the owner's permit, and makes it seen at once by the reads of this process.
    pub(in crate::service) async fn run<T, E>(
        &self,
        owner: UserId,
        write: impl Future<Output = Result<T, E>>,
    ) -> Result<T, ManageError>
    where
        ManageError: From<E>,
    {
        let _permit = self.gates.write(owner).await?;
        let _seen = Seen(&self.lookups);
        Ok(write.await?)
    }
}
