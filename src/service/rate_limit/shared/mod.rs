//! Counts the requests of all processes of a service in Redis.
//!
//! Each count is one script call, which uses the Redis server's clock, so processes with different clocks agree on the
//! end of a window. The scripts implement the same rules as [`MemoryRateLimiter`] and `account::login_limits`. While
//! Redis does not respond in time ([`RedisClient`]), the process counts by itself, from zero.
//!
//! Each key expires. The number of keys is not limited here: set `maxmemory` in Redis.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use redis::{RedisError, Script};
use strata_cluster::redis::{RedisClient, RedisOptions, RedisUnavailable};
use strata_config::RedisUrl;

use crate::rate_limit::downloads::{DOWNLOAD_DURATION, MAX_DOWNLOADS_PER_CLIENT, max_download_bytes_and_parts};
use crate::rate_limit::memory::{MemoryRateLimiter, RateLimiterCapacity, ceil_seconds};
use crate::rate_limit::{
    ClientNetwork, ExportId, ExportPart, RATE_LIMIT_WINDOW, RateLimitBucket, RateLimitDecision, RateLimitStatus,
    RateLimiter, RateLimits, SystemClock,
};

macro_rules! script {
    ($file:literal) => {
        LazyLock::new(|| Script::new(concat!(include_str!("clock.lua"), include_str!($file))))
    };
}

static WINDOW_SCRIPT: LazyLock<Script> = script!("window.lua");
static BEGIN_DOWNLOAD_SCRIPT: LazyLock<Script> = script!("begin_download.lua");
static CONTINUE_DOWNLOAD_SCRIPT: LazyLock<Script> = script!("continue_download.lua");
static HAS_DOWNLOADS_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new("return redis.call('EXISTS', KEYS[1])"));
pub(crate) static BEGIN_LOGIN_SCRIPT: LazyLock<Script> = script!("begin_login.lua");
pub(crate) static END_LOGIN_SCRIPT: LazyLock<Script> = script!("end_login.lua");

/// Connects to Redis. `identity` is a prefix of all keys. An unavailable server is not an error.
pub async fn connect(url: &RedisUrl, timeout_ms: u64, identity: &str) -> Result<RedisClient, RedisError> {
    let scripts = [
        &WINDOW_SCRIPT,
        &BEGIN_DOWNLOAD_SCRIPT,
        &CONTINUE_DOWNLOAD_SCRIPT,
        &HAS_DOWNLOADS_SCRIPT,
        &BEGIN_LOGIN_SCRIPT,
        &END_LOGIN_SCRIPT,
    ];
    let redis = RedisClient::start(RedisOptions {
        url: url.expose().to_owned(),
        response_timeout: Duration::from_millis(timeout_ms),
        key_prefix: format!("strata:{identity}"),
        scripts: scripts.map(|script| Script::clone(script)).to_vec(),
    })?;
    redis.wait_for_first_connect_attempt().await;
    Ok(redis)
}

/// Returns a limiter for this process, or for all processes that share a Redis. `counter_name` is a part of the keys.
pub(crate) fn new_limiter(
    redis: Option<&Arc<RedisClient>>,
    counter_name: &'static str,
    limits: RateLimits,
    capacity: RateLimiterCapacity,
) -> Arc<dyn RateLimiter> {
    match redis {
        None => Arc::new(MemoryRateLimiter::new(limits, capacity, SystemClock::start())),
        Some(redis) => Arc::new(SharedRateLimiter::new(redis.clone(), counter_name, limits, capacity)),
    }
}

type ServerClock = Arc<dyn Fn() -> u64 + Send + Sync>;

pub struct SharedRateLimiter {
    redis: Arc<RedisClient>,
    counter_name: &'static str,
    limits: RateLimits,
    fallback: MemoryRateLimiter<SystemClock>,
    clock: Option<ServerClock>,
}

impl SharedRateLimiter {
    pub fn new(
        redis: Arc<RedisClient>,
        counter_name: &'static str,
        limits: RateLimits,
        capacity: RateLimiterCapacity,
    ) -> Self {
        let fallback = MemoryRateLimiter::new(limits, capacity, SystemClock::start());
        SharedRateLimiter { redis, counter_name, limits, fallback, clock: None }
    }

    /// Uses a test clock, which returns milliseconds since 1970. Keys still expire by the clock of the Redis server.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    fn now_argument(&self) -> String {
        self.clock.as_ref().map(|clock| clock().to_string()).unwrap_or_default()
    }

    fn redis_key(&self, kind: &str, client: ClientNetwork) -> String {
        format!("{}:{}:{kind}:{}", self.redis.key_prefix(), self.counter_name, redis_client_key(client))
    }

    async fn call_window_script(
        &self,
        client: ClientNetwork,
        bucket: RateLimitBucket,
        limit: u64,
        is_counted: bool,
    ) -> Result<RedisWindow, RedisUnavailable> {
        let mut call = WINDOW_SCRIPT.prepare_invoke();
        call.key(self.redis_key(bucket.name(), client));
        call.arg(limit).arg(RATE_LIMIT_WINDOW.as_millis() as u64).arg(u8::from(is_counted)).arg(self.now_argument());
        let (is_within_limit, request_count, end_ms, now_ms) = self.redis.call(&call).await?;
        Ok(RedisWindow { is_within_limit, request_count, end_ms, now_ms })
    }
}

