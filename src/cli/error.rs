//! The errors of commands.

use std::io;
use std::path::PathBuf;

use strata_catalog::CatalogError;
use strata_config::ConfigError;
use strata_http::ServeError;
use strata_service::{
    AccountError, BackupError, CheckError, DemoError, DiffError, DigestError, ManageError, OpenError, OwnerReadError,
    RestoreError, SweepError,
};
use strata_sync::SyncError;
use strata_types::ids::DatasetId;
use strata_types::version::VersionSelector;

use super::{format_count, format_files};

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
    #[error("{email} has no token named {name}; to list the user's tokens, run `strata user tokens {email}`")]
    NoToken { email: String, name: String },
    #[error("failed to list the datasets")]
    List(#[from] ManageError),
    #[error("failed to list the nodes")]
    Nodes(#[source] CatalogError),
    #[error("failed to import {from}: {problem}")]
    Import {
        from: String,
        /// The message names flags, such as `--format`, instead of request fields.
        problem: String,
    },
    #[error("invalid QUERY: {0}")]
    Query(String),
    #[error("failed to explain the query on dataset {dataset}")]
    Explain { dataset: DatasetId, source: OwnerReadError },
    #[error("failed to compare versions {v1} and {v2} of dataset {dataset}")]
    Diff { dataset: DatasetId, v1: VersionSelector, v2: VersionSelector, source: Box<DiffError> },
    #[error("failed to load the demo")]
    Demo(#[from] DemoError),
    #[error("failed to listen on {address} (to use another address, set `--listen`)")]
    Listen { address: String, source: io::Error },
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("{0}")]
    Password(&'static str),
    #[error(
        "--older-than must be more than {longest_read_s} s, the longest time that a request can use a file (2 s + \
         max(2 * query.timeout_s, query.diff_timeout_s) + 4 * query.heavy_wait_s + server.answer_timeout_s); if no \
         server is running, you can add --offline"
    )]
    SweepTooEarly { longest_read_s: u64 },
    #[error("failed to complete the sweep")]
    Sweep(#[from] SweepError),
    #[error("failed to remove {}", format_files(*files))]
    SweepFailed { files: u64 },
    #[error("failed to check the data")]
    Check(#[from] CheckError),
    #[error(
        "the check found {}",
        format_count(*damaged, "damaged file, version, or database record", "damaged files, versions, or database records")
    )]
    Damaged { damaged: u64 },
    #[error("{what} {}", format_count(*files, "damaged file", "damaged files"))]
    DamagedFiles { what: &'static str, files: u64 },
    #[error("failed to compute the digest of {}", file.display())]
    Verify { file: PathBuf, source: DigestError },
    #[error("failed to update {}", file.display())]
    Sync { file: PathBuf, source: SyncError },
    #[error("failed to create the backup")]
    Backup(#[from] BackupError),
    #[error("failed to restore the backup")]
    Restore(#[from] RestoreError),
    #[error("failed to write the manual pages to {}", directory.display())]
    Manual { directory: PathBuf, source: io::Error },
    #[error("interrupted")]
    Interrupted,
    #[error("{what}")]
    Io { what: &'static str, source: io::Error },
}
