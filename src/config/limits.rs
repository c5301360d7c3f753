//! `[limits]`: limits of requests.

use std::fmt;

use url::Url;

use super::option::{checked_type, section};

section! {
    /// Limits of requests to the service.
    RequestLimitsConfig in "limits" {
        /// Maximum size in bytes of one entity as JSON.
        entity_bytes: u64 = 16 << 20, within 1_024..=1 << 30;
        /// Maximum size in bytes of one entity in a response. Regardless of this limit, an entity can always be up to
        /// four times as large as its JSON. Indented, flattened, and XML entities can be much larger than their JSON.
        encoded_entity_bytes: u64 = 64 << 20, within 1_024..=4 << 30;
        /// Maximum size in bytes of a management request body. Pushed and saved entities have their own limits.
        body_bytes: u64 = 2 << 20, within 1_024..=1 << 30;
        /// Maximum time in seconds to receive a management request body. For login requests, `server.header_timeout_s`
        /// applies if it is shorter. A body larger than 64 KiB must arrive at a steady rate, and can be at most 10 s
        /// behind schedule. If there is no `Content-Length`, strata bases the rate on the maximum body size.
        body_timeout_s: u64 = 60, within 1..=3_600;
        /// Minimum rate, in bytes per second, at which clients must send entities. strata measures the rate over a
        /// window of `limits.body_rate_window_s` seconds, and counts only the time that it spends waiting for the
        /// client. 0 disables this limit.
        body_min_bytes_per_s: u64 = 1_024, within 0..=1 << 30;
        /// Window in seconds over which strata measures the rate for `limits.body_min_bytes_per_s`.
        body_rate_window_s: u64 = 30, within 1..=3_600;
        /// Maximum number of bytes that strata reads and discards from an unused request body. The bodies of rejected
        /// requests, GET requests, and pings are unused. After strata has read the body, even a client that sends the
        /// whole body first can receive the response. 0 means that strata does not read unused bodies.
        refused_body_bytes: u64 = 256 << 20, within 0..=1 << 40;
        /// Maximum time in seconds for which strata reads and discards an unused body (see
        /// `limits.refused_body_bytes`).
        refused_body_s: u64 = 30, within 1..=3_600;
        /// Maximum number of columns in a table (`format=csv`, `tsv`, or `parquet`).
        columns: u64 = 10_000, within 1..=100_000;
        /// Maximum number of requests that one client can make in 60 seconds. Requests to private datasets do not count
        /// if they have an `Authorization` header. 0 disables this limit.
        public_per_minute: u64 = 100, within 0..=1_000_000_000;
        /// Maximum number of requests to private datasets that one client can make in 60 seconds. Only requests with an
        /// `Authorization` header count. 0 disables this limit.
        private_per_minute: u64 = 300, within 0..=1_000_000_000;
        /// Number of wrong passwords in a row that a client can try for one email address without waiting. After that,
        /// the client must wait for 1 s. The wait doubles after each further wrong password, up to 15 min. Across all
        /// email addresses, a client can make up to three times this number of login attempts in 60 seconds. 0 disables
        /// both limits.
        logins_per_minute: u64 = 10, within 0..=1_000_000_000;
        /// Maximum number of wrong passwords per hour for one email address. All clients that have never logged in with
        /// this address share the limit. 0 disables the limit.
        account_logins_per_hour: u64 = 100, within 0..=1_000_000_000;
        /// Maximum number of open refresh progress streams, for all users in total. Each user can open up to four
        /// streams.
        refresh_streams: u64 = 1_000, within 1..=100_000;
        /// URL of the Redis or Valkey server in which all processes share their counts of requests and logins:
        /// `redis://user:password@host:6379/0`, or `rediss://` for TLS. If this option is not set, or while Redis is
        /// not responding, each process uses its own counts.
        redis_url: Option<RedisUrl> = None;
        /// Maximum time in milliseconds that a request waits for Redis. After that, the process uses its own counts
        /// until Redis responds again.
        redis_timeout_ms: u64 = 5, within 1..=1_000;
    }
}

checked_type! {
    /// A Redis URL with an optional user, password, port, and database number. `Debug` omits the password.
    #[derive(Eq)]
    RedisUrl(String) from String => expose -> str, |text| {
        // The error messages omit the Redis URL, because it can contain a password.
        let expected = "expected redis://user:password@host:port/database, or rediss:// for TLS";
        let url = Url::parse(&text).map_err(|error| format!("{error}; {expected}"))?;
        if !matches!(url.scheme(), "redis" | "rediss") {
            return Err(format!("the scheme must be redis or rediss; {expected}"));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(format!("the host is missing; {expected}"));
        }
        let database = url.path().trim_start_matches('/');
        if !database.is_empty() && database.parse::<u16>().is_err() {
            return Err(format!("the database must be a number; {expected}"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(format!("the URL must not have a query or fragment; {expected}"));
        }
        Ok(text)
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
