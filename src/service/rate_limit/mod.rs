//! How many requests a client may make: who counts as one client, in which bucket, and what counting answers.
//!
//! [`RateLimiter`] is the interface. [`MemoryRateLimiter`] counts in this process, [`SharedRateLimiter`] with others in
//! Redis. One download of an export in ranges counts once: [`downloads`].
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

/// What a client's requests are counted in. The buckets know nothing of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bucket {
    /// Requests to private datasets with an `Authorization`, right or wrong.
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

/// Where a client stands after a request was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitStatus {
    pub limit: u64,
    pub remaining: u64,
    /// When the window ends, in Unix seconds, rounded up. The same for all requests of a window.
    pub reset_unix_s: u64,
    pub decision: RateLimitDecision,
}

/// Whether a request that was counted may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateLimitDecision {
    Within,
    Exceeded {
        /// Seconds until the window has ended, rounded up, at least 1.
        retry_after_s: u64,
    },
}

/// Which export: equal where its bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportId(pub [u8; 16]);

#[derive(Clone, Copy, Debug)]
pub struct ExportPart {
    pub export: ExportId,
    pub export_bytes: u64,
    pub bytes: u64,
}

/// Counts requests. An implementation that asks others decides itself what holds when they do not answer.
#[async_trait]
pub trait RateLimiter: Send + Sync + 'static {
    /// Counts one request; `None` when the bucket's limit is switched off.
    async fn count(&self, client: Client, bucket: Bucket) -> Option<RateLimitStatus>;

    /// Where a client stands; counts nothing. Without a window, as if one began now.
    async fn status(&self, client: Client, bucket: Bucket) -> Option<RateLimitStatus>;

    /// Whether a client has begun any downloads that may go on. Only a hint.
    async fn has_downloads(&self, client: Client) -> bool;

    /// Notes that a request for an export was counted and is answered; `sent_bytes` of it, `None` with all of it.
    async fn begin_download(&self, client: Client, bucket: Bucket, export: ExportId, sent_bytes: Option<u64>);

    /// Whether a range belongs to a counted download, so that it is free. Takes it from what that has left.
    async fn continue_download(&self, client: Client, bucket: Bucket, part: ExportPart) -> bool;

    /// Whether other processes count with this one at the moment.
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

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn one_ipv4_address_or_one_ipv6_network_is_one_client() {
        let client = |text: &str| Client::from(text.parse::<IpAddr>().expect(text));
        assert_eq!(client("192.0.2.1"), client("::ffff:192.0.2.1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
        assert_eq!(client("2001:db8:1:2::1"), client("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(client("2001:db8:1:2::1"), client("2001:db8:1:3::1"));
        // Not a mapped address: the deprecated compatible form is a network like any other.
        assert_ne!(client("::192.0.2.1"), client("192.0.2.1"));
    }
}
