//! `strata backup`: writes a directory that a server can serve.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::check::{findings, more_damaged};
use super::error::CliError;
use super::progress::FilesDisplay;
use super::signals::Signals;
use super::{closing, json_line, print};
use crate::config::Config;
use crate::service::{App, BackedUp, BackupFiles, OnDamage};

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
    linked: u64,
    damaged: u64,
}

/// Makes a backup. A signal ends it, and leaves a directory marked as incomplete.
pub(super) async fn run(arguments: Arguments, config: Config) -> Result<(), CliError> {
    let app = App::open_existing(&config).await?;
    closing(&app, Box::pin(back_up(&app, &arguments))).await
}

async fn back_up(app: &App, arguments: &Arguments) -> Result<(), CliError> {
    let mut signals = Signals::listen()?;
    let files = if arguments.copy { BackupFiles::Copied } else { BackupFiles::LinkedWherePossible };
    let display = FilesDisplay::new("copying");
    let mut printed = Ok(());
    let mut tell_damage = findings(&display, arguments.json, &mut printed);
    let damaged = match arguments.keep_going {
        true => OnDamage::GoOn(&mut tell_damage),
        false => OnDamage::End,
    };
    let mut tell = |done: &BackedUp| display.show(done.files, done.bytes);
    let backed_up = tokio::select! {
        backed_up = app.maintenance().backup(&arguments.directory, files, damaged, &mut tell) => backed_up?,
        _ = signals.next() => return Err(CliError::Interrupted),
    };
    let directory = arguments.directory.display().to_string();
    let BackedUp { files, bytes, linked, damaged } = backed_up;
    drop(tell_damage);
    drop(display);
    printed?;
    print(&match arguments.json {
        true => json_line(&Line { directory, files, bytes, linked, damaged })?,
        false => {
            let damaged = more_damaged(damaged);
            format!("{files} files, {bytes} bytes, {linked} of them linked{damaged}: {directory}\n")
        }
    })?;
    match damaged {
        0 => Ok(()),
        files => Err(CliError::BackedUpDamage { files }),
    }
}
