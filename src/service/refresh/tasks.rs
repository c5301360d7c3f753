//! Tasks and threads of refreshes. Tasks continue if their callers leave, and a stopping process waits for them.
//! Decoding and writing run on dedicated threads, so that they do not occupy the runtime's blocking threads.

use std::time::Duration;

use strata_store::StorageError;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::refresh::error::{RefreshError, Result};

/// Maximum time in which stopped refreshes record their outcome.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(crate) struct RefreshTasks {
    pub(super) tasks: TaskTracker,
    /// Cancelled when the process begins to stop. Running refreshes finish, but compactions stop.
    close: CancellationToken,
    stop: CancellationToken,
}

impl RefreshTasks {
    /// Runs a refresh in a task. Fails if the process is stopping or if the refresh panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        refresh: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        if self.close.is_cancelled() {
            return Err(RefreshError::Stopping);
        }
        self.tasks.spawn(refresh.in_current_span()).await.map_err(|_| RefreshError::WorkerStopped)?
    }

    pub(crate) fn spawn_refresh(&self, refresh: impl Future<Output = ()> + Send + 'static) {
        if !self.close.is_cancelled() {
            self.tasks.spawn(refresh);
        }
    }

    pub(crate) async fn wait_for_stop(&self) {
        self.stop.cancelled().await;
    }

    /// Runs background work that can be repeated later. Returns `None` if the process begins to stop before it is done.
    pub(super) async fn run_until_close<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.close.run_until_cancelled(work).await
    }

    pub(crate) async fn finish_or_stop_refreshes(&self, limit: Duration) {
        self.close.cancel();
        self.tasks.close();
        if tokio::time::timeout(limit, self.tasks.wait()).await.is_ok() {
            return;
        }
        tracing::warn!(refreshes = self.tasks.len(), "stopping refreshes that did not finish within server.drain_s");
        self.stop.cancel();
        if tokio::time::timeout(STOP_TIMEOUT, self.tasks.wait()).await.is_err() {
            tracing::warn!(refreshes = self.tasks.len(), "abandoned running refreshes");
        }
    }
}

/// Runs blocking work on a new thread, which continues if the future is dropped. Fails if the work panics.
pub(crate) fn run_on_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T>> + Send + 'static {
    let (sender, receiver) = oneshot::channel();
    let span = tracing::Span::current();
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _entered = span.enter();
        // Sending fails if the future that waits for the result was dropped.
        let _ = sender.send(work());
    });
    async move {
        started.map_err(|error| RefreshError::Storage(StorageError::Io(error)))?;
        receiver.await.map_err(|_| RefreshError::WorkerStopped)
    }
}
