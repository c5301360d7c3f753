//! Why a command failed.

use std::io;
use std::path::PathBuf;

use strata_types::ids::DatasetId;
use strata_types::version::VersionSelector;

use crate::catalog::CatalogError;
use crate::config::ConfigError;
use crate::http::ServeError;
use crate::service::{
    AccountError, BackupError, CheckError, DemoError, DiffError, InspectError, ManageError, OpenError, RestoreError,
    SweepError,
};

/// A number of things, in words.
fn counted(number: u64, one: &str, more: &str, of: &str) -> String {
    format!("{number} {}{of}", if number == 1 { one } else { more })
}

#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error("{what}")]
    Token { what: &'static str, source: ManageError },
    #[error("{email} has no token {name}; `strata user tokens {email}` lists them")]
    NoToken { email: String, name: String },
    #[error("the datasets cannot be listed")]
    List(#[from] ManageError),
    #[error("the nodes cannot be listed")]
    Nodes(#[source] CatalogError),
    #[error("importing {from}: {problem}")]
    Import {
        /// The file or URL as it was given.
        from: String,
        /// Why, with the names of flags, and what would be right.
        problem: String,
    },
    #[error("QUERY: {0}")]
    Query(String),
    #[error("explaining a read of dataset {dataset}")]
    Explain { dataset: DatasetId, source: InspectError },
    #[error("comparing versions {v1} and {v2} of dataset {dataset}")]
    Diff { dataset: DatasetId, v1: VersionSelector, v2: VersionSelector, source: Box<DiffError> },
    #[error("the demo cannot be loaded")]
    Demo(#[from] DemoError),
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
    SweepTooEarly { longest_read_s: u64 },
    #[error("the sweep failed")]
    Sweep(#[from] SweepError),
    #[error("{} could not be removed", counted(*files, "file", "files", ""))]
    SweepFailed { files: u64 },
    #[error("the check failed")]
    Check(#[from] CheckError),
    #[error("the check found damage: {}", counted(*damaged, "file, version or place", "files, versions or places", " of the catalog"))]
    Damaged { damaged: u64 },
    #[error("{what}: {}", counted(*files, "file", "files", ""))]
    DamagedFiles { what: &'static str, files: u64 },
    #[error("no backup was made")]
    Backup(#[from] BackupError),
    #[error("nothing was restored")]
    Restore(#[from] RestoreError),
    #[error("the manual pages cannot be written to {}", directory.display())]
    Manual { directory: PathBuf, source: io::Error },
    #[error("interrupted")]
    Interrupted,
    /// The machine failed to do something.
    #[error("{what}")]
    Io { what: &'static str, source: io::Error },
}
