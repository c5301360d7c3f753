//! All parts of the service, opened from the configuration.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::catalog::{Catalog, CatalogError, CatalogOptions, Clock, LeaseHolder, NewNode};
use crate::cluster::distributed::{Coordinator, DistributionOptions, OwnNode, Peer};
use crate::cluster::hand_over::HandOver;
use crate::cluster::identity::{NoNodeId, node_id};
use crate::cluster::nodes::Nodes;
use crate::cluster::redis::Redis;
use crate::cluster::token::NodeSecret;
use crate::config::{Config, MemoryPlan};
use crate::metrics::metrics;
use crate::model::causes::Causes;
use crate::model::node::Role;
use crate::net::Outgoing;
use crate::query::{Engine, EngineOptions, QueryError, TenantShares};
use crate::service::account::Accounts;
use crate::service::account::logins::Logins;
use crate::service::account::sessions::Sessions;
use crate::service::admission::bodies::LargeBodies;
use crate::service::admission::capacity::Capacity;
use crate::service::admission::catalog::CatalogGates;
use crate::service::admission::tenants::TenantNumbers;
use crate::service::admission::{Admission, Load};
use crate::service::background::{Background, Loops, kept_up};
use crate::service::dataset::Datasets;
use crate::service::dataset::agent_edits::AgentEdits;
use crate::service::dataset::alternates::Alternates;
use crate::service::dataset::diffs::Diffs;
use crate::service::dataset::listings::Listings;
use crate::service::dataset::profile::Profiles;
use crate::service::demo::Demo;
use crate::service::explain::Explains;
use crate::service::export_cache::{Exports, SharedExports};
use crate::service::lookup::Lookups;
use crate::service::maintenance::Maintenance;
use crate::service::maintenance::backup::INCOMPLETE;
use crate::service::maintenance::binding::{BindingError, StoreBinding, bind};
use crate::service::maintenance::damage;
use crate::service::maintenance::private_files::{OpenToOthers, open_to_others};
use crate::service::maintenance::readiness::Readiness;
use crate::service::maintenance::scratch::{EXPORTS_FOLDER, RANGES_FOLDER, Scratch, TEMPORARY_FOLDER};
use crate::service::manage::OwnerWrites;
use crate::service::rate_limit::memory::RateCapacity;
use crate::service::rate_limit::{RateLimiter, RateLimits, shared};
use crate::service::read::Reads;
use crate::service::read::ahead::ExportsAhead;
use crate::service::read::responses::Responses;
use crate::service::refresh::Refreshes;
use crate::service::refresh::attempts::Attempts;
use crate::service::refresh::former::FormerProcesses;
use crate::service::refresh::import::Imports;
use crate::service::refresh::ingest::Ingest;
use crate::service::refresh::outgoing::outgoing;
use crate::service::refresh::scheduler::Schedules;
use crate::service::refresh::tasks::RefreshTasks;
use crate::service::refresh::version_file::VersionFiles;
use crate::service::usage::Usage;
use crate::service::webhook::Webhooks;
use crate::service::webhook::deliveries::Deliveries;
use crate::storage::cache::PartCache;
use crate::storage::disk_cache::DiskCache;
use crate::storage::free_space::DiskReserve;
use crate::storage::store::{self, S3Options, Store};
use crate::storage::{StorageError, durable};

/// The service: its rooms, each with what it needs of the parts and of the rooms below. Clones share everything.
#[derive(Clone)]
pub struct App {
    rooms: Arc<Rooms>,
}

