//! Structured logs on standard error: text for people by default, JSON objects for machines.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use super::error::CliError;
use crate::config::{Log, LogFormat};

/// Starts logging for the rest of the process. The level is `default_level` if the configuration names none.
pub(super) fn start(log: &Log, default_level: &str) -> Result<(), CliError> {
    let level = log.level.as_ref().map_or(default_level, |level| level.as_str());
    let filter =
        EnvFilter::builder().parse(without_every_message(level)).map_err(|error| wrong(io::Error::other(error)))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match log.format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        // The list of spans has all of them, the current one too.
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).try_init(),
    }
    .map_err(|error| wrong(io::Error::other(error)))
}

/// At `info`, the MCP library logs every message. The access log does that already.
fn without_every_message(level: &str) -> String {
    let is_info = level.split(',').any(|directive| directive.trim().eq_ignore_ascii_case("info"));
    if is_info && !level.contains("rmcp") { format!("{level},rmcp=warn") } else { level.to_owned() }
}

fn wrong(source: io::Error) -> CliError {
    CliError::Io { what: "logging cannot be started", source }
}
