//! Which queries are distributed, and to whom.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::DFSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{EmptyRelation, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{
    DistributedExt, RouteTasksEvent, RouteTasksEventResponse, SessionStateBuilderExt, Worker, WorkerResolver,
};
use strata_format::cache::PartCache;
use strata_query::distribute::{DistributedPlan, Distribution, NodeUse};
use strata_query::{Engine, Tenant};
use strata_runtime::metrics::metrics;
use strata_store::store::Store;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::channels::{Channels, NamedChannels};
use super::cut::{self, Cut};
use super::gather::{Stage, TaskProgress, Tasks};
use super::guard::Guard;
use super::part_scan::{Files, PartCodec};
use super::task::{Runner, task_permits};
use super::worker::{self, Sessions};
use crate::tls::NodeTls;
use crate::token::NodeSecret;
use crate::{affinity, nodes};

const LEFT_ALONE: Duration = Duration::from_secs(10);

const COMPRESSION: datafusion_distributed::CompressionType = datafusion_distributed::CompressionType::LZ4_FRAME;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    pub name: String,
    /// Host and port where it serves tasks, after `https://` if it does with TLS.
    pub address: String,
}

#[derive(Clone, Debug)]
pub struct OwnNode {
    pub name: String,
    /// Whether it takes a part of its queries, and tasks of others.
    pub helps: bool,
}

pub struct DistributionOptions {
    pub secret: NodeSecret,
    pub tls: Option<Arc<NodeTls>>,
    /// Queries are distributed that have to read more bytes than this which are not cached; 0: none is.
    pub distribute_bytes: u64,
    pub tasks: usize,
    pub own: OwnNode,
    /// The other nodes that help, as they are at the moment.
    pub peers: Arc<dyn Fn() -> Vec<Peer> + Send + Sync>,
}

pub struct Coordinator {
    options: DistributionOptions,
    guard: Guard,
    sessions: Sessions,
    worker: Worker,
    channels: Channels,
    failed: Mutex<HashMap<String, Instant>>,
}

struct Share {
    name: String,
    url: Url,
    is_own: bool,
    row_groups: Vec<usize>,
    bytes: u64,
}

impl Coordinator {
    /// For queries of this engine, on files of this store. Connections are served by the runtime that it is made in.
    pub fn new(options: DistributionOptions, engine: &Engine, store: Store, cache: PartCache) -> Coordinator {
        let guard = Guard::new(options.secret.clone(), &options.own.name);
        let permits = task_permits(options.tasks);
        let sessions = Sessions { engine: engine.weak(), files: Files { store, cache }, permits };
        Coordinator {
            channels: Channels::new(guard.clone(), options.tls.clone(), Handle::current()),
            worker: sessions.worker(engine),
            sessions,
            guard,
            options,
            failed: Mutex::default(),
        }
    }

    pub async fn serve(&self, listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
        let tls = self.options.tls.clone();
        worker::serve(self.worker.clone(), self.guard.clone(), tls, listener, stop).await
    }

    /// The nodes that can be given a part, by name, and nothing yet.
    fn nodes(&self) -> Vec<Share> {
        let own = &self.options.own;
        let share = |name: String, url, is_own| Share { name, url, is_own, row_groups: Vec::new(), bytes: 0 };
        let mut nodes = Vec::new();
        if own.helps {
            nodes.extend(own_url().map(|url| share(own.name.clone(), url, true)));
        }
        let now = Instant::now();
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.retain(|_, since| now.duration_since(*since) < LEFT_ALONE);
        for Peer { name, address } in (self.options.peers)() {
            // One with TLS and one without cannot talk to each other.
            let is_alike = nodes::has_tls(&address) == self.options.tls.is_some();
            if name == own.name || failed.contains_key(&name) || !is_alike {
                continue;
            }
            nodes.extend(Url::parse(&nodes::url_of(&address)).ok().map(|url| share(name, url, false)));
        }
        nodes.sort_by(|one, other| (&one.name, &one.url).cmp(&(&other.name, &other.url)));
        nodes.dedup_by(|one, other| one.name == other.name);
        nodes
    }

    /// What each node is given of a plan that has to read much; nothing where this node runs it alone.
    async fn shares(&self, plan: &Arc<dyn ExecutionPlan>) -> Vec<Share> {
        let most = self.options.distribute_bytes;
        let Some(scan) = cut::divisible_scan(plan).filter(|scan| most > 0 && scan.most_bytes() > most) else {
            return Vec::new();
        };
        let row_groups = scan.row_groups_to_read().await;
        let total = row_groups.iter().fold(0_u64, |total, row_group| total.saturating_add(row_group.bytes));
        if total <= most {
            return Vec::new();
        }
        let mut shares = self.nodes();
        if shares.len() < 2 {
            return Vec::new();
        }
        let keys: Vec<_> = row_groups.iter().map(|row_group| (row_group.name.clone(), row_group.bytes)).collect();
        let names: Vec<&str> = shares.iter().map(|share| &*share.name).collect();
        let owners = affinity::share_out(&keys, &names);
        for (row_group, owner) in row_groups.into_iter().zip(owners) {
            if let Some(share) = shares.get_mut(owner) {
                share.row_groups.push(row_group.number);
                share.bytes = share.bytes.saturating_add(row_group.bytes);
            }
        }
        shares.retain(|share| !share.row_groups.is_empty());
        // One task is no distribution: the library would run it here.
        if shares.len() < 2 { Vec::new() } else { shares }
    }

