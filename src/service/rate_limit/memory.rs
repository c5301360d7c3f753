//! Counts of requests in the memory of this process.
//!
//! - Windows lie in shards by a keyed hash of client and bucket, each behind a lock that is held for some hash
//!   look-ups.
//! - All windows last equally long, so that those of a shard end in the order in which they began: each request first
//!   drops what has ended since the last one.
//! - A shard holds so many windows and no more. While it is full of live ones, newcomers count in windows that they
//!   share, chosen by the same hash: nobody's count is ever forgotten to make room, and nobody is unlimited. Under a
//!   flood from more clients than fit, newcomers may so be refused on account of others; who has a window keeps it. A
//!   client stays with a shared window until it ends, so that room that comes free meanwhile is no second window.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;

use crate::locked;
use crate::rate_limit::downloads::{DownloadCapacity, Downloads};
use crate::rate_limit::{
    Bucket, Client, Clock, ExportId, ExportPart, Moment, RateLimitDecision, RateLimitStatus, RateLimiter, RateLimits,
    WINDOW,
};

/// How much is kept at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateCapacity {
    /// Parts that lock apart, at least 1.
    pub shards: usize,
    /// Windows of single clients in each.
    pub own_windows: usize,
    /// Windows that newcomers share while there are no more, in each and for each bucket, at least 1.
    pub shared_windows: usize,
}

impl Default for RateCapacity {
    /// A quarter of a million clients within a minute, in about 35 MB when all are there.
    fn default() -> Self {
        RateCapacity { shards: 64, own_windows: 4_096, shared_windows: 64 }
    }
}

pub struct MemoryRateLimiter<C> {
    limits: RateLimits,
    clock: C,
    own_windows: usize,
    hasher: RandomState,
    shards: Vec<Mutex<Shard>>,
    downloads: Downloads,
}

type Key = (Client, Bucket);

struct Shard {
    own: HashMap<Key, Window>,
    /// The keys of `own` with the ends of their windows, in that order.
    ends: VecDeque<(Duration, Key)>,
    /// By bucket, the windows that newcomers share.
    shared: [Vec<Option<Window>>; 2],
    /// The latest time seen here: requests may reach the lock in another order than that of their moments.
    now: Duration,
}

#[derive(Clone, Copy)]
struct Window {
    end: Duration,
    reset_unix_s: u64,
    counted: u64,
}

impl<C: Clock> MemoryRateLimiter<C> {
    pub fn new(limits: RateLimits, capacity: RateCapacity, clock: C) -> Self {
        let shared = || vec![None; capacity.shared_windows.max(1)];
        let shard =
            || Shard { own: HashMap::new(), ends: VecDeque::new(), shared: [shared(), shared()], now: Duration::ZERO };
        let shards = (0..capacity.shards.max(1)).map(|_| Mutex::new(shard())).collect();
        let (own_windows, hasher) = (capacity.own_windows, RandomState::new());
        let downloads = Downloads::new(DownloadCapacity::default());
        MemoryRateLimiter { limits, clock, own_windows, hasher, shards, downloads }
    }

    fn count_now(&self, client: Client, bucket: Bucket) -> Option<RateLimitStatus> {
        let (limit, moment) = (self.limits.of(bucket)?, self.clock.now());
        let (mut shard, slot) = self.shard((client, bucket));
        Some(shard.window((client, bucket), slot, moment, self.own_windows).count(moment, limit))
    }

    fn status_now(&self, client: Client, bucket: Bucket) -> Option<RateLimitStatus> {
        let (limit, moment) = (self.limits.of(bucket)?, self.clock.now());
        let (shard, slot) = self.shard((client, bucket));
        Some(shard.live_window((client, bucket), slot, moment).status(limit, RateLimitDecision::Within))
    }

    /// The shard of a key, and a number that chooses among the windows that newcomers share there.
    fn shard(&self, key: Key) -> (MutexGuard<'_, Shard>, usize) {
        let hash = self.hasher.hash_one(key) as usize;
        (locked(&self.shards[hash % self.shards.len()]), hash / self.shards.len())
    }
}

