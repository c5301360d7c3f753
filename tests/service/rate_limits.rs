//! Rate limits in the memory of a process: windows of clients, and downloads in ranges.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use proptest::collection::vec;
use proptest::prelude::*;
use strata_service::{
    ClientNetwork, ClockReading, ExportId, ExportPart, MemoryRateLimiter, RateLimitBucket, RateLimitClock,
    RateLimitDecision, RateLimitStatus, RateLimiter, RateLimiterCapacity, RateLimits,
};

/// A clock in milliseconds that tests set.
#[derive(Clone, Default)]
struct TestClock(Arc<AtomicU64>);

const UNIX_OFFSET_MS: u64 = 1_700_000_000_250;

impl RateLimitClock for TestClock {
    fn now(&self) -> ClockReading {
        let now = self.0.load(Ordering::Relaxed);
        ClockReading { elapsed: Duration::from_millis(now), unix: Duration::from_millis(now + UNIX_OFFSET_MS) }
    }
}

const LIMITS: RateLimits = RateLimits { public: 3, private: 5 };

struct Limiter {
    limiter: MemoryRateLimiter<TestClock>,
    clock: TestClock,
}

fn client(number: u32) -> ClientNetwork {
    ClientNetwork::V4(number.to_be_bytes())
}

fn now<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never().expect("a limiter in memory does not wait")
}

impl Limiter {
    fn new(limits: RateLimits, capacity: RateLimiterCapacity) -> Limiter {
        let clock = TestClock::default();
        Limiter { limiter: MemoryRateLimiter::new(limits, capacity, clock.clone()), clock }
    }

    fn set_ms(&self, ms: u64) {
        self.clock.0.store(ms, Ordering::Relaxed);
    }

    fn count(&self, number: u32, bucket: RateLimitBucket) -> Option<RateLimitStatus> {
        now(self.limiter.count_request(client(number), bucket))
    }

    fn admits(&self, number: u32) -> bool {
        self.count(number, RateLimitBucket::Public).expect("a limit").decision == RateLimitDecision::Within
    }

    fn begin(&self, number: u32, export: u8, sent_bytes: Option<u64>, at_s: u64) {
        self.set_ms(at_s * 1_000);
        now(self.limiter.begin_download(client(number), RateLimitBucket::Public, ExportId([export; 16]), sent_bytes));
    }

    fn takes_from(&self, number: u32, bucket: RateLimitBucket, part: ExportPart, at_s: u64) -> bool {
        self.set_ms(at_s * 1_000);
        now(self.limiter.continue_download(client(number), bucket, part))
    }

    fn takes(&self, number: u32, part: ExportPart, at_s: u64) -> bool {
        self.takes_from(number, RateLimitBucket::Public, part, at_s)
    }

    fn has_downloads(&self, number: u32, at_s: u64) -> bool {
        self.set_ms(at_s * 1_000);
        now(self.limiter.has_downloads(client(number)))
    }
}

#[test]
fn ipv4_address_or_ipv6_network_is_one_client() {
    let client = |text: &str| ClientNetwork::from(text.parse::<IpAddr>().expect(text));
    assert_eq!(client("192.0.2.1"), client("::ffff:192.0.2.1"));
    assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
    assert_eq!(client("2001:db8:1:2::1"), client("2001:db8:1:2:ffff:ffff:ffff:ffff"));
    assert_ne!(client("2001:db8:1:2::1"), client("2001:db8:1:3::1"));
    // Not a mapped address: the deprecated compatible form is a network like any other.
    assert_ne!(client("::192.0.2.1"), client("192.0.2.1"));
}

#[test]
fn limit_of_zero_is_switched_off() {
    let limiter = Limiter::new(RateLimits { public: 0, private: 1 }, RateLimiterCapacity::default());
    for _ in 0..10 {
        assert_eq!(limiter.count(1, RateLimitBucket::Public), None);
    }
    let status = limiter.count(1, RateLimitBucket::Private).expect("a limit");
    assert_eq!((status.remaining, status.decision), (0, RateLimitDecision::Within));
}