struct Rooms {
    config: Arc<Config>,
    memory: MemoryPlan,
    catalog: Catalog,
    cache: PartCache,
    capacity: Capacity,
    catalog_gates: Arc<CatalogGates>,
    rate_limiter: Arc<dyn RateLimiter>,
    lookups: Arc<Lookups>,
    reads: Arc<Reads>,
    exports_ahead: Arc<ExportsAhead>,
    explains: Arc<Explains>,
    ingest: Arc<Ingest>,
    refreshes: Arc<Refreshes>,
    imports: Arc<Imports>,
    schedules: Arc<Schedules>,
    datasets: Arc<Datasets>,
    alternates: Arc<Alternates>,
    agent_edits: Arc<AgentEdits>,
    listings: Arc<Listings>,
    profiles: Arc<Profiles>,
    diffs: Arc<Diffs>,
    webhooks: Arc<Webhooks>,
    deliveries: Arc<Deliveries>,
    accounts: Arc<Accounts>,
    sessions: Arc<Sessions>,
    logins: Arc<Logins>,
    usage: Arc<Usage>,
    maintenance: Arc<Maintenance>,
    readiness: Arc<Readiness>,
    bodies: Arc<LargeBodies>,
    demo: Arc<Demo>,
    nodes: Arc<Nodes>,
    hand_over: Option<Arc<HandOver>>,
    coordinator: Option<Arc<Coordinator>>,
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
    /// A file is in the place of the data directory.
    #[error("the data directory {} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The data directory is a backup that was not finished.
    #[error("{} is an incomplete backup; make another one", .0.display())]
    Incomplete(PathBuf),
    /// There is no catalog where the configuration says, and none is to be made.
    #[error("there is no catalog {}: give the service's data directory with --data", .0.display())]
    NoCatalog(PathBuf),
    /// The catalog does not open.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The catalog is damaged.
    #[error("the catalog is damaged ({reason}); `strata check` says where; restore it from a backup")]
    Damaged {
        /// What was noticed first.
        reason: String,
    },
    /// The server has no name among those of the service.
    #[error(transparent)]
    Node(#[from] NoNodeId),
    /// The store does not open.
    #[error("the store")]
    Store(#[from] StorageError),
    /// `limits.redis_url` is no URL of a Redis. That Redis does not answer is no error.
    #[error("limits.redis_url")]
    Redis(#[source] redis::RedisError),
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

/// How long closing waits for calls that still run.
const CLOSING: Duration = Duration::from_secs(5);

impl App {
    /// Opens the catalog (and brings its tables up to date), the store and the query engine. Listens nowhere.
    ///
    /// # Errors
    /// [`OpenError`] names the part that does not open.
    pub async fn open(config: &Config) -> Result<App, OpenError> {
        App::open_for(config, None, Purpose::Work).await
    }

    /// As [`App::open`], for work on what is there: makes no catalog where there is none.
    ///
    /// # Errors
    /// [`OpenError`] names the part that does not open; [`OpenError::NoCatalog`].
    pub async fn open_existing(config: &Config) -> Result<App, OpenError> {
        require_catalog(config)?;
        App::open_for(config, None, Purpose::Maintenance).await
    }

    /// As [`App::open_existing`], for work on records of the catalog alone, such as users: the store may be away. No
    /// file is there for what this opens.
    ///
    /// # Errors
    /// [`OpenError`] names the part that does not open; [`OpenError::NoCatalog`].
    pub async fn open_records(config: &Config) -> Result<App, OpenError> {
        require_catalog(config)?;
        App::open_parts(config, None, || Ok(Store::nowhere()), Purpose::Records).await
    }

    /// As [`App::open`], for who can do nothing without an owner, so that there must be a catalog: makes none.
    ///
    /// # Errors
    /// [`OpenError`] names the part that does not open; [`OpenError::NoCatalog`].
    pub async fn open_to_import(config: &Config) -> Result<App, OpenError> {
        require_catalog(config)?;
        App::open(config).await
    }

    /// As [`App::open`], with another counter of requests than that of the configuration.
    ///
    /// # Errors
    /// [`OpenError`] names the part that does not open.
    pub async fn open_with(config: &Config, rate_limiter: Arc<dyn RateLimiter>) -> Result<App, OpenError> {
        App::open_for(config, Some(rate_limiter), Purpose::Work).await
    }

    async fn open_for(
        config: &Config,
        rate_limiter: Option<Arc<dyn RateLimiter>>,
        purpose: Purpose,
    ) -> Result<App, OpenError> {
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
                Purpose::Maintenance | Purpose::Records => Ok(Scratch::create_or_later(&path)),
            }
        };
        let (exports, scratch) = (scratch(EXPORTS_FOLDER)?, scratch(TEMPORARY_FOLDER)?);
        let options = CatalogOptions::from(&config.catalog);
        let catalog = Catalog::open_with(&config.catalog_url(), &options).await?;
        // What this process holds has its name; what is opened for maintenance holds nothing.
        let node = if purpose == Purpose::Work { node_id(config)?.map(|id| id.to_string()) } else { None };
        let catalog = match purpose {
            Purpose::Work => catalog.held_by(LeaseHolder { node: node.clone(), process: scratch.process() }),
            Purpose::Maintenance | Purpose::Records => catalog,
        };
        let store = store()?;
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
        let memory = MemoryPlan::of(config, crate::memory::available_bytes());
        let disk = DiskReserve::new(scratch.path(), config.sources.disk_reserve_bytes);
        let engine = Engine::try_new(&EngineOptions {
            threads: match config.query.threads {
                0 => crate::priority::processors(),
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
        tokio::spawn(kept_up("damage", CancellationToken::new(), log_reports).in_current_span());
        let is_kept = purpose == Purpose::Work && config.cache.disk_bytes > 0 && !store.is_local();
        let kept =
            is_kept.then(|| DiskCache::open(directory.join(RANGES_FOLDER), config.cache.disk_bytes, disk.clone()));
        let cache = PartCache::new(memory.cache_bytes).reporting(damage).with_disk(kept);
        let threads = engine.threads();
        let admission = Admission::new(&config.query, &config.fair, threads, memory.query_bytes);
        let capacity = Capacity::new(engine, admission, TenantNumbers::of(NodeSecret::of(config).as_ref()));
        let parts = Parts {
            config: Arc::new(config.clone()),
            catalog,
            store,
            cache,
            memory,
            capacity,
            scratch: Arc::new(scratch),
            exports: Exports::new(exports, disk.clone(), config.cache.export_bytes, &config.fair),
            disk,
            outgoing: outgoing(config),
            redis,
            node,
        };
        Ok(App { rooms: Arc::new(Rooms::new(parts, rate_limiter)) })
    }

    /// Closes the catalog when the work is done, and waits a moment for what still uses it. An SQLite file is whole
    /// then, without a log beside it: it may be copied alone, and another one may be put in its place.
    ///
    /// What was counted and not yet recorded is recorded first.
    pub async fn close(&self) {
        match tokio::time::timeout(CLOSING, self.rooms.usage.flush()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "how much datasets were read of late is not recorded");
            }
            Err(_) => tracing::warn!("how much datasets were read of late is not recorded: the catalog is slow"),
        }
        if let Some(disk) = self.rooms.cache.disk() {
            // What is not written in time is fetched again.
            let _ = tokio::time::timeout(CLOSING, disk.close()).await;
        }
        // What does not end in time ends with the process, and the log stays beside the file.
        let _ = tokio::time::timeout(CLOSING, self.rooms.catalog.clone().close()).await;
    }

    /// The configuration that it was opened with.
    pub fn config(&self) -> &Config {
        &self.rooms.config
    }

    /// Who counts requests.
    pub fn rate_limiter(&self) -> &dyn RateLimiter {
        &*self.rooms.rate_limiter
    }

    /// Reads the whole catalog once, where it is an SQLite file, and looks for damage that could make it answer wrong.
    ///
    /// # Errors
    /// [`OpenError::Damaged`], [`OpenError::Catalog`].
    pub async fn verify_catalog(&self) -> Result<(), OpenError> {
        match self.rooms.catalog.first_damage().await? {
            None => Ok(()),
            Some(reason) => Err(OpenError::Damaged { reason }),
        }
    }

    /// How loaded the service is.
    pub fn load(&self) -> Load {
        self.rooms.capacity.admission().load()
    }

    /// Brings the metrics that show a state, not a count, up to date.
    pub fn update_metrics(&self) {
        let (metrics, load) = (metrics(), self.load());
        metrics.redis_up.set(f64::from(u8::from(self.rooms.rate_limiter.is_shared())));
        metrics.heavy_running.set(load.heavy_running as f64);
        metrics.heavy_waiting.set(load.heavy_waiting as f64);
        metrics.streams.set(load.streams as f64);
        metrics.buffered_bytes.set(load.buffered_bytes as f64);
        metrics.query_memory_bytes.set(self.rooms.capacity.engine().memory_bytes() as f64);
        metrics.memory_bytes.set(self.rooms.memory.available_bytes as f64);
        metrics.query_memory_limit_bytes.set(self.rooms.memory.query_bytes as f64);
        metrics.cache_limit_bytes.set(self.rooms.memory.cache_bytes as f64);
        metrics.disk_cache_bytes.set(self.rooms.cache.disk().map_or(0, DiskCache::bytes) as f64);
        metrics.cache_bytes.set(self.rooms.cache.memory_bytes() as f64);
        self.rooms.ingest.update_metrics();
        self.rooms.catalog_gates.update_metrics();
        self.rooms.capacity.admission().update_metrics();
        self.rooms.bodies.update_metrics();
    }

    /// Starts what a server does besides answering; needs a runtime. If `server.background` is false, it only records
    /// how much datasets are read.
    pub fn start_background(&self) -> Background {
        Background::start(Loops {
            refreshes: self.rooms.refreshes.clone(),
            schedules: self.rooms.schedules.clone(),
            deliveries: self.rooms.deliveries.clone(),
            maintenance: self.rooms.maintenance.clone(),
            exports_ahead: self.rooms.exports_ahead.clone(),
            lookups: self.rooms.lookups.clone(),
            usage: self.rooms.usage.clone(),
            receiver: Duration::from_secs(self.rooms.config.webhook.timeout_s),
            nodes: self.rooms.nodes.clone(),
            run: self.rooms.config.server.background,
            roles: self.rooms.config.server.roles.roles(),
        })
    }

    /// The targets of reads.
    pub fn lookups(&self) -> &Arc<Lookups> {
        &self.rooms.lookups
    }

    /// Reads.
    pub fn reads(&self) -> &Arc<Reads> {
        &self.rooms.reads
    }

    /// Exports that are made before they are asked for.
    pub fn exports_ahead(&self) -> &Arc<ExportsAhead> {
        &self.rooms.exports_ahead
    }

    /// What reads do.
    pub fn explains(&self) -> &Arc<Explains> {
        &self.rooms.explains
    }

    /// The way in of entities.
    pub fn ingest(&self) -> &Arc<Ingest> {
        &self.rooms.ingest
    }

    /// The making of versions.
    pub fn refreshes(&self) -> &Arc<Refreshes> {
        &self.rooms.refreshes
    }

    /// Imports.
    pub fn imports(&self) -> &Arc<Imports> {
        &self.rooms.imports
    }

    /// Refreshes by schedule.
    pub fn schedules(&self) -> &Arc<Schedules> {
        &self.rooms.schedules
    }

    /// The datasets of owners.
    pub fn datasets(&self) -> &Arc<Datasets> {
        &self.rooms.datasets
    }

    /// The alternates of versions.
    pub fn alternates(&self) -> &Arc<Alternates> {
        &self.rooms.alternates
    }

    /// Entities for agents that edit them.
    pub fn agent_edits(&self) -> &Arc<AgentEdits> {
        &self.rooms.agent_edits
    }

    /// The datasets that everybody may find.
    pub fn listings(&self) -> &Arc<Listings> {
        &self.rooms.listings
    }

    /// The profiles of versions.
    pub fn profiles(&self) -> &Arc<Profiles> {
        &self.rooms.profiles
    }

    /// What versions differ in.
    pub fn diffs(&self) -> &Arc<Diffs> {
        &self.rooms.diffs
    }

    /// The webhooks of datasets.
    pub fn webhooks(&self) -> &Arc<Webhooks> {
        &self.rooms.webhooks
    }

    /// The sending of webhooks.
    pub fn deliveries(&self) -> &Arc<Deliveries> {
        &self.rooms.deliveries
    }

    /// Users and their tokens.
    pub fn accounts(&self) -> &Arc<Accounts> {
        &self.rooms.accounts
    }

    /// Who a request is from.
    pub fn sessions(&self) -> &Arc<Sessions> {
        &self.rooms.sessions
    }

    /// Log-ins.
    pub fn logins(&self) -> &Arc<Logins> {
        &self.rooms.logins
    }

    /// How much datasets are read.
    pub fn usage(&self) -> &Arc<Usage> {
        &self.rooms.usage
    }

    /// Sweeps, scrubs, checks and backups.
    pub fn maintenance(&self) -> &Arc<Maintenance> {
        &self.rooms.maintenance
    }

    /// Whether the service can do its work.
    pub fn readiness(&self) -> &Arc<Readiness> {
        &self.rooms.readiness
    }

    /// Room for large bodies.
    pub fn bodies(&self) -> &Arc<LargeBodies> {
        &self.rooms.bodies
    }

    /// The servers of the service.
    pub fn nodes(&self) -> &Arc<Nodes> {
        &self.rooms.nodes
    }

    /// The handing over of reads among them, if there is any.
    pub fn hand_over(&self) -> Option<&HandOver> {
        self.rooms.hand_over.as_deref()
    }

    /// Takes tasks of other nodes' queries until `stop`, if this process has a name and `cluster.secret` is given.
    pub async fn serve_tasks(&self, listener: TcpListener, stop: CancellationToken) {
        let Some(coordinator) = &self.rooms.coordinator else { return };
        if let Err(error) = coordinator.serve(listener, stop).await {
            tracing::error!(cause = %Causes(&error), "this server takes no more tasks of other nodes");
        }
    }

    /// The demo.
    pub fn demo(&self) -> &Arc<Demo> {
        &self.rooms.demo
    }
}

/// Who distributes the large queries of this process, and takes parts of others'.
fn coordinator(
    config: &Config,
    own: Option<String>,
    nodes: &Arc<Nodes>,
    engine: &Engine,
    (store, cache): (Store, PartCache),
) -> Option<Arc<Coordinator>> {
    let secret = NodeSecret::of(config)?;
    let (name, nodes) = (own.filter(|_| config.has_nodes())?, nodes.clone());
    let peers = move || {
        let of_this_version = |node: &&NewNode| node.version == env!("CARGO_PKG_VERSION");
        let helps = |node: &&NewNode| node.roles.split(',').any(|role| role == Role::Query.name());
        let peer =
            |node: &NewNode| node.internal_address.clone().map(|address| Peer { name: node.id.clone(), address });
        nodes.living().iter().filter(of_this_version).filter(helps).filter_map(peer).collect()
    };
    let options = DistributionOptions {
        secret,
        distribute_bytes: config.cluster.distribute_bytes,
        tasks: match config.cluster.tasks {
            0 => engine.threads().max(LEAST_TASKS),
            tasks => usize::try_from(tasks).unwrap_or(usize::MAX),
        },
        own: OwnNode { name, helps: config.server.roles.roles().include(Role::Query) },
        peers: Arc::new(peers),
    };
    Some(Arc::new(Coordinator::new(options, engine, store, cache)))
}

/// Tasks of other nodes' queries at once, however few threads there are.
const LEAST_TASKS: usize = 4;

/// What rooms are made of.
struct Parts {
    config: Arc<Config>,
    catalog: Catalog,
    store: Store,
    cache: PartCache,
    memory: MemoryPlan,
    capacity: Capacity,
    scratch: Arc<Scratch>,
    exports: Exports,
    disk: DiskReserve,
    outgoing: Outgoing,
    /// Where requests are counted together with other processes.
    redis: Option<Arc<Redis>>,
    /// The name of this server.
    node: Option<String>,
}

impl Rooms {
    /// From the bottom to the top: each room is given those below that it uses.
    fn new(parts: Parts, rate_limiter: Arc<dyn RateLimiter>) -> Rooms {
        let Parts { config, catalog, store, cache, memory, capacity, scratch, exports, disk, outgoing, redis, node } =
            parts;
        let files = || (store.clone(), cache.clone());
        let catalog_gates = Arc::new(CatalogGates::new(&config));
        let lookups = Arc::new(Lookups::new(catalog.clone(), catalog_gates.clone()));
        let writes = Arc::new(OwnerWrites::new(catalog_gates.clone(), lookups.clone()));
        let binding = Arc::new(StoreBinding::new(config.clone(), catalog.clone(), store.clone()));
        let maintenance = Maintenance::new(config.clone(), catalog.clone(), store.clone(), binding.clone());
        let (probed, probes) = (store.for_probes(), catalog.clone());
        let probed_binding = Arc::new(StoreBinding::new(config.clone(), probes, probed.clone()));
        let readiness = Readiness::new(config.clone(), catalog.clone(), probed, probed_binding);

        let responses = Responses::new(config.cache.response_bytes);
        let kept = (responses.clone(), exports.clone());
        let exports = (exports, SharedExports::new(&config, catalog.clone(), store.clone()));
        let own = node.clone().map(|node| (node, scratch.process()));
        let nodes = Arc::new(Nodes::new(&config, catalog.clone(), own));
        let hand_over = HandOver::new(&config, nodes.clone()).map(Arc::new);
        let reads = Reads::new(config.clone(), files(), capacity.clone(), responses, exports, hand_over.clone());
        let reads = Arc::new(reads);
        let exports_ahead = {
            let (most, lookups) = (config.cache.exports_ahead, lookups.clone());
            Arc::new(ExportsAhead::new(most, lookups, reads.clone(), capacity.clone()))
        };
        let explains = Explains::new(config.clone(), catalog.clone(), capacity.clone(), kept, reads.clone());

        let deliveries = Arc::new(Deliveries::new(config.clone(), catalog.clone(), outgoing.clone()));
        let webhooks = Webhooks::new(config.clone(), catalog.clone(), outgoing.clone(), writes.clone());

        let tasks = Arc::new(RefreshTasks::new());
        let former = Arc::new(FormerProcesses::new(&config, catalog.clone(), scratch.clone(), node.clone()));
        let coordinator = coordinator(&config, node, &nodes, capacity.engine(), files());
        if let Some(coordinator) = &coordinator {
            capacity.engine().distribute_by(coordinator.clone());
        }
        let spools = (scratch.clone(), disk);
        let ingest = Arc::new(Ingest::new(config.clone(), catalog.clone(), store.clone(), outgoing, spools));
        let version_files = Arc::new(VersionFiles::new(catalog.clone(), store.clone(), cache.clone(), binding));
        let attempts = Arc::new(Attempts::new(
            catalog.clone(),
            former.clone(),
            lookups.clone(),
            deliveries.clone(),
            tasks.clone(),
        ));
        let has_role = config.server.roles.roles().include(Role::Refresh);
        let most_watches = usize::try_from(config.limits.refresh_streams).unwrap_or(usize::MAX);
        let refreshes = {
            let (catalog, ingest, files) = (catalog.clone(), ingest.clone(), version_files.clone());
            Arc::new(Refreshes::new(catalog, ingest, files, attempts, tasks.clone(), (most_watches, has_role)))
        };
        let imports = Arc::new(Imports::new(
            config.clone(),
            catalog.clone(),
            lookups.clone(),
            ingest.clone(),
            version_files.clone(),
            refreshes.clone(),
            tasks.clone(),
        ));
        let schedules =
            Schedules::new(config.clone(), catalog.clone(), former, ingest.clone(), refreshes.clone(), tasks.clone());

        let parts = (catalog.clone(), catalog_gates.clone());
        let datasets = Datasets::new(config.clone(), parts, writes.clone(), ingest.clone(), version_files.clone());
        let alternates = {
            let (ingest, engine) = (ingest.clone(), capacity.engine().clone());
            Alternates::new(catalog.clone(), writes.clone(), ingest, version_files, tasks, engine)
        };
        let listings = Listings::new(catalog.clone(), catalog_gates.clone());
        let profiles = Profiles::new(lookups.clone(), files(), capacity.clone());
        let diffs = Diffs::new(catalog.clone(), files(), capacity.clone(), config.cache.diff_bytes);
        let agent_edits = AgentEdits::new(catalog.clone(), reads.clone());

        let accounts = Arc::new(Accounts::new(catalog.clone(), writes.clone()));
        let sessions = Arc::new(Sessions::new(config.clone(), catalog.clone(), catalog_gates.clone()));
        let threads = capacity.engine().threads();
        let logins = Logins::new(&config, catalog.clone(), sessions.clone(), writes, redis.as_ref(), threads);
        let writer = hex::encode(rand::random::<[u8; 16]>());
        let usage = Usage::new(catalog.clone(), Clock::system(), writer);
        let demo = Demo::new(catalog.clone(), accounts.clone(), imports.clone());
        let bodies = LargeBodies::new(&config);
        Rooms {
            config,
            catalog,
            cache,
            memory,
            capacity,
            catalog_gates,
            rate_limiter,
            lookups,
            reads,
            exports_ahead,
            explains: Arc::new(explains),
            ingest,
            refreshes,
            imports,
            schedules: Arc::new(schedules),
            datasets: Arc::new(datasets),
            alternates: Arc::new(alternates),
            agent_edits: Arc::new(agent_edits),
            listings: Arc::new(listings),
            profiles: Arc::new(profiles),
            diffs: Arc::new(diffs),
            webhooks: Arc::new(webhooks),
            deliveries,
            accounts,
            sessions,
            logins: Arc::new(logins),
            usage: Arc::new(usage),
            maintenance: Arc::new(maintenance),
            readiness: Arc::new(readiness),
            bodies: Arc::new(bodies),
            demo: Arc::new(demo),
            nodes,
            hand_over,
            coordinator,
        }
    }
}

/// Refuses a store that is not the catalog's. One that does not answer may be: nothing is recorded or removed until it
/// has said so.
async fn bind_now(config: &Config, catalog: &Catalog, store: &Store) -> Result<(), OpenError> {
    let bound = tokio::time::timeout(STORE_ANSWERS_WITHIN, bind(config, catalog, store)).await;
    match bound.map(|bound| bound.map_err(|error| error.named(config))) {
        Ok(Ok(())) => {}
        Ok(Err(BindingError::Store(error))) => {
            tracing::warn!(
                cause = %Causes(&error),
                "the store does not say whether it is the catalog's; it is asked again before it is used"
            );
        }
        Ok(Err(BindingError::Catalog(error))) => return Err(error.into()),
        Ok(Err(error)) => return Err(OpenError::Binding(error)),
        Err(_) => tracing::warn!("the store does not answer yet"),
    }
    Ok(())
}
