//! Signals that end a process: SIGTERM, SIGINT, and SIGHUP, which the system sends when the terminal is closed.

use std::fs;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::error::CliError;

/// Receives SIGTERM, SIGINT, and SIGHUP, which then no longer end the process.
pub(super) struct ShutdownSignals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` if the process was started to ignore SIGHUP, for example by `nohup`.
    hang_up: Option<Signal>,
}

impl ShutdownSignals {
    pub(super) fn listen() -> Result<Self, CliError> {
        let all = || -> io::Result<Self> {
            Ok(Self {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
                hang_up: is_not_ignored(SignalKind::hangup()).then(|| signal(SignalKind::hangup())).transpose()?,
            })
        };
        all().map_err(|source| CliError::Io { what: "failed to install signal handlers", source })
    }

    pub(super) async fn next_signal(&mut self) -> &'static str {
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

pub(super) async fn run_until_signal<T>(work: impl Future<Output = T>) -> Result<T, CliError> {
    let mut signals = ShutdownSignals::listen()?;
    tokio::select! {
        outcome = work => Ok(outcome),
        _ = signals.next_signal() => Err(CliError::Interrupted),
    }
}

fn is_not_ignored(kind: SignalKind) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (kind.as_raw_value() - 1)) == 0)
}