#[test]
fn new_clients_share_windows_when_shards_are_full() {
    let limiter = Limiter::new(LIMITS, RateLimiterCapacity { shards: 2, client_windows: 8, shared_windows: 2 });
    assert!((0..3).all(|_| limiter.admits(0)) && !limiter.admits(0));
    let admitted = (1..10_000).filter(|number| limiter.admits(*number)).count();
    // 15 further client windows with one request each, and 4 shared windows.
    assert_eq!(admitted, 15 + 4 * 3);
    assert!(!limiter.admits(0), "a live window is never evicted");
    limiter.set_ms(60_000);
    assert!((0..3).all(|_| limiter.admits(0)) && !limiter.admits(0));
}

#[test]
fn client_leaves_shared_window_when_it_ends() {
    let limiter = Limiter::new(LIMITS, RateLimiterCapacity { shards: 1, client_windows: 1, shared_windows: 1 });
    let count = |at_ms: u64, number| {
        limiter.set_ms(at_ms);
        limiter.count(number, RateLimitBucket::Public).expect("a limit").remaining
    };
    assert_eq!(count(0, 1), 2);
    assert_eq!(count(30_000, 2), 2);
    assert_eq!(count(30_000, 3), 1);
    // The first window has ended, but not the window of the second client.
    assert_eq!(count(60_000, 2), 0);
    assert_eq!(count(90_000, 2), 2);
}

#[test]
fn threads_together_get_what_the_limit_allows() {
    let limiter = Limiter::new(RateLimits { public: 1_000, private: 0 }, RateLimiterCapacity::default());
    let admitted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    admitted.fetch_add(u64::from(limiter.admits(1)), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 1_000);
}

fn requests() -> impl Strategy<Value = Vec<(u64, u32, bool)>> {
    vec((prop_oneof![0..50_u64, 0..20_000_u64, Just(60_000)], 0..12_u32, any::<bool>()), 0..300)
}

fn bucket(private: bool) -> RateLimitBucket {
    if private { RateLimitBucket::Private } else { RateLimitBucket::Public }
}

const MIB: u64 = 1 << 20;

fn part(number: u8, export_bytes: u64, bytes: u64) -> ExportPart {
    ExportPart { export: ExportId([number; 16]), export_bytes, part_bytes: bytes }
}

fn downloads() -> Limiter {
    Limiter::new(LIMITS, RateLimiterCapacity::default())
}

#[test]
fn free_ranges_are_limited_by_bytes_and_parts() {
    let limiter = downloads();
    // No request was counted yet.
    assert!(!limiter.takes(1, part(1, 10 * MIB, 1), 1));
    for (sent_bytes, size, expected) in [
        // Byte by byte: limited by the number of ranges.
        (Some(1), 1, 64 + 16 * 10),
        (None, 1, 64 + 16 * 10),
        (Some(0), 0, 64 + 16 * 10),
        // Twice the export, and 1 MiB.
        (Some(0), MIB, 21),
        (Some(MIB), MIB, 20),
        (None, MIB, 11),
        // Repeated requests for the whole export count each time.
        (Some(0), 10 * MIB, 2),
        (Some(1), 10 * MIB, 2),
        (None, 10 * MIB, 1),
    ] {
        limiter.begin(1, 1, sent_bytes, 0);
        let free = (0..).take_while(|_| limiter.takes(1, part(1, 10 * MIB, size), 1)).count();
        assert_eq!(free, expected, "{sent_bytes:?} {size}");
    }
    // Extreme sizes do not overflow.
    limiter.begin(1, 1, Some(u64::MAX), 0);
    assert!(!limiter.takes(1, part(1, MIB, u64::MAX), 1));
    assert!(limiter.takes(1, part(1, u64::MAX, u64::MAX), 1));
}

#[test]
fn download_is_of_one_client_export_and_bucket() {
    let limiter = downloads();
    limiter.begin(1, 1, Some(0), 100);
    assert!(limiter.takes(1, part(1, MIB, 1), 100));
    assert!(!limiter.takes(2, part(1, MIB, 1), 100), "another client");
    assert!(!limiter.takes(1, part(2, MIB, 1), 100), "another export");
    assert!(!limiter.takes_from(1, RateLimitBucket::Private, part(1, MIB, 1), 100), "another bucket");
    assert!(limiter.takes(1, part(1, MIB, 1), 100 + 899));
    assert!(limiter.has_downloads(1, 999) && !limiter.has_downloads(2, 999));
    assert!(!limiter.takes(1, part(1, MIB, 1), 100 + 900), "too late");
    assert!(!limiter.has_downloads(1, 1_000));
}

