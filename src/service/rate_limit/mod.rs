//! Limits the number of requests of a client in a minute.
//!
//! [`RateLimiter`] is the interface. [`MemoryRateLimiter`] counts in this process, [`SharedRateLimiter`] in Redis
//! together with other processes. The download of an export in ranges counts once ([`downloads`]).
//!
//! [`MemoryRateLimiter`]: crate::MemoryRateLimiter
//! [`SharedRateLimiter`]: crate::SharedRateLimiter

mod downloads;
pub(crate) mod memory;
pub(crate) mod shared;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use strata_config::Limits;
pub(crate) use strata_limits::Client;

/// How long a window lasts, from its first counted request.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);

/// The group of requests that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bucket {
    /// Requests for private datasets with an `Authorization`, valid or not.
    Private,
    Public,
}

/// Requests per window and bucket; 0 switches a limit off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    pub public: u64,
    pub private: u64,
}

impl RateLimits {
    /// The limit of a bucket; `None` when it is switched off.
    pub fn of(&self, bucket: Bucket) -> Option<u64> {
        let limit = match bucket {
            Bucket::Public => self.public,
            Bucket::Private => self.private,
        };
        (limit > 0).then_some(limit)
    }
}

impl From<&Limits> for RateLimits {
    fn from(limits: &Limits) -> RateLimits {
        RateLimits { public: limits.public_per_minute, private: limits.private_per_minute }
    }
}

/// The window of a client after a request was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitStatus {
    pub limit: u64,
    pub remaining: u64,
    /// When the window ends, in Unix seconds, rounded up. The same for all requests of a window.
    pub reset_unix_s: u64,
    pub decision: RateLimitDecision,
}

/// Whether a counted request is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateLimitDecision {
    Within,
    Exceeded {
        /// Seconds until the window has ended, rounded up, at least 1.
        retry_after_s: u64,
    },
}

/// An export. Exports with the same ID have the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportId(pub [u8; 16]);

#[derive(Clone, Copy, Debug)]
pub struct ExportPart {
    pub export: ExportId,
    pub export_bytes: u64,
    pub bytes: u64,
}

/// Counts requests. An implementation that depends on a server decides what to do if that does not respond.
#[async_trait]
pub trait RateLimiter: Send + Sync + 'static {
    /// Counts one request; `None` when the bucket's limit is switched off.
    async fn count(&self, client: Client, bucket: Bucket) -> Option<RateLimitStatus>;

    /// The window of a client, or a new one. Counts nothing.
    async fn status(&self, client: Client, bucket: Bucket) -> Option<RateLimitStatus>;

    /// Whether a client has begun downloads. Only a hint.
    async fn has_downloads(&self, client: Client) -> bool;

    /// Records a counted request for an export. The response has `sent_bytes` of it; `None` means all of it.
    async fn begin_download(&self, client: Client, bucket: Bucket, export: ExportId, sent_bytes: Option<u64>);

    /// Whether a range is free because it belongs to a counted download, whose remaining bytes and ranges it reduces.
    async fn continue_download(&self, client: Client, bucket: Bucket, part: ExportPart) -> bool;

    /// Whether the counts are shared with other processes at the moment.
    fn is_shared(&self) -> bool {
        false
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Since some fixed point; never goes back. Windows are measured by it.
    pub elapsed: Duration,
    /// Since the Unix epoch; may be set. Only shown.
    pub unix: Duration,
}

pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Moment;
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

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        // A clock before 1970 is not worth an error: nothing but `Reset` shows it.
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment { elapsed: self.started.elapsed(), unix }
    }
}
