//! Calls that block, on threads that the runtime keeps for them.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use futures::FutureExt;
use tokio::runtime::Handle;

/// Runs work that blocks, and waits for it. Dropping the future does not end the work. A panic of the work goes on
/// here.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] where the system starts no thread for it.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    blocking_on(&Handle::current(), work).await
}

/// The same on threads of another runtime.
///
/// # Errors
/// As of [`blocking`].
pub async fn blocking_on<T: Send + 'static>(
    runtime: &Handle,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    // The runtime panics where it has no thread and the system starts none.
    let started = catch_unwind(AssertUnwindSafe(|| runtime.spawn_blocking(work)));
    let Ok(task) = started else { return Err(refused()) };
    match task.await {
        Ok(done) => Ok(done),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime ends.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Runs a library's work that blocks on threads of the runtime by itself, and so panics where there can be none.
///
/// # Errors
/// As of [`blocking`].
pub async fn with_blocking_calls<T>(work: impl Future<Output = T>) -> io::Result<T> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => Ok(done),
        Err(panic) if is_refusal(&*panic) => Err(refused()),
        Err(panic) => resume_unwind(panic),
    }
}

/// Whether the runtime panics since the system starts no thread. Its text is all that can be asked.
fn is_refusal(panic: &(dyn std::any::Any + Send)) -> bool {
    panic.downcast_ref::<String>().is_some_and(|text| text.starts_with("OS can't spawn worker thread"))
}

fn refused() -> io::Error {
    io::ErrorKind::WouldBlock.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_library_that_gets_no_thread_is_told_from_one_that_panics() {
        let without =
            with_blocking_calls(async { std::panic::panic_any("OS can't spawn worker thread: 11".to_owned()) });
        let told: io::Result<()> = without.await;
        assert_eq!(told.expect_err("refused").kind(), io::ErrorKind::WouldBlock);
        let panics = AssertUnwindSafe(with_blocking_calls(async { std::panic::panic_any("another".to_owned()) }));
        let told: Result<io::Result<()>, _> = panics.catch_unwind().await;
        assert!(told.is_err());
        assert_eq!(with_blocking_calls(async { 7 }).await.expect("done"), 7);
        assert_eq!(blocking(|| 7).await.expect("done"), 7);
    }
}
