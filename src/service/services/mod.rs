//! The composition root: builds the services of a process from its configuration.
//!
//! ```text
//! configuration -> directories, store, catalog, engine, caches ([`dependencies`]) -> services -> background tasks
//! ```
//!
//! [`Services::build`] passes each service its dependencies; services do not access [`Services`]. Tests substitute
//! single [`ServiceDependencies`].

mod background;
mod dependencies;

pub use background::BackgroundTasks;
pub use dependencies::{OpenError, ProcessPurpose, ServiceDependencies};

use parking_lot::Mutex;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use strata_catalog::{CatalogClock, LeaseHolder, NodeRegistration};
use strata_cluster::distributed::{DistributionOptions, LocalNode, PeerNode, QueryCoordinator};
use strata_cluster::identity::load_node_id;
use strata_cluster::nodes::NodeRegistry;
use strata_cluster::tls::NodeTls;
use strata_cluster::token::NodeSecret;
use strata_config::{Config, MemoryPlan};
use strata_format::cache::PartCache;
use strata_runtime::metrics::metrics;
use strata_store::disk_cache::DiskCache;
use strata_store::free_space::DiskReserve;
use strata_types::error_chain::ErrorChain;
use strata_types::node::NodeRole;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::account::logins::PasswordChecker;
use crate::admission::AdmissionControl;
use crate::admission::catalog_limits::CatalogLimits;
use crate::admission::principal_hasher::PrincipalHasher;
use crate::admission::resource_context::ResourceContext;
use crate::dataset::comparison_cache::ComparisonCache;
use crate::export_cache::popularity::ExportPopularity;
use crate::export_cache::{ExportCache, SharedExportStore};
use crate::maintenance::store_identity::StoreIdentityCheck;
use crate::maintenance::temp_dir::{EXPORTS_FOLDER, RANGES_FOLDER, TEMPORARY_FOLDER};
use crate::management::OwnerWriter;
use crate::rate_limit::memory::RateLimiterCapacity;
use crate::rate_limit::{RateLimits, shared};
use crate::read::response_cache::ResponseCache;
use crate::refresh::attempts::RefreshAttempts;
use crate::refresh::compaction::Compactor;
use crate::refresh::ingest::outgoing_client;
use crate::refresh::lease_recovery::LeaseRecovery;
use crate::refresh::progress::RunningRefreshes;
use crate::refresh::tasks::RefreshTasks;
use crate::refresh::version_file::VersionFiles;
use crate::refresh::version_spooler::VersionSpooler;
use crate::{
    AccountService, AdmissionLoad, BodyLimit, DatasetService, DemoService, DiffService, ExportPrewarmer, IngestService,
    LargeResponseLimit, LoginService, LookupService, MaintenanceService, RateLimiter, ReadService, ReadinessCheck,
    RefreshService, SessionService, UsageRecorder, WebhookDispatcher, WebhookService,
};

pub struct Services {
    pub config: Arc<Config>,
    pub rate_limiter: Arc<dyn RateLimiter>,
    pub lookups: Arc<LookupService>,
    pub reads: Arc<ReadService>,
    pub export_prewarmer: Arc<ExportPrewarmer>,
    pub diffs: DiffService,
    pub ingest: Arc<IngestService>,
    pub refreshes: Arc<RefreshService>,
    pub datasets: Arc<DatasetService>,
    pub webhooks: WebhookService,
    pub deliveries: Arc<WebhookDispatcher>,
    pub accounts: Arc<AccountService>,
    pub sessions: Arc<SessionService>,
    pub logins: LoginService,
    pub usage: Arc<UsageRecorder>,
    pub maintenance: Arc<MaintenanceService>,
    pub readiness: ReadinessCheck,
    pub body_limit: BodyLimit,
    pub large_responses: LargeResponseLimit,
    pub nodes: Arc<NodeRegistry>,
    pub demo: DemoService,
    coordinator: Option<Arc<QueryCoordinator>>,
    memory_plan: MemoryPlan,
    damage_log: TaskTracker,
}

const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
const MIN_NODE_TASKS: usize = 4;

