//! `[catalog]`: the metadata database.

use std::fmt;

use url::Url;

use super::option::{checked_type, section};

section! {
    /// The metadata database of users, datasets, and versions.
    CatalogConfig in "catalog" {
        /// URL of the metadata database: `sqlite://path/to/file` or `postgres://user:password@host/database`. By
        /// default, strata uses the SQLite database `catalog.sqlite` in the data directory.
        url: Option<CatalogUrl> = None;
        /// Maximum time in seconds that a call waits for a connection to the metadata database, or for a lock that
        /// another process holds. After that, the call returns 503.
        wait_s: u64 = 5, within 1..=60;
        /// Maximum number of owners' changes that strata writes to the metadata database at the same time. Further
        /// changes wait for up to `catalog.wait_s` seconds. Users share this limit according to `fair.share_percent`.
        /// Published versions, leases, and readiness probes do not count.
        writes: u64 = 4, within 1..=1_000;
        /// Maximum number of concurrent lookups that identify callers by token or session. Further lookups wait for up
        /// to `catalog.wait_s` seconds. Client networks share this limit according to `fair.share_percent`.
        look_ups: u64 = 8, within 1..=1_000;
        /// Maximum number of owners' changes that can wait. The same limit applies separately to lookups. Further calls
        /// return 503 immediately.
        queue: u64 = 1_000, within 1..=100_000;
        /// Maximum time in seconds for one PostgreSQL statement. If a statement takes longer, strata closes the
        /// database connection, and the call returns 503.
        statement_timeout_s: u64 = 30, within 1..=3_600;
    }
}

checked_type! {
    /// The URL of a SQLite or PostgreSQL database. It can contain a password, which `Debug` omits.
    #[derive(Eq)]
    CatalogUrl(String) from String => expose -> str, |text| {
        // The error messages omit the URL of the database, because it can contain a password.
        let expected = "expected sqlite://path/to/file or postgres://user:password@host/database";
        match text.split_once(':') {
            Some(("sqlite", rest)) if rest.trim_start_matches('/').is_empty() => {
                Err(format!("the path is missing; {expected}"))
            }
            Some(("sqlite", _)) => Ok(text),
            Some(("postgres" | "postgresql", _)) => match Url::parse(&text) {
                Ok(url) if url.has_authority() => Ok(text),
                Ok(_) => Err(format!("the host is missing; {expected}")),
                Err(error) => Err(format!("{error}; {expected}")),
            },
            _ => Err(format!("the scheme must be sqlite or postgres; {expected}")),
        }
    }
}

impl fmt::Debug for CatalogUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Url::parse(&self.0) {
            Ok(url) if url.scheme() != "sqlite" => {
                // `Debug` omits the user and the query of a database URL, because both can contain a password.
                write!(formatter, "{}://{}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
            }
            _ => formatter.write_str(&self.0),
        }
    }
}
