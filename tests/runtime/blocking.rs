//! Blocking work if no thread can be started.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use strata_runtime::blocking::{catch_thread_exhaustion, run_blocking, thread_exhaustion_error};
use tokio::runtime::Builder;

#[test]
fn work_without_thread_is_dropped() {
    // No system has memory for such a stack.
    let runtime = Builder::new_current_thread().thread_stack_size(1 << 47).build().expect("failed to build runtime");
    let permit = Arc::new(());
    let held = permit.clone();
    let result = runtime.block_on(run_blocking(move || drop(held)));
    assert_eq!(result.expect_err("failed to reject input").kind(), io::ErrorKind::WouldBlock);
    assert_eq!(Arc::strong_count(&permit), 1, "the work still waits for a thread");
    let ended = runtime.block_on(async {
        tokio::spawn(async { drop(tokio::task::spawn_blocking(|| ())) }).await.expect_err("failed to exhaust threads")
    });
    assert_eq!(thread_exhaustion_error(ended).expect("failed to detect cause").kind(), io::ErrorKind::WouldBlock);
    let ended =
        runtime.block_on(async { tokio::spawn(async { panic!("another") }).await.expect_err("failed to panic") });
    assert!(thread_exhaustion_error(ended).is_none());
}

#[tokio::test]
async fn thread_exhaustion_differs_from_other_panics() {
    let without =
        catch_thread_exhaustion(async { std::panic::panic_any("OS can't spawn worker thread: 11".to_owned()) });
    let result: io::Result<()> = without.await;
    assert_eq!(result.expect_err("failed to reject input").kind(), io::ErrorKind::WouldBlock);
    let panics = AssertUnwindSafe(catch_thread_exhaustion(async { std::panic::panic_any("another".to_owned()) }));
    let result: Result<io::Result<()>, _> = panics.catch_unwind().await;
    assert!(result.is_err());
    assert_eq!(catch_thread_exhaustion(async { 7 }).await.expect("failed to run work"), 7);
    assert_eq!(run_blocking(|| 7).await.expect("failed to run work"), 7);
}
