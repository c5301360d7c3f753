//! Counts the requests of all processes of a service in Redis.
//!
//! Each count is one call of a script, which uses the clock of the server. So processes with different clocks agree on
//! the end of a window. The scripts decide as [`MemoryRateLimiter`] and `account::login_limits` do. While Redis does
//! not respond in time ([`Redis`]), the process counts for itself, from zero. The counts in Redis remain.
//!
//! Each key expires. Their number is not limited here: Redis needs memory for the clients of a minute, and a limit of
//! its own (`maxmemory`).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use redis::{RedisError, Script};
use strata_cluster::redis::{NoAnswer, Redis, RedisOptions};
use strata_config::RedisUrl;

use crate::rate_limit::downloads::{DOWNLOADS_OF_CLIENT, DURATION, max_of};
use crate::rate_limit::memory::{MemoryRateLimiter, RateCapacity, whole_seconds};
use crate::rate_limit::{
    Bucket, Client, ExportId, ExportPart, RateLimitDecision, RateLimitStatus, RateLimiter, RateLimits, SystemClock,
    WINDOW,
};

macro_rules! script {
    ($file:literal) => {
        LazyLock::new(|| Script::new(concat!(include_str!("clock.lua"), include_str!($file))))
    };
}

static WINDOW_SCRIPT: LazyLock<Script> = script!("window.lua");
static BEGIN_DOWNLOAD: LazyLock<Script> = script!("begin_download.lua");
static CONTINUE_DOWNLOAD: LazyLock<Script> = script!("continue_download.lua");
static HAS_DOWNLOADS: LazyLock<Script> = LazyLock::new(|| Script::new("return redis.call('EXISTS', KEYS[1])"));
pub(crate) static BEGIN_LOGIN: LazyLock<Script> = script!("begin_login.lua");
pub(crate) static END_LOGIN: LazyLock<Script> = script!("end_login.lua");

/// Connects to a Redis, and waits a moment for the first attempt. The service is told from others that use the same
/// Redis by the identity of its catalog. Fails if the URL is none of Redis's. That nothing answers there is no error.
pub async fn connect(url: &RedisUrl, timeout_ms: u64, identity: &str) -> Result<Redis, RedisError> {
    let scripts = [&WINDOW_SCRIPT, &BEGIN_DOWNLOAD, &CONTINUE_DOWNLOAD, &HAS_DOWNLOADS, &BEGIN_LOGIN, &END_LOGIN];
    let redis = Redis::start(RedisOptions {
        url: url.expose().to_owned(),
        answer_within: Duration::from_millis(timeout_ms),
        prefix: format!("strata:{identity}"),
        scripts: scripts.map(|script| Script::clone(script)).to_vec(),
    })?;
    redis.tried().await;
    Ok(redis)
}

/// A limiter of this process, or of all that share the Redis. `what` is counted, in the names of keys.
pub(crate) fn limiter(
    redis: Option<&Arc<Redis>>,
    what: &'static str,
    limits: RateLimits,
    capacity: RateCapacity,
) -> Arc<dyn RateLimiter> {
    match redis {
        None => Arc::new(MemoryRateLimiter::new(limits, capacity, SystemClock::start())),
        Some(redis) => Arc::new(SharedRateLimiter::new(redis.clone(), what, limits, capacity)),
    }
}

type ServerClock = Arc<dyn Fn() -> u64 + Send + Sync>;

pub struct SharedRateLimiter {
    redis: Arc<Redis>,
    what: &'static str,
    limits: RateLimits,
    /// Counts while Redis does not answer.
    alone: MemoryRateLimiter<SystemClock>,
    clock: Option<ServerClock>,
}

impl SharedRateLimiter {
    /// Counts in Redis. `what` is counted, in the names of keys.
    pub fn new(redis: Arc<Redis>, what: &'static str, limits: RateLimits, capacity: RateCapacity) -> Self {
        let alone = MemoryRateLimiter::new(limits, capacity, SystemClock::start());
        SharedRateLimiter { redis, what, limits, alone, clock: None }
    }