/// Maximum byte count that is passed to a script: Lua numbers are exact up to 2^53, and no export is as long.
const MAX_EXACT_BYTES: u64 = 1 << 52;

#[async_trait]
impl RateLimiter for SharedRateLimiter {
    async fn count_request(&self, client: ClientNetwork, bucket: RateLimitBucket) -> Option<RateLimitStatus> {
        let limit = self.limits.limit_for(bucket)?;
        match self.call_window_script(client, bucket, limit, true).await {
            Ok(window) => Some(window.counted_status(limit)),
            Err(RedisUnavailable) => self.fallback.count_request(client, bucket).await,
        }
    }

    async fn status(&self, client: ClientNetwork, bucket: RateLimitBucket) -> Option<RateLimitStatus> {
        let limit = self.limits.limit_for(bucket)?;
        match self.call_window_script(client, bucket, limit, false).await {
            Ok(window) => Some(window.status(limit, RateLimitDecision::Within)),
            Err(RedisUnavailable) => self.fallback.status(client, bucket).await,
        }
    }

    async fn has_downloads(&self, client: ClientNetwork) -> bool {
        let mut call = HAS_DOWNLOADS_SCRIPT.prepare_invoke();
        call.key(self.redis_key("downloads", client));
        match self.redis.call(&call).await {
            Ok(any) => any,
            Err(RedisUnavailable) => self.fallback.has_downloads(client).await,
        }
    }

    async fn begin_download(&self, client: ClientNetwork, bucket: RateLimitBucket, id: ExportId, bytes: Option<u64>) {
        let mut call = BEGIN_DOWNLOAD_SCRIPT.prepare_invoke();
        call.key(self.redis_key("downloads", client)).arg(redis_download_field(bucket, id));
        call.arg(bytes.unwrap_or(0).min(MAX_EXACT_BYTES)).arg(u8::from(bytes.is_none()));
        call.arg(DOWNLOAD_DURATION.as_millis() as u64).arg(MAX_DOWNLOADS_PER_CLIENT).arg(self.now_argument());
        if self.redis.call::<()>(&call).await.is_err() {
            self.fallback.begin_download(client, bucket, id, bytes).await;
        }
    }

    async fn continue_download(&self, client: ClientNetwork, bucket: RateLimitBucket, part: ExportPart) -> bool {
        let (max_bytes, max_parts) = max_download_bytes_and_parts(part.export_bytes);
        let mut call = CONTINUE_DOWNLOAD_SCRIPT.prepare_invoke();
        call.key(self.redis_key("downloads", client)).arg(redis_download_field(bucket, part.export));
        call.arg(part.part_bytes.min(MAX_EXACT_BYTES)).arg(part.export_bytes.min(MAX_EXACT_BYTES));
        call.arg(max_bytes.min(MAX_EXACT_BYTES)).arg(max_parts).arg(self.now_argument());
        match self.redis.call(&call).await {
            Ok(free) => free,
            Err(RedisUnavailable) => self.fallback.continue_download(client, bucket, part).await,
        }
    }

    fn is_shared(&self) -> bool {
        self.redis.is_connected()
    }
}

struct RedisWindow {
    is_within_limit: bool,
    request_count: u64,
    end_ms: u64,
    now_ms: u64,
}

impl RedisWindow {
    fn counted_status(&self, limit: u64) -> RateLimitStatus {
        let left = Duration::from_millis(self.end_ms.saturating_sub(self.now_ms));
        let exceeded = RateLimitDecision::Exceeded { retry_after_s: ceil_seconds(left).max(1) };
        self.status(limit, if self.is_within_limit { RateLimitDecision::Within } else { exceeded })
    }

    fn status(&self, limit: u64, decision: RateLimitDecision) -> RateLimitStatus {
        // Another process can have a higher limit, so the count can exceed the limit of this process.
        let remaining = limit.saturating_sub(self.request_count);
        RateLimitStatus { limit, remaining, reset_unix_s: ceil_seconds(Duration::from_millis(self.end_ms)), decision }
    }
}

pub(crate) fn redis_client_key(client: ClientNetwork) -> String {
    match client {
        ClientNetwork::V4(octets) => Ipv4Addr::from(octets).to_string(),
        ClientNetwork::V6(network) => {
            let mut octets = [0; 16];
            octets[..8].copy_from_slice(&network);
            Ipv6Addr::from(octets).to_string()
        }
        ClientNetwork::Unspecified => "none".to_owned(),
        ClientNetwork::HashedAccount(account) => format!("account-{account:016x}"),
    }
}

fn redis_download_field(bucket: RateLimitBucket, export: ExportId) -> String {
    format!("{}-{}", bucket.name(), hex::encode(export.0))
}
