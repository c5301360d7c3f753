//! The catalog: users, datasets, versions and all other records about entities, but no entity.
//!
//! This is the only place with SQL. One text serves both engines, SQLite (the default) and PostgreSQL. Only the
//! connections (`sqlite.rs`, `postgres.rs`) and the migrations in `sql/` differ. Every table group has a file with the
//! methods on [`Catalog`] and the types of its rows. Nothing is cached here, so the next call sees a change of another
//! process.
//!
//! Writes that belong together are one transaction. SQLite takes its write lock at the start (`BEGIN IMMEDIATE`). Under
//! PostgreSQL each transaction first updates the row for which concurrent ones compete. Such rows are always locked in
//! one order, so that there is no deadlock: a user, a dataset, a lease, then files.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use strata_config as config;
use strata_types::ids::{AttemptId, DatasetId, FileId, HoldId, UserId};
use strata_types::version::VersionNumber;
use tokio::sync::Mutex;

mod attempts;
mod best_effort;
mod changes;
mod checksums;
mod clock;
mod clones;
mod convert;
mod copy;
mod dataset_rows;
mod datasets;
mod engine;
mod error;
mod files;
mod installation;
mod integrity;
mod leases;
mod link;
mod listings;
mod nodes;
mod outage;
mod postgres;
mod restore;
mod schedules;
mod scrubs;
mod seals;
mod sessions;
mod sqlite;
mod tokens;
mod usage;
mod users;
mod validators;
mod version_rows;
mod versions;
mod webhooks;

pub use attempts::{Attempt, AttemptOutcome, FirstAttempt, PublishingAttempt};
pub use changes::Changes;
pub use clock::Clock;
pub use datasets::DatasetView;
pub use error::{CatalogError, Unavailability};
pub use files::{FileReference, ListedFile, RecordedFile};
pub use installation::Installation;
pub use leases::{HeldRefresh, LeaseHolder, RefreshLease};
pub use listings::Listing;
pub use nodes::{NewNode, Node};
pub use schedules::DueSchedule;
pub use sessions::SessionRecord;
pub use tokens::{ApiToken, Grant, TokenUser};
pub use usage::{CountedUsage, DayUsage, UsageCounts};
pub use validators::FetchedState;
pub use version_rows::{Resolved, VersionRecord};
pub use versions::{AlternateBase, VersionContent};
pub use webhooks::{Delivery, DeliveryOutcome, SentDelivery, Webhook};

use best_effort::BestEffort;
use convert::from_time;
use engine::Engine;

pub type Result<T, E = CatalogError> = std::result::Result<T, E>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogOptions {
    /// How long a call waits for a connection, or for a lock of another process.
    pub wait: Duration,
    /// How long a statement may take under PostgreSQL. An SQLite file is read in this process, without a limit.
    pub statement: Duration,
}

impl From<&config::Catalog> for CatalogOptions {
    fn from(config: &config::Catalog) -> CatalogOptions {
        CatalogOptions {
            wait: Duration::from_secs(config.wait_s),
            statement: Duration::from_secs(config.statement_timeout_s),
        }
    }
}

impl Default for CatalogOptions {
    fn default() -> CatalogOptions {
        CatalogOptions::from(&config::Catalog::default())
    }
}

/// A handle on the catalog. Cloning is cheap, and the clones share their connections.
#[derive(Clone, Debug)]
pub struct Catalog {
    engine: Arc<Engine>,
    clock: Clock,
    best_effort: Arc<Mutex<BestEffort>>,
    holder: Option<Arc<LeaseHolder>>,
}

impl Catalog {
    /// Opens the catalog at `url`, brings its tables up to date, and gives records that have no checksum theirs.
    /// Several processes may do so at once.
    ///
    /// - `sqlite://PATH` (or `sqlite:PATH`): a file, made if it is missing together with its directory.
    ///   The path is taken literally, nothing in it is decoded; it has no parameters.
    /// - `postgres://USER:PASSWORD@HOST:PORT/DATABASE` (or `postgresql://…`): a database that exists.
    pub async fn open(url: &str) -> Result<Catalog> {
        Catalog::open_with(url, &CatalogOptions::default()).await
    }

    pub async fn open_with(url: &str, options: &CatalogOptions) -> Result<Catalog> {
        let engine = if let Some(path) = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:")) {
            sqlite::open(path, options).await?
        } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            postgres::open(url, options).await?
        } else {
            return Err(CatalogError::InvalidUrl {
                // Any text before the host may be a password, so the message repeats only the scheme.
                url: url.split(':').next().unwrap_or_default().to_owned(),
                reason: "the URL must begin with sqlite:// or postgres://".to_owned(),
            });
        };
        let catalog =
            Catalog { engine: Arc::new(engine), clock: Clock::system(), best_effort: Arc::default(), holder: None };
        catalog.seal_records().await;
        Ok(catalog)
    }

    /// The same catalog with another clock: a test sets when leases, sessions and files expire.
    pub fn with_clock(self, clock: Clock) -> Catalog {
        Catalog { clock, ..self }
    }

    /// The same catalog for a process that says who it is: its leases name it.
    pub fn held_by(self, holder: LeaseHolder) -> Catalog {
        Catalog { holder: Some(Arc::new(holder)), ..self }
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// Tests whether the catalog can be written: one update by primary key and a commit, on the disk when this returns.
    pub async fn probe(&self) -> Result<()> {
        let sql = "INSERT INTO write_probes (probe_id, written_at) VALUES (0, $1)
                   ON CONFLICT (probe_id) DO UPDATE SET written_at = EXCLUDED.written_at";
        self.engine.write(sql, &[from_time(self.now())]).await.map(drop)
    }

    /// Closes all connections of this handle and its clones. An SQLite file is whole afterwards, without a log.
    pub async fn close(self) {
        self.engine.close().await;
    }
}
