//! Opens the parts: the catalog, the store, the query engine, and what lies on the local disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use strata_catalog::{Catalog, CatalogError, CatalogOptions, LeaseHolder};
use strata_cluster::identity::{NoNodeId, node_id};
use strata_cluster::tls::{NodeTls, TlsError};
use strata_cluster::token::NodeSecret;
use strata_config::{Config, MemoryPlan};
use strata_format::cache::PartCache;
use strata_query::{Engine, EngineOptions, QueryError, TenantShares};
use strata_store::disk_cache::DiskCache;
use strata_store::free_space::DiskReserve;
use strata_store::store::Store;
use strata_store::{StorageError, durable};
use strata_types::causes::Causes;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::App;
use super::background::kept_up;
use super::rooms::{Parts, Rooms};
use crate::admission::Admission;
use crate::admission::capacity::Capacity;
use crate::admission::principal_hasher::PrincipalHasher;
use crate::export_cache::Exports;
use crate::maintenance::backup::INCOMPLETE;
use crate::maintenance::binding::{BindingError, bind, open_store};
use crate::maintenance::damage;
use crate::maintenance::private_files::{OpenToOthers, open_to_others};
use crate::maintenance::scratch::{EXPORTS_FOLDER, RANGES_FOLDER, Scratch, TEMPORARY_FOLDER};
use crate::rate_limit::memory::RateCapacity;
use crate::rate_limit::{RateLimiter, RateLimits, shared};
use crate::refresh::ingest::outgoing;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To answer, or to make versions: the disk must take temporary files.
    Work,
    /// To look after what is there, on a full disk too.
    Maintenance,
    /// To look after records of the catalog alone. The store is not asked, and may be away.
    Records,
}

/// Refuses a place where there is no catalog, before anything is made there. A server is asked when it is opened.
fn require_catalog(config: &Config) -> Result<(), OpenError> {
    match config.catalog_file() {
        Some(file) if matches!(file.try_exists(), Ok(false)) => Err(OpenError::NoCatalog(file)),
        _ => Ok(()),
    }
}

/// How long opening waits for the store to say whose it is. What needs that later asks again.
const STORE_ANSWERS_WITHIN: Duration = Duration::from_secs(5);

impl App {
    /// Opens the catalog (and brings its tables up to date), the store and the query engine. Listens nowhere.
    pub async fn open(config: &Config) -> Result<App, OpenError> {
        App::open_parts(config, None, || open_store(config), Purpose::Work).await
    }

    /// As [`App::open`], for work on what is there: makes no catalog where there is none.
    pub async fn open_existing(config: &Config) -> Result<App, OpenError> {
        require_catalog(config)?;
        App::open_parts(config, None, || open_store(config), Purpose::Maintenance).await
    }

    /// As [`App::open_existing`], for work on records such as users: the store may be away, and holds no file.
    pub async fn open_records(config: &Config) -> Result<App, OpenError> {
        require_catalog(config)?;
        App::open_parts(config, None, || Ok(Store::nowhere()), Purpose::Records).await
    }

    /// As [`App::open`], for who can do nothing without an owner, so that there must be a catalog: makes none.
    pub async fn open_to_import(config: &Config) -> Result<App, OpenError> {
        require_catalog(config)?;
        App::open(config).await
    }

    /// As [`App::open`], with another counter of requests than that of the configuration.
    pub async fn open_with(config: &Config, rate_limiter: Arc<dyn RateLimiter>) -> Result<App, OpenError> {
        App::open_on(config, rate_limiter, || open_store(config)).await
    }

    /// As [`App::open_with`], on a store that the caller opens.
    pub async fn open_on(
        config: &Config,
        rate_limiter: Arc<dyn RateLimiter>,
        store: impl FnOnce() -> Result<Store, StorageError>,
    ) -> Result<App, OpenError> {
        App::open_parts(config, Some(rate_limiter), store, Purpose::Work).await
    }

