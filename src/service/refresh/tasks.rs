//! The tasks that make versions: a caller who leaves cancels nothing, and a process that is to end waits for them. And
//! threads of their own for what decodes and writes, so that it takes none of those that everybody's blocking calls
//! share, and gives way to whoever has less to do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use strata_store::StorageError;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::refresh::error::RefreshError;

/// How long refreshes that are told to stop may take to record that they have.
const STOPPING: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(crate) struct RefreshTasks {
    tasks: TaskTracker,
    closed: AtomicBool,
    stop: CancellationToken,
}

impl RefreshTasks {
    /// Runs a refresh, whoever waits for it.
    /// [`RefreshError::Stopping`] if no more are begun, [`RefreshError::Worker`] if it panics.
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

    /// Begins what comes after a refresh, also when no more are begun: the process waits for it, for a while.
    pub(crate) fn begin_aftermath(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    pub(crate) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Begins no more refreshes, and waits for those that run: for `limit`, then tells them to stop and to record it.
    pub(crate) async fn finish(&self, limit: Duration) {
        self.closed.store(true, Ordering::SeqCst);
        self.tasks.close();
        if tokio::time::timeout(limit, self.tasks.wait()).await.is_ok() {
            return;
        }
        tracing::warn!(refreshes = self.tasks.len(), "stopping refreshes that did not finish within server.drain_s");
        self.stop.cancel();
        if tokio::time::timeout(STOPPING, self.tasks.wait()).await.is_err() {
            tracing::warn!(refreshes = self.tasks.len(), "abandoned running refreshes");
        }
    }
}

/// Runs work that blocks on a thread of its own, and waits for it. Dropping it does not end the work.
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
