//! `strata backup`: writes a directory that a server can serve.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::check::{more_damaged, with_findings};
use super::error::CliError;
use super::{closing, json_line, print};
use crate::config::Config;
use crate::service::{App, BackedUp, BackupFiles};

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

/// Makes a backup. A signal ends it, and leaves a directory marked as incomplete.
pub(super) async fn run(arguments: Arguments, config: Config) -> Result<(), CliError> {
    let app = App::open_existing(&config).await?;
    closing(&app, Box::pin(back_up(&app, &arguments))).await
}

async fn back_up(app: &App, arguments: &Arguments) -> Result<(), CliError> {
    let Arguments { directory, copy, keep_going, json } = arguments;
    let files = if *copy { BackupFiles::Copied } else { BackupFiles::LinkedWherePossible };
    let backed_up = with_findings("copying", *keep_going, *json, async |display, damaged| {
        let mut tell = |done: &BackedUp| display.show(done.files, done.bytes);
        Ok(Box::pin(app.maintenance().backup(directory, files, damaged, &mut tell)).await?)
    });
    let BackedUp { files, bytes, linked, damaged } = backed_up.await?;
    let directory = directory.display().to_string();
    print(&match json {
        true => json_line(&json!({
            "directory": directory, "files": files, "bytes": bytes, "linked": linked, "damaged": damaged,
        }))?,
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
