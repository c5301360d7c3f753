//! Opens the dependencies of the services: directories, store, catalog, Redis and query engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use strata_catalog::{Catalog, CatalogError, CatalogOptions};
use strata_cluster::identity::NodeIdError;
use strata_cluster::redis::RedisClient;
use strata_cluster::tls::TlsError;
use strata_config::{Config, MemoryPlan};
use strata_format::cache::DamageReport;
use strata_query::{PrincipalShares, QueryEngine, QueryEngineOptions, QueryError};
use strata_store::free_space::DiskReserve;
use strata_store::store::Store;
use strata_store::{StorageError, fsync};
use strata_types::error_chain::ErrorChain;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::background::supervise;
use crate::RateLimiter;
use crate::maintenance::backup::INCOMPLETE_MARKER_FILE;
use crate::maintenance::corruption_log;
use crate::maintenance::file_permissions::{ExposedPath, find_exposed_paths};
use crate::maintenance::store_identity::{self, StoreIdentityError, bind_store_to_catalog};
use crate::maintenance::temp_dir::ProcessTempDir;
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
    CatalogMissing { catalog: PathBuf, store: String, found: String },
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error("the metadata database is damaged ({reason}); run `strata check` for details, or restore it from a backup")]
    Damaged { reason: String },
    #[error(transparent)]
    Node(#[from] NodeIdError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("failed to open the store")]
    Store(#[from] StorageError),
    /// `limits.redis_url` is invalid. An unavailable Redis server is no error.
    #[error("invalid limits.redis_url")]
    Redis(#[source] redis::RedisError),
    #[error(transparent)]
    Binding(StoreIdentityError),
    #[error("failed to start the query engine")]
    Engine(#[from] QueryError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessPurpose {
    Serve,
    Import,
    /// For commands that maintain an existing catalog and its files, and that work even on a full disk.
    Maintain,
    MaintainRecords,
}

impl ProcessPurpose {
    /// Whether the process only maintains data. Such processes need no temporary files, and take no part in a cluster.
    pub(super) fn is_maintenance(self) -> bool {
        matches!(self, ProcessPurpose::Maintain | ProcessPurpose::MaintainRecords)
    }
}

/// The dependencies of the services. A dependency that is `None` is built from the configuration.
pub struct ServiceDependencies<'a> {
    pub config: &'a Config,
    pub purpose: ProcessPurpose,
    pub rate_limiter: Option<Arc<dyn RateLimiter>>,
    pub store: Option<Store>,
}

impl<'a> ServiceDependencies<'a> {
    pub fn new(config: &'a Config, purpose: ProcessPurpose) -> ServiceDependencies<'a> {
        ServiceDependencies { config, purpose, rate_limiter: None, store: None }
    }
}

/// Time limit for reading the identity of the store at startup. Later users of the store verify the identity again.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Rejects an unusable data directory before a file is created in the directory.
pub(super) fn check_data_directory(config: &Config, purpose: ProcessPurpose) -> Result<(), OpenError> {
    if purpose != ProcessPurpose::Serve
        && let Some(file) = config.catalog_file()
        && matches!(file.try_exists(), Ok(false))
    {
        return Err(OpenError::NoCatalog(file));
    }
    let directory = &config.data.directory;
    if directory.exists() && !directory.is_dir() {
        return Err(OpenError::NotADirectory(directory.clone()));
    }
    match directory.join(INCOMPLETE_MARKER_FILE).exists() {
        true => Err(OpenError::Incomplete(directory.clone())),
        false => Ok(()),
    }
}

pub(super) fn create_data_directory(config: &Config) -> Result<(), OpenError> {
    let directory = &config.data.directory;
    fsync::create_dir_synced(directory).map_err(|source| OpenError::Directory { path: directory.clone(), source })?;
    for ExposedPath { path, mode } in find_exposed_paths(config) {
        tracing::warn!(path = %path.display(), mode = format!("{mode:04o}"), "other users can access private files, including keys; run `chmod go=` to restrict access");
    }
    Ok(())
}

pub(super) fn create_temp_dir(
    config: &Config,
    folder: &str,
    purpose: ProcessPurpose,
) -> Result<ProcessTempDir, OpenError> {
    let path = config.data.directory.join(folder);
    match purpose.is_maintenance() {
        true => Ok(ProcessTempDir::create_or_warn(&path)),
        false => ProcessTempDir::create(&path).map_err(|source| OpenError::Directory { path, source }),
    }
}

pub(super) fn open_store(config: &Config, purpose: ProcessPurpose) -> Result<Store, OpenError> {
    match purpose {
        ProcessPurpose::MaintainRecords => Ok(Store::in_memory()),
        ProcessPurpose::Serve | ProcessPurpose::Import | ProcessPurpose::Maintain => {
            Ok(store_identity::open_store(config)?)
        }
    }
}

pub(super) async fn open_catalog(config: &Config, store: &Store) -> Result<Catalog, OpenError> {
    if let Some(file) = config.catalog_file().filter(|file| !file.exists())
        && let Ok(Some(found)) = store.read_identity().await
    {
        return Err(OpenError::CatalogMissing { catalog: file, store: config.store_url(), found });
    }
    Ok(Catalog::open_with_options(&config.catalog_url(), &CatalogOptions::from(&config.catalog)).await?)
}

/// Rejects a store of another catalog. A store that does not respond is accepted: each write verifies it again.
pub(super) async fn bind_store(config: &Config, catalog: &Catalog, store: &Store) -> Result<(), OpenError> {
    let bound = tokio::time::timeout(STORE_TIMEOUT, bind_store_to_catalog(config, catalog, store)).await;
    let error = match bound.map(|bound| bound.map_err(|error| error.map_missing_bucket(config))) {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(StoreIdentityError::Store(error))) => {
            tracing::warn!(
                error = %ErrorChain(&error),
                "failed to verify the store's identity; retrying before the store is used"
            );
            return Ok(());
        }
        Err(_) => {
            tracing::warn!("timed out verifying the store's identity; retrying before the store is used");
            return Ok(());
        }
        Ok(Err(StoreIdentityError::Catalog(error))) => error.into(),
        Ok(Err(error)) => OpenError::Binding(error),
    };
    // The catalog is closed: a closed SQLite file has no write-ahead log, so another file can be restored in its place.
    catalog.clone().close().await;
    Err(error)
}

pub(super) async fn connect_to_redis(
    config: &Config,
    catalog: &Catalog,
) -> Result<Option<Arc<RedisClient>>, OpenError> {
    let Some(url) = &config.limits.redis_url else { return Ok(None) };
    let identity = catalog.ensure_installation().await?.identity;
    let connected = shared::connect(url, config.limits.redis_timeout_ms, &identity).await;
    Ok(Some(Arc::new(connected.map_err(OpenError::Redis)?)))
}

pub(super) fn open_engine(
    config: &Config,
    memory: &MemoryPlan,
    scratch: &ProcessTempDir,
    disk: &DiskReserve,
) -> Result<QueryEngine, QueryError> {
    QueryEngine::try_new(&QueryEngineOptions {
        threads: match config.query.threads {
            0 => strata_runtime::priority::processor_count(),
            threads => usize::try_from(threads).unwrap_or(usize::MAX),
        },
        memory_bytes: usize::try_from(memory.query_bytes).unwrap_or(usize::MAX),
        shares: PrincipalShares {
            principal_percent: config.fair.space_percent,
            anonymous_percent: 100 - config.fair.user_percent,
        },
        timeout: Duration::from_secs(config.query.timeout_s),
        diff_timeout: Duration::from_secs(config.query.diff_timeout_s),
        spill_directory: scratch.path().exists().then(|| scratch.path().to_owned()),
        spill_bytes: config.query.spill_bytes,
        disk_reserve: Some(disk.clone()),
    })
}

pub(super) fn spawn_damage_log(catalog: &Catalog, tasks: &TaskTracker) -> mpsc::Sender<DamageReport> {
    let (damage, reports) = mpsc::channel(corruption_log::MAX_QUEUED_REPORTS);
    let catalog = catalog.clone();
    let reports = Arc::new(Mutex::new(reports));
    let log_reports = move || {
        let catalog = catalog.clone();
        let reports = reports.clone();
        async move { corruption_log::log_damage_reports(&catalog, &mut *reports.lock().await).await }
    };
    tasks.spawn(supervise("damage", CancellationToken::new(), log_reports).in_current_span());
    tasks.close();
    damage
}
