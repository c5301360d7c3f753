//! Opens what services are built on: the directories, the store, the catalog and the query engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use strata_catalog::{Catalog, CatalogError, CatalogOptions};
use strata_cluster::identity::NoNodeId;
use strata_cluster::redis::Redis;
use strata_cluster::tls::TlsError;
use strata_config::{Config, MemoryPlan};
use strata_format::cache::DamageReport;
use strata_query::{Engine, EngineOptions, QueryError, TenantShares};
use strata_store::free_space::DiskReserve;
use strata_store::store::Store;
use strata_store::{StorageError, durable};
use strata_types::causes::Causes;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::background::supervise;
use crate::RateLimiter;
use crate::maintenance::backup::INCOMPLETE;
use crate::maintenance::binding::{self, BindingError, bind};
use crate::maintenance::damage;
use crate::maintenance::private_files::{AccessiblePath, accessible_paths};
use crate::maintenance::scratch::Scratch;
use crate::rate_limit::shared;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("failed to open the data directory {}", path.display())]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("the data directory {} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    #[error("{} is an incomplete backup; create a new backup", .0.display())]
    Incomplete(PathBuf),
    #[error("there is no metadata database {}; specify the service's data directory with --data", .0.display())]
    NoCatalog(PathBuf),
    #[error(
        "there is no metadata database {}, but the store {store} already belongs to a metadata database (its strata.id \
         contains {found}); restore the database from a backup, correct data.directory, catalog.url, or store.url, or \
         use an empty store",
        catalog.display()
    )]
    CatalogGone { catalog: PathBuf, store: String, found: String },
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error("the metadata database is damaged ({reason}); run `strata check` for details, or restore it from a backup")]
    Damaged { reason: String },
    #[error(transparent)]
    Node(#[from] NoNodeId),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("failed to open the store")]
    Store(#[from] StorageError),
    /// `limits.redis_url` is no URL of a Redis. That Redis does not answer is no error.
    #[error("invalid limits.redis_url")]
    Redis(#[source] redis::RedisError),
    #[error(transparent)]
    Binding(BindingError),
    #[error("failed to start the query engine")]
    Engine(#[from] QueryError),
}

/// What a process opens its services for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To serve requests. Creates a catalog if there is none.
    Serve,
    /// To create versions in an existing catalog.
    Import,
    /// To maintain an existing catalog and its files, also on a full disk.
    Maintain,
    /// To maintain records of an existing catalog. The store can be unavailable.
    Records,
}

impl Purpose {
    /// Whether the process only maintains data. Then it needs no temporary files, and takes no part in a cluster.
    pub(super) fn is_maintenance(self) -> bool {
        matches!(self, Purpose::Maintain | Purpose::Records)
    }
}

/// What services are built from. The configuration decides about a dependency that is `None`.
pub struct Dependencies<'a> {
    pub config: &'a Config,
    pub purpose: Purpose,
    pub rate_limiter: Option<Arc<dyn RateLimiter>>,
    pub store: Option<Store>,
}

impl<'a> Dependencies<'a> {
    pub fn new(config: &'a Config, purpose: Purpose) -> Dependencies<'a> {
        Dependencies { config, purpose, rate_limiter: None, store: None }
    }
}

/// How long opening waits for the store to identify itself. What uses the store later verifies it again.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Refuses a data directory that cannot be used, before anything is created in it.
pub(super) fn check_directory(config: &Config, purpose: Purpose) -> Result<(), OpenError> {
    if purpose != Purpose::Serve
        && let Some(file) = config.catalog_file()
        && matches!(file.try_exists(), Ok(false))
    {
        return Err(OpenError::NoCatalog(file));
    }
    let directory = &config.data.directory;
    if directory.exists() && !directory.is_dir() {
        return Err(OpenError::NotADirectory(directory.clone()));
    }
    match directory.join(INCOMPLETE).exists() {
        true => Err(OpenError::Incomplete(directory.clone())),
        false => Ok(()),
    }
}

/// Creates the data directory durably, because acknowledged data must be found again, and warns if it is not private.
pub(super) fn create_directory(config: &Config) -> Result<(), OpenError> {
    let directory = &config.data.directory;
    durable::create_directory(directory).map_err(|source| OpenError::Directory { path: directory.clone(), source })?;
    for AccessiblePath { path, mode } in accessible_paths(config) {
        tracing::warn!(path = %path.display(), mode = format!("{mode:04o}"), "other users can access private files, including keys; run `chmod go=` to restrict access");
    }
    Ok(())
}

pub(super) fn create_scratch(config: &Config, folder: &str, purpose: Purpose) -> Result<Scratch, OpenError> {
    let path = config.data.directory.join(folder);
    match purpose.is_maintenance() {
        true => Ok(Scratch::create_or_later(&path)),
        false => Scratch::create(&path).map_err(|source| OpenError::Directory { path, source }),
    }
}

pub(super) fn open_store(config: &Config, purpose: Purpose) -> Result<Store, OpenError> {
    match purpose {
        Purpose::Records => Ok(Store::nowhere()),
        Purpose::Serve | Purpose::Import | Purpose::Maintain => Ok(binding::open_store(config)?),
    }
}

pub(super) async fn open_catalog(config: &Config, store: &Store) -> Result<Catalog, OpenError> {
    if let Some(file) = config.catalog_file().filter(|file| !file.exists())
        && let Ok(Some(found)) = store.identity().await
    {
        return Err(OpenError::CatalogGone { catalog: file, store: config.store_url(), found });
    }
    Ok(Catalog::open_with(&config.catalog_url(), &CatalogOptions::from(&config.catalog)).await?)
}

/// Refuses a store of another catalog, and closes the catalog. If the store does not respond, it is verified before
/// something is written to it.
pub(super) async fn bind_store(config: &Config, catalog: &Catalog, store: &Store) -> Result<(), OpenError> {
    let bound = tokio::time::timeout(STORE_TIMEOUT, bind(config, catalog, store)).await;
    let refusal = match bound.map(|bound| bound.map_err(|error| error.named(config))) {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(BindingError::Store(error))) => {
            tracing::warn!(
                error = %Causes(&error),
                "failed to verify the store's identity; retrying before the store is used"
            );
            return Ok(());
        }
        Err(_) => {
            tracing::warn!("timed out verifying the store's identity; retrying before the store is used");
            return Ok(());
        }
        Ok(Err(BindingError::Catalog(error))) => error.into(),
        Ok(Err(error)) => OpenError::Binding(error),
    };
    // A closed SQLite file has no log next to it, so another file can be restored in its place.
    catalog.clone().close().await;
    Err(refusal)
}

pub(super) async fn connect_to_redis(config: &Config, catalog: &Catalog) -> Result<Option<Arc<Redis>>, OpenError> {
    let Some(url) = &config.limits.redis_url else { return Ok(None) };
    let identity = catalog.installation().await?.identity;
    let connected = shared::connect(url, config.limits.redis_timeout_ms, &identity).await;
    Ok(Some(Arc::new(connected.map_err(OpenError::Redis)?)))
}

pub(super) fn open_engine(
    config: &Config,
    memory: &MemoryPlan,
    scratch: &Scratch,
    disk: &DiskReserve,
) -> Result<Engine, QueryError> {
    Engine::try_new(&EngineOptions {
        threads: match config.query.threads {
            0 => strata_runtime::priority::processors(),
            threads => usize::try_from(threads).unwrap_or(usize::MAX),
        },
        memory_bytes: usize::try_from(memory.query_bytes).unwrap_or(usize::MAX),
        shares: TenantShares {
            one_percent: config.fair.space_percent,
            anonymous_percent: 100 - config.fair.user_percent,
        },
        timeout: Duration::from_secs(config.query.timeout_s),
        diff_timeout: Duration::from_secs(config.query.diff_timeout_s),
        spill_directory: scratch.path().exists().then(|| scratch.path().to_owned()),
        spill_bytes: config.query.spill_bytes,
        disk_reserve: Some(disk.clone()),
    })
}

/// Starts the task that logs damaged files, and returns where the cache reports them.
pub(super) fn log_damage(catalog: &Catalog, tasks: &TaskTracker) -> mpsc::Sender<DamageReport> {
    let (damage, reports) = mpsc::channel(damage::MAX_WAITING);
    let catalog = catalog.clone();
    let reports = Arc::new(Mutex::new(reports));
    let log_reports = move || {
        let catalog = catalog.clone();
        let reports = reports.clone();
        async move { damage::log_reports(&catalog, &mut *reports.lock().await).await }
    };
    tasks.spawn(supervise("damage", CancellationToken::new(), log_reports).in_current_span());
    tasks.close();
    damage
}
