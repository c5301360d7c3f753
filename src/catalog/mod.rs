//! The catalog: users, datasets, versions and all else that is recorded about entities, but no entity.
//!
//! It is the only place with SQL. One text serves both engines, SQLite (embedded, the default) and
//! PostgreSQL; what differs is how a connection is made (`sqlite.rs`, `postgres.rs`) and the migrations in
//! `sql/`. Every table group has a file with the methods on [`Catalog`] and the types of its rows, which
//! convert to the types of `model`.
//!
//! Nothing is cached here: every call asks the database, so that a change made by another process (a
//! server, an import on the command line, another replica) is seen by the next call.
//!
//! Writes that belong together are one transaction. SQLite takes its write lock at the start
//! (`BEGIN IMMEDIATE`), so no transaction fails half way because another one wrote; under PostgreSQL each
//! transaction first updates the row that concurrent ones would compete for, which makes them wait for
//! each other there. Such rows are always locked in one order, so that no two transactions wait for each
//! other in a circle: a user, a dataset, a lease, then files.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::config;
use crate::model::ids::{AttemptId, DatasetId, FileId, HoldId, UserId};
use crate::model::version::VersionNumber;

mod alternates;
mod attempts;
mod best_effort;
mod checksums;
mod clock;
mod clones;
mod convert;
mod copy;
mod datasets;
mod engine;
mod error;
mod failure;
mod files;
mod installation;
mod integrity;
mod leases;
mod link;
mod outage;
mod postgres;
mod probe;
mod references;
mod schedules;
mod scrubs;
mod seals;
mod sessions;
mod sqlite;
mod states;
mod tokens;
mod users;
mod validators;
mod versions;
mod webhooks;

pub use alternates::AlternateBase;
pub use attempts::{Attempt, AttemptOutcome};
pub use clock::Clock;
pub use datasets::DatasetView;
pub use error::CatalogError;
pub use failure::Unavailability;
pub use files::{ListedFile, RecordedFile};
pub use installation::Installation;
pub use leases::RefreshLease;
pub use references::FileReference;
pub use schedules::DueSchedule;
pub use sessions::SessionRecord;
pub use tokens::ApiToken;
pub use validators::FetchedState;
pub use versions::{Resolved, VersionContent, VersionRecord};
pub use webhooks::{Delivery, Webhook};

use best_effort::BestEffort;
use engine::Engine;

/// How patient the catalog is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogOptions {
    /// How long a call waits for a connection, or for what another process has locked.
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
    engine: Engine,
    clock: Clock,
    best_effort: BestEffort,
}

impl Catalog {
    /// Opens the catalog at `url`, brings its tables up to date, and gives records that have no checksum theirs.
    /// Several processes may do so at once.
    ///
    /// - `sqlite://PATH` (or `sqlite:PATH`): a file, made if it is missing together with its directory.
    ///   The path is taken literally, nothing in it is decoded; it has no parameters.
    /// - `postgres://USER:PASSWORD@HOST:PORT/DATABASE` (or `postgresql://…`): a database that exists.
    ///
    /// # Errors
    ///
    /// [`CatalogError::InvalidUrl`], [`CatalogError::Directory`], [`CatalogError::Migration`],
    /// [`CatalogError::Database`],
    /// [`CatalogError::Unavailable`], [`CatalogError::Damaged`].
    pub async fn open(url: &str) -> Result<Catalog, CatalogError> {
        Catalog::open_with(url, &CatalogOptions::default()).await
    }

    /// As [`Catalog::open`], with another patience.
    ///
    /// # Errors
    ///
    /// Those of [`Catalog::open`].
    pub async fn open_with(url: &str, options: &CatalogOptions) -> Result<Catalog, CatalogError> {
        let engine = if let Some(path) = sqlite::path_of(url) {
            sqlite::open(path, options).await?
        } else if postgres::is_url(url) {
            postgres::open(url, options).await?
        } else {
            return Err(CatalogError::InvalidUrl {
                // Whatever stands before the host may be a password, so only the scheme is repeated.
                url: url.split(':').next().unwrap_or_default().to_owned(),
                reason: "it must begin with sqlite:// or postgres://".to_owned(),
            });
        };
        let catalog = Catalog { engine, clock: Clock::system(), best_effort: BestEffort::new() };
        catalog.seal_records().await;
        Ok(catalog)
    }

    /// The same catalog by another clock: a test sets when leases, sessions and files expire.
    pub fn with_clock(self, clock: Clock) -> Catalog {
        Catalog { clock, ..self }
    }

    /// The present, by the catalog's clock.
    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// Closes all connections of this handle and its clones. An SQLite file is whole afterwards, without a log beside
    /// it.
    pub async fn close(self) {
        self.engine.close().await;
    }
}
