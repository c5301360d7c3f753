//! Counts requests in the memory of this process.
//!
//! - A window counts the requests of a client in a bucket for [`WINDOW`]. Windows are in shards by a keyed hash of
//!   client and bucket. The lock of a shard is held for a few hash lookups.
//! - All windows have the same length, so those of a shard end in the order in which they began. Each request first
//!   removes the windows that have ended.
//! - The number of windows in a shard is limited. While a shard is full, new clients share windows, chosen by the same
//!   hash. So no count is evicted to make space, and no client is unlimited. Under a flood from more clients than fit,
//!   new clients can be refused because of others, but a client that has a window keeps it. A client stays with a
//!   shared window until that ends, so that space that becomes free meanwhile gives it no second window.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;

use crate::locked;
use crate::rate_limit::downloads::Downloads;
use crate::rate_limit::{
    Bucket, Client, Clock, ExportId, ExportPart, Moment, RateLimitDecision, RateLimitStatus, RateLimiter, RateLimits,
    WINDOW,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateCapacity {
    /// Number of shards, at least 1.
    pub shards: usize,
    /// Windows of single clients in each shard.
    pub own_windows: usize,
    /// Windows that new clients share when a shard is full, in each shard and for each bucket, at least 1.
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
        let own_windows = capacity.own_windows;
        let hasher = RandomState::new();
        MemoryRateLimiter { limits, clock, own_windows, hasher, shards, downloads: Downloads::new() }
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
        let limit = self.limits.of(bucket)?;
        let moment = self.clock.now();
        let (mut shard, slot) = self.shard((client, bucket));
        Some(shard.window((client, bucket), slot, moment, self.own_windows).count(moment, limit))
    }

    async fn status(&self, client: Client, bucket: Bucket) -> Option<RateLimitStatus> {
        let limit = self.limits.of(bucket)?;
        let moment = self.clock.now();
        let (shard, slot) = self.shard((client, bucket));
        Some(shard.live_window((client, bucket), slot, moment).status(limit, RateLimitDecision::Within))
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
