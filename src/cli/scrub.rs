//! `strata scrub`: reads every version file and reports damage.

use clap::Args;
use serde_json::json;

use super::check::{needed_by, version};
use super::error::CliError;
use super::signals::or_interrupted;
use super::{json_line, print, print_sum};
use crate::config;
use crate::service::{App, DamagedFile, Scrubbed};

/// Read every version file at a bounded rate, and list files to restore
///
/// Compares each part of each file with its checksum. Prints a line for each damaged file with the versions that need
/// it and, if there is one, a file of the same entities that is intact; and a last line with the sum. Exits with 1 when
/// a file is damaged. A server scrubs by itself (scrub.interval_s).
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Bytes to read a second, on average, such as 8MiB; 0 is no bound (scrub.bytes_per_s) [default: 8388608]
    #[arg(long, value_name = "BYTES", value_parser = config::bytes)]
    bytes_per_s: Option<u64>,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

/// Scrubs once. If there is damage, the command fails after it has read everything.
pub(super) async fn run(app: &App, Arguments { bytes_per_s, json }: Arguments) -> Result<(), CliError> {
    let bytes_per_s = bytes_per_s.unwrap_or(app.config().scrub.bytes_per_s);
    let mut printed = Ok(());
    let mut tell = |file: &DamagedFile| {
        if printed.is_ok() {
            printed = line(file, json).and_then(|line| print(&line));
        }
    };
    let scrubbed = or_interrupted(app.maintenance().scrub(bytes_per_s, &mut tell)).await??;
    printed?;
    let Scrubbed { files, bytes, damaged } = scrubbed;
    let sum = json!({ "files": files, "bytes": bytes, "damaged": damaged });
    print_sum(json, &sum, format!("{files} files read, {bytes} bytes: {damaged} damaged\n"))?;
    let what = "the scrub found damage";
    if damaged == 0 { Ok(()) } else { Err(CliError::DamagedFiles { what, files: damaged }) }
}

fn line(file: &DamagedFile, json: bool) -> Result<String, CliError> {
    let DamagedFile { path, reason, versions, intact_copy } = file;
    if json {
        let versions: Vec<_> = versions.iter().flatten().map(version).collect();
        return json_line(&json!({ "path": path, "reason": reason, "versions": versions, "intact_copy": intact_copy }));
    }
    let needed = needed_by(versions.as_deref());
    let copy = match intact_copy {
        Some(copy) => format!("{copy} holds the same entities and is intact"),
        None => "no other file holds the same entities".to_owned(),
    };
    Ok(format!("damaged {path}: {reason} ({needed}; {copy})\n"))
}
