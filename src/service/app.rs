//! All parts of the service, opened from the configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::catalog::{Catalog, CatalogError, CatalogOptions};
use crate::config::Config;
use crate::metrics::metrics;
use crate::net::Outgoing;
use crate::query::{Engine, EngineOptions, QueryError, TenantShares};
use crate::service::account::logins::Logins;
use crate::service::admission::bodies;
use crate::service::admission::catalog::CatalogGates;
use crate::service::admission::semaphore::{FairSemaphore, Holder};
use crate::service::admission::{Admission, Load};
use crate::service::dataset::diffs::Diffs;
use crate::service::export_cache::Exports;
use crate::service::maintenance::background::kept_up;
use crate::service::maintenance::backup::INCOMPLETE;
use crate::service::maintenance::binding::{BindingError, bind};
use crate::service::maintenance::damage;
use crate::service::maintenance::private_files::{OpenToOthers, open_to_others};
use crate::service::maintenance::readiness::Readiness;
use crate::service::maintenance::scratch::{EXPORTS_FOLDER, Scratch, TEMPORARY_FOLDER};
use crate::service::rate_limit::memory::{MemoryRateLimiter, RateCapacity};
use crate::service::rate_limit::{RateLimiter, RateLimits, SystemClock};
use crate::service::read::catalog_cache::CatalogCache;
use crate::service::read::responses::Responses;
use crate::service::refresh::Refreshes;
use crate::service::refresh::ingest::Ingest;
use crate::service::refresh::outgoing::outgoing;
use crate::service::webhook::deliveries::Deliveries;
use crate::storage::cache::PartCache;
use crate::storage::store::{self, S3Options, Store};
use crate::storage::{StorageError, durable};

/// The service. Clones share everything; each acts for somebody, whose share of permits and memory it takes: for the
/// operator, unless it comes from `App::acting_for`.
#[derive(Clone)]
pub struct App {
    parts: Arc<Parts>,
    acting: Option<Arc<Acting>>,
}

/// What takes a holder's share.
struct Acting {
    engine: Engine,
    admission: Admission,
}

struct Parts {
    config: Config,
    catalog: Catalog,
    store: Store,
    cache: PartCache,
    responses: Responses,
    diffs: Diffs,
    exports: Exports,
    engine: Engine,
    scratch: Scratch,
    catalog_cache: CatalogCache,
    rate_limiter: Arc<dyn RateLimiter>,
    admission: Admission,
    logins: Logins,
    bodies: FairSemaphore,
    refreshes: Refreshes,
    ingest: Ingest,
    catalog_gates: CatalogGates,
    deliveries: Deliveries,
    readiness: Readiness,
    outgoing: Outgoing,
    draining: AtomicBool,
    exhausted: AtomicBool,
}

