//! `strata restore`: puts a backup into an empty catalog and store.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::check::{more_damaged, with_findings};
use super::error::CliError;
use super::{json_line, print};
use crate::config::Config;
use crate::service::{self, Restored};

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

/// Restores a backup. A signal ends it: the catalog stays empty, files that were copied stay.
pub(super) async fn run(arguments: Arguments, config: Config) -> Result<(), CliError> {
    let Arguments { directory, keep_going, json } = arguments;
    let restored = with_findings("restoring", keep_going, json, async |display, damaged| {
        let mut tell = |done: &Restored| display.show(done.files, done.bytes);
        Ok(Box::pin(service::restore(&config, &directory, damaged, &mut tell)).await?)
    });
    let Restored { files, bytes, copied, damaged } = restored.await?;
    let directory = directory.display().to_string();
    print(&match json {
        true => json_line(&json!({
            "directory": directory, "files": files, "bytes": bytes, "copied": copied, "damaged": damaged,
        }))?,
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
