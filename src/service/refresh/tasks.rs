//! The tasks that create versions, which callers do not cancel and a stopping process waits for. Decoding and writing
//! have separate threads, so that they do not occupy the shared threads for blocking calls, and have a lower priority.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use strata_store::StorageError;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::refresh::error::RefreshError;

/// The time in which stopped refreshes can record that.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(crate) struct RefreshTasks {
    tasks: TaskTracker,
    closed: AtomicBool,
    stop: CancellationToken,
}

impl RefreshTasks {
    /// Runs a refresh to its end. [`RefreshError::Stopping`] if the process is stopping, [`RefreshError::Worker`] if
    /// the refresh panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        refresh: impl Future<Output = Result<T, RefreshError>> + Send + 'static,
    ) -> Result<T, RefreshError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(RefreshError::Stopping);
        }
        self.tasks.spawn(refresh.in_current_span()).await.map_err(|_| RefreshError::Worker)?
    }

    pub(crate) fn begin(&self, refresh: impl Future<Output = ()> + Send + 'static) {
        if !self.closed.load(Ordering::SeqCst) {
            self.tasks.spawn(refresh);
        }
    }

    /// Starts the work after a refresh, also while the process is stopping.
    pub(crate) fn begin_aftermath(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    pub(crate) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// See [`crate::Refreshes::finish`].
    pub(crate) async fn finish(&self, limit: Duration) {
        self.closed.store(true, Ordering::SeqCst);
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

/// Runs blocking work on a new thread, which starts at once. Dropping the future does not end the work.
/// [`RefreshError::Worker`] if the work panics.
pub(crate) fn on_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, RefreshError>> + Send + 'static {
    let (tell, told) = oneshot::channel();
    let span = tracing::Span::current();
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _entered = span.enter();
        // The waiting task may have ended.
        let _ = tell.send(work());
    });
    async move {
        started.map_err(|error| RefreshError::Storage(StorageError::Io(error)))?;
        told.await.map_err(|_| RefreshError::Worker)
    }
}
