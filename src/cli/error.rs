//! Why a command failed.

use std::io;
use std::path::PathBuf;

use crate::catalog::CatalogError;
use crate::config::ConfigError;
use crate::http::ServeError;
use crate::model::ids::DatasetId;
use crate::model::version::VersionSelector;
use crate::service::{
    AccountError, BackupError, CheckError, DemoError, DiffError, ExplainError, ManageError, OpenError, RestoreError,
    SweepError,
};

/// A number of things, in words.
fn counted(number: u64, one: &str, more: &str, of: &str) -> String {
    format!("{number} {}{of}", if number == 1 { one } else { more })
}

#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The catalog, the store or the engine cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The user cannot be added or changed.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// The API token cannot be made.
    #[error("the token cannot be made")]
    Token(#[source] ManageError),
    /// The API tokens of a user cannot be listed.
    #[error("the tokens cannot be listed")]
    Tokens(#[source] ManageError),
    /// There is no such API token.
    #[error("{email} has no token {name}; `strata user tokens {email}` lists them")]
    NoToken {
        email: String,
        /// The name that was given.
        name: String,
    },
    /// An API token cannot be revoked.
    #[error("the token cannot be revoked")]
    Revoke(#[source] ManageError),
    /// The datasets cannot be listed.
    #[error("the datasets cannot be listed")]
    List(#[from] ManageError),
    /// The nodes cannot be listed.
    #[error("the nodes cannot be listed")]
    Nodes(#[source] CatalogError),
    /// The import made no version.
    #[error("importing {from}: {problem}")]
    Import {
        /// The file or URL as it was given.
        from: String,
        /// Why, with the names of flags, and what would be right.
        problem: String,
    },
    /// The text is no query of a read.
    #[error("QUERY: {0}")]
    Query(String),
    /// The read cannot be explained.
    #[error("explaining a read of dataset {dataset}")]
    Explain { dataset: DatasetId, source: ExplainError },
    /// The versions cannot be compared.
    #[error("comparing versions {v1} and {v2} of dataset {dataset}")]
    Diff { dataset: DatasetId, v1: VersionSelector, v2: VersionSelector, source: Box<DiffError> },
    /// The demo cannot be loaded.
    #[error("the demo cannot be loaded")]
    Demo(#[from] DemoError),
    /// The service cannot listen on the address.
    #[error("cannot listen on {address} (`--listen` names another address)")]
    Listen { address: String, source: io::Error },
    /// The server stopped by itself.
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("{0}")]
    Password(&'static str),
    /// A file may be removed while a read uses it.
    #[error(
        "sweep --older-than must be more than {longest_read_s} s, the time that a read may take (the sum of twice \
         query.timeout_s or once query.diff_timeout_s, four times query.heavy_wait_s, and server.answer_timeout_s); \
         if no server is running, give --offline"
    )]
    SweepTooEarly {
        /// How long a read may take.
        longest_read_s: u64,
    },
    #[error("the sweep failed")]
    Sweep(#[from] SweepError),
    /// The store does not remove files.
    #[error("{} could not be removed", counted(*files, "file", "files", ""))]
    SweepFailed { files: u64 },
    #[error("the check failed")]
    Check(#[from] CheckError),
    #[error("the check found damage: {}", counted(*damaged, "file, version or place", "files, versions or places", " of the catalog"))]
    Damaged { damaged: u64 },
    #[error("the scrub found damage: {}", counted(*files, "file", "files", ""))]
    DamagedFiles { files: u64 },
    #[error("no backup was made")]
    Backup(#[from] BackupError),
    /// A backup was made, with damage.
    #[error("the backup was made, with damage: {}", counted(*files, "file", "files", ""))]
    BackedUpDamage {
        /// How many files are damaged.
        files: u64,
    },
    #[error("the backup was restored, with damage: {}", counted(*files, "file", "files", ""))]
    RestoredDamage {
        /// How many files are damaged.
        files: u64,
    },
    #[error("nothing was restored")]
    Restore(#[from] RestoreError),
    /// The manual pages cannot be written.
    #[error("the manual pages cannot be written to {}", directory.display())]
    Manual { directory: PathBuf, source: io::Error },
    /// A signal ended the command before it was done.
    #[error("interrupted")]
    Interrupted,
    /// The machine failed to do something.
    #[error("{what}")]
    Io { what: &'static str, source: io::Error },
}