    async fn planned(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        shares: Vec<Share>,
        context: &TaskContext,
        tenant: Option<Tenant>,
    ) -> Result<DistributedPlan> {
        let Some(scan) = cut::divisible_scan(plan) else {
            return Err(DataFusionError::Internal("a plan without a scan cannot be distributed".to_owned()));
        };
        let urls: Vec<Url> = shares.iter().map(|share| share.url.clone()).collect();
        let names = shares.iter().map(|share| (share.url.clone(), share.name.clone())).collect();
        let scans = shares.iter().map(|share| scan.part(share.row_groups.clone())).collect();
        let progress = |share: Share| {
            TaskProgress::new(NodeUse {
                node: share.name,
                is_own: share.is_own,
                row_groups: share.row_groups.len() as u64,
                stored_bytes: share.bytes,
                rows: 0,
                bytes: 0,
            })
        };
        let tasks = Arc::new(Tasks(shares.into_iter().map(progress).collect()));
        let engine = self.sessions.engine_of(tenant)?;
        let settings = engine.settings(SessionConfig::new());
        let own = Runner { is_of_diff: scan.is_of_diff(), permits: None, engine };
        let placed = Cut { scans, tasks: tasks.clone(), own }.place(plan)?;

        let routed = urls.clone();
        let mut config = settings
            .with_distributed_user_codec(PartCodec { here: None })
            .with_distributed_channel_resolver(NamedChannels { channels: self.channels.clone(), names })
            .with_distributed_worker_resolver(Urls(urls))
            .with_distributed_route_tasks_handler(move |_: RouteTasksEvent<'_>| {
                Some(Ok(RouteTasksEventResponse::new(routed.clone())))
            })
            .with_distributed_compression(Some(COMPRESSION))?
            .with_distributed_passthrough_headers(worker::tenant_headers(tenant))?;
        if let Some(url) = own_url() {
            config.set_distributed_local_worker_context(self.worker.to_local_worker_context(url));
        }
        let session = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(context.runtime_env())
            .with_query_planner(Arc::new(Placed(placed)))
            .with_distributed_planner()
            .build();
        let nothing =
            LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema: Arc::new(DFSchema::empty()) });
        let plan = session.query_planner().create_physical_plan(&nothing, &session).await?;
        Ok(DistributedPlan { plan, context: session.task_ctx(), parts: tasks })
    }
}

/// The address that represents this node itself. No connection is made to it.
fn own_url() -> Option<Url> {
    Url::parse("http://own.invalid").ok()
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Coordinator").field("own", &self.options.own).finish_non_exhaustive()
    }
}

#[async_trait]
impl Distribution for Coordinator {
    async fn distribute(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        context: &TaskContext,
        tenant: Option<Tenant>,
    ) -> Option<DistributedPlan> {
        let shares = self.shares(plan).await;
        if shares.is_empty() || cut::divisible_scan(plan)?.is_kept().await {
            return None;
        }
        match self.planned(plan, shares, context, tenant).await {
            Ok(plan) => Some(plan),
            Err(error) => {
                tracing::error!(%error, "failed to distribute query plan; running the query on this node");
                None
            }
        }
    }

    fn succeeded(&self, _: &DistributedPlan) {
        metrics().distributed_queries.of(["answered".into()]).increment(1);
    }

    fn failed(&self, plan: &DistributedPlan, failure: &str) -> String {
        metrics().distributed_queries.of(["repeated".into()]).increment(1);
        let tasks: &dyn std::any::Any = &*plan.parts;
        let tasks = tasks.downcast_ref::<Tasks>().map(|tasks| tasks.0.as_slice()).unwrap_or_default();
        let others = || tasks.iter().filter(|task| !task.given.is_own);
        let at =
            |stage| others().filter(|task| task.stage() == stage).map(|task| &*task.given.node).collect::<Vec<_>>();
        let ended = |task: &TaskProgress| matches!(task.stage(), Stage::Refused | Stage::Failed);
        let is_own = tasks.iter().any(|task| task.given.is_own && ended(task));
        let refused = at(Stage::Refused);
        let blamed = match at(Stage::Failed) {
            failed if !failed.is_empty() => failed,
            // One user's exhausted limit takes no node from others.
            _ if is_own || !refused.is_empty() => Vec::new(),
            _ => at(Stage::Running),
        };
        let now = Instant::now();
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        for node in &blamed {
            failed.insert((*node).to_owned(), now);
        }
        let nodes = blamed.join(", ");
        tracing::warn!(nodes, error = failure, "failed to run distributed query; running it on this node only");
        match (blamed.is_empty(), refused.is_empty()) {
            (false, _) => format!("failed: {nodes}"),
            (true, false) => format!("no free permit on: {}", refused.join(", ")),
            (true, true) => "the query failed on the other nodes".to_owned(),
        }
    }
}

struct Urls(Vec<Url>);

impl WorkerResolver for Urls {
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        Ok(self.0.clone())
    }
}

/// The planner of a plan that is there already. The library prepares plans for execution only where it plans them.
#[derive(Debug)]
struct Placed(Arc<dyn ExecutionPlan>);

#[async_trait]
impl QueryPlanner for Placed {
    async fn create_physical_plan(&self, _: &LogicalPlan, _: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.0.clone())
    }
}
