//! `strata sweep`: removes unused files.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use strata_config::Config;
use strata_service::{ProcessPurpose, Services, SweepSummary, SweptFile};

use super::error::CliError;
use super::signals::run_until_signal;
use super::{
    duration, format_bytes, format_size, print_stdout, print_summary, print_unless_failed, run_and_close, to_json_line,
};

/// Remove unused files
///
/// Prints one line for each removed file, and then a summary. A running server sweeps regularly (sweep.interval_s).
#[derive(Debug, Args)]
pub(super) struct SweepArguments {
    /// Remove only files that have been unused for at least this time, such as 90s, 90min, "1h 30min", or 7d
    /// (sweep.older_than_s) [default: 1d]
    #[arg(long, value_name = "TIME", value_parser = duration::parse_duration)]
    older_than: Option<Duration>,
    /// Allow any value for --older-than. Use this option only if no server is running
    #[arg(long)]
    offline: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Sweeps once. Logs files that cannot be removed, and returns an error at the end if there are any.
pub(super) async fn run(arguments: SweepArguments, config: Config) -> Result<(), CliError> {
    let older_than = arguments.older_than.unwrap_or(Duration::from_secs(config.sweep.older_than_s));
    if !arguments.offline && older_than <= config.max_read_duration() {
        return Err(CliError::SweepTooEarly { longest_read_s: config.max_read_duration().as_secs() });
    }
    let services = Services::open(&config, ProcessPurpose::Maintain).await?;
    run_and_close(&services, sweep(&services, older_than, &arguments)).await
}

async fn sweep(services: &Services, older_than: Duration, arguments: &SweepArguments) -> Result<(), CliError> {
    let SweepArguments { offline, json, .. } = *arguments;
    let mut printed = Ok(());
    let mut report = |file: &SweptFile| match &file.failure {
        Some(error) => tracing::warn!(path = file.path, error, "failed to remove file"),
        None => print_unless_failed(&mut printed, || print_stdout(&format_swept_file(file, json)?)),
    };
    let sweeping = async {
        if offline {
            services.refreshes.end_writes_of_exited_processes().await?;
        }
        services.maintenance.sweep(older_than, &mut report).await
    };
    let swept = run_until_signal(sweeping).await??;
    printed?;
    let SweepSummary { removed, removed_bytes, failed, was_held } = swept;
    let rest = if was_held { "; a backup or check is still using files, so run the sweep again later" } else { "" };
    let sum = json!({ "removed": removed, "removed_bytes": removed_bytes, "failed": failed, "held": was_held });
    print_summary(json, &sum, format!("removed {}{rest}\n", format_size(removed, removed_bytes)))?;
    if failed == 0 { Ok(()) } else { Err(CliError::SweepFailed { files: failed }) }
}

fn format_swept_file(file: &SweptFile, json: bool) -> Result<String, CliError> {
    let SweptFile { path, size_bytes, reason, .. } = file;
    match json {
        true => to_json_line(&json!({ "path": path, "size_bytes": size_bytes, "reason": reason.name() })),
        false => Ok(format!("removed {path} ({}, {})\n", format_bytes(*size_bytes), reason.name())),
    }
}
