//! Standard error as the log's writer. A busy service has thousands of lines a second, and writing each of them by
//! itself takes longer than making it. Whatever reads the log may be slow, or stop: requests do not wait for it.
//!
//! - A thread of its own writes all lines. A line is written at once, unless there was one a moment ago. Then it is
//!   gathered, and written with those that come in the next [`GATHERED_FOR`].
//! - Warnings and errors are written at once, after what was gathered before them.
//! - Of lines that nobody takes, [`WAITING_BYTES`] wait. Further ones are left out, and counted in a line of their own.
//! - The end of the command writes what is left. A process that is killed may lose lines of its last moment.

use std::io::{self, Write};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// How long lines are gathered.
const GATHERED_FOR: Duration = Duration::from_millis(10);

/// Bytes of lines that wait to be written.
const WAITING_BYTES: usize = 1 << 20;

/// How long the end of the command waits for who reads the log.
const END_WITHIN: Duration = Duration::from_secs(1);

/// Standard error, for the rest of the process.
static STANDARD_ERROR: LazyLock<Gatherer<io::Stderr>> = LazyLock::new(|| Gatherer::new(io::stderr()));

/// See the module.
pub(super) struct LogWriter;

impl LogWriter {
    /// The writer. Where there can be no thread that writes, each line is written by who has it.
    pub(super) fn start() -> LogWriter {
        let writing = || {
            loop {
                let left_out = STANDARD_ERROR.write_gathered();
                if left_out > 0 {
                    tracing::warn!(lines = left_out, "lines of the log were left out, since nobody took them");
                }
            }
        };
        // Before the thread can ask.
        STANDARD_ERROR.state().has_thread = true;
        let started = thread::Builder::new().name("strata-log".to_owned()).stack_size(256 << 10).spawn(writing);
        STANDARD_ERROR.state().has_thread = started.is_ok();
        LogWriter
    }

