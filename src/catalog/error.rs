//! What can go wrong in the catalog.

use std::path::{Path, PathBuf};

use rustix::fs::Access;
use rustix::io::Errno;
use sqlx::migrate::MigrateError;

use super::failure::{Failure, Unavailability};

/// Why the catalog did not do what was asked. Unless a variant says otherwise, nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// The catalog's address is neither `sqlite://PATH` nor `postgres://…`.
    #[error("{url:?} is not a catalog: {reason}")]
    InvalidUrl {
        /// The address as it was given, without a password.
        url: String,
        reason: String,
    },
    #[error("cannot create the directory of {path:?}")]
    Directory { path: String, source: std::io::Error },
    /// The SQLite file, or the files that SQLite makes beside it, cannot be opened.
    #[error("the catalog {path:?} cannot be opened for reading and writing{}", whose(source))]
    File { path: String, source: std::io::Error },
    #[error("{path:?} is a database of another program: it has tables, and none of a catalog; choose another place")]
    Foreign { path: String },
    #[error("cannot write a copy of the catalog to {}", path.display())]
    Copy { path: PathBuf, source: std::io::Error },
    #[error("it is not empty: a backup is restored into a catalog without users, datasets and files")]
    NotEmpty,
    #[error("the owner already has a dataset of that name")]
    NameTaken,
    #[error("there is already a user with that e-mail address")]
    EmailTaken,
    #[error("the user already has a token of that name")]
    TokenNameTaken,
    #[error("the user has {limit} tokens already")]
    TooManyTokens { limit: usize },
    #[error("the plan allows at most {limit} active datasets")]
    PlanLimit { limit: u64 },
    #[error("the dataset is frozen")]
    Frozen,
    #[error("the dataset is not frozen")]
    NotFrozen,
    /// The dataset has versions, which are permanent.
    #[error("the dataset has versions")]
    HasVersions,
    #[error("the user has {count} datasets")]
    HasDatasets { count: u64 },
    /// There is no such user, dataset, token or session.
    #[error("there is no such record")]
    NotFound,
    #[error("the dataset has no such version")]
    NoVersion,
    #[error("the version has no alternate")]
    NoAlternate,
    #[error("the dataset has no webhook")]
    NoWebhook,
    #[error("another refresh of the dataset is running")]
    Busy,
    /// The refresh no longer holds its dataset. It has ended, or its lease has expired and another refresh took over.
    #[error("the refresh no longer holds its dataset")]
    LeaseLost,
    /// The path was never reserved, or the reservation expired and a sweep may have removed the file.
    #[error("the file is not reserved, or its reservation has ended")]
    ReservationLost,
    /// The state on which the change was based has changed.
    #[error("the record has changed, or does not allow the change")]
    Conflict,
    /// A number is larger than the database can hold (2^63 - 1).
    #[error("{field} is too large: {value}")]
    OutOfRange { field: &'static str, value: u64 },
    /// A text holds U+0000, which databases cannot store.
    #[error("{field} must not hold the character U+0000")]
    Nul { field: &'static str },
    /// A record holds a value that this version of the service does not understand.
    #[error("the catalog's {column} holds {value:?}")]
    Corrupt { column: &'static str, value: String },
    /// A record is not what was written, or is missing. Restore it from a backup.
    #[error("the catalog is damaged: the record of {record} is not what was written")]
    Unverified { record: String },
    /// The tables cannot be brought up to date, for instance because a newer version of the service has changed them.
    #[error("cannot migrate the catalog")]
    Migration(#[source] MigrateError),
    /// The database cannot be used at the moment. After a failed commit the change may have been made.
    #[error("the catalog is not available: {reason}")]
    Unavailable { reason: Unavailability, source: sqlx::Error },
    #[error("the catalog is damaged{}", damaged(file.as_deref()))]
    Damaged {
        /// The SQLite file, where it does not open.
        file: Option<String>,
        source: sqlx::Error,
    },
    /// The database failed. After a failed commit the change may have been made.
    #[error("the catalog's database failed")]
    Database(#[source] sqlx::Error),
}

/// Why a file, or its directory, does not allow what SQLite does with them: it tells no reason itself.
fn unusable(file: &Path) -> Option<std::io::Error> {
    let access = |path: &Path| rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK).err();
    let is_refusal = |error: &Errno| matches!(*error, Errno::ACCESS | Errno::PERM | Errno::ROFS);
    let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty());
    let failures = [access(file), directory.and_then(access)];
    failures.into_iter().flatten().find(is_refusal).map(Into::into)
}

/// What to do about a database that is damaged: of one that does not open, no check can say more.
fn damaged(file: Option<&str>) -> String {
    match file {
        Some(file) => format!(" and cannot be opened ({file}); restore it from a backup"),
        None => "; `strata check` says where".to_owned(),
    }
}

/// What to do about a file that this process may not open.
fn whose(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            ", which its directory needs, too; run this as the user that they belong to"
        }
        _ => "",
    }
}

impl From<sqlx::Error> for CatalogError {
    fn from(source: sqlx::Error) -> CatalogError {
        match Failure::of(&source) {
            Some(Failure::Unavailable(reason)) => CatalogError::Unavailable { reason, source },
            Some(Failure::Damaged) => CatalogError::Damaged { file: None, source },
            None => CatalogError::Database(source),
        }
    }
}

impl From<MigrateError> for CatalogError {
    fn from(error: MigrateError) -> CatalogError {
        match error {
            MigrateError::Execute(source) if Failure::of(&source).is_some() => source.into(),
            other => CatalogError::Migration(other),
        }
    }
}

impl CatalogError {
    /// Why the catalog cannot be used, if the problem is temporary.
    pub fn unavailability(&self) -> Option<Unavailability> {
        match self {
            CatalogError::Unavailable { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    /// Whether a record, or the pages that hold it, is at fault. Such an error is permanent.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            CatalogError::Corrupt { .. }
                | CatalogError::Unverified { .. }
                | CatalogError::Damaged { .. }
                | CatalogError::Database(sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_))
        )
    }

    /// As an error of opening this SQLite file, which lies at `file`.
    pub(super) fn of_file(self, path: &str, file: &Path) -> CatalogError {
        match self {
            CatalogError::Unavailable { reason: Unavailability::Exhausted, .. }
            | CatalogError::Unavailable { reason: Unavailability::ReadOnly, .. } => match unusable(file) {
                Some(source) => CatalogError::File { path: path.to_owned(), source },
                None => self,
            },
            CatalogError::Damaged { source, .. } => CatalogError::Damaged { file: Some(path.to_owned()), source },
            other => other,
        }
    }

    /// The meaning of an error of an update that can only violate the uniqueness of a dataset's name.
    pub(super) fn of_rename(self) -> CatalogError {
        match &self {
            CatalogError::Database(sqlx::Error::Database(cause)) if cause.is_unique_violation() => {
                CatalogError::NameTaken
            }
            _ => self,
        }
    }
}
