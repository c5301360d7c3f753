//! Writes that a reader does not wait for: when a token was last used, and when a session ends.
//!
//! One such write runs at a time. The reader waits a moment for it, so that usually the next call sees it. After a late
//! or failed write, no other one is tried for some time. The first failure in a row is logged.

use std::time::Duration;

use tokio::time::Instant;

use super::{Catalog, Result};

/// How long a reader waits for such a write. A commit takes milliseconds.
const PATIENCE: Duration = Duration::from_millis(250);

const PAUSE: Duration = Duration::from_secs(10);

/// The state of such writes, shared by all clones of a catalog. Only the holder of its lock writes.
#[derive(Debug, Default)]
pub(super) struct BestEffort {
    not_before: Option<Instant>,
    failing: bool,
}

impl Catalog {
    /// Begins a write, unless another one runs, and returns when it is done or late. A late write continues.
    pub(super) async fn try_write<F, W>(&self, record: &'static str, write: F)
    where
        F: FnOnce(Catalog) -> W,
        W: Future<Output = Result<()>> + Send + 'static,
    {
        let Ok(mut state) = self.best_effort.clone().try_lock_owned() else { return };
        if state.not_before.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let write = write(self.clone());
        let begun = Instant::now();
        let task = tokio::spawn(async move {
            let outcome = write.await;
            let was_failing = std::mem::replace(&mut state.failing, outcome.is_err());
            match outcome {
                Ok(()) if was_failing => tracing::info!(record, "resumed writing record"),
                Err(error) if !was_failing => {
                    tracing::warn!(record, error = ?error, "failed to write record; requests are not affected");
                }
                _ => {}
            }
            let pauses = state.failing || begun.elapsed() > PATIENCE;
            state.not_before = pauses.then(|| Instant::now() + PAUSE);
        });
        // The task continues after the timeout.
        let _ = tokio::time::timeout(PATIENCE, task).await;
    }
}
