//! Structured logs on standard error: text for people by default, JSON objects for machines.
//!
//! A thread writes the lines, so that no request waits for a slow reader of standard error. If the reader stops,
//! [`MAX_WAITING_LINES`] wait, further lines are lost, and a warning says later how many:
//!
//! ```text
//! WARN strata::cli::logging: dropped log lines because standard error was not being read lines=1204
//! ```

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use strata_config::{Log, LogFormat};
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use super::error::CliError;

/// Lines that wait for the reader of standard error.
const MAX_WAITING_LINES: usize = 4_096;

/// How long lines are gathered. A busy service logs thousands of lines a second, and the write of a line costs more
/// time than its formatting.
const GATHER_INTERVAL: Duration = Duration::from_millis(10);

/// Gathered lines are written once they have this size.
const WRITE_BYTES: usize = 64 << 10;

/// Ends the thread that writes.
static WORKER: Mutex<Option<WorkerGuard>> = Mutex::new(None);

/// Starts logging for the rest of the process. The level is `default_level` if the configuration names none.
pub(super) fn start(log: &Log, default_level: &str) -> Result<(), CliError> {
    let level = log.level.as_ref().map_or(default_level, |level| level.as_str());
    let filter = EnvFilter::builder().parse(without_chatter(level)).map_err(|error| wrong(io::Error::other(error)))?;
    let (writer, worker) = spawn_writer(io::stderr());
    *WORKER.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    // The errors would go to standard error as well.
    let builder = builder.log_internal_errors(false);
    match log.format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        // The list of spans has all of them, the current one too.
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).try_init(),
    }
    .map_err(|error| wrong(io::Error::other(error)))
}

/// Waits until all lines are written, for about a second at most.
pub(super) fn end() {
    drop(WORKER.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// Starts the thread that writes to `sink`.
fn spawn_writer(sink: impl Write + Send + 'static) -> (NonBlocking, WorkerGuard) {
    let lost = Arc::new(OnceLock::new());
    let builder = NonBlockingBuilder::default().buffered_lines_limit(MAX_WAITING_LINES).thread_name("strata-log");
    let (writer, worker) = builder.finish(LineGatherer::new(sink, lost.clone()));
    lost.get_or_init(|| writer.error_counter());
    (writer, worker)
}

/// Writes the lines of [`GATHER_INTERVAL`] together.
struct LineGatherer<W> {
    sink: W,
    lines: Vec<u8>,
    /// Counts lost lines, from just after the thread has started.
    lost: Arc<OnceLock<ErrorCounter>>,
    reported: usize,
}

impl<W: Write> LineGatherer<W> {
    fn new(sink: W, lost: Arc<OnceLock<ErrorCounter>>) -> LineGatherer<W> {
        LineGatherer { sink, lines: Vec::new(), lost, reported: 0 }
    }

    fn write_lines(&mut self) {
        // An error has no reader. The next lines may succeed.
        let _ = self.sink.write_all(&self.lines);
        self.lines.clear();
    }

    /// Lines that were lost since the last call.
    fn newly_lost(&mut self) -> usize {
        let lost = self.lost.get().map_or(0, ErrorCounter::dropped_lines);
        lost - std::mem::replace(&mut self.reported, lost)
    }
}

impl<W: Write> Write for LineGatherer<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.lines.extend_from_slice(line);
        if self.lines.len() >= WRITE_BYTES {
            self.write_lines();
        }
        Ok(line.len())
    }

    /// Is called when no further line waits, and at the end.
    fn flush(&mut self) -> io::Result<()> {
        if !self.lines.is_empty() {
            self.write_lines();
            thread::sleep(GATHER_INTERVAL);
        }
        let lines = self.newly_lost();
        if lines > 0 {
            tracing::warn!(lines, "dropped log lines because standard error was not being read");
        }
        Ok(())
    }
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
    CliError::Io { what: "failed to start logging", source }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Hands lines on to a reader, and waits for it.
    struct SlowSink(mpsc::SyncSender<Vec<u8>>);

    impl Write for SlowSink {
        fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
            self.0.send(lines.to_owned()).map_err(io::Error::other)?;
            Ok(lines.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn stalled_reader_loses_and_counts_lines() {
        let (sender, reader) = mpsc::sync_channel(0);
        let (mut writer, worker) = spawn_writer(SlowSink(sender));
        let sent = 4 * MAX_WAITING_LINES;
        for number in 0..sent {
            writer.write_all(format!("{number:0100}\n").as_bytes()).expect("queued or lost");
        }
        let counter = Arc::new(OnceLock::from(writer.error_counter()));
        let mut gatherer = LineGatherer::new(io::sink(), counter);
        let lost = gatherer.newly_lost();
        assert!(lost >= 2 * MAX_WAITING_LINES, "{lost}");
        assert_eq!(gatherer.newly_lost(), 0);

        drop(writer);
        let end = thread::spawn(move || drop(worker));
        let text = String::from_utf8(reader.iter().flatten().collect()).expect("text");
        let numbers: Vec<usize> = text.lines().map(|line| line.parse().expect("a whole line")).collect();
        assert_eq!(numbers.len() + lost, sent);
        assert!(numbers.is_sorted(), "in their order");
        end.join().expect("the thread ends");
    }

    #[test]
    fn libraries_do_not_chatter_at_info() {
        let quiet = ["rmcp=warn", "object_store=warn", "sqlx::postgres::notice=warn"];
        assert_eq!(without_chatter("info"), format!("info,{}", quiet.join(",")));
        assert_eq!(without_chatter("info,rmcp=info"), format!("info,rmcp=info,{},{}", quiet[1], quiet[2]));
        assert_eq!(without_chatter("debug"), "debug");
        assert_eq!(without_chatter("warn,strata=info"), "warn,strata=info");
    }
}
