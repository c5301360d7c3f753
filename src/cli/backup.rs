//! `strata backup` copies all data to a directory. `strata restore` restores it.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use strata_config::Config;
use strata_service::{self as service, BackupCopyMode, BackupSummary, RestoreSummary, Services};

use super::check::run_and_print_findings;
use super::error::CliError;
use super::{format_size, print_summary};

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

/// Creates a backup. After a signal, the directory remains marked as incomplete.
pub(super) async fn back_up(services: &Services, arguments: BackupArguments) -> Result<(), CliError> {
    let BackupArguments { directory, copy, keep_going, json } = arguments;
    let files = if copy { BackupCopyMode::AlwaysCopy } else { BackupCopyMode::LinkIfPossible };
    let backed_up = run_and_print_findings("copying", keep_going, json, async |display, damaged| {
        let mut report = |done: &BackupSummary| display.show_files(done.files, done.bytes);
        Ok(Box::pin(services.maintenance.backup(&directory, files, damaged, &mut report)).await?)
    });
    let BackupSummary { files, bytes, linked, damaged } = backed_up.await?;
    let directory = directory.display().to_string();
    let summary =
        json!({ "directory": directory, "files": files, "bytes": bytes, "linked": linked, "damaged": damaged });
    let text = format!("backed up {} to {directory}: {linked} linked", format_size(files, bytes));
    print_backup_summary(json, &summary, text, damaged, "the backup was created, but it contains")
}

/// Restores a backup. After a signal, the metadata database is empty, and copied files remain.
pub(super) async fn restore(arguments: RestoreArguments, config: Config) -> Result<(), CliError> {
    let RestoreArguments { directory, keep_going, json } = arguments;
    let restored = run_and_print_findings("restoring", keep_going, json, async |display, damaged| {
        let mut report = |done: &RestoreSummary| display.show_files(done.files, done.bytes);
        Ok(Box::pin(service::restore(&config, &directory, damaged, &mut report)).await?)
    });
    let RestoreSummary { files, bytes, copied, damaged } = restored.await?;
    let directory = directory.display().to_string();
    let summary =
        json!({ "directory": directory, "files": files, "bytes": bytes, "copied": copied, "damaged": damaged });
    let text = format!("restored {} from {directory}: {copied} copied", format_size(files, bytes));
    print_backup_summary(json, &summary, text, damaged, "the backup was restored, but it contains")
}

fn print_backup_summary(
    json: bool,
    summary: &Value,
    text: String,
    damaged: u64,
    what: &'static str,
) -> Result<(), CliError> {
    let more = if damaged == 0 { String::new() } else { format!(", {damaged} more damaged") };
    print_summary(json, summary, format!("{text}{more}\n"))?;
    if damaged == 0 { Ok(()) } else { Err(CliError::DamagedFiles { what, files: damaged }) }
}
