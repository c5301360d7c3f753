//! Principals and priorities share an engine without starving each other.

use std::time::Duration;

use strata_query::{HashedPrincipal, PrincipalShares, QueryEngine, QueryEngineOptions, QueryError};
use strata_runtime::priority::ThreadPriority;

#[test]
fn shares_leave_memory_for_other_principals() {
    const MIB: usize = 1 << 20;
    let directory = tempfile::tempdir().expect("a directory");
    let options = QueryEngineOptions {
        threads: 2,
        memory_bytes: 64 * MIB,
        shares: PrincipalShares { principal_percent: 75, anonymous_percent: 75 },
        timeout: Duration::from_secs(60),
        diff_timeout: Duration::from_secs(60),
        spill_directory: Some(directory.path().to_owned()),
        spill_bytes: 1 << 30,
        disk_reserve: None,
    };
    let all = QueryEngine::try_new(&options).expect("an engine");
    let hostile = all.for_principal(HashedPrincipal { key: 1, is_anonymous: true });
    let again = all.for_principal(HashedPrincipal { key: 1, is_anonymous: true });
    let [honest, user] = [(2, true), (3, false)]
        .map(|(key, anonymous)| all.for_principal(HashedPrincipal { key, is_anonymous: anonymous }));
    // Three quarters of the 48 MiB for anonymous principals. Both handles belong to the same principal.
    let first = hostile.try_reserve("first", 20 * MIB).expect("memory");
    let second = again.try_reserve("second", 16 * MIB).expect("memory");
    assert!(matches!(hostile.try_reserve("third", MIB), Err(QueryError::OutOfMemory(_))));
    let third = honest.try_reserve("other", 8 * MIB).expect("of what is left");
    assert!(matches!(honest.try_reserve("other", 2 * MIB), Err(QueryError::OutOfMemory(_))));
    let fourth = user.try_reserve("user", 12 * MIB).expect("of what is kept for users");
    assert_eq!(all.reserved_memory_bytes(), 56 * MIB);
    drop((first, second, third, fourth));
    assert_eq!(all.reserved_memory_bytes(), 0);
    assert!(all.try_reserve("the operator", 16 * MIB).is_ok());
}

/// Regression test: heavy queries of two networks used all threads, and all other requests waited for seconds.
#[tokio::test]
async fn priorities_do_not_wait_for_each_other() {
    let engine = QueryEngine::try_new(&QueryEngineOptions {
        threads: 2,
        memory_bytes: 64 << 20,
        shares: PrincipalShares { principal_percent: 100, anonymous_percent: 100 },
        timeout: Duration::from_secs(600),
        diff_timeout: Duration::from_secs(600),
        spill_directory: None,
        spill_bytes: 0,
        disk_reserve: None,
    });
    let engine = engine.expect("an engine");
    for busy in ThreadPriority::ALL {
        let (end, is_over) = std::sync::mpsc::sync_channel::<()>(1);
        let is_over = std::sync::Arc::new(std::sync::Mutex::new(is_over));
        let (begun, mut have_begun) = tokio::sync::mpsc::channel(2);
        // One task for each thread, none of which yields.
        let working: Vec<_> = (0..engine.threads())
            .map(|_| {
                let is_over = is_over.clone();
                let begun = begun.clone();
                engine.with_priority(busy).spawn(async move {
                    begun.send(std::thread::current().name().map(str::to_owned)).await.expect("it is waited for");
                    let _ = is_over.lock().expect("no panic").recv();
                })
            })
            .collect();
        for _ in &working {
            assert_eq!(have_begun.recv().await.expect("it begins").as_deref(), Some(busy.thread_name()));
        }
        for other in ThreadPriority::ALL.into_iter().filter(|other| *other != busy) {
            let work = engine.with_priority(other).spawn(async {});
            let done = tokio::time::timeout(Duration::from_secs(60), work).await;
            assert!(done.is_ok_and(|done| done.is_ok()), "{other:?} next to {busy:?}");
        }
        drop(end);
        for work in working {
            work.await.expect("no panic");
        }
    }
}