#[async_trait]
impl<C: Clock> RateLimiter for MemoryRateLimiter<C> {
    async fn count(&self, client: Client, bucket: Bucket) -> Option<RateLimitStatus> {
        self.count_now(client, bucket)
    }

    async fn status(&self, client: Client, bucket: Bucket) -> Option<RateLimitStatus> {
        self.status_now(client, bucket)
    }

    async fn has_downloads(&self, client: Client) -> bool {
        self.downloads.has_any(client, self.clock.now().elapsed)
    }

    async fn begin_download(&self, client: Client, bucket: Bucket, export: ExportId, sent_bytes: Option<u64>) {
        self.downloads.begin(client, bucket, export, sent_bytes, self.clock.now().elapsed);
    }

    async fn continue_download(&self, client: Client, bucket: Bucket, part: ExportPart) -> bool {
        self.downloads.take(client, bucket, &part, self.clock.now().elapsed)
    }
}

impl Shard {
    fn window(&mut self, key: Key, hash: usize, moment: Moment, own_windows: usize) -> &mut Window {
        self.now = self.now.max(moment.elapsed);
        let now = self.now;
        while let Some((end, ended)) = self.ends.front().copied()
            && end <= now
        {
            self.ends.pop_front();
            self.own.remove(&ended);
        }

        let shared = &mut self.shared[key.1 as usize];
        let slots = shared.len();
        let slot = &mut shared[hash % slots];
        if slot.is_some_and(|window| window.end <= now) {
            *slot = None;
        }
        let fresh = Window::open(now, moment.unix);
        if !self.own.contains_key(&key) && (slot.is_some() || self.own.len() >= own_windows) {
            return slot.get_or_insert(fresh);
        }
        self.own.entry(key).or_insert_with(|| {
            self.ends.push_back((fresh.end, key));
            fresh
        })
    }

    /// The window that [`Shard::window`] would give, which is not opened if it is not there.
    fn live_window(&self, key: Key, hash: usize, moment: Moment) -> Window {
        let now = self.now.max(moment.elapsed);
        let shared = &self.shared[key.1 as usize];
        let live = |window: &Window| window.end > now;
        let own = self.own.get(&key).copied().filter(live);
        own.or_else(|| shared[hash % shared.len()].filter(live)).unwrap_or_else(|| Window::open(now, moment.unix))
    }
}

impl Window {
    fn open(now: Duration, unix: Duration) -> Window {
        Window { end: now + WINDOW, reset_unix_s: whole_seconds(unix + WINDOW), counted: 0 }
    }

    fn count(&mut self, moment: Moment, limit: u64) -> RateLimitStatus {
        let decision = if self.counted < limit {
            self.counted += 1;
            RateLimitDecision::Within
        } else {
            RateLimitDecision::Exceeded { retry_after_s: whole_seconds(self.end.saturating_sub(moment.elapsed)).max(1) }
        };
        self.status(limit, decision)
    }

    fn status(&self, limit: u64, decision: RateLimitDecision) -> RateLimitStatus {
        RateLimitStatus { limit, remaining: limit - self.counted, reset_unix_s: self.reset_unix_s, decision }
    }
}