impl Services {
    /// Opens catalog, store and query engine, and builds the services. Starts no background tasks.
    pub async fn open(config: &Config, purpose: ProcessPurpose) -> Result<Arc<Services>, OpenError> {
        Services::build(ServiceDependencies::new(config, purpose)).await
    }

    pub async fn build(dependencies: ServiceDependencies<'_>) -> Result<Arc<Services>, OpenError> {
        let ServiceDependencies { config, purpose, rate_limiter, store } = dependencies;
        dependencies::check_data_directory(config, purpose)?;
        let is_maintenance = purpose.is_maintenance();
        let tls = if is_maintenance { None } else { NodeTls::open(&config.cluster)? };
        dependencies::create_data_directory(config)?;
        let exports = dependencies::create_temp_dir(config, EXPORTS_FOLDER, purpose)?;
        let scratch = Arc::new(dependencies::create_temp_dir(config, TEMPORARY_FOLDER, purpose)?);
        let store = match store {
            Some(store) => store,
            None => dependencies::open_store(config, purpose)?,
        };
        let catalog = dependencies::open_catalog(config, &store).await?;
        let node = if is_maintenance { None } else { load_node_id(config)?.map(|id| id.to_string()) };
        let catalog = match is_maintenance {
            true => catalog,
            false => {
                catalog.with_lease_holder(LeaseHolder { node_id: node.clone(), process_id: scratch.process_name() })
            }
        };
        if purpose != ProcessPurpose::MaintainRecords {
            dependencies::bind_store(config, &catalog, &store).await?;
        }
        let redis = if is_maintenance { None } else { dependencies::connect_to_redis(config, &catalog).await? };
        let rate_limiter = rate_limiter.unwrap_or_else(|| {
            let limits = RateLimits::from(&config.limits);
            shared::new_limiter(redis.as_ref(), "reads", limits, RateLimiterCapacity::default())
        });

        let memory = MemoryPlan::from_config(config, strata_runtime::memory::available_memory_bytes());
        let disk = DiskReserve::new(scratch.path(), config.sources.disk_reserve_bytes);
        let engine = dependencies::open_engine(config, &memory, &scratch, &disk)?;
        let threads = engine.threads();
        let damage_log = TaskTracker::new();
        let damage = dependencies::spawn_damage_log(&catalog, &damage_log);
        let disk_cache = (!is_maintenance && config.cache.disk_bytes > 0 && !store.is_local())
            .then(|| DiskCache::open(config.data.directory.join(RANGES_FOLDER), config.cache.disk_bytes, disk.clone()));
        let cache = PartCache::new(memory.cache_bytes).with_damage_reports(damage).with_disk_cache(disk_cache);
        let admission = AdmissionControl::new(&config.query, &config.fair, threads, memory.query_bytes);
        let resources =
            ResourceContext::new(engine, admission, PrincipalHasher::new(NodeSecret::from_config(config).as_ref()));
        let exports = ExportCache::new(exports, disk.clone(), config.cache.export_bytes, &config.fair);
        let outgoing = outgoing_client(config);

        let config = Arc::new(config.clone());
        let catalog_limits = Arc::new(CatalogLimits::new(&config));
        let lookups = Arc::new(LookupService::new(catalog.clone(), catalog_limits.clone()));
        let owner_writer = Arc::new(OwnerWriter { catalog_limits: catalog_limits.clone(), lookups: lookups.clone() });
        let identity_check = |store| StoreIdentityCheck { config: config.clone(), catalog: catalog.clone(), store };
        let store_identity = Arc::new(identity_check(store.clone()));
        let maintenance = MaintenanceService {
            config: config.clone(),
            catalog: catalog.clone(),
            store: store.clone(),
            store_identity: store_identity.clone(),
        };
        let readiness = ReadinessCheck::new(identity_check(store.for_probes()));

        let local_node = node.clone().map(|node| (node, scratch.process_name()));
        let nodes = Arc::new(NodeRegistry::new(&config, catalog.clone(), local_node));
        let distribution = node.clone().and_then(|node| distribution_options(&config, &nodes, node, tls, threads));
        let coordinator = distribution
            .map(|options| Arc::new(QueryCoordinator::new(options, &resources.engine, store.clone(), cache.clone())));
        if let Some(coordinator) = &coordinator {
            resources.engine.set_distributor(coordinator.clone());
        }
        let reads = Arc::new(ReadService {
            config: config.clone(),
            catalog: catalog.clone(),
            lookups: lookups.clone(),
            store: store.clone(),
            cache: cache.clone(),
            resources: resources.clone(),
            response_cache: ResponseCache::new(config.cache.response_bytes),
            export_cache: exports,
            shared_exports: SharedExportStore::new(&config, store.clone()),
        });
        let export_prewarmer = ExportPrewarmer {
            popularity: ExportPopularity::new(usize::try_from(config.cache.exports_ahead).unwrap_or(usize::MAX)),
            reads: reads.clone(),
        };

        let deliveries = Arc::new(WebhookDispatcher::new(config.clone(), catalog.clone(), outgoing.clone()));
        let webhooks = WebhookService {
            config: config.clone(),
            catalog: catalog.clone(),
            outgoing: outgoing.clone(),
            owner_writer: owner_writer.clone(),
        };
        let tasks = Arc::new(RefreshTasks::default());
        let attempts = Arc::new(RefreshAttempts {
            catalog: catalog.clone(),
            lease_recovery: LeaseRecovery {
                catalog: catalog.clone(),
                temp_dir: scratch.clone(),
                node_name: node,
                has_local_catalog: config.catalog.url.is_none(),
            },
            lookups: lookups.clone(),
            deliveries: deliveries.clone(),
            tasks: tasks.clone(),
            unrecorded_outcomes: Mutex::default(),
        });
        let files = VersionFiles { catalog: catalog.clone(), store: store.clone(), cache, store_identity };
        let files = Arc::new(files);
        let ingest = Arc::new(IngestService::new(config.clone(), catalog.clone(), store, outgoing, scratch, disk));
        let spooler = Arc::new(VersionSpooler { ingest: ingest.clone(), engine: resources.engine.clone() });
        let compactor = Compactor::new(catalog.clone(), files.clone(), spooler.clone(), lookups.clone(), tasks.clone());
        let max_watches = usize::try_from(config.limits.refresh_streams).unwrap_or(usize::MAX);
        let refreshes = Arc::new(RefreshService {
            catalog: catalog.clone(),
            ingest: ingest.clone(),
            files,
            attempts,
            tasks,
            spooler,
            compactor: Arc::new(compactor),
            running_refreshes: Arc::new(RunningRefreshes::new(max_watches)),
            has_refresh_role: config.server.roles.contains(NodeRole::Refresh),
        });
        let datasets = DatasetService {
            catalog: catalog.clone(),
            owner_writer: owner_writer.clone(),
            refreshes: refreshes.clone(),
            engine: resources.engine.clone(),
        };
        let diffs =
            DiffService { reads: reads.clone(), cache: Arc::new(ComparisonCache::new(config.cache.diff_bytes)) };

        let accounts = Arc::new(AccountService { catalog: catalog.clone(), owner_writer: owner_writer.clone() });
        let sessions = Arc::new(SessionService { config: config.clone(), catalog: catalog.clone(), catalog_limits });
        let password_checker = PasswordChecker::new(&config.limits, &config.fair, redis.as_ref(), threads);
        let logins = LoginService { sessions: sessions.clone(), owner_writer, password_checker };
        let usage_writer = hex::encode(rand::random::<[u8; 16]>());
        Ok(Arc::new(Services {
            rate_limiter,
            lookups,
            reads,
            export_prewarmer: Arc::new(export_prewarmer),
            diffs,
            ingest,
            datasets: Arc::new(datasets),
            webhooks,
            deliveries,
            sessions,
            logins,
            usage: Arc::new(UsageRecorder::new(catalog, CatalogClock::system(), usage_writer)),
            maintenance: Arc::new(maintenance),
            readiness,
            body_limit: BodyLimit::new(&config),
            large_responses: LargeResponseLimit { resources },
            nodes,
            demo: DemoService { accounts: accounts.clone(), refreshes: refreshes.clone() },
            accounts,
            refreshes,
            coordinator,
            memory_plan: memory,
            damage_log,
            config,
        }))
    }

