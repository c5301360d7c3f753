//! `strata restore`: puts a backup into an empty catalog and store.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::error::CliError;
use super::signals::Signals;
use super::{json_line, print};
use crate::config::Config;
use crate::service;

/// Put a backup into the catalog and store of the configuration, which must be empty
///
/// Takes the data directory of a server with SQLite and a directory, too, while that server is stopped: so one
/// machine becomes several, on PostgreSQL and S3. All files are verified. What was interrupted goes on where it was.
/// DIR is only read.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// A directory that `strata backup` made, or the data directory of a stopped server
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Print a line of JSON
    #[arg(long)]
    json: bool,
}

/// The line that the command prints.
#[derive(Serialize)]
struct Line {
    directory: String,
    files: u64,
    bytes: u64,
    copied: u64,
}

/// Restores a backup. A signal ends it: the catalog stays empty, files that were copied stay.
pub(super) async fn run(arguments: Arguments, config: Config) -> Result<(), CliError> {
    let mut signals = Signals::listen()?;
    let mut tell = |_: &_| {};
    let restored = tokio::select! {
        restored = Box::pin(service::restore(&config, &arguments.directory, &mut tell)) => restored?,
        _ = signals.next() => return Err(CliError::Interrupted),
    };
    let directory = arguments.directory.display().to_string();
    let (files, bytes, copied) = (restored.files, restored.bytes, restored.copied);
    print(&match arguments.json {
        true => json_line(&Line { directory, files, bytes, copied })?,
        false => format!("{files} files, {bytes} bytes, {copied} of them copied: from {directory}\n"),
    })
}
