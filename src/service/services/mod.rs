//! The composition root: builds the services of a process from its configuration.
//!
//! ```text
//! configuration -> directories, store, catalog, engine, caches (`opening`) -> services -> background tasks
//! ```
//!
//! A service gets what it uses from [`Services::build`], and knows nothing of the others. Tests substitute single
//! [`Dependencies`]; the configuration says the rest.

mod background;
mod opening;

pub use background::Background;
pub use opening::{Dependencies, OpenError, Purpose};

use std::sync::{Arc, Mutex};
use std::time::Duration;

use strata_catalog::{Clock, LeaseHolder, NewNode};
use strata_cluster::distributed::{Coordinator, DistributionOptions, OwnNode, Peer};
use strata_cluster::identity::node_id;
use strata_cluster::nodes::Nodes;
use strata_cluster::tls::NodeTls;
use strata_cluster::token::NodeSecret;
use strata_config::{Config, MemoryPlan};
use strata_format::cache::PartCache;
use strata_runtime::metrics::metrics;
use strata_store::disk_cache::DiskCache;
use strata_store::free_space::DiskReserve;
use strata_types::causes::Causes;
use strata_types::node::Role;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::account::logins::PasswordChecks;
use crate::admission::Admission;
use crate::admission::capacity::Capacity;
use crate::admission::catalog::CatalogGates;
use crate::admission::principal_hasher::PrincipalHasher;
use crate::dataset::diffs::DiffCache;
use crate::export_cache::popularity::AskedExports;
use crate::export_cache::{Exports, SharedExports};
use crate::maintenance::binding::StoreBinding;
use crate::maintenance::scratch::{EXPORTS_FOLDER, RANGES_FOLDER, TEMPORARY_FOLDER};
use crate::manage::OwnerWrites;
use crate::rate_limit::memory::RateCapacity;
use crate::rate_limit::{RateLimits, shared};
use crate::read::responses::Responses;
use crate::refresh::attempts::Attempts;
use crate::refresh::former::FormerProcesses;
use crate::refresh::ingest::outgoing;
use crate::refresh::running::Running;
use crate::refresh::tasks::RefreshTasks;
use crate::refresh::version_file::VersionFiles;
use crate::{
    Accounts, Datasets, Deliveries, Demo, Diffs, ExportsAhead, Ingest, LargeBodies, LargeResponses, Load, Logins,
    Lookups, Maintenance, RateLimiter, Readiness, Reads, Refreshes, Sessions, Usage, Webhooks,
};

/// The services of a process.
pub struct Services {
    pub config: Arc<Config>,
    pub rate_limiter: Arc<dyn RateLimiter>,
    pub lookups: Arc<Lookups>,
    pub reads: Arc<Reads>,
    pub exports_ahead: Arc<ExportsAhead>,
    pub diffs: Diffs,
    pub ingest: Arc<Ingest>,
    pub refreshes: Arc<Refreshes>,
    pub datasets: Arc<Datasets>,
    pub webhooks: Webhooks,
    pub deliveries: Arc<Deliveries>,
    pub accounts: Arc<Accounts>,
    pub sessions: Arc<Sessions>,
    pub logins: Logins,
    pub usage: Arc<Usage>,
    pub maintenance: Arc<Maintenance>,
    pub readiness: Readiness,
    pub bodies: LargeBodies,
    pub large_responses: LargeResponses,
    pub nodes: Arc<Nodes>,
    pub demo: Demo,
    coordinator: Option<Arc<Coordinator>>,
    memory: MemoryPlan,
    /// The task that logs the damaged files that the cache reports.
    damage_log: TaskTracker,
}

/// How long [`Services::close`] waits for each kind of work that still runs.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The minimum number of concurrent tasks of other nodes' queries, regardless of the number of threads.
const MIN_TASKS: usize = 4;

impl Services {
    /// Opens the catalog (and updates its tables), the store and the query engine, and builds the services on them.
    /// Starts no background tasks, and listens on no port.
    pub async fn open(config: &Config, purpose: Purpose) -> Result<Arc<Services>, OpenError> {
        Services::build(Dependencies::new(config, purpose)).await
    }

