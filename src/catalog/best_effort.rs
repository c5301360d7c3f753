//! Writes that must not fail or delay a request, such as the time of a token's last use. Only one such write runs at a
//! time. The request waits a moment, so that usually the next call sees the write. After a late or failed write,
//! further writes are skipped for [`RETRY_DELAY`]. Only the first of several failures is logged.

use std::time::Duration;

use tokio::time::Instant;

use super::{Catalog, Result};

/// The maximum time that a request waits for the write. A commit takes milliseconds.
const WRITE_WAIT_TIMEOUT: Duration = Duration::from_millis(250);
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// The state of best-effort writes, shared by all clones of a catalog handle. A running write locks this state.
#[derive(Debug, Default)]
pub(super) struct BestEffortWrites {
    retry_at: Option<Instant>,
    is_failing: bool,
}

impl Catalog {
    /// Starts a write unless one is running, and waits until it is done or late. A late write continues.
    pub(super) async fn write_best_effort<F, W>(&self, record: &'static str, write: F)
    where
        F: FnOnce(Catalog) -> W,
        W: Future<Output = Result<()>> + Send + 'static,
    {
        let Ok(mut state) = self.best_effort_writes.clone().try_lock_owned() else { return };
        if state.retry_at.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let write = write(self.clone());
        let started_at = Instant::now();
        let task = tokio::spawn(async move {
            let outcome = write.await;
            let was_failing = std::mem::replace(&mut state.is_failing, outcome.is_err());
            match outcome {
                Ok(()) if was_failing => tracing::info!(record, "resumed writing record"),
                Err(error) if !was_failing => {
                    tracing::warn!(record, error = ?error, "failed to write record; requests are not affected");
                }
                _ => {}
            }
            let delay_next = state.is_failing || started_at.elapsed() > WRITE_WAIT_TIMEOUT;
            state.retry_at = delay_next.then(|| Instant::now() + RETRY_DELAY);
        });
        let _ = tokio::time::timeout(WRITE_WAIT_TIMEOUT, task).await;
    }
}