#[test]
fn client_has_the_16_downloads_used_last() {
    let limiter = downloads();
    for export in 1..=16 {
        limiter.begin(1, export, Some(0), 0);
    }
    // The first is used again, so the second is replaced.
    assert!(limiter.takes(1, part(1, MIB, 1), 1));
    limiter.begin(1, 17, Some(0), 1);
    let replaced: Vec<u8> = (1..=17).filter(|&export| !limiter.takes(1, part(export, MIB, 1), 1)).collect();
    assert_eq!(replaced, [2]);
}

proptest! {
    #[test]
    fn counts_equal_naive_model(requests in requests()) {
        let limiter = Limiter::new(LIMITS, RateLimiterCapacity { shards: 3, client_windows: 24, shared_windows: 1 });
        let mut model: HashMap<(u32, bool), (u64, u64)> = HashMap::new();
        let mut now_ms = 0;
        for (pause, number, private) in requests {
            now_ms += pause;
            limiter.set_ms(now_ms);
            let limit = if private { 5 } else { 3 };
            let before = now(limiter.limiter.status(client(number), bucket(private))).expect("a limit");
            let (start, counted) = model.entry((number, private)).or_insert((now_ms, 0));
            if now_ms - *start >= 60_000 {
                *start = now_ms;
                *counted = 0;
            }
            *counted += 1;
            let decision = if *counted <= limit {
                RateLimitDecision::Within
            } else {
                RateLimitDecision::Exceeded { retry_after_s: (*start + 60_000 - now_ms).div_ceil(1_000) }
            };
            let expected = RateLimitStatus {
                limit,
                remaining: limit.saturating_sub(*counted),
                reset_unix_s: (*start + 60_000 + UNIX_OFFSET_MS).div_ceil(1_000),
                decision,
            };
            prop_assert_eq!(limiter.count(number, bucket(private)), Some(expected));
            // The status before the request does not include it.
            let counted = u64::from(expected.decision == RateLimitDecision::Within);
            let uncounted = RateLimitStatus { remaining: expected.remaining + counted, ..expected };
            prop_assert_eq!(before, RateLimitStatus { decision: RateLimitDecision::Within, ..uncounted });
        }
    }

    #[test]
    fn full_shard_admits_no_more_than_windows_allow(requests in requests()) {
        let limiter = Limiter::new(LIMITS, RateLimiterCapacity { shards: 1, client_windows: 4, shared_windows: 2 });
        // How many requests were admitted in each window, which its end identifies.
        let mut admitted: HashMap<(u32, bool, u64), u64> = HashMap::new();
        let mut now_ms = 0;
        for (pause, number, private) in requests {
            now_ms += pause;
            limiter.set_ms(now_ms);
            let status = limiter.count(number, bucket(private)).expect("a limit");
            prop_assert!(status.reset_unix_s * 1_000 > now_ms + UNIX_OFFSET_MS);
            prop_assert!(status.reset_unix_s * 1_000 < now_ms + UNIX_OFFSET_MS + 61_000);
            if status.decision == RateLimitDecision::Within {
                let admitted = admitted.entry((number, private, status.reset_unix_s)).or_default();
                *admitted += 1;
                prop_assert!(*admitted <= status.limit);
            }
        }
    }

    #[test]
    fn counted_requests_limit_bytes_and_parts(requests in vec((0..3_u8, 0..3 * MIB, 0..400_u64), 0..400)) {
        let limiter = downloads();
        let mut counted = 0;
        let mut sent_bytes = 0;
        let mut free = 0;
        let mut at_s = 0;
        for (export, bytes, pause) in requests {
            at_s += pause;
            if limiter.takes(1, part(export, 3 * MIB, bytes), at_s) {
                free += 1;
            } else {
                counted += 1;
                limiter.begin(1, export, Some(bytes), at_s);
            }
            sent_bytes += bytes;
        }
        prop_assert!(sent_bytes <= counted * (2 * 3 * MIB + MIB));
        prop_assert!(free <= counted * (64 + 16 * 3));
    }
}
