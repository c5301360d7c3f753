//! What one tenant or one priority leaves of an engine to others.

use std::time::Duration;

use strata_query::{Engine, EngineOptions, QueryError, Tenant, TenantShares};
use strata_runtime::priority::Priority;

#[test]
fn memory_that_one_tenants_queries_hold_leaves_anothers() {
    const MIB: usize = 1 << 20;
    let directory = tempfile::tempdir().expect("a directory");
    let options = EngineOptions {
        threads: 2,
        memory_bytes: 64 * MIB,
        shares: TenantShares { one_percent: 75, anonymous_percent: 75 },
        timeout: Duration::from_secs(60),
        diff_timeout: Duration::from_secs(60),
        spill_directory: Some(directory.path().to_owned()),
        spill_bytes: 1 << 30,
        disk_reserve: None,
    };
    let all = Engine::try_new(&options).expect("an engine");
    let hostile = all.for_tenant(Tenant { key: 1, anonymous: true });
    let again = all.for_tenant(Tenant { key: 1, anonymous: true });
    let [honest, user] = [(2, true), (3, false)].map(|(key, anonymous)| all.for_tenant(Tenant { key, anonymous }));
    // Three quarters of the 48 MiB that anonymous ones have; both are the same tenant's.
    let first = hostile.reserve("first", 20 * MIB).expect("memory");
    let second = again.reserve("second", 16 * MIB).expect("memory");
    assert!(matches!(hostile.reserve("third", MIB), Err(QueryError::OutOfMemory(_))));
    let third = honest.reserve("other", 8 * MIB).expect("of what is left");
    assert!(matches!(honest.reserve("other", 2 * MIB), Err(QueryError::OutOfMemory(_))));
    let fourth = user.reserve("user", 12 * MIB).expect("of what is kept for users");
    assert_eq!(all.memory_bytes(), 56 * MIB);
    drop((first, second, third, fourth));
    assert_eq!(all.memory_bytes(), 0);
    assert!(all.reserve("the operator", 16 * MIB).is_ok());
}

/// Heavy queries of two networks had all threads of queries, and pages of everybody waited for seconds.
#[tokio::test]
async fn work_of_one_priority_does_not_wait_for_that_of_another() {
    let engine = Engine::try_new(&EngineOptions {
        threads: 2,
        memory_bytes: 64 << 20,
        shares: TenantShares { one_percent: 100, anonymous_percent: 100 },
        timeout: Duration::from_secs(600),
        diff_timeout: Duration::from_secs(600),
        spill_directory: None,
        spill_bytes: 0,
        disk_reserve: None,
    });
    let engine = engine.expect("an engine");
    for busy in Priority::ALL {
        let (end, is_over) = std::sync::mpsc::sync_channel::<()>(1);
        let is_over = std::sync::Arc::new(std::sync::Mutex::new(is_over));
        let (begun, mut have_begun) = tokio::sync::mpsc::channel(2);
        // As many as there are threads, and none of them yields.
        let working: Vec<_> = (0..engine.threads())
            .map(|_| {
                let (is_over, begun) = (is_over.clone(), begun.clone());
                engine.with_priority(busy).spawn(async move {
                    begun.send(std::thread::current().name().map(str::to_owned)).await.expect("it is waited for");
                    let _ = is_over.lock().expect("no panic").recv();
                })
            })
            .collect();
        for _ in &working {
            assert_eq!(have_begun.recv().await.expect("it begins").as_deref(), Some(busy.thread_name()));
        }
        for other in Priority::ALL.into_iter().filter(|other| *other != busy) {
            let work = engine.with_priority(other).spawn(async {});
            let done = tokio::time::timeout(Duration::from_secs(60), work).await;
            assert!(done.is_ok_and(|done| done.is_ok()), "{other:?} beside {busy:?}");
        }
        drop(end);
        for work in working {
            work.await.expect("no panic");
        }
    }
}
