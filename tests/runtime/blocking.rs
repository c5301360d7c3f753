//! Work that no thread can be started for.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use strata_runtime::blocking::{blocking, refusal, with_blocking_calls};
use tokio::runtime::Builder;

#[test]
fn work_that_no_thread_is_started_for_lets_go_of_what_it_holds() {
    // No system has room for such a stack.
    let runtime = Builder::new_current_thread().thread_stack_size(1 << 47).build().expect("a runtime");
    let permit = Arc::new(());
    let held = permit.clone();
    let told = runtime.block_on(blocking(move || drop(held)));
    assert_eq!(told.expect_err("refused").kind(), io::ErrorKind::WouldBlock);
    assert_eq!(Arc::strong_count(&permit), 1, "it waits for a thread");
    let ended = runtime.block_on(async {
        tokio::spawn(async { drop(tokio::task::spawn_blocking(|| ())) }).await.expect_err("no thread")
    });
    assert_eq!(refusal(ended).expect("for that").kind(), io::ErrorKind::WouldBlock);
    let ended = runtime.block_on(async { tokio::spawn(async { panic!("another") }).await.expect_err("a panic") });
    assert!(refusal(ended).is_none());
}

#[tokio::test]
async fn a_library_that_gets_no_thread_is_told_from_one_that_panics() {
    let without = with_blocking_calls(async { std::panic::panic_any("OS can't spawn worker thread: 11".to_owned()) });
    let told: io::Result<()> = without.await;
    assert_eq!(told.expect_err("refused").kind(), io::ErrorKind::WouldBlock);
    let panics = AssertUnwindSafe(with_blocking_calls(async { std::panic::panic_any("another".to_owned()) }));
    let told: Result<io::Result<()>, _> = panics.catch_unwind().await;
    assert!(told.is_err());
    assert_eq!(with_blocking_calls(async { 7 }).await.expect("done"), 7);
    assert_eq!(blocking(|| 7).await.expect("done"), 7);
}