    /// Waits until what is gathered is written, at the end.
    pub(super) fn end() {
        STANDARD_ERROR.end(END_WITHIN);
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

/// Gathers lines before they are written. Nobody holds the lock of the state while the sink takes lines.
struct Gatherer<W> {
    sink: Mutex<W>,
    state: Mutex<State>,
    /// There are lines, or they should not be gathered any longer.
    given: Condvar,
    /// Lines were written.
    taken: Condvar,
}

#[derive(Default)]
struct State {
    has_thread: bool,
    gathered: Vec<u8>,
    /// What is gathered is to be written now.
    is_urgent: bool,
    /// The sink is taking lines.
    is_writing: bool,
    /// Lines that had no room.
    left_out: u64,
    /// When lines were last written.
    written: Option<Instant>,
}

impl<W: Write> Gatherer<W> {
    fn new(sink: W) -> Gatherer<W> {
        let state = Mutex::default();
        Gatherer { sink: Mutex::new(sink), state, given: Condvar::new(), taken: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sink(&self) -> MutexGuard<'_, W> {
        self.sink.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line, which the thread writes, now or soon. Without a thread it is written here.
    fn write(&self, line: &[u8], at_once: bool, now: Instant) -> io::Result<()> {
        let mut state = self.state();
        if !state.has_thread {
            drop(state);
            return self.sink().write_all(line);
        }
        if state.gathered.len() + line.len() > WAITING_BYTES {
            state.left_out += 1;
            return Ok(());
        }
        let is_recent = state.written.is_some_and(|written| now.saturating_duration_since(written) < GATHERED_FOR);
        let begins = state.gathered.is_empty();
        let hurries = !state.is_urgent && (at_once || !is_recent);
        state.gathered.extend_from_slice(line);
        state.is_urgent |= hurries;
        drop(state);
        if begins || hurries {
            self.given.notify_one();
        }
        Ok(())
    }

    /// Waits for lines, and writes them: those of a moment together. Returns how many were left out before.
    fn write_gathered(&self) -> u64 {
        let mut state = self.state();
        while state.gathered.is_empty() {
            state = self.given.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let gathers = |state: &mut State| !state.is_urgent;
        let waited = self.given.wait_timeout_while(state, GATHERED_FOR, gathers);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let lines = std::mem::take(&mut state.gathered);
        let left_out = std::mem::take(&mut state.left_out);
        (state.is_urgent, state.is_writing) = (false, true);
        drop(state);
        // Who cannot be told need not hear of it.
        let _ = self.sink().write_all(&lines);
        let mut state = self.state();
        (state.is_writing, state.written) = (false, Some(Instant::now()));
        drop(state);
        self.taken.notify_all();
        left_out
    }

    /// Waits until all lines are written, but no longer than this.
    fn end(&self, within: Duration) {
        let mut state = self.state();
        if !state.has_thread {
            return;
        }
        state.is_urgent = true;
        self.given.notify_one();
        let waits = |state: &mut State| state.is_writing || !state.gathered.is_empty();
        let (mut state, waited) =
            self.taken.wait_timeout_while(state, within, waits).unwrap_or_else(PoisonError::into_inner);
        // Where nobody takes lines, the last ones must not wait for that either.
        state.has_thread = waited.timed_out();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use super::*;

    /// Hands lines on, each to somebody who has to take them before the next.
    struct Slow(mpsc::SyncSender<Vec<u8>>);

    impl Write for Slow {
        fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
            self.0.send(lines.to_owned()).map_err(io::Error::other)?;
            Ok(lines.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn with_thread() -> (Arc<Gatherer<Slow>>, mpsc::Receiver<Vec<u8>>, mpsc::Receiver<u64>) {
        let (lines, taken) = mpsc::sync_channel(0);
        let (counts, left_out) = mpsc::sync_channel(1 << 16);
        let gatherer = Arc::new(Gatherer::new(Slow(lines)));
        gatherer.state().has_thread = true;
        let writing = gatherer.clone();
        thread::spawn(move || while counts.send(writing.write_gathered()).is_ok() {});
        (gatherer, taken, left_out)
    }

    #[test]
    fn lines_come_in_order_and_those_of_a_moment_together() {
        let (gatherer, taken, _left_out) = with_thread();
        let now = Instant::now();
        let write = |line: &str, at_once| gatherer.write(line.as_bytes(), at_once, now).expect("taken");
        write("a", false);
        assert_eq!(taken.recv().expect("lines"), b"a", "there was none before it");
        // What comes while the sink is busy comes together.
        write("b", true);
        thread::sleep(GATHERED_FOR);
        for line in ["c", "d", "e"] {
            write(line, line == "e");
        }
        let mut rest = taken.recv().expect("lines");
        while rest.len() < 4 {
            rest.extend(taken.recv().expect("lines"));
        }
        assert_eq!(rest, b"bcde");
    }

    #[test]
    fn who_takes_no_lines_stops_nobody_and_is_told_how_many_were_left_out() {
        let (gatherer, taken, left_out) = with_thread();
        let line = [b'x'; 1 << 10];
        let lines = 4 * WAITING_BYTES / line.len();
        for _ in 0..lines {
            gatherer.write(&line, true, Instant::now()).expect("taken or left out");
        }
        gatherer.end(Duration::ZERO);
        assert!(gatherer.state().has_thread, "later lines do not wait either");
        let (mut bytes, mut missing) = (0, 0);
        while bytes / line.len() + missing < lines {
            bytes += taken.recv().expect("lines").len();
            missing += usize::try_from(left_out.recv().expect("a count")).expect("few");
        }
        assert_eq!(bytes % line.len(), 0);
        assert!(missing >= 2 * WAITING_BYTES / line.len(), "{missing}");
        gatherer.end(Duration::from_secs(60));
        assert!(!gatherer.state().has_thread);
    }

    #[test]
    fn without_a_thread_lines_are_written_by_who_has_them() {
        let gatherer = Gatherer::new(Vec::new());
        for line in ["a", "b"] {
            gatherer.write(line.as_bytes(), false, Instant::now()).expect("written");
        }
        assert_eq!(*gatherer.sink(), b"ab");
    }
}
