//! `strata scrub`: reads every version file and reports damage.

use clap::Args;
use serde_json::json;
use strata_config as config;
use strata_service::{DamagedFile, ScrubSummary, Services};

use super::check::{describe_dependent_versions, file_reference_json};
use super::error::CliError;
use super::signals::run_until_signal;
use super::{format_size, print_stdout, print_summary, print_unless_failed, to_json_line};

/// Verify every version file at a limited rate, and list damaged files
///
/// Compares every part of every file with its checksum. For each damaged file, prints one line with the versions that
/// need it and, if possible, an intact file with the same entities. Then prints a summary. Exits with status 1 if any
/// file is damaged. A running server scrubs regularly (scrub.interval_s).
#[derive(Debug, Args)]
pub(super) struct ScrubArguments {
    /// Average number of bytes to read per second, such as 8MiB; 0 means no limit (scrub.bytes_per_s) [default:
    /// 8388608]
    #[arg(long, value_name = "BYTES", value_parser = config::parse_bytes)]
    bytes_per_s: Option<u64>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(services: &Services, arguments: ScrubArguments) -> Result<(), CliError> {
    let ScrubArguments { bytes_per_s, json } = arguments;
    let bytes_per_s = bytes_per_s.unwrap_or(services.config.scrub.bytes_per_s);
    let mut printed = Ok(());
    let mut report =
        |file: &DamagedFile| print_unless_failed(&mut printed, || print_stdout(&format_damaged_file(file, json)?));
    let scrubbed = run_until_signal(services.maintenance.scrub(bytes_per_s, &mut report)).await??;
    printed?;
    let ScrubSummary { files, bytes, damaged } = scrubbed;
    let sum = json!({ "files": files, "bytes": bytes, "damaged": damaged });
    print_summary(json, &sum, format!("read {}: {damaged} damaged\n", format_size(files, bytes)))?;
    let what = "the scrub found";
    if damaged == 0 { Ok(()) } else { Err(CliError::DamagedFiles { what, files: damaged }) }
}

fn format_damaged_file(file: &DamagedFile, json: bool) -> Result<String, CliError> {
    let DamagedFile { path, reason, versions, intact_copy } = file;
    if json {
        let versions: Vec<_> = versions.iter().flatten().map(file_reference_json).collect();
        let line = json!({ "path": path, "reason": reason, "versions": versions, "intact_copy": intact_copy });
        return to_json_line(&line);
    }
    let needed = describe_dependent_versions(versions.as_deref());
    let copy = match intact_copy {
        Some(copy) => format!("{copy} is intact and contains the same entities"),
        None => "no other intact file contains the same entities".to_owned(),
    };
    Ok(format!("damaged {path}: {reason} ({needed}; {copy})\n"))
}