/// Seconds, rounded up, so that waiting for them is enough.
pub(crate) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A clock that tests set, in milliseconds.
    #[derive(Clone, Default)]
    struct TestClock(Arc<AtomicU64>);

    const UNIX_OFFSET_MS: u64 = 1_700_000_000_250;

    impl Clock for TestClock {
        fn now(&self) -> Moment {
            let now = self.0.load(Ordering::Relaxed);
            Moment { elapsed: Duration::from_millis(now), unix: Duration::from_millis(now + UNIX_OFFSET_MS) }
        }
    }

    const LIMITS: RateLimits = RateLimits { public: 3, private: 5 };

    fn limiter(limits: RateLimits, capacity: RateCapacity) -> (MemoryRateLimiter<TestClock>, TestClock) {
        let clock = TestClock::default();
        (MemoryRateLimiter::new(limits, capacity, clock.clone()), clock)
    }

    fn number(number: u32) -> Client {
        Client::V4(number.to_be_bytes())
    }

    #[test]
    fn a_window_runs_from_its_first_request_and_says_so() {
        let (limiter, clock) = limiter(LIMITS, RateCapacity::default());
        clock.0.store(10_000, Ordering::Relaxed);
        let count = |at_ms: u64| {
            clock.0.store(at_ms, Ordering::Relaxed);
            limiter.count_now(number(1), Bucket::Public).expect("a limit")
        };
        // 1,700,000,010.25 and 60 seconds, rounded up.
        let status =
            |remaining, decision| RateLimitStatus { limit: 3, remaining, reset_unix_s: 1_700_000_071, decision };
        assert_eq!(count(10_000), status(2, RateLimitDecision::Within));
        assert_eq!(count(10_001), status(1, RateLimitDecision::Within));
        assert_eq!(count(30_000), status(0, RateLimitDecision::Within));
        assert_eq!(count(30_000), status(0, RateLimitDecision::Exceeded { retry_after_s: 40 }));
        assert_eq!(count(30_001), status(0, RateLimitDecision::Exceeded { retry_after_s: 40 }));
        assert_eq!(count(69_999), status(0, RateLimitDecision::Exceeded { retry_after_s: 1 }));
        let next = RateLimitStatus {
            limit: 3,
            remaining: 2,
            reset_unix_s: 1_700_000_131,
            decision: RateLimitDecision::Within,
        };
        assert_eq!(count(70_000), next);
    }

    #[test]
    fn a_limit_of_nothing_is_switched_off() {
        let (limiter, _) = limiter(RateLimits { public: 0, private: 1 }, RateCapacity::default());
        for _ in 0..10 {
            assert_eq!(limiter.count_now(number(1), Bucket::Public), None);
        }
        let status = limiter.count_now(number(1), Bucket::Private).expect("a limit");
        assert_eq!((status.remaining, status.decision), (0, RateLimitDecision::Within));
    }

    #[test]
    fn memory_is_bounded_and_newcomers_share_what_is_left() {
        let capacity = RateCapacity { shards: 2, own_windows: 8, shared_windows: 2 };
        let (limiter, clock) = limiter(LIMITS, capacity);
        let within =
            |client| limiter.count_now(client, Bucket::Public).expect("a limit").decision == RateLimitDecision::Within;
        assert!((0..3).all(|_| within(number(0))) && !within(number(0)));
        let admitted = (1..10_000).filter(|client| within(number(*client))).count();
        // 15 more windows of their own, used once, and 4 shared ones.
        assert_eq!(admitted, 15 + 4 * 3);
        assert!(!within(number(0)), "a live window was not forgotten");
        for shard in &limiter.shards {
            let shard = shard.lock().expect("not poisoned");
            assert_eq!((shard.own.len(), shard.ends.len()), (8, 8));
        }
        // Afterwards there is room again.
        clock.0.store(60_000, Ordering::Relaxed);
        assert!((0..3).all(|_| within(number(0))) && !within(number(0)));
        let own: usize = limiter.shards.iter().map(|shard| shard.lock().expect("not poisoned").own.len()).sum();
        assert!(own <= 9, "only the shard that was asked has dropped its own");
    }

    #[test]
    fn a_client_leaves_a_shared_window_only_when_it_ends() {
        let (limiter, clock) = limiter(LIMITS, RateCapacity { shards: 1, own_windows: 1, shared_windows: 1 });
        let count = |at_ms: u64, client| {
            clock.0.store(at_ms, Ordering::Relaxed);
            limiter.count_now(number(client), Bucket::Public).expect("a limit").remaining
        };
        assert_eq!(count(0, 1), 2);
        assert_eq!(count(30_000, 2), 2);
        assert_eq!(count(30_000, 3), 1);
        // The first window is gone, but the second client's is not.
        assert_eq!(count(60_000, 2), 0);
        assert_eq!(count(90_000, 2), 2);
    }

    #[test]
    fn threads_together_get_what_the_limit_allows() {
        let (limiter, _) = limiter(RateLimits { public: 1_000, private: 0 }, RateCapacity::default());
        let admitted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let status = limiter.count_now(number(1), Bucket::Public).expect("a limit");
                        admitted.fetch_add(u64::from(status.decision == RateLimitDecision::Within), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), 1_000);
    }

    fn requests() -> impl Strategy<Value = Vec<(u64, u32, bool)>> {
        vec((prop_oneof![0..50_u64, 0..20_000_u64, Just(60_000)], 0..12_u32, any::<bool>()), 0..300)
    }

    fn bucket(private: bool) -> Bucket {
        if private { Bucket::Private } else { Bucket::Public }
    }

    proptest! {
        #[test]
        fn with_room_for_all_it_counts_as_the_naive_model(requests in requests()) {
            let (limiter, clock) = limiter(LIMITS, RateCapacity { shards: 3, own_windows: 24, shared_windows: 1 });
            let mut model: HashMap<(u32, bool), (u64, u64)> = HashMap::new();
            let mut now = 0;
            for (pause, client, private) in requests {
                now += pause;
                clock.0.store(now, Ordering::Relaxed);
                let limit = if private { 5 } else { 3 };
                let before = limiter.status_now(number(client), bucket(private)).expect("a limit");
                let (start, counted) = model.entry((client, private)).or_insert((now, 0));
                if now - *start >= 60_000 {
                    (*start, *counted) = (now, 0);
                }
                *counted += 1;
                let decision = if *counted <= limit {
                    RateLimitDecision::Within
                } else {
                    RateLimitDecision::Exceeded { retry_after_s: (*start + 60_000 - now).div_ceil(1_000) }
                };
                let expected = RateLimitStatus {
                    limit,
                    remaining: limit.saturating_sub(*counted),
                    reset_unix_s: (*start + 60_000 + UNIX_OFFSET_MS).div_ceil(1_000),
                    decision,
                };
                prop_assert_eq!(limiter.count_now(number(client), bucket(private)), Some(expected));
                // What stood before is that without this one, and asking for it changed nothing.
                let counted = u64::from(expected.decision == RateLimitDecision::Within);
                let uncounted =
                    RateLimitStatus { remaining: expected.remaining + counted, ..expected };
                prop_assert_eq!(before, RateLimitStatus { decision: RateLimitDecision::Within, ..uncounted });
            }
        }

        #[test]
        fn without_room_nobody_gets_more_than_a_window_allows_and_nothing_grows(requests in requests()) {
            let (limiter, clock) = limiter(LIMITS, RateCapacity { shards: 1, own_windows: 4, shared_windows: 2 });
            // How many were admitted, per window as the answers name it by its end.
            let mut admitted: HashMap<(u32, bool, u64), u64> = HashMap::new();
            let mut now = 0;
            for (pause, client, private) in requests {
                now += pause;
                clock.0.store(now, Ordering::Relaxed);
                let status = limiter.count_now(number(client), bucket(private)).expect("a limit");
                prop_assert!(status.reset_unix_s * 1_000 > now + UNIX_OFFSET_MS);
                prop_assert!(status.reset_unix_s * 1_000 < now + UNIX_OFFSET_MS + 61_000);
                if status.decision == RateLimitDecision::Within {
                    let admitted = admitted.entry((client, private, status.reset_unix_s)).or_default();
                    *admitted += 1;
                    prop_assert!(*admitted <= status.limit);
                }
                let shard = limiter.shards[0].lock().expect("not poisoned");
                prop_assert!(shard.own.len() <= 4 && shard.ends.len() == shard.own.len());
            }
        }
    }
}
