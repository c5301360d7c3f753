//! `[limits]`: what the service accepts.

use std::fmt;

use serde::Deserialize;
use url::Url;

use super::option::section;

section! {
    /// Limits of requests to the service.
    Limits in "limits" {
        /// Maximum size in bytes of one entity as JSON.
        entity_bytes: u64 = 16 << 20, within 1_024..=1 << 30;
        /// Maximum size in bytes of one entity in a response, or four times the size of its JSON if that is more. An
        /// entity that is indented, flattened, or written as XML can be many times as large as its JSON.
        encoded_entity_bytes: u64 = 64 << 20, within 1_024..=4 << 30;
        /// Maximum size in bytes of the body of a management request. Pushed and saved entities have their own limits.
        body_bytes: u64 = 2 << 20, within 1_024..=1 << 30;
        /// Maximum time in seconds to receive the body of a management request. For the small body of a login request,
        /// `server.header_timeout_s` applies if it is shorter. A body larger than 64 KiB must arrive at a steady rate,
        /// and can fall behind by at most 10 s. Without `Content-Length`, strata calculates this rate for the largest
        /// body that it accepts.
        body_timeout_s: u64 = 60, within 1..=3_600;
        /// Minimum transfer rate of a body of entities, in bytes per second. strata measures the rate over
        /// `limits.body_rate_window_s` of waiting for the body. 0 disables this limit.
        body_min_bytes_per_s: u64 = 1_024, within 0..=1 << 30;
        /// Time in seconds over which strata measures the transfer rate for `limits.body_min_bytes_per_s`.
        body_rate_window_s: u64 = 30, within 1..=3_600;
        /// Maximum number of bytes that strata reads and discards from an unused body. This is the body of a rejected
        /// request, of a GET, or of another call that reads no body, such as a ping. A client that sends its whole body
        /// first can therefore still receive the response. 0 means that strata reads nothing.
        refused_body_bytes: u64 = 256 << 20, within 0..=1 << 40;
        /// Maximum time in seconds for which strata reads an unused body, as described for `limits.refused_body_bytes`.
        refused_body_s: u64 = 30, within 1..=3_600;
        /// Maximum number of columns in a table (`format=csv`, `tsv`, or `parquet`).
        columns: u64 = 10_000, within 1..=100_000;
        /// Maximum number of requests that one client can make in 60 seconds. Requests to private datasets with an
        /// `Authorization` header do not count. 0 disables this limit.
        public_per_minute: u64 = 100, within 0..=1_000_000_000;
        /// Maximum number of requests with an `Authorization` header that one client can make to private datasets in 60
        /// seconds. 0 disables this limit.
        private_per_minute: u64 = 300, within 0..=1_000_000_000;
        /// Number of consecutive wrong passwords that one client can try for one email address without waiting. Each
        /// further wrong password doubles the waiting time, from 1 s up to 15 min. For all email addresses in total, a
        /// client can attempt three times as many logins in 60 seconds. 0 disables these limits.
        logins_per_minute: u64 = 10, within 0..=1_000_000_000;
        /// Maximum number of wrong passwords for one email address in an hour. All clients from which no one has logged
        /// in with that address share this limit. 0 disables it.
        account_logins_per_hour: u64 = 100, within 0..=1_000_000_000;
        /// Maximum number of open streams that report the progress of a refresh, for all users in total. Each user can
        /// have up to four open streams.
        refresh_streams: u64 = 1_000, within 1..=100_000;
        /// URL of the Redis or Valkey server in which all processes of a service count requests and logins together:
        /// `redis://user:password@host:6379/0`, or `rediss://` for TLS. If this option is not set, or while Redis does
        /// not respond, each process uses its own counts.
        redis_url: Option<RedisUrl> = None;
        /// Maximum time in milliseconds that a request waits for Redis. After that, the process uses its own counts,
        /// and retries Redis in the background until it responds again.
        redis_timeout_ms: u64 = 5, within 1..=1_000;
    }
}

/// The URL of a Redis. It may hold a password, which `Debug` leaves out.
///
/// - Its scheme is `redis` or `rediss`.
/// - It has a host, perhaps a user, a password and a port. Its path is empty or the number of a database.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct RedisUrl(String);

impl RedisUrl {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for RedisUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // The messages leave the text out: it may hold a password.
        let expected = "expected redis://user:password@host:port/database, or rediss:// with TLS";
        let url = Url::parse(&text).map_err(|error| format!("{error}; {expected}"))?;
        if !matches!(url.scheme(), "redis" | "rediss") {
            return Err(format!("the scheme is neither redis nor rediss; {expected}"));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(format!("the host is missing; {expected}"));
        }
        let database = url.path().trim_start_matches('/');
        if !database.is_empty() && database.parse::<u16>().is_err() {
            return Err(format!("the database is not a number; {expected}"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(format!("there is a query or a fragment; {expected}"));
        }
        Ok(Self(text))
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Url::parse(&self.0) {
            Ok(url) => write!(formatter, "{}://{}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path()),
            Err(_) => formatter.write_str("[secret]"),
        }
    }
}
