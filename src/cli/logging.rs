//! Structured logs on standard error: text for people, or JSON for machines.
//!
//! A thread of `tracing-appender` writes the lines, so that no request waits for a slow reader of standard error. If
//! [`MAX_QUEUED_LINES`] lines are queued, further lines are dropped. The last line reports their number.

use std::io::{self, BufWriter, IsTerminal, Write};

use parking_lot::Mutex;

use strata_config::{LogConfig, LogFormat};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use super::error::CliError;

const MAX_QUEUED_LINES: usize = 4_096;

/// Maximum size of one write of queued log lines.
const WRITE_BUFFER_BYTES: usize = 64 << 10;

static LOG_WRITER: Mutex<Option<(WorkerGuard, ErrorCounter)>> = Mutex::new(None);

/// Starts logging for the rest of the process. `default_level` applies if the configuration sets no level.
pub(super) fn start_logging(log: &LogConfig, default_level: &str) -> Result<(), CliError> {
    let failed = |source| CliError::Io { what: "failed to start logging", source };
    let level = log.level.as_ref().map_or(default_level, |level| level.as_str());
    let filter =
        EnvFilter::builder().parse(quiet_chatty_libraries(level)).map_err(|error| failed(io::Error::other(error)))?;
    let lines = NonBlockingBuilder::default().buffered_lines_limit(MAX_QUEUED_LINES).thread_name("strata-log");
    let (writer, guard) = lines.finish(BufWriter::with_capacity(WRITE_BUFFER_BYTES, StandardErrorWriter));
    *LOG_WRITER.lock() = Some((guard, writer.error_counter()));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    // The logger would report a failed write on standard error, which has just failed.
    let builder = builder.log_internal_errors(false);
    match log.format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        // The current span would be logged twice, because the list of spans contains it.
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).try_init(),
    }
    .map_err(|error| failed(io::Error::other(error)))
}

/// Waits until all queued log lines are written, but for at most about a second.
pub(super) fn flush_and_stop_logging() {
    let writer = LOG_WRITER.lock().take();
    let lines = writer.as_ref().map_or(0, |(_, lost)| lost.dropped_lines());
    if lines > 0 {
        tracing::warn!(lines, "dropped log lines because standard error was not being read");
    }
    drop(writer);
}

/// Standard error as the log output. Write errors are ignored: no one could read a report, and later lines can succeed.
struct StandardErrorWriter;

impl Write for StandardErrorWriter {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(lines);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Libraries that log too much at `info`. The MCP library logs messages that the access log already contains. The S3
/// client logs attempts, but strata logs the outcome. PostgreSQL logs at every start that the migrations table exists.
const CHATTY_LIBRARIES: [&str; 3] = ["rmcp", "object_store", "sqlx::postgres::notice"];

/// If the log filter `level` contains `info`, adds the level `warn` for chatty libraries that `level` does not mention.
fn quiet_chatty_libraries(level: &str) -> String {
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
        assert_eq!(quiet_chatty_libraries("info"), format!("info,{}", quiet.join(",")));
        assert_eq!(quiet_chatty_libraries("info,rmcp=info"), format!("info,rmcp=info,{},{}", quiet[1], quiet[2]));
        assert_eq!(quiet_chatty_libraries("debug"), "debug");
        assert_eq!(quiet_chatty_libraries("warn,strata=info"), "warn,strata=info");
    }
}
