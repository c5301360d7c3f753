//! Rate limits in Redis make the same decisions as rate limits in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use strata_service::{
    ClientNetwork, ClockReading, ExportId, ExportPart, MemoryRateLimiter, RateLimitBucket, RateLimitClock, RateLimiter,
    RateLimiterCapacity, RateLimits, SharedRateLimiter, connect_to_redis,
};
use strata_testing::redis::RedisServer;

/// A clock in milliseconds since 1970 that tests set.
#[derive(Clone)]
struct UnixClock(Arc<AtomicU64>);

impl UnixClock {
    /// Starts after the server's time, so that keys do not expire too early.
    fn start() -> UnixClock {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970") + Duration::from_secs(10);
        UnixClock(Arc::new(AtomicU64::new(now.as_millis() as u64)))
    }
}

impl RateLimitClock for UnixClock {
    fn now(&self) -> ClockReading {
        let now = Duration::from_millis(self.0.load(Ordering::Relaxed));
        ClockReading { elapsed: now, unix: now }
    }
}

/// An action of a client.
#[derive(Clone, Debug)]
enum ClientAction {
    Count,
    Status,
    Begin { export: u8, sent_bytes: Option<u64> },
    Continue { export: u8, bytes: u64 },
}

fn actions() -> impl Strategy<Value = Vec<(u64, u8, bool, ClientAction)>> {
    let pause =
        prop_oneof![4 => 0..50_u64, 2 => 0..20_000_u64, 1 => Just(59_999), 1 => Just(60_000), 1 => 0..900_000_u64];
    let action = prop_oneof![
        6 => Just(ClientAction::Count),
        2 => Just(ClientAction::Status),
        // More downloads than a client can have.
        2 => (0..24_u8, proptest::option::of(0..3_u64 << 20))
            .prop_map(|(export, sent_bytes)| ClientAction::Begin { export, sent_bytes }),
        4 => (0..24_u8, prop_oneof![Just(u64::MAX), 0..3_u64 << 20])
            .prop_map(|(export, bytes)| ClientAction::Continue { export, bytes }),
    ];
    vec((pause, 0..3_u8, any::<bool>(), action), 0..150)
}

fn client(number: u8) -> ClientNetwork {
    match number {
        0 => ClientNetwork::Unspecified,
        1 => ClientNetwork::V6([1; 8]),
        number => ClientNetwork::V4([192, 0, 2, number]),
    }
}

#[test]
fn redis_and_memory_limiters_decide_alike() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let redis = RedisServer::start();
    let limits = RateLimits { public: 3, private: 5 };
    let case = AtomicU64::new(0);
    let mut runner = TestRunner::new(Cases { cases: 64, failure_persistence: None, ..Cases::default() });
    let outcome = runner.run(&actions(), |actions| {
        let identity = case.fetch_add(1, Ordering::Relaxed).to_string();
        runtime.block_on(async {
            let clock = UnixClock::start();
            let memory = MemoryRateLimiter::new(limits, RateLimiterCapacity::default(), clock.clone());
            let mut shared = Vec::new();
            for _ in 0..2 {
                let link = connect_to_redis(&redis.url(), 1_000, &identity).await.expect("a URL");
                let clock = clock.0.clone();
                let limiter = SharedRateLimiter::new(Arc::new(link), "reads", limits, RateLimiterCapacity::default());
                shared.push(limiter.with_clock(move || clock.load(Ordering::Relaxed)));
            }
            for (number, (pause, client_number, private, action)) in actions.into_iter().enumerate() {
                clock.0.fetch_add(pause, Ordering::Relaxed);
                let shared = &shared[number % 2];
                let client = client(client_number);
                let bucket = if private { RateLimitBucket::Private } else { RateLimitBucket::Public };
                match action.clone() {
                    ClientAction::Count => {
                        prop_assert_eq!(
                            shared.count_request(client, bucket).await,
                            memory.count_request(client, bucket).await
                        );
                    }
                    ClientAction::Status => {
                        prop_assert_eq!(shared.status(client, bucket).await, memory.status(client, bucket).await);
                    }
                    ClientAction::Begin { export, sent_bytes } => {
                        let export = ExportId([export; 16]);
                        shared.begin_download(client, bucket, export, sent_bytes).await;
                        memory.begin_download(client, bucket, export, sent_bytes).await;
                    }
                    ClientAction::Continue { export, bytes } => {
                        let part =
                            ExportPart { export: ExportId([export; 16]), export_bytes: 2 << 20, part_bytes: bytes };
                        let free = shared.continue_download(client, bucket, part).await;
                        prop_assert_eq!(free, memory.continue_download(client, bucket, part).await, "{:?}", action);
                        // The hint must be true for a free range, but can be true for longer.
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
