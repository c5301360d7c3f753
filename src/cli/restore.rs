//! `strata restore`: puts a backup into an empty catalog and store.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::check::{findings, more_damaged};
use super::error::CliError;
use super::progress::FilesDisplay;
use super::signals::Signals;
use super::{json_line, print};
use crate::config::Config;
use crate::service::{self, OnDamage, Restored};

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
    /// Go on past version files that are damaged or missing: print a line for each, and exit with 1 at the end
    #[arg(long)]
    keep_going: bool,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

/// The last line that the command prints.
#[derive(Serialize)]
struct Line {
    directory: String,
    files: u64,
    bytes: u64,
    copied: u64,
    damaged: u64,
}

/// Restores a backup. A signal ends it: the catalog stays empty, files that were copied stay.
pub(super) async fn run(arguments: Arguments, config: Config) -> Result<(), CliError> {
    let mut signals = Signals::listen()?;
    let display = FilesDisplay::new("restoring");
    let mut printed = Ok(());
    let mut tell_damage = findings(&display, arguments.json, &mut printed);
    let damaged = match arguments.keep_going {
        true => OnDamage::GoOn(&mut tell_damage),
        false => OnDamage::End,
    };
    let mut tell = |done: &Restored| display.show(done.files, done.bytes);
    let restored = tokio::select! {
        restored = Box::pin(service::restore(&config, &arguments.directory, damaged, &mut tell)) => restored?,
        _ = signals.next() => return Err(CliError::Interrupted),
    };
    let directory = arguments.directory.display().to_string();
    let Restored { files, bytes, copied, damaged } = restored;
    drop(tell_damage);
    drop(display);
    printed?;
    print(&match arguments.json {
        true => json_line(&Line { directory, files, bytes, copied, damaged })?,
        false => {
            let damaged = more_damaged(damaged);
            format!("{files} files, {bytes} bytes, {copied} of them copied{damaged}: from {directory}\n")
        }
    })?;
    match damaged {
        0 => Ok(()),
        files => Err(CliError::RestoredDamage { files }),
    }
}