    /// Writes usage statistics and damage reports, and closes the catalog. Each step has [`CLOSE_TIMEOUT`].
    pub async fn close(&self) {
        match tokio::time::timeout(CLOSE_TIMEOUT, self.usage.flush()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(error = &error as &dyn Error, "failed to write usage statistics"),
            Err(_) => tracing::warn!("timed out writing usage statistics"),
        }
        let cache = &self.reads.cache;
        if let Some(disk) = cache.disk_cache() {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, disk.close()).await;
        }
        // The catalog is closed last, because the damage log writes to it.
        cache.close_damage_reports();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.damage_log.wait()).await;
        // Catalog calls that do not end in time are ended with the process, and the write-ahead log of SQLite remains.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.reads.catalog.clone().close()).await;
    }

    pub async fn verify_catalog(&self) -> Result<(), OpenError> {
        match self.reads.catalog.find_first_damage().await? {
            None => Ok(()),
            Some(reason) => Err(OpenError::Damaged { reason }),
        }
    }

    pub fn current_load(&self) -> AdmissionLoad {
        self.reads.resources.admission.current_load()
    }

    pub fn update_metrics(&self) {
        let metrics = metrics();
        let load = self.current_load();
        metrics.redis_up.set(f64::from(u8::from(self.rate_limiter.is_shared())));
        metrics.heavy_queries_running.set(load.heavy_running as f64);
        metrics.heavy_queries_waiting.set(load.heavy_waiting as f64);
        metrics.response_streams.set(load.streams_running as f64);
        metrics.buffered_response_bytes.set(load.buffered_bytes as f64);
        metrics.query_memory_bytes.set(self.reads.resources.engine.reserved_memory_bytes() as f64);
        metrics.available_memory_bytes.set(self.memory_plan.available_bytes as f64);
        metrics.query_memory_limit_bytes.set(self.memory_plan.query_bytes as f64);
        metrics.cache_limit_bytes.set(self.memory_plan.cache_bytes as f64);
        metrics.disk_cache_bytes.set(self.reads.cache.disk_cache().map_or(0, DiskCache::used_bytes) as f64);
        metrics.cache_bytes.set(self.reads.cache.memory_bytes() as f64);
        self.ingest.update_metrics();
        self.sessions.catalog_limits.update_metrics();
        self.reads.resources.admission.update_metrics();
        self.body_limit.limit.update_metrics();
    }

    pub async fn serve_remote_tasks(&self, listener: TcpListener, stop: CancellationToken) {
        let Some(coordinator) = &self.coordinator else { return };
        if let Err(error) = coordinator.serve(listener, stop).await {
            tracing::error!(error = %ErrorChain(&error), "failed to accept query tasks from other nodes");
        }
    }
}

