//! Rate limits that processes share in a Redis decide as one process does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use strata_service::{
    Bucket, Client, Clock, ExportId, ExportPart, MemoryRateLimiter, Moment, RateCapacity, RateLimiter, RateLimits,
    SharedRateLimiter, connect_to_redis,
};
use strata_testing::redis::RedisServer;

/// A clock that tests set, in milliseconds since 1970.
#[derive(Clone)]
struct TestClock(Arc<AtomicU64>);

impl TestClock {
    /// Not before the server's, by which keys end.
    fn start() -> TestClock {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970") + Duration::from_secs(10);
        TestClock(Arc::new(AtomicU64::new(now.as_millis() as u64)))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Moment {
        let now = Duration::from_millis(self.0.load(Ordering::Relaxed));
        Moment { elapsed: now, unix: now }
    }
}

/// What a client does, some milliseconds after what was done before.
#[derive(Clone, Debug)]
enum Action {
    Count,
    Look,
    Begin { export: u8, sent_bytes: Option<u64> },
    Continue { export: u8, bytes: u64 },
}

fn actions() -> impl Strategy<Value = Vec<(u64, u8, bool, Action)>> {
    let pause =
        prop_oneof![4 => 0..50_u64, 2 => 0..20_000_u64, 1 => Just(59_999), 1 => Just(60_000), 1 => 0..900_000_u64];
    let action = prop_oneof![
        6 => Just(Action::Count),
        2 => Just(Action::Look),
        // More than a client may have.
        2 => (0..24_u8, proptest::option::of(0..3_u64 << 20))
            .prop_map(|(export, sent_bytes)| Action::Begin { export, sent_bytes }),
        4 => (0..24_u8, prop_oneof![Just(u64::MAX), 0..3_u64 << 20])
            .prop_map(|(export, bytes)| Action::Continue { export, bytes }),
    ];
    vec((pause, 0..3_u8, any::<bool>(), action), 0..150)
}

fn client(number: u8) -> Client {
    match number {
        0 => Client::Unspecified,
        1 => Client::V6([1; 8]),
        number => Client::V4([192, 0, 2, number]),
    }
}

/// Whatever clients do, and at whichever process: Redis decides as one process does.
#[test]
fn redis_decides_as_one_process_would() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let redis = RedisServer::start();
    let limits = RateLimits { public: 3, private: 5 };
    let case = AtomicU64::new(0);
    let mut runner = TestRunner::new(Cases { cases: 64, failure_persistence: None, ..Cases::default() });
    let outcome = runner.run(&actions(), |actions| {
        let identity = case.fetch_add(1, Ordering::Relaxed).to_string();
        runtime.block_on(async {
            let clock = TestClock::start();
            let alone = MemoryRateLimiter::new(limits, RateCapacity::default(), clock.clone());
            let mut shared = Vec::new();
            for _ in 0..2 {
                let link = connect_to_redis(&redis.url(), 1_000, &identity).await.expect("a URL");
                let clock = clock.0.clone();
                let limiter = SharedRateLimiter::new(Arc::new(link), "reads", limits, RateCapacity::default());
                shared.push(limiter.timed_by(move || clock.load(Ordering::Relaxed)));
            }
            for (number, (pause, who, private, action)) in actions.into_iter().enumerate() {
                clock.0.fetch_add(pause, Ordering::Relaxed);
                let (shared, client) = (&shared[number % 2], client(who));
                let bucket = if private { Bucket::Private } else { Bucket::Public };
                match action.clone() {
                    Action::Count => {
                        prop_assert_eq!(shared.count(client, bucket).await, alone.count(client, bucket).await);
                    }
                    Action::Look => {
                        prop_assert_eq!(shared.status(client, bucket).await, alone.status(client, bucket).await);
                    }
                    Action::Begin { export, sent_bytes } => {
                        let export = ExportId([export; 16]);
                        shared.begin_download(client, bucket, export, sent_bytes).await;
                        alone.begin_download(client, bucket, export, sent_bytes).await;
                    }
                    Action::Continue { export, bytes } => {
                        let part = ExportPart { export: ExportId([export; 16]), export_bytes: 2 << 20, bytes };
                        let free = shared.continue_download(client, bucket, part).await;
                        prop_assert_eq!(free, alone.continue_download(client, bucket, part).await, "{:?}", action);
                        // A hint, which may come true too late but never too early.
                        prop_assert!(!free || shared.has_downloads(client).await);
                    }
                }
                prop_assert!(shared.is_shared());
            }
            Ok(())
        })
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
