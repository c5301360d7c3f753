//! The signals that ask a process to end: SIGTERM and SIGINT.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::error::CliError;

/// Both signals. From its creation on they no longer end the process by themselves.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes the signals over; needs a runtime.
    pub(super) fn listen() -> Result<Self, CliError> {
        let both = || -> io::Result<Self> {
            Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
        };
        both().map_err(|source| CliError::Io { what: "signals cannot be received", source })
    }

    /// Waits for the next of them and returns its name.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