    /// By another clock than the server's, in milliseconds since 1970, which tests set. Keys end by the server's.
    #[must_use]
    pub fn timed_by(mut self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    fn now(&self) -> String {
        self.clock.as_ref().map(|clock| clock().to_string()).unwrap_or_default()
    }

    fn key(&self, kind: &str, client: Client) -> String {
        format!("{}:{}:{kind}:{}", self.redis.prefix(), self.what, name_of(client))
    }

    async fn window(&self, client: Client, bucket: Bucket, limit: u64, counts: bool) -> Result<Window, NoAnswer> {
        let mut call = WINDOW_SCRIPT.prepare_invoke();
        call.key(self.key(name_of_bucket(bucket), client));
        call.arg(limit).arg(WINDOW.as_millis() as u64).arg(u8::from(counts)).arg(self.now());
        let (within, counted, ends_ms, now_ms) = self.redis.call(&call).await?;
        Ok(Window { within, counted, ends_ms, now_ms })
    }
}

/// Beyond this, the numbers of a script are not exact. No export is as long.
const EXACT_BYTES: u64 = 1 << 52;

#[async_trait]
impl RateLimiter for SharedRateLimiter {
    async fn count(&self, client: Client, bucket: Bucket) -> Option<RateLimitStatus> {
        let limit = self.limits.of(bucket)?;
        match self.window(client, bucket, limit, true).await {
            Ok(window) => Some(window.counted(limit)),
            Err(NoAnswer) => self.alone.count(client, bucket).await,
        }
    }

    async fn status(&self, client: Client, bucket: Bucket) -> Option<RateLimitStatus> {
        let limit = self.limits.of(bucket)?;
        match self.window(client, bucket, limit, false).await {
            Ok(window) => Some(window.status(limit, RateLimitDecision::Within)),
            Err(NoAnswer) => self.alone.status(client, bucket).await,
        }
    }

    async fn has_downloads(&self, client: Client) -> bool {
        let mut call = HAS_DOWNLOADS.prepare_invoke();
        call.key(self.key("downloads", client));
        match self.redis.call(&call).await {
            Ok(any) => any,
            Err(NoAnswer) => self.alone.has_downloads(client).await,
        }
    }

    async fn begin_download(&self, client: Client, bucket: Bucket, export: ExportId, sent_bytes: Option<u64>) {
        let mut call = BEGIN_DOWNLOAD.prepare_invoke();
        call.key(self.key("downloads", client)).arg(field_of(bucket, export));
        call.arg(sent_bytes.unwrap_or(0).min(EXACT_BYTES)).arg(u8::from(sent_bytes.is_none()));
        call.arg(DURATION.as_millis() as u64).arg(DOWNLOADS_OF_CLIENT).arg(self.now());
        if self.redis.call::<()>(&call).await.is_err() {
            self.alone.begin_download(client, bucket, export, sent_bytes).await;
        }
    }

    async fn continue_download(&self, client: Client, bucket: Bucket, part: ExportPart) -> bool {
        let (max_bytes, max_parts) = max_of(part.export_bytes);
        let mut call = CONTINUE_DOWNLOAD.prepare_invoke();
        call.key(self.key("downloads", client)).arg(field_of(bucket, part.export));
        call.arg(part.bytes.min(EXACT_BYTES)).arg(part.export_bytes.min(EXACT_BYTES));
        call.arg(max_bytes.min(EXACT_BYTES)).arg(max_parts).arg(self.now());
        match self.redis.call(&call).await {
            Ok(free) => free,
            Err(NoAnswer) => self.alone.continue_download(client, bucket, part).await,
        }
    }

    fn is_shared(&self) -> bool {
        self.redis.is_up()
    }
}

struct Window {
    within: bool,
    counted: u64,
    ends_ms: u64,
    now_ms: u64,
}

impl Window {
    fn counted(&self, limit: u64) -> RateLimitStatus {
        let left = Duration::from_millis(self.ends_ms.saturating_sub(self.now_ms));
        let exceeded = RateLimitDecision::Exceeded { retry_after_s: whole_seconds(left).max(1) };
        self.status(limit, if self.within { RateLimitDecision::Within } else { exceeded })
    }

    fn status(&self, limit: u64, decision: RateLimitDecision) -> RateLimitStatus {
        // Another process may have a higher limit.
        let remaining = limit.saturating_sub(self.counted);
        let reset_unix_s = whole_seconds(Duration::from_millis(self.ends_ms));
        RateLimitStatus { limit, remaining, reset_unix_s, decision }
    }
}

fn name_of_bucket(bucket: Bucket) -> &'static str {
    match bucket {
        Bucket::Public => "public",
        Bucket::Private => "private",
    }
}

pub(crate) fn name_of(client: Client) -> String {
    match client {
        Client::V4(octets) => Ipv4Addr::from(octets).to_string(),
        Client::V6(network) => {
            let mut octets = [0; 16];
            octets[..8].copy_from_slice(&network);
            Ipv6Addr::from(octets).to_string()
        }
        Client::Unspecified => "none".to_owned(),
        Client::Account(account) => format!("account-{account:016x}"),
    }
}

fn field_of(bucket: Bucket, export: ExportId) -> String {
    format!("{}-{}", name_of_bucket(bucket), hex::encode(export.0))
}