/// The service cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory cannot be made or written.
    #[error("the data directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The data directory is a backup that was not finished.
    #[error("{} is a backup that was not finished: make another one", .0.display())]
    Incomplete(PathBuf),
    /// There is no catalog where the configuration says, and none is to be made.
    #[error("there is no catalog {}: give the service's data directory with --data", .0.display())]
    NoCatalog(PathBuf),
    /// The catalog does not open.
    #[error("the catalog")]
    Catalog(#[from] CatalogError),
    /// The catalog is damaged.
    #[error("the catalog is damaged ({reason}); `strata check` says where, a backup has what it held")]
    Damaged {
        /// What was noticed first.
        reason: String,
    },
    /// The store does not open.
    #[error("the store")]
    Store(#[from] StorageError),
    /// Catalog and store do not belong together.
    #[error(transparent)]
    Binding(BindingError),
    /// The query engine does not start.
    #[error("the query engine")]
    Engine(#[from] QueryError),
}

/// What a process opens the service for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To answer, or to make versions: the disk must take temporary files.
    Work,
    /// To look after what is there, on a full disk too.
    Maintenance,
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
    ///
    /// # Errors
    /// [`OpenError`] names the part that does not open.
    pub async fn open(config: &Config) -> Result<App, OpenError> {
        App::open_with(config, own_limiter(config)).await
    }

    /// As [`App::open`], for work on what is there: makes no catalog where there is none.
    ///
    /// # Errors
    /// [`OpenError`] names the part that does not open; [`OpenError::NoCatalog`].
    pub async fn open_existing(config: &Config) -> Result<App, OpenError> {
        require_catalog(config)?;
        App::open_for(config, own_limiter(config), Purpose::Maintenance).await
    }

    /// As [`App::open`], for who can do nothing without an owner, so that there must be a catalog: makes none.
    ///
    /// # Errors
    /// [`OpenError`] names the part that does not open; [`OpenError::NoCatalog`].
    pub async fn open_to_import(config: &Config) -> Result<App, OpenError> {
        require_catalog(config)?;
        App::open(config).await
    }

    /// As [`App::open`], with another counter of requests than that of this process.
    ///
    /// # Errors
    /// [`OpenError`] names the part that does not open.
    pub async fn open_with(config: &Config, rate_limiter: Arc<dyn RateLimiter>) -> Result<App, OpenError> {
        App::open_for(config, rate_limiter, Purpose::Work).await
    }

    async fn open_for(config: &Config, rate_limiter: Arc<dyn RateLimiter>, purpose: Purpose) -> Result<App, OpenError> {
        let s3 = S3Options {
            endpoint: config.store.endpoint.as_ref().map(|endpoint| endpoint.as_str().to_owned()),
            region: config.store.region.clone(),
            access_key_id: config.store.access_key_id.clone(),
            secret_access_key: config.store.secret_access_key.as_ref().map(|secret| secret.expose().to_owned()),
            allow_http: config.store.allow_http,
            retry_within: Some(Duration::from_secs(config.store.retry_s)),
        };
        App::open_parts(config, rate_limiter, || store::open(&config.store_url(), &s3), purpose).await
    }

    /// As [`App::open_with`], on a store that the caller opens.
    ///
    /// # Errors
    /// [`OpenError`] names the part that does not open.
    pub async fn open_on(
        config: &Config,
        rate_limiter: Arc<dyn RateLimiter>,
        store: impl FnOnce() -> Result<Store, StorageError>,
    ) -> Result<App, OpenError> {
        App::open_parts(config, rate_limiter, store, Purpose::Work).await
    }

    async fn open_parts(
        config: &Config,
        rate_limiter: Arc<dyn RateLimiter>,
        store: impl FnOnce() -> Result<Store, StorageError>,
        purpose: Purpose,
    ) -> Result<App, OpenError> {
        let directory = &config.data.directory;
        if directory.join(INCOMPLETE).exists() {
            return Err(OpenError::Incomplete(directory.clone()));
        }
        // Before anything is in it: what is acknowledged must be found again.
        durable::create_directory(directory)
            .map_err(|source| OpenError::Directory { path: directory.clone(), source })?;
        for OpenToOthers { path, mode } in open_to_others(config) {
            tracing::warn!(path = %path.display(), mode = format!("{mode:04o}"), "other users of this machine can reach what is kept here, keys too; chmod go= closes it");
        }
        let scratch = |folder| {
            let path = directory.join(folder);
            match purpose {
                Purpose::Work => {
                    Scratch::create(&path).map_err(|source| OpenError::Directory { path: path.clone(), source })
                }
                Purpose::Maintenance => Ok(Scratch::create_or_later(&path)),
            }
        };
        let (exports, scratch) = (scratch(EXPORTS_FOLDER)?, scratch(TEMPORARY_FOLDER)?);
        let options = CatalogOptions::from(&config.catalog);
        let catalog = Catalog::open_with(&config.catalog_url(), &options).await?;
        let store = store()?;
        if let Err(refused) = bind_now(config, &catalog, &store).await {
            // Whole, without a log beside it: another file may be restored in its place.
            catalog.close().await;
            return Err(refused);
        }
        let engine = Engine::try_new(&EngineOptions {
            threads: match config.query.threads {
                0 => crate::priority::processors(),
                threads => usize::try_from(threads).unwrap_or(usize::MAX),
            },
            memory_bytes: usize::try_from(config.query.memory_bytes).unwrap_or(usize::MAX),
            shares: TenantShares {
                one_percent: config.fair.space_percent,
                anonymous_percent: 100 - config.fair.user_percent,
            },
            timeout: Duration::from_secs(config.query.timeout_s),
            diff_timeout: Duration::from_secs(config.query.diff_timeout_s),
            spill_directory: scratch.path().exists().then(|| scratch.path().to_owned()),
            spill_bytes: config.query.spill_bytes,
        })?;
        let (damage, reports) = mpsc::channel(damage::WAITING);
        let (reported, reports) = (catalog.clone(), Arc::new(Mutex::new(reports)));
        let log_reports = move || {
            let (catalog, reports) = (reported.clone(), reports.clone());
            async move { damage::log_reports(&catalog, &mut *reports.lock().await).await }
        };
        tokio::spawn(kept_up("damage", CancellationToken::new(), log_reports).in_current_span());
        let cache = PartCache::new(config.cache.memory_bytes).reporting(damage);
        let responses = Responses::new(config.cache.response_bytes);
        let diffs = Diffs::new(config.cache.diff_bytes);
        let exports = Exports::new(exports, config.cache.export_bytes, &config.fair);
        let admission = Admission::new(&config.query, &config.fair, engine.threads());
        let logins = Logins::new(&config.limits, &config.fair, engine.threads());
        let bodies = bodies::gate(config);
        let (refreshes, deliveries) = (Refreshes::new(), Deliveries::new());
        let (ingest, outgoing) = (Ingest::new(config, scratch.path()), outgoing(config));
        let catalog_gates = CatalogGates::new(config);
        let (config, catalog_cache) = (config.clone(), CatalogCache::new());
        let parts = Parts {
            config,
            catalog,
            store,
            cache,
            responses,
            diffs,
            exports,
            engine,
            scratch,
            catalog_cache,
            rate_limiter,
            admission,
            logins,
            bodies,
            refreshes,
            ingest,
            catalog_gates,
            deliveries,
            readiness: Readiness::default(),
            outgoing,
            draining: AtomicBool::new(false),
            exhausted: AtomicBool::new(false),
        };
        Ok(App { parts: Arc::new(parts), acting: None })
    }

    /// The same service, which takes permits and memory from the share of this holder.
    pub(in crate::service) fn acting_for(&self, holder: Holder) -> App {
        let acting =
            Acting { engine: self.parts.engine.of(holder.tenant()), admission: self.parts.admission.of(holder) };
        App { parts: self.parts.clone(), acting: Some(Arc::new(acting)) }
    }

    /// The configuration that it was opened with.
    pub fn config(&self) -> &Config {
        &self.parts.config
    }

    /// Who counts requests.
    pub fn rate_limiter(&self) -> &dyn RateLimiter {
        &*self.parts.rate_limiter
    }

    /// Makes a change in the catalog show at once in the reads of this process: to be called after every write that a
    /// read can see, before whoever asked for it is told.
    pub fn catalog_changed(&self) {
        self.parts.catalog_cache.changed();
    }

    pub(in crate::service) fn catalog_cache(&self) -> &CatalogCache {
        &self.parts.catalog_cache
    }

    /// From now on the service is not ready: it is about to stop. Requests are still answered.
    pub fn begin_draining(&self) {
        self.parts.draining.store(true, Ordering::Relaxed);
    }

    /// Takes note of whether the service lacks descriptors to accept connections. While it does, it is not ready.
    pub fn note_exhausted(&self, exhausted: bool) {
        self.parts.exhausted.store(exhausted, Ordering::Relaxed);
    }

    pub(in crate::service) fn is_exhausted(&self) -> bool {
        self.parts.exhausted.load(Ordering::Relaxed)
    }

    pub(in crate::service) fn is_draining(&self) -> bool {
        self.parts.draining.load(Ordering::Relaxed)
    }

    /// Reads the whole catalog once, where it is an SQLite file, and looks for damage that could make it answer wrong.
    ///
    /// # Errors
    /// [`OpenError::Damaged`], [`OpenError::Catalog`].
    pub async fn verify_catalog(&self) -> Result<(), OpenError> {
        match self.catalog().first_damage().await? {
            None => Ok(()),
            Some(reason) => Err(OpenError::Damaged { reason }),
        }
    }

    /// How loaded the service is.
    pub fn load(&self) -> Load {
        self.admission().load()
    }

    /// Brings the metrics that show a state, not a count, up to date.
    pub fn update_metrics(&self) {
        let (metrics, load) = (metrics(), self.load());
        metrics.heavy_running.set(load.heavy_running as f64);
        metrics.heavy_waiting.set(load.heavy_waiting as f64);
        metrics.streams.set(load.streams as f64);
        metrics.buffered_bytes.set(load.buffered_bytes as f64);
        metrics.query_memory_bytes.set(self.engine().memory_bytes() as f64);
        metrics.query_memory_limit_bytes.set(self.config().query.memory_bytes as f64);
        metrics.cache_bytes.set(self.cache().memory_bytes() as f64);
        self.ingest().update_metrics();
        self.catalog_gates().update_metrics();
        self.admission().update_metrics();
        self.bodies().update_metrics();
    }

    pub(in crate::service) fn admission(&self) -> &Admission {
        self.acting.as_ref().map_or(&self.parts.admission, |acting| &acting.admission)
    }

    pub(in crate::service) fn refreshes(&self) -> &Refreshes {
        &self.parts.refreshes
    }

    pub(in crate::service) fn ingest(&self) -> &Ingest {
        &self.parts.ingest
    }

    pub(in crate::service) fn catalog_gates(&self) -> &CatalogGates {
        &self.parts.catalog_gates
    }

    pub(in crate::service) fn deliveries(&self) -> &Deliveries {
        &self.parts.deliveries
    }

    /// The way out, on behalf of nobody in particular.
    pub(in crate::service) fn outgoing(&self) -> &Outgoing {
        &self.parts.outgoing
    }

    pub(in crate::service) fn catalog(&self) -> &Catalog {
        &self.parts.catalog
    }

    pub(in crate::service) fn readiness(&self) -> &Readiness {
        &self.parts.readiness
    }

    pub(in crate::service) fn bodies(&self) -> &FairSemaphore {
        &self.parts.bodies
    }

    pub(in crate::service) fn logins(&self) -> &Logins {
        &self.parts.logins
    }

    pub(in crate::service) fn store(&self) -> &Store {
        &self.parts.store
    }

    pub(in crate::service) fn cache(&self) -> &PartCache {
        &self.parts.cache
    }

    pub(in crate::service) fn responses(&self) -> &Responses {
        &self.parts.responses
    }

    pub(in crate::service) fn diffs(&self) -> &Diffs {
        &self.parts.diffs
    }

    pub(in crate::service) fn exports(&self) -> &Exports {
        &self.parts.exports
    }

    pub(in crate::service) fn engine(&self) -> &Engine {
        self.acting.as_ref().map_or(&self.parts.engine, |acting| &acting.engine)
    }

    /// Whether no other process uses the data directory, as far as its temporary files tell.
    pub(in crate::service) fn is_alone(&self) -> bool {
        self.parts.scratch.is_alone()
    }

    /// Where temporary files of this process go. Made anew if somebody has removed it.
    pub(in crate::service) fn temporary_directory(&self) -> &Path {
        self.parts.scratch.restore_or_warn();
        self.parts.scratch.path()
    }
}

/// Counts the requests of this process.
fn own_limiter(config: &Config) -> Arc<dyn RateLimiter> {
    let limits = RateLimits::from(&config.limits);
    Arc::new(MemoryRateLimiter::new(limits, RateCapacity::default(), SystemClock::start()))
}

/// Refuses a store that is not the catalog's. One that does not answer may be: nothing is recorded or removed until it
/// has said so.
async fn bind_now(config: &Config, catalog: &Catalog, store: &Store) -> Result<(), OpenError> {
    let bound = tokio::time::timeout(STORE_ANSWERS_WITHIN, bind(config, catalog, store)).await;
    match bound.map(|bound| bound.map_err(|error| error.named(config))) {
        Ok(Ok(())) => {}
        Ok(Err(BindingError::Store(error))) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "the store does not say whether it is the catalog's; it is asked again before it is used"
            );
        }
        Ok(Err(BindingError::Catalog(error))) => return Err(error.into()),
        Ok(Err(error)) => return Err(OpenError::Binding(error)),
        Err(_) => tracing::warn!("the store does not answer yet"),
    }
    Ok(())
}