fn distribution_options(
    config: &Config,
    nodes: &Arc<NodeRegistry>,
    name: String,
    tls: Option<Arc<NodeTls>>,
    threads: usize,
) -> Option<DistributionOptions> {
    let secret = NodeSecret::from_config(config).filter(|_| config.has_node_registration())?;
    let nodes = nodes.clone();
    let peers = move || {
        let has_this_version = |node: &&NodeRegistration| node.version == env!("CARGO_PKG_VERSION");
        let has_query_role =
            |node: &&NodeRegistration| node.roles.split(',').any(|role| role == NodeRole::Query.name());
        let peer = |node: &NodeRegistration| {
            node.internal_address.clone().map(|address| PeerNode { name: node.id.clone(), address })
        };
        nodes.online_nodes().iter().filter(has_this_version).filter(has_query_role).filter_map(peer).collect()
    };
    Some(DistributionOptions {
        secret,
        tls,
        distribute_bytes: config.cluster.distribute_bytes,
        max_tasks: match config.cluster.tasks {
            0 => threads.max(MIN_NODE_TASKS),
            tasks => usize::try_from(tasks).unwrap_or(usize::MAX),
        },
        local_node: LocalNode { name, runs_tasks: config.server.roles.contains(NodeRole::Query) },
        peers: Arc::new(peers),
    })
}
