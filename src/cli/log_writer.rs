//! Standard error as the log's writer. A busy service has thousands of lines a second, and writing each of them by
//! itself takes longer than making it.
//!
//! - A line is written at once, unless there was one a moment ago. Then it is gathered, and written with those that
//!   come in the next [`GATHERED_FOR`].
//! - Warnings and errors are written at once, after what was gathered before them.
//! - The end of the command writes what is left. A process that is killed may lose lines of its last moment.

use std::io::{self, Write};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// How long lines are gathered.
const GATHERED_FOR: Duration = Duration::from_millis(10);

/// Bytes of lines that are gathered; more are written at once.
const GATHERED_BYTES: usize = 64 << 10;

/// Standard error, for the rest of the process.
static STANDARD_ERROR: LazyLock<Gatherer<io::Stderr>> = LazyLock::new(|| Gatherer::new(io::stderr()));

/// See the module.
pub(super) struct LogWriter;

impl LogWriter {
    /// The writer. Where there can be no thread that writes what is gathered, nothing is.
    pub(super) fn start() -> LogWriter {
        let writing = || STANDARD_ERROR.write_gathered();
        let started = thread::Builder::new().name("strata-log".to_owned()).stack_size(256 << 10).spawn(writing);
        STANDARD_ERROR.state().gathers = started.is_ok();
        LogWriter
    }

    /// Writes what is gathered, at the end.
    pub(super) fn end() {
        STANDARD_ERROR.state().gathers = false;
        STANDARD_ERROR.flush();
    }
}

impl MakeWriter<'_> for LogWriter {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line { at_once: true }
    }

    fn make_writer_for(&self, metadata: &Metadata<'_>) -> Line {
        Line { at_once: *metadata.level() <= Level::WARN }
    }
}

/// Takes one line.
pub(super) struct Line {
    at_once: bool,
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        STANDARD_ERROR.write(line, self.at_once, Instant::now()).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Gathers lines before they are written. Who takes both locks takes that of the sink first.
struct Gatherer<W> {
    sink: Mutex<W>,
    state: Mutex<State>,
    /// Lines begin to be gathered.
    begun: Condvar,
}

#[derive(Default)]
struct State {
    gathers: bool,
    gathered: Vec<u8>,
    /// When something was last written.
    written: Option<Instant>,
}

impl<W: Write> Gatherer<W> {
    fn new(sink: W) -> Gatherer<W> {
        Gatherer { sink: Mutex::new(sink), state: Mutex::default(), begun: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sink(&self) -> MutexGuard<'_, W> {
        self.sink.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line, now or soon.
    fn write(&self, line: &[u8], at_once: bool, now: Instant) -> io::Result<()> {
        let mut state = self.state();
        let is_recent = state.written.is_some_and(|written| now.saturating_duration_since(written) < GATHERED_FOR);
        let has_room = state.gathered.len() + line.len() <= GATHERED_BYTES;
        if state.gathers && is_recent && has_room && !at_once {
            let begins = state.gathered.is_empty();
            state.gathered.extend_from_slice(line);
            if begins {
                self.begun.notify_one();
            }
            return Ok(());
        }
        drop(state);
        let mut sink = self.sink();
        let mut lines = self.take(now);
        lines.extend_from_slice(line);
        sink.write_all(&lines)
    }

    fn take(&self, now: Instant) -> Vec<u8> {
        let mut state = self.state();
        state.written = Some(now);
        std::mem::take(&mut state.gathered)
    }

    /// Writes what is gathered. Who cannot be told need not hear of it.
    fn flush(&self) {
        let mut sink = self.sink();
        let lines = self.take(Instant::now());
        let _ = sink.write_all(&lines);
    }

    /// Writes what is gathered, again and again.
    fn write_gathered(&self) {
        loop {
            let mut state = self.state();
            while state.gathered.is_empty() {
                state = self.begun.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            thread::sleep(GATHERED_FOR);
            self.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(gatherer: &Gatherer<Vec<u8>>) -> String {
        String::from_utf8(gatherer.sink().clone()).expect("text")
    }

    #[test]
    fn lines_after_a_pause_and_warnings_are_written_at_once_and_in_order() {
        let gatherer = Gatherer::new(Vec::new());
        gatherer.state().gathers = true;
        let start = Instant::now();
        let write = |line: &str, at_once, after: Duration| {
            gatherer.write(line.as_bytes(), at_once, start + after).expect("written");
            written(&gatherer)
        };
        let moment = GATHERED_FOR / 10;
        assert_eq!(write("a", false, Duration::ZERO), "a");
        assert_eq!(write("b", false, moment), "a");
        assert_eq!(write("c", false, 2 * moment), "a");
        assert_eq!(write("d", true, 3 * moment), "abcd");
        assert_eq!(write("e", false, 4 * moment), "abcd");
        assert_eq!(write("f", false, 4 * moment + 2 * GATHERED_FOR), "abcdef");
        write("g", false, 5 * moment + 2 * GATHERED_FOR);
        gatherer.flush();
        assert_eq!(written(&gatherer), "abcdefg");
        let long = "x".repeat(GATHERED_BYTES);
        gatherer.state().written = Some(start);
        write("y", false, moment);
        assert!(write(&long, false, 2 * moment).ends_with(&long));
        assert!(gatherer.state().gathered.is_empty());
    }

    #[test]
    fn nothing_is_gathered_that_nobody_would_write() {
        let gatherer = Gatherer::new(Vec::new());
        let now = Instant::now();
        for line in ["a", "b"] {
            gatherer.write(line.as_bytes(), false, now).expect("written");
        }
        assert_eq!(written(&gatherer), "ab");
    }
}
