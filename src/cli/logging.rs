//! Structured logs on standard error: text for people by default, JSON objects for machines.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use super::error::CliError;
use super::log_lines::LogLines;
use super::log_writer::LogWriter;
use crate::config::{Log, LogFormat};

/// Starts logging for the rest of the process. The level is `default_level` if the configuration names none.
pub(super) fn start(log: &Log, default_level: &str) -> Result<(), CliError> {
    let level = log.level.as_ref().map_or(default_level, |level| level.as_str());
    let filter = EnvFilter::builder().parse(without_chatter(level)).map_err(|error| wrong(io::Error::other(error)))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(LogWriter::start());
    // Who cannot be told need not hear of it: the service goes on without its log.
    let builder = builder.log_internal_errors(false);
    match log.format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).event_format(LogLines::default()).try_init(),
        // The list of spans has all of them, the current one too.
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).try_init(),
    }
    .map_err(|error| wrong(io::Error::other(error)))
}

/// Libraries that tell too much at `info`. The MCP library logs every message, as the access log does already. The
/// client of S3 logs every attempt; what comes of them is logged once. PostgreSQL says at every start that the table
/// of migrations is there.
const CHATTER: [&str; 3] = ["rmcp", "object_store", "sqlx::postgres::notice"];

/// Such libraries are logged from `warn` on, unless the levels name them.
fn without_chatter(level: &str) -> String {
    let is_info = level.split(',').any(|directive| directive.trim().eq_ignore_ascii_case("info"));
    let named = |library: &str| level.split(',').any(|directive| directive.split('=').next() == Some(library));
    let quiet = CHATTER.into_iter().filter(|library| is_info && !named(library));
    quiet.fold(level.to_owned(), |levels, library| format!("{levels},{library}=warn"))
}

fn wrong(source: io::Error) -> CliError {
    CliError::Io { what: "logging cannot be started", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_do_not_chatter_at_info() {
        let quiet = ["rmcp=warn", "object_store=warn", "sqlx::postgres::notice=warn"];
        assert_eq!(without_chatter("info"), format!("info,{}", quiet.join(",")));
        assert_eq!(without_chatter("info,rmcp=info"), format!("info,rmcp=info,{},{}", quiet[1], quiet[2]));
        assert_eq!(without_chatter("debug"), "debug");
        assert_eq!(without_chatter("warn,strata=info"), "warn,strata=info");
    }
}
