//! The signals that end a process: SIGTERM, SIGINT, and SIGHUP, which is sent when its terminal is closed.

use std::fs;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::error::CliError;

/// Receives the signals, which no longer end the process by themselves.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` if the process was started to ignore it, as by `nohup`.
    hang_up: Option<Signal>,
}

impl Signals {
    pub(super) fn listen() -> Result<Self, CliError> {
        let all = || -> io::Result<Self> {
            Ok(Self {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
                hang_up: is_handled(SignalKind::hangup()).then(|| signal(SignalKind::hangup())).transpose()?,
            })
        };
        all().map_err(|source| CliError::Io { what: "failed to install signal handlers", source })
    }

    /// Waits for the next signal, and returns its name.
    pub(super) async fn next(&mut self) -> &'static str {
        let hang_up = async {
            match &mut self.hang_up {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = hang_up => "SIGHUP",
        }
    }
}

/// The outcome of the work, unless a signal ends it.
pub(super) async fn or_interrupted<T>(work: impl Future<Output = T>) -> Result<T, CliError> {
    let mut signals = Signals::listen()?;
    tokio::select! {
        outcome = work => Ok(outcome),
        _ = signals.next() => Err(CliError::Interrupted),
    }
}

/// Whether the process does not ignore a signal.
fn is_handled(kind: SignalKind) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (kind.as_raw_value() - 1)) == 0)
}
