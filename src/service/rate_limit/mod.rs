//! Limits the number of requests of a client in a minute.
//!
//! [`RateLimiter`] is the interface. [`MemoryRateLimiter`] counts in this process, [`SharedRateLimiter`] in Redis for
//! all processes. The download of an export in ranges counts once ([`downloads`]).
//!
//! [`MemoryRateLimiter`]: crate::MemoryRateLimiter
//! [`SharedRateLimiter`]: crate::SharedRateLimiter

mod downloads;
pub(crate) mod memory;
pub(crate) mod shared;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use strata_config::RequestLimitsConfig;
pub(crate) use strata_limits::ClientNetwork;

/// Length of a rate limit window, which begins with the first counted request of a client.
pub(crate) const RATE_LIMIT_WINDOW: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateLimitBucket {
    /// Requests for private datasets with the header `Authorization`, valid or not.
    Private,
    Public,
}

impl RateLimitBucket {
    /// Returns the name of the bucket in metrics and in Redis keys.
    pub fn name(self) -> &'static str {
        match self {
            RateLimitBucket::Private => "private",
            RateLimitBucket::Public => "public",
        }
    }
}

/// Maximum number of requests of a client per window and bucket; 0 switches a limit off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    pub public: u64,
    pub private: u64,
}

impl RateLimits {
    pub fn limit_for(&self, bucket: RateLimitBucket) -> Option<u64> {
        let limit = match bucket {
            RateLimitBucket::Public => self.public,
            RateLimitBucket::Private => self.private,
        };
        (limit > 0).then_some(limit)
    }
}

impl From<&RequestLimitsConfig> for RateLimits {
    fn from(limits: &RequestLimitsConfig) -> RateLimits {
        RateLimits { public: limits.public_per_minute, private: limits.private_per_minute }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitStatus {
    pub limit: u64,
    pub remaining: u64,
    /// End of the rate limit window in Unix seconds, rounded up. Equal for all requests in the window.
    pub reset_unix_s: u64,
    pub decision: RateLimitDecision,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateLimitDecision {
    Within,
    Exceeded {
        /// Seconds until the end of the rate limit window, rounded up, at least 1.
        retry_after_s: u64,
    },
}

/// Identifies the contents of an export: exports with the same ID have the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportId(pub [u8; 16]);

#[derive(Clone, Copy, Debug)]
pub struct ExportPart {
    pub export: ExportId,
    pub export_bytes: u64,
    pub part_bytes: u64,
}

/// Counts client requests. An implementation that depends on a server must count by itself if it does not respond.
#[async_trait]
pub trait RateLimiter: Send + Sync + 'static {
    async fn count_request(&self, client: ClientNetwork, bucket: RateLimitBucket) -> Option<RateLimitStatus>;

    /// Returns the current rate limit window of a client; an empty one if it has none. Counts no request.
    async fn status(&self, client: ClientNetwork, bucket: RateLimitBucket) -> Option<RateLimitStatus>;

    async fn has_downloads(&self, client: ClientNetwork) -> bool;

    /// Records a counted request for an export. The response has `bytes` of the export; `None` means all.
    async fn begin_download(&self, client: ClientNetwork, bucket: RateLimitBucket, id: ExportId, bytes: Option<u64>);

    /// Returns whether a range request is not rate-limited because it belongs to a download, and then counts it there.
    async fn continue_download(&self, client: ClientNetwork, bucket: RateLimitBucket, part: ExportPart) -> bool;

    fn is_shared(&self) -> bool {
        false
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Monotonic time since a fixed point, which determines the length of rate limit windows.
    pub elapsed: Duration,
    /// Time since the Unix epoch, for the `Reset` header. Can jump if the system clock is set.
    pub unix: Duration,
}

pub trait RateLimitClock: Send + Sync + 'static {
    fn now(&self) -> ClockReading;
}

#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    pub fn start() -> SystemClock {
        SystemClock { started: Instant::now() }
    }
}

impl RateLimitClock for SystemClock {
    fn now(&self) -> ClockReading {
        // A system clock before 1970 affects only the `Reset` header.
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        ClockReading { elapsed: self.started.elapsed(), unix }
    }
}
