//! Calls that block, on threads that the runtime keeps for them.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinError;

/// Runs work that blocks, and waits for it. Dropping the future does not end the work. A panic of the work goes on
/// here.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] where the system starts no thread for it.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    blocking_on(&Handle::current(), work).await
}

/// The same on threads of another runtime. Work that no thread was started for is dropped with all that it holds.
pub async fn blocking_on<T: Send + 'static>(
    runtime: &Handle,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, outcome) = oneshot::channel();
    // The runtime panics where it has no thread and the system starts none, and keeps what it was given until it has
    // one. So that is only the place of the work, which is taken back out of it.
    let place = Arc::new(Mutex::new(Some((work, done))));
    let taken = place.clone();
    let run = move || {
        if let Some((work, done)) = take(&taken) {
            // Nobody may wait any more.
            let _ = done.send(catch_unwind(AssertUnwindSafe(work)));
        }
    };
    let started = catch_unwind(AssertUnwindSafe(|| runtime.spawn_blocking(run)));
    if started.is_err() && take(&place).is_some() {
        return Err(refused());
    }
    drop(place);
    match outcome.await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(panic)) => resume_unwind(panic),
        // The runtime ends.
        Err(_) => std::future::pending().await,
    }
}

fn take<T>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Runs a library's work that blocks on threads of the runtime by itself, and so panics where there can be none.
pub async fn with_blocking_calls<T>(work: impl Future<Output = T>) -> io::Result<T> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => Ok(done),
        Err(panic) if is_refusal(&*panic) => Err(refused()),
        Err(panic) => resume_unwind(panic),
    }
}

/// That the system started no thread for a task, if it ended for that.
pub fn refusal(ended: JoinError) -> Option<io::Error> {
    ended.try_into_panic().ok().filter(|panic| is_refusal(&**panic)).map(|_| refused())
}

/// Whether the runtime panics since the system starts no thread. Its text is all that can be asked.
fn is_refusal(panic: &(dyn std::any::Any + Send)) -> bool {
    panic.downcast_ref::<String>().is_some_and(|text| text.starts_with("OS can't spawn worker thread"))
}

fn refused() -> io::Error {
    io::ErrorKind::WouldBlock.into()
}
