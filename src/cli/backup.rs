//! `strata backup`: writes a directory that a server can serve; `strata restore`: puts it into an empty catalog and
//! store.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::check::with_findings;
use super::error::CliError;
use super::print_sum;
use crate::config::Config;
use crate::service::{self, App, BackedUp, BackupFiles, Restored};

/// Copy the catalog and all files, while a server runs
///
/// The copy is of one moment, verified, and complete when the command succeeds; `strata serve --data DIR` serves it.
/// Until then it is marked as incomplete, and no server opens it.
#[derive(Debug, Args)]
pub(super) struct BackupArguments {
    /// A new or empty directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Copy files even if they could be linked, which is on one file system. A damaged disk would take both links
    #[arg(long)]
    copy: bool,
    /// Go on past version files that are damaged or missing: print a line for each, and exit with 1 at the end
    #[arg(long)]
    keep_going: bool,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

/// Put a backup into the catalog and store of the configuration, which must be empty
///
/// Takes the data directory of a server with SQLite and a directory, too, while that server is stopped: so one
/// machine becomes several, on PostgreSQL and S3. All files are verified. What was interrupted goes on where it was.
/// DIR is only read.
#[derive(Debug, Args)]
pub(super) struct RestoreArguments {
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

/// Makes a backup. A signal ends it, and leaves a directory marked as incomplete.
pub(super) async fn back_up(app: &App, arguments: BackupArguments) -> Result<(), CliError> {
    let BackupArguments { directory, copy, keep_going, json } = arguments;
    let files = if copy { BackupFiles::Copied } else { BackupFiles::LinkedWherePossible };
    let backed_up = with_findings("copying", keep_going, json, async |display, damaged| {
        let mut tell = |done: &BackedUp| display.show_files(done.files, done.bytes);
        Ok(Box::pin(app.maintenance().backup(&directory, files, damaged, &mut tell)).await?)
    });
    let BackedUp { files, bytes, linked, damaged } = backed_up.await?;
    let (directory, more) = (directory.display().to_string(), more_damaged(damaged));
    let sum = json!({ "directory": directory, "files": files, "bytes": bytes, "linked": linked, "damaged": damaged });
    print_sum(json, &sum, format!("{files} files, {bytes} bytes, {linked} of them linked{more}: {directory}\n"))?;
    let what = "the backup was made, with damage";
    if damaged == 0 { Ok(()) } else { Err(CliError::DamagedFiles { what, files: damaged }) }
}

/// Restores a backup. A signal ends it: the catalog stays empty, files that were copied stay.
pub(super) async fn restore(arguments: RestoreArguments, config: Config) -> Result<(), CliError> {
    let RestoreArguments { directory, keep_going, json } = arguments;
    let restored = with_findings("restoring", keep_going, json, async |display, damaged| {
        let mut tell = |done: &Restored| display.show_files(done.files, done.bytes);
        Ok(Box::pin(service::restore(&config, &directory, damaged, &mut tell)).await?)
    });
    let Restored { files, bytes, copied, damaged } = restored.await?;
    let (directory, more) = (directory.display().to_string(), more_damaged(damaged));
    let sum = json!({ "directory": directory, "files": files, "bytes": bytes, "copied": copied, "damaged": damaged });
    print_sum(json, &sum, format!("{files} files, {bytes} bytes, {copied} of them copied{more}: from {directory}\n"))?;
    let what = "the backup was restored, with damage";
    if damaged == 0 { Ok(()) } else { Err(CliError::DamagedFiles { what, files: damaged }) }
}

/// What the sum of a command says of files besides that are damaged: nothing if there are none.
fn more_damaged(files: u64) -> String {
    if files == 0 { String::new() } else { format!(", {files} more damaged") }
}
