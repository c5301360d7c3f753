//! Blocking work on threads of the async runtime, with errors instead of panics if no thread can be started.
//!
//! Problem: `tokio::task::spawn_blocking` panics if the system cannot start a thread, although the same call succeeds
//! when threads are available again. With the functions in this module, this is an [`io::ErrorKind::WouldBlock`].

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinError;

/// Runs blocking work, and waits for it. Dropping the future does not stop the work. A panic continues in the caller.
/// If no thread can be started, the error is [`io::ErrorKind::WouldBlock`].
pub async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    run_blocking_on(&Handle::current(), work).await
}

/// Like [`run_blocking`], on the threads of another runtime. If no thread can be started, the work never runs.
pub async fn run_blocking_on<T: Send + 'static>(
    runtime: &Handle,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, outcome) = oneshot::channel();
    // If no thread can be started, the async runtime panics but still stores the closure until it has a thread. The
    // closure therefore contains only a slot, from which the work can be removed.
    let slot = Arc::new(Mutex::new(Some((work, done))));
    let queued_slot = slot.clone();
    let run = move || {
        let taken = queued_slot.lock().take();
        if let Some((work, done)) = taken {
            // Sending the outcome fails if the caller has dropped its future.
            let _ = done.send(catch_unwind(AssertUnwindSafe(work)));
        }
    };
    let started = catch_unwind(AssertUnwindSafe(|| runtime.spawn_blocking(run)));
    if started.is_err() && slot.lock().take().is_some() {
        return Err(would_block_error());
    }
    drop(slot);
    match outcome.await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(panic)) => resume_unwind(panic),
        // The blocking work was dropped, because the async runtime is shutting down.
        Err(_) => std::future::pending().await,
    }
}

/// Runs code of a library that starts blocking work itself, which panics if no thread can be started.
pub async fn catch_thread_exhaustion<T>(work: impl Future<Output = T>) -> io::Result<T> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => Ok(done),
        Err(panic) if is_thread_exhaustion(&*panic) => Err(would_block_error()),
        Err(panic) => resume_unwind(panic),
    }
}

/// Returns an error if the task panicked because no thread could be started, and `None` if it failed otherwise.
pub fn thread_exhaustion_error(join_error: JoinError) -> Option<io::Error> {
    join_error.try_into_panic().ok().filter(|panic| is_thread_exhaustion(&**panic)).map(|_| would_block_error())
}

/// Returns true if the runtime panicked because it could not start a thread, which only the text of the panic shows.
fn is_thread_exhaustion(panic: &(dyn std::any::Any + Send)) -> bool {
    panic.downcast_ref::<String>().is_some_and(|text| text.starts_with("OS can't spawn worker thread"))
}

fn would_block_error() -> io::Error {
    io::ErrorKind::WouldBlock.into()
}
