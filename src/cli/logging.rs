//! Structured logs on standard error: text for people by default, JSON objects for machines.
//!
//! A thread of `tracing-appender` writes the lines, so that no request waits for a slow reader of standard error. If
//! the reader stops and [`MAX_WAITING_LINES`] wait, further lines are lost. The last line of the process says how many:
//!
//! ```text
//! WARN strata::cli::logging: dropped log lines because standard error was not being read lines=1204
//! ```

use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use strata_config::{Log, LogFormat};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use super::error::CliError;

/// Lines that wait for the reader of standard error.
const MAX_WAITING_LINES: usize = 4_096;

/// Lines that wait at the same time are written together, up to this size.
const WRITE_BYTES: usize = 64 << 10;

/// The thread that writes, and the number of lost lines.
static WRITER: Mutex<Option<(WorkerGuard, ErrorCounter)>> = Mutex::new(None);

/// Starts logging for the rest of the process. The level is `default_level` if the configuration names none.
pub(super) fn start(log: &Log, default_level: &str) -> Result<(), CliError> {
    let failed = |source| CliError::Io { what: "failed to start logging", source };
    let level = log.level.as_ref().map_or(default_level, |level| level.as_str());
    let filter = EnvFilter::builder().parse(without_chatter(level)).map_err(|error| failed(io::Error::other(error)))?;
    let lines = NonBlockingBuilder::default().buffered_lines_limit(MAX_WAITING_LINES).thread_name("strata-log");
    let (writer, guard) = lines.finish(BufWriter::with_capacity(WRITE_BYTES, StandardError));
    *WRITER.lock().unwrap_or_else(PoisonError::into_inner) = Some((guard, writer.error_counter()));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    // The errors would go to standard error as well.
    let builder = builder.log_internal_errors(false);
    match log.format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        // The list of spans includes the current one.
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).try_init(),
    }
    .map_err(|error| failed(io::Error::other(error)))
}

/// Waits until all lines are written, for about a second at most.
pub(super) fn end() {
    let writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner).take();
    let lines = writer.as_ref().map_or(0, |(_, lost)| lost.dropped_lines());
    if lines > 0 {
        tracing::warn!(lines, "dropped log lines because standard error was not being read");
    }
    drop(writer);
}

/// Standard error without its errors, which nobody could read. The next lines may succeed.
struct StandardError;

impl Write for StandardError {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(lines);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Libraries that log too much at `info`. The MCP library logs every message, but the access log contains them already.
/// The S3 client logs every attempt, but strata logs the outcome. PostgreSQL logs at every start that the table of
/// migrations exists.
const CHATTY_LIBRARIES: [&str; 3] = ["rmcp", "object_store", "sqlx::postgres::notice"];

/// The levels with `warn` for chatty libraries that they do not name.
fn without_chatter(level: &str) -> String {
    let is_info = level.split(',').any(|directive| directive.trim().eq_ignore_ascii_case("info"));
    let named = |library: &str| level.split(',').any(|directive| directive.split('=').next() == Some(library));
    let quiet = CHATTY_LIBRARIES.into_iter().filter(|library| is_info && !named(library));
    quiet.fold(level.to_owned(), |levels, library| format!("{levels},{library}=warn"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_excludes_chatty_libraries() {
        let quiet = ["rmcp=warn", "object_store=warn", "sqlx::postgres::notice=warn"];
        assert_eq!(without_chatter("info"), format!("info,{}", quiet.join(",")));
        assert_eq!(without_chatter("info,rmcp=info"), format!("info,rmcp=info,{},{}", quiet[1], quiet[2]));
        assert_eq!(without_chatter("debug"), "debug");
        assert_eq!(without_chatter("warn,strata=info"), "warn,strata=info");
    }
}