    /// As [`Services::open`], with substituted dependencies.
    pub async fn build(dependencies: Dependencies<'_>) -> Result<Arc<Services>, OpenError> {
        let Dependencies { config, purpose, rate_limiter, store } = dependencies;
        opening::check_directory(config, purpose)?;
        let is_maintenance = purpose.is_maintenance();
        let tls = if is_maintenance { None } else { NodeTls::open(&config.cluster)? };
        opening::create_directory(config)?;
        let exports = opening::create_scratch(config, EXPORTS_FOLDER, purpose)?;
        let scratch = Arc::new(opening::create_scratch(config, TEMPORARY_FOLDER, purpose)?);
        let store = match store {
            Some(store) => store,
            None => opening::open_store(config, purpose)?,
        };
        let catalog = opening::open_catalog(config, &store).await?;
        let node = if is_maintenance { None } else { node_id(config)?.map(|id| id.to_string()) };
        let catalog = match is_maintenance {
            true => catalog,
            false => catalog.held_by(LeaseHolder { node: node.clone(), process: scratch.process() }),
        };
        if purpose != Purpose::Records {
            opening::bind_store(config, &catalog, &store).await?;
        }
        let redis = if is_maintenance { None } else { opening::connect_to_redis(config, &catalog).await? };
        let rate_limiter = rate_limiter.unwrap_or_else(|| {
            shared::limiter(redis.as_ref(), "reads", RateLimits::from(&config.limits), RateCapacity::default())
        });

        let memory = MemoryPlan::of(config, strata_runtime::memory::available_bytes());
        let disk = DiskReserve::new(scratch.path(), config.sources.disk_reserve_bytes);
        let engine = opening::open_engine(config, &memory, &scratch, &disk)?;
        let threads = engine.threads();
        let damage_log = TaskTracker::new();
        let damage = opening::log_damage(&catalog, &damage_log);
        let disk_cache = (!is_maintenance && config.cache.disk_bytes > 0 && !store.is_local())
            .then(|| DiskCache::open(config.data.directory.join(RANGES_FOLDER), config.cache.disk_bytes, disk.clone()));
        let cache = PartCache::new(memory.cache_bytes).reporting(damage).with_disk(disk_cache);
        let admission = Admission::new(&config.query, &config.fair, threads, memory.query_bytes);
        let capacity = Capacity::new(engine, admission, PrincipalHasher::new(NodeSecret::of(config).as_ref()));
        let exports = Exports::new(exports, disk.clone(), config.cache.export_bytes, &config.fair);
        let outgoing = outgoing(config);

        let config = Arc::new(config.clone());
        let gates = Arc::new(CatalogGates::new(&config));
        let lookups = Arc::new(Lookups::new(catalog.clone(), gates.clone()));
        let writes = Arc::new(OwnerWrites { gates: gates.clone(), lookups: lookups.clone() });
        let bind = |store| StoreBinding { config: config.clone(), catalog: catalog.clone(), store };
        let binding = Arc::new(bind(store.clone()));
        let maintenance = Maintenance {
            config: config.clone(),
            catalog: catalog.clone(),
            store: store.clone(),
            binding: binding.clone(),
        };
        let readiness = Readiness::new(bind(store.for_probes()));

        let own_node = node.clone().map(|node| (node, scratch.process()));
        let nodes = Arc::new(Nodes::new(&config, catalog.clone(), own_node));
        let distribution = node.clone().and_then(|node| distribution_options(&config, &nodes, node, tls, threads));
        let coordinator = distribution
            .map(|options| Arc::new(Coordinator::new(options, &capacity.engine, store.clone(), cache.clone())));
        if let Some(coordinator) = &coordinator {
            capacity.engine.distribute_by(coordinator.clone());
        }
        let reads = Arc::new(Reads {
            config: config.clone(),
            catalog: catalog.clone(),
            lookups: lookups.clone(),
            store: store.clone(),
            cache: cache.clone(),
            capacity: capacity.clone(),
            responses: Responses::new(config.cache.response_bytes),
            exports,
            shared: SharedExports::new(&config, store.clone()),
        });
        let exports_ahead = ExportsAhead {
            asked: AskedExports::new(usize::try_from(config.cache.exports_ahead).unwrap_or(usize::MAX)),
            reads: reads.clone(),
        };

        let deliveries = Arc::new(Deliveries::new(config.clone(), catalog.clone(), outgoing.clone()));
        let webhooks = Webhooks {
            config: config.clone(),
            catalog: catalog.clone(),
            outgoing: outgoing.clone(),
            writes: writes.clone(),
        };
        let tasks = Arc::new(RefreshTasks::default());
        let attempts = Arc::new(Attempts {
            catalog: catalog.clone(),
            former: FormerProcesses {
                catalog: catalog.clone(),
                scratch: scratch.clone(),
                node,
                own_catalog: config.catalog.url.is_none(),
            },
            lookups: lookups.clone(),
            deliveries: deliveries.clone(),
            tasks: tasks.clone(),
            unrecorded: Mutex::default(),
        });
        let files = VersionFiles { catalog: catalog.clone(), store: store.clone(), cache, binding };
        let ingest = Arc::new(Ingest::new(config.clone(), catalog.clone(), store, outgoing, scratch, disk));
        let refreshes = Arc::new(Refreshes {
            catalog: catalog.clone(),
            ingest: ingest.clone(),
            files: Arc::new(files),
            attempts,
            tasks,
            running: Arc::new(Running::new(usize::try_from(config.limits.refresh_streams).unwrap_or(usize::MAX))),
            has_role: config.server.roles.include(Role::Refresh),
        });
        let datasets = Datasets {
            catalog: catalog.clone(),
            writes: writes.clone(),
            refreshes: refreshes.clone(),
            engine: capacity.engine.clone(),
        };
        let diffs = Diffs { reads: reads.clone(), diffs: Arc::new(DiffCache::new(config.cache.diff_bytes)) };

        let accounts = Arc::new(Accounts { catalog: catalog.clone(), writes: writes.clone() });
        let sessions = Arc::new(Sessions { config: config.clone(), catalog: catalog.clone(), gates });
        let checks = PasswordChecks::new(&config.limits, &config.fair, redis.as_ref(), threads);
        let logins = Logins { sessions: sessions.clone(), writes, checks };
        Ok(Arc::new(Services {
            rate_limiter,
            lookups,
            reads,
            exports_ahead: Arc::new(exports_ahead),
            diffs,
            ingest,
            datasets: Arc::new(datasets),
            webhooks,
            deliveries,
            sessions,
            logins,
            usage: Arc::new(Usage::new(catalog, Clock::system(), hex::encode(rand::random::<[u8; 16]>()))),
            maintenance: Arc::new(maintenance),
            readiness,
            bodies: LargeBodies::new(&config),
            large_responses: LargeResponses { capacity },
            nodes,
            demo: Demo { accounts: accounts.clone(), refreshes: refreshes.clone() },
            accounts,
            refreshes,
            coordinator,
            memory,
            damage_log,
            config,
        }))
    }

