//! `[limits]`: what the service accepts.

use std::fmt;

use serde::Deserialize;
use url::Url;

use super::option::section;

section! {
    /// What the service accepts.
    Limits in "limits" {
        /// Bytes of one entity, as JSON.
        entity_bytes: u64 = 16 << 20, within 1_024..=1 << 30;
        /// Bytes of one entity as it is written in an answer, or four times its JSON if that is more. An entity that is
        /// indented, flattened or written as XML may be many times as large as its JSON.
        encoded_entity_bytes: u64 = 64 << 20, within 1_024..=4 << 30;
        /// Bytes of the body of a management request. Pushed and saved entities have bounds of their own.
        body_bytes: u64 = 2 << 20, within 1_024..=1 << 30;
        /// Seconds in which the body of a management request must come. The small body of a log-in has at most
        /// `server.header_timeout_s`. One above 64 KiB must come at an even pace, and be 10 s behind it at most;
        /// without a `Content-Length` that is the pace of the largest one.
        body_timeout_s: u64 = 60, within 1..=3_600;
        /// Bytes per second that a body of entities must bring, measured over `limits.body_rate_window_s` of waiting
        /// for it. 0 is any number.
        body_min_bytes_per_s: u64 = 1_024, within 0..=1 << 30;
        /// Seconds over which `limits.body_min_bytes_per_s` is measured.
        body_rate_window_s: u64 = 30, within 1..=3_600;
        /// Bytes that are read and dropped of a body that nobody uses: that of a refused request, of a GET, or of
        /// another call whose handler reads no body, such as a ping. So a client that sends its whole body first sees
        /// the answer. 0 reads none.
        refused_body_bytes: u64 = 256 << 20, within 0..=1 << 40;
        /// Seconds in which such a body is read.
        refused_body_s: u64 = 30, within 1..=3_600;
        /// Columns that a table (`format=csv`, `tsv`, `parquet`) may have.
        columns: u64 = 10_000, within 1..=100_000;
        /// Requests that one client may make in 60 seconds. Requests to private datasets with an `Authorization` do not
        /// count. 0 is any number.
        public_per_minute: u64 = 100, within 0..=1_000_000_000;
        /// Requests with an `Authorization` that one client may make to private datasets in 60 seconds. 0 is any
        /// number.
        private_per_minute: u64 = 300, within 0..=1_000_000_000;
        /// Wrong passwords in a row that one client may try for one e-mail address without waiting. After each further
        /// one it waits twice as long as before, from 1 s to 15 min. In 60 seconds one client may try three times as
        /// many log-ins in total. 0 is any number.
        logins_per_minute: u64 = 10, within 0..=1_000_000_000;
        /// Wrong passwords for one e-mail address in an hour. All clients from which nobody has logged in to it share
        /// them. 0 is any number.
        account_logins_per_hour: u64 = 100, within 0..=1_000_000_000;
        /// Streams of all users together, open at the same time, that tell how far a refresh is. A user has four at
        /// most.
        refresh_streams: u64 = 1_000, within 1..=100_000;
        /// `redis://user:password@host:6379/0`, or `rediss://` with TLS: the Redis or Valkey in which all processes of
        /// a service count requests and log-ins together. When not given, each process counts for itself. It also does
        /// so while Redis does not answer.
        redis_url: Option<RedisUrl> = None;
        /// Milliseconds that a request waits for Redis. Then the process counts for itself, and asks Redis in the
        /// background until it answers again.
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