    async fn open_parts(
        config: &Config,
        rate_limiter: Option<Arc<dyn RateLimiter>>,
        store: impl FnOnce() -> Result<Store, StorageError>,
        purpose: Purpose,
    ) -> Result<App, OpenError> {
        let directory = &config.data.directory;
        if directory.exists() && !directory.is_dir() {
            return Err(OpenError::NotADirectory(directory.clone()));
        }
        if directory.join(INCOMPLETE).exists() {
            return Err(OpenError::Incomplete(directory.clone()));
        }
        let tls = if purpose == Purpose::Work { NodeTls::open(&config.cluster)? } else { None };
        // Before anything is in it: what is acknowledged must be found again.
        durable::create_directory(directory)
            .map_err(|source| OpenError::Directory { path: directory.clone(), source })?;
        for OpenToOthers { path, mode } in open_to_others(config) {
            tracing::warn!(path = %path.display(), mode = format!("{mode:04o}"), "other users can access private files, including keys; run `chmod go=` to restrict access");
        }
        let scratch = |folder| {
            let path = directory.join(folder);
            match purpose {
                Purpose::Work => {
                    Scratch::create(&path).map_err(|source| OpenError::Directory { path: path.clone(), source })
                }
                Purpose::Maintenance | Purpose::Records => Ok(Scratch::create_or_later(&path)),
            }
        };
        let (exports, scratch) = (scratch(EXPORTS_FOLDER)?, scratch(TEMPORARY_FOLDER)?);
        let store = store()?;
        if let Some(file) = config.catalog_file().filter(|file| !file.exists())
            && let Ok(Some(found)) = store.identity().await
        {
            return Err(OpenError::CatalogGone { catalog: file, store: config.store_url(), found });
        }
        let options = CatalogOptions::from(&config.catalog);
        let catalog = Catalog::open_with(&config.catalog_url(), &options).await?;
        // What this process holds has its name; what is opened for maintenance holds nothing.
        let node = if purpose == Purpose::Work { node_id(config)?.map(|id| id.to_string()) } else { None };
        let catalog = match purpose {
            Purpose::Work => catalog.held_by(LeaseHolder { node: node.clone(), process: scratch.process() }),
            Purpose::Maintenance | Purpose::Records => catalog,
        };
        if purpose != Purpose::Records
            && let Err(refused) = bind_now(config, &catalog, &store).await
        {
            // Whole, without a log beside it: another file may be restored in its place.
            catalog.close().await;
            return Err(refused);
        }
        let redis = match &config.limits.redis_url {
            Some(url) if purpose == Purpose::Work => {
                let identity = catalog.installation().await?.identity;
                let connected = shared::connect(url, config.limits.redis_timeout_ms, &identity).await;
                Some(Arc::new(connected.map_err(OpenError::Redis)?))
            }
            _ => None,
        };
        let rate_limiter = rate_limiter.unwrap_or_else(|| {
            let limits = RateLimits::from(&config.limits);
            shared::limiter(redis.as_ref(), "reads", limits, RateCapacity::default())
        });
        let memory = MemoryPlan::of(config, strata_runtime::memory::available_bytes());
        let disk = DiskReserve::new(scratch.path(), config.sources.disk_reserve_bytes);
        let engine = Engine::try_new(&EngineOptions {
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
        })?;
        let (damage, reports) = mpsc::channel(damage::WAITING);
        let (reported, reports) = (catalog.clone(), Arc::new(Mutex::new(reports)));
        let log_reports = move || {
            let (catalog, reports) = (reported.clone(), reports.clone());
            async move { damage::log_reports(&catalog, &mut *reports.lock().await).await }
        };
        let damage_log = TaskTracker::new();
        damage_log.spawn(kept_up("damage", CancellationToken::new(), log_reports).in_current_span());
        damage_log.close();
        let is_kept = purpose == Purpose::Work && config.cache.disk_bytes > 0 && !store.is_local();
        let kept =
            is_kept.then(|| DiskCache::open(directory.join(RANGES_FOLDER), config.cache.disk_bytes, disk.clone()));
        let cache = PartCache::new(memory.cache_bytes).reporting(damage).with_disk(kept);
        let threads = engine.threads();
        let admission = Admission::new(&config.query, &config.fair, threads, memory.query_bytes);
        let capacity = Capacity::new(engine, admission, PrincipalHasher::new(NodeSecret::of(config).as_ref()));
        let parts = Parts {
            config: Arc::new(config.clone()),
            catalog,
            store,
            cache,
            damage_log,
            memory,
            capacity,
            scratch: Arc::new(scratch),
            exports: Exports::new(exports, disk.clone(), config.cache.export_bytes, &config.fair),
            disk,
            outgoing: outgoing(config),
            redis,
            node,
            tls,
        };
        Ok(App { rooms: Arc::new(Rooms::new(parts, rate_limiter)) })
    }
}

/// Refuses a store of another catalog. One that does not answer is asked again before anything is written.
async fn bind_now(config: &Config, catalog: &Catalog, store: &Store) -> Result<(), OpenError> {
    let bound = tokio::time::timeout(STORE_ANSWERS_WITHIN, bind(config, catalog, store)).await;
    match bound.map(|bound| bound.map_err(|error| error.named(config))) {
        Ok(Ok(())) => {}
        Ok(Err(BindingError::Store(error))) => {
            tracing::warn!(
                error = %Causes(&error),
                "failed to verify the store's identity; retrying before the store is used"
            );
        }
        Ok(Err(BindingError::Catalog(error))) => return Err(error.into()),
        Ok(Err(error)) => return Err(OpenError::Binding(error)),
        Err(_) => tracing::warn!("timed out verifying the store's identity; retrying before the store is used"),
    }
    Ok(())
}
