//! Threads of their own for what decodes and writes, so that it takes none of those that everybody's blocking calls
//! share, and gives way to whoever has less to do.

use tokio::sync::oneshot;

use crate::service::refresh::error::RefreshError;
use crate::storage::StorageError;

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
