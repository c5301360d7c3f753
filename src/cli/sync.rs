//! `strata sync`: keeps a local copy of a dataset up to date.

use std::path::PathBuf;

use clap::Args;
use strata_sync::{SyncOutcome, SyncRequest, SyncUrl, sync};

use super::error::CliError;
use super::{format_count, print_stdout};

/// Download a dataset as JSON Lines, and later only its changes
///
/// Writes the number of the version to FILE.version. If FILE or FILE.version is missing, or if FILE was changed,
/// downloads the whole version. Verifies the digest of the version, and replaces FILE as a whole. If the command fails,
/// both files stay unchanged.
#[derive(Debug, Args)]
#[command(after_help = "Example: strata sync https://data.example.org/files/7/countries/active.jsonl countries.jsonl")]
pub(super) struct SyncArguments {
    /// URL of the JSON Lines file: http(s)://HOST/files/DATASET_ID/NAME_SLUG/VERSION.jsonl
    #[arg(value_name = "URL")]
    url: SyncUrl,
    /// Local copy
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Private key of a private dataset
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

pub(super) async fn run(SyncArguments { url, file, key }: &SyncArguments) -> Result<(), CliError> {
    let shown = file.display().to_string();
    let outcome = sync(&SyncRequest { url: url.clone(), file: file.clone(), key: key.clone() }).await;
    let text = match outcome.map_err(|source| CliError::Sync { file: file.clone(), source })? {
        SyncOutcome::Downloaded { version } => format!("downloaded version {version} to {shown}"),
        SyncOutcome::Unchanged { version } => format!("{shown} is already version {version}"),
        SyncOutcome::Updated { since, version, edits } => {
            let edits = format_count(edits, "edit", "edits");
            format!("updated {shown} from version {since} to version {version} ({edits})")
        }
    };
    print_stdout(&format!("{text}\n"))
}
