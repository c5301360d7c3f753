//! `strata backup`: writes a directory that a server can serve.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::error::CliError;
use super::signals::Signals;
use super::{closing, json_line, print};
use crate::config::Config;
use crate::service::{App, BackupFiles};

/// Copy the catalog and all files, while a server runs
///
/// The copy is of one moment, verified, and complete when the command succeeds; `strata serve --data DIR` serves it.
/// Until then it is marked as incomplete, and no server opens it.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// A new or empty directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Copy files even if they could be linked, which is on one file system. A damaged disk would take both links
    #[arg(long)]
    copy: bool,
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
    linked: u64,
}

/// Makes a backup. A signal ends it, and leaves a directory marked as incomplete.
pub(super) async fn run(arguments: Arguments, config: Config) -> Result<(), CliError> {
    let app = App::open_existing(&config).await?;
    closing(&app, Box::pin(back_up(&app, &arguments))).await
}

async fn back_up(app: &App, arguments: &Arguments) -> Result<(), CliError> {
    let mut signals = Signals::listen()?;
    let files = if arguments.copy { BackupFiles::Copied } else { BackupFiles::LinkedWherePossible };
    let mut tell = |_: &_| {};
    let backed_up = tokio::select! {
        backed_up = app.maintenance().backup(&arguments.directory, files, &mut tell) => backed_up?,
        _ = signals.next() => return Err(CliError::Interrupted),
    };
    let directory = arguments.directory.display().to_string();
    let (files, bytes, linked) = (backed_up.files, backed_up.bytes, backed_up.linked);
    print(&match arguments.json {
        true => json_line(&Line { directory, files, bytes, linked })?,
        false => format!("{files} files, {bytes} bytes, {linked} of them linked: {directory}\n"),
    })
}
