//! `strata backup`: writes a directory that a server can serve; `strata restore`: puts it into an empty catalog and
//! store.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use strata_config::Config;
use strata_service::{self as service, App, BackedUp, BackupFiles, Restored};

use super::check::with_findings;
use super::error::CliError;
use super::{format_size, print_sum};

/// Copy the metadata database and all files, even while a server is running
///
/// If the command succeeds, the copy is consistent, complete, and verified, and you can serve it with `strata serve
/// --data DIR`. Until then, the copy is marked as incomplete, and servers refuse to open it.
#[derive(Debug, Args)]
pub(super) struct BackupArguments {
    /// New or empty directory for the backup
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Copy files instead of linking them. By default, files on the same file system are linked, so disk damage affects
    /// both the original and the backup
    #[arg(long)]
    copy: bool,
    /// Continue if version files are damaged or missing. Prints one line for each of these files, and exits with status
    /// 1 at the end
    #[arg(long)]
    keep_going: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Restore a backup into the configured metadata database and store, which must be empty
///
/// You can also restore the data directory of a stopped server, for example to move from SQLite and a local store to
/// PostgreSQL and S3. The command verifies all files and does not change DIR. If it is interrupted, run it again to
/// continue.
#[derive(Debug, Args)]
pub(super) struct RestoreArguments {
    /// Directory that `strata backup` created, or the data directory of a stopped server
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Continue if version files are damaged or missing. Prints one line for each of these files, and exits with status
    /// 1 at the end
    #[arg(long)]
    keep_going: bool,
    /// Print one JSON object per line
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
    let directory = directory.display().to_string();
    let sum = json!({ "directory": directory, "files": files, "bytes": bytes, "linked": linked, "damaged": damaged });
    let size = format_size(files, bytes);
    print_sum(json, &sum, format!("backed up {size} to {directory}: {linked} linked{}\n", more_damaged(damaged)))?;
    let what = "the backup was created, but it contains";
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
    let directory = directory.display().to_string();
    let sum = json!({ "directory": directory, "files": files, "bytes": bytes, "copied": copied, "damaged": damaged });
    let size = format_size(files, bytes);
    print_sum(json, &sum, format!("restored {size} from {directory}: {copied} copied{}\n", more_damaged(damaged)))?;
    let what = "the backup was restored, but it contains";
    if damaged == 0 { Ok(()) } else { Err(CliError::DamagedFiles { what, files: damaged }) }
}

/// What the sum of a command says of files besides that are damaged: nothing if there are none.
fn more_damaged(files: u64) -> String {
    if files == 0 { String::new() } else { format!(", {files} more damaged") }
}
