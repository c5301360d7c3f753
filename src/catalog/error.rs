//! What can go wrong in the catalog.

/// Why the catalog did not do what was asked. Unless a variant says otherwise, nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// The catalog's address is neither `sqlite://PATH` nor `postgres://…`.
    #[error("{url:?} is not a catalog: {reason}")]
    InvalidUrl {
        /// The address as it was given, without a password.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The directory for an SQLite file cannot be made.
    #[error("cannot create the directory of {path:?}")]
    Directory {
        /// The SQLite file.
        path: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The owner has a dataset of that name already.
    #[error("the owner already has a dataset of that name")]
    NameTaken,
    /// There is a user with that e-mail address already.
    #[error("there is already a user with that e-mail address")]
    EmailTaken,
    /// The user has an API token of that name already.
    #[error("the user already has a token of that name")]
    TokenNameTaken,
    /// The owner's plan allows no further active dataset.
    #[error("the plan allows at most {limit} active datasets")]
    PlanLimit {
        /// How many it allows.
        limit: u64,
    },
    /// The dataset is frozen.
    #[error("the dataset is frozen")]
    Frozen,
    /// There is no such user, dataset or unfinished attempt.
    #[error("there is no such record")]
    NotFound,
    /// A number is larger than the database can hold (2^63 - 1).
    #[error("{field} is too large: {value}")]
    OutOfRange {
        /// What the number is.
        field: &'static str,
        /// The number.
        value: u64,
    },
    /// A record holds what this version of the service does not understand.
    #[error("the catalog's {column} holds {value:?}")]
    Corrupt {
        /// Table and column.
        column: &'static str,
        /// What it holds.
        value: String,
    },
    /// The tables cannot be brought up to date, for instance because a newer version of the service has
    /// changed them.
    #[error("cannot migrate the catalog")]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// The database failed or cannot be reached. After a failed commit the change may have been made.
    #[error("the catalog's database failed")]
    Database(#[from] sqlx::Error),
}

impl CatalogError {
    /// The meaning of an error of an insert whose only foreign key is what the caller named.
    pub(super) fn of_insert(error: sqlx::Error) -> CatalogError {
        match error.as_database_error() {
            Some(cause) if cause.is_foreign_key_violation() => CatalogError::NotFound,
            _ => CatalogError::Database(error),
        }
    }
}