    /// Closes the catalog after the work is done, and waits a moment for calls that still run. A closed SQLite file has
    /// no log, so that you can copy only the file, or replace it.
    ///
    /// Before that, records the usage that is not recorded yet, and logs damage that was noticed.
    pub async fn close(&self) {
        match tokio::time::timeout(CLOSE_TIMEOUT, self.usage.flush()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "failed to write usage statistics");
            }
            Err(_) => tracing::warn!("timed out writing usage statistics"),
        }
        let cache = &self.reads.cache;
        if let Some(disk) = cache.disk() {
            // Ranges that are not written in time are fetched again.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, disk.close()).await;
        }
        // The damage log looks in the catalog for the versions that need a damaged file.
        cache.end_reports();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.damage_log.wait()).await;
        // Calls that do not end in time end with the process, and the log stays next to the file.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.reads.catalog.clone().close()).await;
    }

    /// Reads the entire catalog once, if it is an SQLite file, and fails if damage could make its results wrong.
    pub async fn verify_catalog(&self) -> Result<(), OpenError> {
        match self.reads.catalog.first_damage().await? {
            None => Ok(()),
            Some(reason) => Err(OpenError::Damaged { reason }),
        }
    }

    pub fn load(&self) -> Load {
        self.reads.capacity.admission.load()
    }

    /// Updates the metrics that show a state, not a count.
    pub fn update_metrics(&self) {
        let metrics = metrics();
        let load = self.load();
        metrics.redis_up.set(f64::from(u8::from(self.rate_limiter.is_shared())));
        metrics.heavy_running.set(load.heavy_running as f64);
        metrics.heavy_waiting.set(load.heavy_waiting as f64);
        metrics.streams.set(load.streams as f64);
        metrics.buffered_bytes.set(load.buffered_bytes as f64);
        metrics.query_memory_bytes.set(self.reads.capacity.engine.memory_bytes() as f64);
        metrics.memory_bytes.set(self.memory.available_bytes as f64);
        metrics.query_memory_limit_bytes.set(self.memory.query_bytes as f64);
        metrics.cache_limit_bytes.set(self.memory.cache_bytes as f64);
        metrics.disk_cache_bytes.set(self.reads.cache.disk().map_or(0, DiskCache::bytes) as f64);
        metrics.cache_bytes.set(self.reads.cache.memory_bytes() as f64);
        self.ingest.update_metrics();
        self.sessions.gates.update_metrics();
        self.reads.capacity.admission.update_metrics();
        self.bodies.update_metrics();
    }

    /// Accepts tasks of other nodes' queries until `stop`, if this process has a name and `cluster.secret` is set.
    pub async fn serve_tasks(&self, listener: TcpListener, stop: CancellationToken) {
        let Some(coordinator) = &self.coordinator else { return };
        if let Err(error) = coordinator.serve(listener, stop).await {
            tracing::error!(error = %Causes(&error), "failed to accept query tasks from other nodes");
        }
    }
}

/// How the node of this name distributes queries; `None` if it does not.
fn distribution_options(
    config: &Config,
    nodes: &Arc<Nodes>,
    name: String,
    tls: Option<Arc<NodeTls>>,
    threads: usize,
) -> Option<DistributionOptions> {
    let secret = NodeSecret::of(config).filter(|_| config.has_nodes())?;
    let nodes = nodes.clone();
    let peers = move || {
        let has_this_version = |node: &&NewNode| node.version == env!("CARGO_PKG_VERSION");
        let has_role = |node: &&NewNode| node.roles.split(',').any(|role| role == Role::Query.name());
        let peer =
            |node: &NewNode| node.internal_address.clone().map(|address| Peer { name: node.id.clone(), address });
        nodes.living().iter().filter(has_this_version).filter(has_role).filter_map(peer).collect()
    };
    Some(DistributionOptions {
        secret,
        tls,
        distribute_bytes: config.cluster.distribute_bytes,
        tasks: match config.cluster.tasks {
            0 => threads.max(MIN_TASKS),
            tasks => usize::try_from(tasks).unwrap_or(usize::MAX),
        },
        own: OwnNode { name, helps: config.server.roles.include(Role::Query) },
        peers: Arc::new(peers),
    })
}
