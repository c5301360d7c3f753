//! The metadata database: users, datasets, versions, files, and all other records about entities, but no entities.
//!
//! This crate contains all SQL. SQLite (the default) and PostgreSQL share the text of each statement; only the
//! connections (`sqlite.rs`, `postgres.rs`) and the migrations in `sql/` differ. For each group of tables, one file
//! has the row types and the methods on [`Catalog`]. This crate caches nothing, so that each call sees the
//! changes that other processes have committed.
//!
//! Related writes are one transaction. SQLite takes the write lock when a transaction begins (`BEGIN IMMEDIATE`).
//! Under PostgreSQL, a transaction first updates the row that concurrent transactions compete for. All transactions
//! lock such rows in the same order (user, dataset, lease, files), and several files in ascending order of their IDs,
//! so that they cannot deadlock.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use strata_config as config;
use strata_types::ids::{DatasetId, FileHoldId, RefreshAttemptId, UserId, VersionFileId};
use strata_types::version::VersionNumber;
use tokio::sync::Mutex;

mod attempts;
mod best_effort;
mod change_listener;
mod checks;
mod checksum_backfill;
mod circuit_breaker;
mod clock;
mod clones;
mod connection_pool;
mod convert;
mod database_engine;
mod dataset_rows;
mod datasets;
mod error;
mod file_bases;
mod files;
mod installation;
mod integrity_check;
mod leases;
mod listings;
mod nodes;
mod postgres;
mod record_checksum;
mod restore;
mod schedules;
mod scrub_progress;
mod sessions;
mod sqlite;
mod sqlite_copy;
mod tokens;
mod usage;
mod users;
mod validators;
mod version_rows;
mod versions;
mod webhooks;

pub use attempts::{AttemptOutcome, AttemptWithWarnings, FirstAttempt, RefreshAttempt};
pub use change_listener::ChangeListener;
pub use clock::CatalogClock;
pub use datasets::DatasetView;
pub use error::{CatalogError, UnavailableReason};
pub use files::{FileRecordResult, FileReference, RecordedFile};
pub use installation::InstallationRecord;
pub use integrity_check::CatalogCheckDepth;
pub use leases::{LeaseHolder, RefreshLease, RefreshLeaseRecord};
pub use listings::DatasetListing;
pub use nodes::{NodeRecord, NodeRegistration};
pub use schedules::ScheduledRun;
pub use sessions::StoredSession;
pub use tokens::{ApiToken, TokenGrant, TokenIdentity};
pub use usage::{DailyUsage, UsageCounts, UsageIncrement};
pub use validators::FetchedValidators;
pub use version_rows::{ResolvedDataset, VersionStatus};
pub use versions::{VersionContent, VersionFileIds};
pub use webhooks::{ClaimedDelivery, DeliveryOutcome, SentDelivery, Webhook};

use best_effort::BestEffortWrites;
use convert::from_time;
use database_engine::DatabaseEngine;

pub type Result<T, E = CatalogError> = std::result::Result<T, E>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogOptions {
    /// The maximum time that a call waits for a database connection, or for a lock that another process holds.
    pub wait_timeout: Duration,
    /// The maximum duration of a PostgreSQL statement. SQLite statements have no limit.
    pub statement_timeout: Duration,
}

impl From<&config::CatalogConfig> for CatalogOptions {
    fn from(config: &config::CatalogConfig) -> CatalogOptions {
        CatalogOptions {
            wait_timeout: Duration::from_secs(config.wait_s),
            statement_timeout: Duration::from_secs(config.statement_timeout_s),
        }
    }
}

impl Default for CatalogOptions {
    fn default() -> CatalogOptions {
        CatalogOptions::from(&config::CatalogConfig::default())
    }
}

/// A handle to the metadata database. Clones are cheap and share the connections.
#[derive(Clone, Debug)]
pub struct Catalog {
    engine: Arc<DatabaseEngine>,
    clock: CatalogClock,
    best_effort_writes: Arc<Mutex<BestEffortWrites>>,
    lease_holder: Option<Arc<LeaseHolder>>,
}

impl Catalog {
    /// Opens the metadata database at `url`, runs the pending migrations, and adds missing checksums to records.
    /// Several processes can call this function at the same time.
    ///
    /// - `sqlite://PATH` (or `sqlite:PATH`): a file, which this function creates if it does not exist, with its parent
    ///   directory. The path is not percent-decoded, and the URL has no parameters.
    /// - `postgres://USER:PASSWORD@HOST:PORT/DATABASE` (or `postgresql://…`): an existing database.
    pub async fn open(url: &str) -> Result<Catalog> {
        Catalog::open_with_options(url, &CatalogOptions::default()).await
    }

    pub async fn open_with_options(url: &str, options: &CatalogOptions) -> Result<Catalog> {
        let engine = if let Some(path) = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:")) {
            sqlite::open(path, options).await?
        } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            postgres::open(url, options).await?
        } else {
            return Err(CatalogError::InvalidUrl {
                // Any text before the host may be a password, so the error contains only the scheme of the URL.
                url: url.split(':').next().unwrap_or_default().to_owned(),
                reason: "the URL must begin with sqlite:// or postgres://".to_owned(),
            });
        };
        let engine = Arc::new(engine);
        let clock = CatalogClock::system();
        let catalog = Catalog { engine, clock, best_effort_writes: Arc::default(), lease_holder: None };
        catalog.backfill_checksums().await;
        Ok(catalog)
    }

    pub fn with_clock(self, clock: CatalogClock) -> Catalog {
        Catalog { clock, ..self }
    }

    pub fn with_lease_holder(self, holder: LeaseHolder) -> Catalog {
        Catalog { lease_holder: Some(Arc::new(holder)), ..self }
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// Tests whether the database is writable, with one update by primary key. The commit is durable on return.
    pub async fn check_writable(&self) -> Result<()> {
        let sql = "INSERT INTO write_probes (probe_id, written_at) VALUES (0, $1)
                   ON CONFLICT (probe_id) DO UPDATE SET written_at = EXCLUDED.written_at";
        self.engine.write(sql, &[from_time(self.now())]).await.map(drop)
    }

    /// Closes all connections of this handle and of its clones. SQLite then merges its write-ahead log into the file.
    pub async fn close(self) {
        self.engine.close().await;
    }
}
