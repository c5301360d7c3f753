//! Counts requests in the memory of this process.
//!
//! - A window counts the requests of a client in a bucket (private or public) for [`RATE_LIMIT_WINDOW`]. A keyed hash
//!   of client and bucket selects the shard of a window. A request locks its shard for a few hash lookups.
//! - All windows have the same length, so the windows of a shard end in the order in which they began. Each request
//!   first removes the windows that have ended.
//! - The number of windows in a shard is limited. While a shard is full, new clients share windows, chosen by the same
//!   hash. So no count is evicted to make space, and no client is unlimited. Under a flood from more clients than fit,
//!   new clients can be refused because of others, but a client that has a window keeps it. A client keeps a shared
//!   window until the window ends, so that free space does not give the client a second window.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};

use crate::rate_limit::downloads::DownloadTracker;
use crate::rate_limit::{
    ClientNetwork, ClockReading, ExportId, ExportPart, RATE_LIMIT_WINDOW, RateLimitBucket, RateLimitClock,
    RateLimitDecision, RateLimitStatus, RateLimiter, RateLimits,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimiterCapacity {
    /// Number of shards of the windows, at least 1.
    pub shards: usize,
    pub client_windows: usize,
    /// Number of windows that new clients share while a shard is full, for each shard and bucket. At least 1.
    pub shared_windows: usize,
}

impl Default for RateLimiterCapacity {
    /// Space for a quarter of a million clients within a minute, in about 35 MB.
    fn default() -> Self {
        RateLimiterCapacity { shards: 64, client_windows: 4_096, shared_windows: 64 }
    }
}

pub struct MemoryRateLimiter<C> {
    limits: RateLimits,
    clock: C,
    max_client_windows: usize,
    hasher: RandomState,
    shards: Vec<Mutex<WindowShard>>,
    downloads: DownloadTracker,
}

type WindowKey = (ClientNetwork, RateLimitBucket);

struct WindowShard {
    client_windows: HashMap<WindowKey, RateWindow>,
    /// The keys of `client_windows`, ordered by the ends of their windows.
    window_ends: VecDeque<(Duration, WindowKey)>,
    shared_windows: [Vec<Option<RateWindow>>; 2],
    /// Latest time of a request in this shard. Requests can read the clock and lock the shard in different orders.
    latest_time: Duration,
}

#[derive(Clone, Copy)]
struct RateWindow {
    end: Duration,
    reset_unix_s: u64,
    request_count: u64,
}

impl<C: RateLimitClock> MemoryRateLimiter<C> {
    pub fn new(limits: RateLimits, capacity: RateLimiterCapacity, clock: C) -> Self {
        let shared_windows = || vec![None; capacity.shared_windows.max(1)];
        let shard = || WindowShard {
            client_windows: HashMap::new(),
            window_ends: VecDeque::new(),
            shared_windows: [shared_windows(), shared_windows()],
            latest_time: Duration::ZERO,
        };
        MemoryRateLimiter {
            limits,
            clock,
            max_client_windows: capacity.client_windows,
            hasher: RandomState::new(),
            shards: (0..capacity.shards.max(1)).map(|_| Mutex::new(shard())).collect(),
            downloads: DownloadTracker::new(),
        }
    }

    fn lock_shard(&self, key: WindowKey) -> (MutexGuard<'_, WindowShard>, usize) {
        let hash = self.hasher.hash_one(key) as usize;
        (self.shards[hash % self.shards.len()].lock(), hash / self.shards.len())
    }
}

#[async_trait]
impl<C: RateLimitClock> RateLimiter for MemoryRateLimiter<C> {
    async fn count_request(&self, client: ClientNetwork, bucket: RateLimitBucket) -> Option<RateLimitStatus> {
        let limit = self.limits.limit_for(bucket)?;
        let now = self.clock.now();
        let (mut shard, hash) = self.lock_shard((client, bucket));
        Some(shard.get_or_open_window((client, bucket), hash, now, self.max_client_windows).count_request(now, limit))
    }

    async fn status(&self, client: ClientNetwork, bucket: RateLimitBucket) -> Option<RateLimitStatus> {
        let limit = self.limits.limit_for(bucket)?;
        let now = self.clock.now();
        let (shard, hash) = self.lock_shard((client, bucket));
        Some(shard.peek_window((client, bucket), hash, now).status(limit, RateLimitDecision::Within))
    }

    async fn has_downloads(&self, client: ClientNetwork) -> bool {
        self.downloads.has_active_download(client, self.clock.now().elapsed)
    }

    async fn begin_download(&self, client: ClientNetwork, bucket: RateLimitBucket, id: ExportId, bytes: Option<u64>) {
        self.downloads.begin(client, bucket, id, bytes, self.clock.now().elapsed);
    }

    async fn continue_download(&self, client: ClientNetwork, bucket: RateLimitBucket, part: ExportPart) -> bool {
        self.downloads.try_continue(client, bucket, &part, self.clock.now().elapsed)
    }
}

impl WindowShard {
    fn get_or_open_window(
        &mut self,
        key: WindowKey,
        hash: usize,
        moment: ClockReading,
        max_client_windows: usize,
    ) -> &mut RateWindow {
        self.latest_time = self.latest_time.max(moment.elapsed);
        let now = self.latest_time;
        while let Some((end, ended)) = self.window_ends.front().copied()
            && end <= now
        {
            self.window_ends.pop_front();
            self.client_windows.remove(&ended);
        }

        let shared = &mut self.shared_windows[key.1 as usize];
        let slots = shared.len();
        let slot = &mut shared[hash % slots];
        if slot.is_some_and(|window| window.end <= now) {
            *slot = None;
        }
        let new_window = RateWindow::open(now, moment.unix);
        if !self.client_windows.contains_key(&key)
            && (slot.is_some() || self.client_windows.len() >= max_client_windows)
        {
            return slot.get_or_insert(new_window);
        }
        self.client_windows.entry(key).or_insert_with(|| {
            self.window_ends.push_back((new_window.end, key));
            new_window
        })
    }

    /// Like [`WindowShard::get_or_open_window`], but does not store a new window.
    fn peek_window(&self, key: WindowKey, hash: usize, moment: ClockReading) -> RateWindow {
        let now = self.latest_time.max(moment.elapsed);
        let shared = &self.shared_windows[key.1 as usize];
        let is_active = |window: &RateWindow| window.end > now;
        let own = self.client_windows.get(&key).copied().filter(is_active);
        own.or_else(|| shared[hash % shared.len()].filter(is_active))
            .unwrap_or_else(|| RateWindow::open(now, moment.unix))
    }
}

impl RateWindow {
    fn open(now: Duration, unix: Duration) -> RateWindow {
        RateWindow {
            end: now + RATE_LIMIT_WINDOW,
            reset_unix_s: ceil_seconds(unix + RATE_LIMIT_WINDOW),
            request_count: 0,
        }
    }

    fn count_request(&mut self, moment: ClockReading, limit: u64) -> RateLimitStatus {
        let decision = if self.request_count < limit {
            self.request_count += 1;
            RateLimitDecision::Within
        } else {
            RateLimitDecision::Exceeded { retry_after_s: ceil_seconds(self.end.saturating_sub(moment.elapsed)).max(1) }
        };
        self.status(limit, decision)
    }

    fn status(&self, limit: u64, decision: RateLimitDecision) -> RateLimitStatus {
        RateLimitStatus { limit, remaining: limit - self.request_count, reset_unix_s: self.reset_unix_s, decision }
    }
}

/// Rounds a duration up to seconds, so that a client that waits for the result waits long enough.
pub(crate) fn ceil_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
