//! The rooms of the service, made of its parts from the bottom to the top.

use std::sync::{Arc, Mutex};

use strata_catalog::{Catalog, Clock, NewNode};
use strata_cluster::distributed::{Coordinator, DistributionOptions, OwnNode, Peer};
use strata_cluster::nodes::Nodes;
use strata_cluster::redis::Redis;
use strata_cluster::tls::NodeTls;
use strata_cluster::token::NodeSecret;
use strata_config::{Config, MemoryPlan};
use strata_format::cache::PartCache;
use strata_ingest::net::Outgoing;
use strata_store::free_space::DiskReserve;
use strata_store::store::Store;
use strata_types::node::Role;
use tokio_util::task::TaskTracker;

use crate::account::logins::PasswordChecks;
use crate::admission::capacity::Capacity;
use crate::admission::catalog::CatalogGates;
use crate::dataset::diffs::DiffCache;
use crate::export_cache::popularity::AskedExports;
use crate::export_cache::{Exports, SharedExports};
use crate::maintenance::binding::StoreBinding;
use crate::maintenance::scratch::Scratch;
use crate::manage::OwnerWrites;
use crate::read::responses::Responses;
use crate::refresh::attempts::Attempts;
use crate::refresh::clock_watch::ClockWatch;
use crate::refresh::former::FormerProcesses;
use crate::refresh::running::Running;
use crate::refresh::tasks::RefreshTasks;
use crate::refresh::version_file::VersionFiles;
use crate::{
    Accounts, Datasets, Deliveries, Diffs, ExportsAhead, Ingest, LargeBodies, LargeResponses, Logins, Lookups,
    Maintenance, RateLimiter, Readiness, Reads, Refreshes, Schedules, Sessions, Usage, Webhooks,
};

pub(super) struct Rooms {
    pub(super) parts: Parts,
    pub(super) catalog_gates: Arc<CatalogGates>,
    pub(super) rate_limiter: Arc<dyn RateLimiter>,
    pub(super) lookups: Arc<Lookups>,
    pub(super) reads: Arc<Reads>,
    pub(super) exports_ahead: Arc<ExportsAhead>,
    pub(super) ingest: Arc<Ingest>,
    pub(super) refreshes: Arc<Refreshes>,
    pub(super) schedules: Arc<Schedules>,
    pub(super) datasets: Arc<Datasets>,
    pub(super) diffs: Arc<Diffs>,
    pub(super) webhooks: Arc<Webhooks>,
    pub(super) deliveries: Arc<Deliveries>,
    pub(super) accounts: Arc<Accounts>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) logins: Arc<Logins>,
    pub(super) usage: Arc<Usage>,
    pub(super) maintenance: Arc<Maintenance>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) bodies: Arc<LargeBodies>,
    pub(super) large_responses: LargeResponses,
    pub(super) nodes: Arc<Nodes>,
    pub(super) coordinator: Option<Arc<Coordinator>>,
}

pub(super) struct Parts {
    pub(super) config: Arc<Config>,
    pub(super) catalog: Catalog,
    pub(super) store: Store,
    pub(super) cache: PartCache,
    /// Who logs the files that the cache reports.
    pub(super) damage_log: TaskTracker,
    pub(super) memory: MemoryPlan,
    pub(super) capacity: Capacity,
    pub(super) scratch: Arc<Scratch>,
    pub(super) exports: Arc<Exports>,
    pub(super) disk: DiskReserve,
    pub(super) outgoing: Outgoing,
    pub(super) redis: Option<Arc<Redis>>,
    pub(super) node: Option<String>,
    pub(super) tls: Option<Arc<NodeTls>>,
}

impl Rooms {
    /// From the bottom to the top: each room is given those below that it uses.
    pub(super) fn new(parts: Parts, rate_limiter: Arc<dyn RateLimiter>) -> Rooms {
        let Parts { config, catalog, store, cache, capacity, scratch, outgoing, redis, node, .. } = &parts;
        let catalog_gates = Arc::new(CatalogGates::new(config));
        let lookups = Arc::new(Lookups::new(catalog.clone(), catalog_gates.clone()));
        let writes = Arc::new(OwnerWrites { gates: catalog_gates.clone(), lookups: lookups.clone() });
        let binding_of = |store| StoreBinding { config: config.clone(), catalog: catalog.clone(), store };
        let binding = Arc::new(binding_of(store.clone()));
        let maintenance = Maintenance {
            config: config.clone(),
            catalog: catalog.clone(),
            store: store.clone(),
            binding: binding.clone(),
        };
        let readiness = Readiness::new(binding_of(store.for_probes()));

        let own = node.clone().map(|node| (node, scratch.process()));
        let nodes = Arc::new(Nodes::new(config, catalog.clone(), own));
        let reads = Arc::new(Reads {
            config: config.clone(),
            catalog: catalog.clone(),
            lookups: lookups.clone(),
            store: store.clone(),
            cache: cache.clone(),
            capacity: capacity.clone(),
            responses: Responses::new(config.cache.response_bytes),
            exports: parts.exports.clone(),
            shared: SharedExports::new(config, catalog.clone(), store.clone()),
        });
        let exports_ahead = Arc::new(ExportsAhead {
            asked: AskedExports::new(usize::try_from(config.cache.exports_ahead).unwrap_or(usize::MAX)),
            reads: reads.clone(),
        });

        let deliveries = Arc::new(Deliveries::new(config.clone(), catalog.clone(), outgoing.clone()));
        let webhooks = Webhooks {
            config: config.clone(),
            catalog: catalog.clone(),
            outgoing: outgoing.clone(),
            writes: writes.clone(),
        };

        let tasks = Arc::new(RefreshTasks::default());
        let former = FormerProcesses {
            catalog: catalog.clone(),
            scratch: scratch.clone(),
            node: node.clone(),
            own_catalog: config.catalog.url.is_none(),
        };
        let coordinator = coordinator(&parts, &nodes);
        if let Some(coordinator) = &coordinator {
            capacity.engine.distribute_by(coordinator.clone());
        }
        let spools = (scratch.clone(), parts.disk.clone());
        let ingest = Arc::new(Ingest::new(config.clone(), catalog.clone(), store.clone(), outgoing.clone(), spools));
        let version_files =
            Arc::new(VersionFiles { catalog: catalog.clone(), store: store.clone(), cache: cache.clone(), binding });
        let attempts = Arc::new(Attempts {
            catalog: catalog.clone(),
            former,
            lookups: lookups.clone(),
            deliveries: deliveries.clone(),
            tasks: tasks.clone(),
            unrecorded: Mutex::default(),
        });
        let most_watches = usize::try_from(config.limits.refresh_streams).unwrap_or(usize::MAX);
        let refreshes = Arc::new(Refreshes {
            catalog: catalog.clone(),
            ingest: ingest.clone(),
            files: version_files,
            attempts,
            tasks,
            running: Arc::new(Running::new(most_watches)),
            has_role: config.server.roles.include(Role::Refresh),
        });
        let schedules = Schedules { refreshes: refreshes.clone(), clock_watch: ClockWatch::default() };

        let engine = capacity.engine.clone();
        let threads = engine.threads();
        let datasets =
            Datasets { catalog: catalog.clone(), writes: writes.clone(), refreshes: refreshes.clone(), engine };
        let diffs = Diffs { reads: reads.clone(), diffs: Arc::new(DiffCache::new(config.cache.diff_bytes)) };

        let accounts = Arc::new(Accounts { catalog: catalog.clone(), writes: writes.clone() });
        let sessions =
            Arc::new(Sessions { config: config.clone(), catalog: catalog.clone(), gates: catalog_gates.clone() });
        let checks = PasswordChecks::new(&config.limits, &config.fair, redis.as_ref(), threads);
        let logins = Logins { sessions: sessions.clone(), writes, checks };
        let writer = hex::encode(rand::random::<[u8; 16]>());
        let usage = Usage::new(catalog.clone(), Clock::system(), writer);
        let bodies = LargeBodies::new(config);
        let large_responses = LargeResponses { capacity: capacity.clone() };
        Rooms {
            parts,
            catalog_gates,
            rate_limiter,
            lookups,
            reads,
            exports_ahead,
            ingest,
            refreshes,
            schedules: Arc::new(schedules),
            datasets: Arc::new(datasets),
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
            large_responses,
            nodes,
            coordinator,
        }
    }
}

fn coordinator(parts: &Parts, nodes: &Arc<Nodes>) -> Option<Arc<Coordinator>> {
    let Parts { config, store, cache, capacity, node, tls, .. } = parts;
    let secret = NodeSecret::of(config)?;
    let (name, nodes) = (node.clone().filter(|_| config.has_nodes())?, nodes.clone());
    let peers = move || {
        let of_this_version = |node: &&NewNode| node.version == env!("CARGO_PKG_VERSION");
        let helps = |node: &&NewNode| node.roles.split(',').any(|role| role == Role::Query.name());
        let peer =
            |node: &NewNode| node.internal_address.clone().map(|address| Peer { name: node.id.clone(), address });
        nodes.living().iter().filter(of_this_version).filter(helps).filter_map(peer).collect()
    };
    let options = DistributionOptions {
        secret,
        tls: tls.clone(),
        distribute_bytes: config.cluster.distribute_bytes,
        tasks: match config.cluster.tasks {
            0 => capacity.engine.threads().max(LEAST_TASKS),
            tasks => usize::try_from(tasks).unwrap_or(usize::MAX),
        },
        own: OwnNode { name, helps: config.server.roles.include(Role::Query) },
        peers: Arc::new(peers),
    };
    Some(Arc::new(Coordinator::new(options, &capacity.engine, store.clone(), cache.clone())))
}

/// Tasks of other nodes' queries at once, however few threads there are.
const LEAST_TASKS: usize = 4;
