//! Decides which queries are distributed, assigns row groups to nodes, and builds the distributed plans.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
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
use parking_lot::Mutex;
use strata_format::cache::PartCache;
use strata_query::distribution::{DistributedPlan, NodeReport, QueryDistributor};
use strata_query::{HashedPrincipal, QueryEngine};
use strata_runtime::metrics::metrics;
use strata_store::store::Store;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::auth::NodeAuth;
use super::channels::{NodeChannelResolver, NodeChannels};
use super::gather::{QueryTasks, TaskProgress, TaskState};
use super::partial_scan::{PartialPlanCodec, ScanStorage};
use super::plan_split::{self, PlanSplitter};
use super::remote_task::{TaskRunner, new_task_limit};
use super::worker::{self, TaskSessionBuilder};
use crate::tls::NodeTls;
use crate::token::NodeSecret;
use crate::{affinity, nodes};

const FAILED_NODE_COOLDOWN: Duration = Duration::from_secs(10);
const BATCH_COMPRESSION: datafusion_distributed::CompressionType = datafusion_distributed::CompressionType::LZ4_FRAME;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerNode {
    pub name: String,
    /// Host and port at which the node accepts tasks, with the prefix `https://` if the node uses TLS.
    pub address: String,
}

#[derive(Clone, Debug)]
pub struct LocalNode {
    pub name: String,
    pub runs_tasks: bool,
}

pub struct DistributionOptions {
    pub secret: NodeSecret,
    pub tls: Option<Arc<NodeTls>>,
    /// A query is distributed if it must read more uncached bytes than this. 0 disables distribution.
    pub distribute_bytes: u64,
    pub max_tasks: usize,
    pub local_node: LocalNode,
    pub peers: Arc<dyn Fn() -> Vec<PeerNode> + Send + Sync>,
}

pub struct QueryCoordinator {
    options: DistributionOptions,
    auth: NodeAuth,
    sessions: TaskSessionBuilder,
    worker: Worker,
    channels: NodeChannels,
    failed_nodes: Mutex<HashMap<String, Instant>>,
}

struct NodeShare {
    name: String,
    url: Url,
    is_local: bool,
    row_groups: Vec<usize>,
    bytes: u64,
}

impl QueryCoordinator {
    /// Must be called in a Tokio runtime, which then serves the connections to other nodes.
    pub fn new(options: DistributionOptions, engine: &QueryEngine, store: Store, cache: PartCache) -> QueryCoordinator {
        let auth = NodeAuth::new(options.secret.clone(), &options.local_node.name);
        let permits = new_task_limit(options.max_tasks);
        let sessions =
            TaskSessionBuilder { engine: engine.downgrade(), storage: ScanStorage { store, cache }, permits };
        QueryCoordinator {
            channels: NodeChannels::new(auth.clone(), options.tls.clone(), Handle::current()),
            worker: sessions.new_worker(engine),
            sessions,
            auth,
            options,
            failed_nodes: Mutex::default(),
        }
    }

    pub async fn serve(&self, listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
        worker::serve(self.worker.clone(), self.auth.clone(), self.options.tls.clone(), listener, stop).await
    }

    fn candidate_nodes(&self) -> Vec<NodeShare> {
        let own = &self.options.local_node;
        let share = |name: String, url, is_local| NodeShare { name, url, is_local, row_groups: Vec::new(), bytes: 0 };
        let mut nodes = Vec::new();
        if own.runs_tasks {
            nodes.extend(placeholder_node_url().map(|url| share(own.name.clone(), url, true)));
        }
        let mut failed = self.failed_nodes.lock();
        failed.retain(|_, since| since.elapsed() < FAILED_NODE_COOLDOWN);
        for PeerNode { name, address } in (self.options.peers)() {
            // A node with TLS and a node without TLS cannot connect to each other.
            let has_same_scheme = nodes::has_tls(&address) == self.options.tls.is_some();
            if name == own.name || failed.contains_key(&name) || !has_same_scheme {
                continue;
            }
            nodes.extend(Url::parse(&nodes::node_url(&address)).ok().map(|url| share(name, url, false)));
        }
        nodes.sort_by(|one, other| (&one.name, &one.url).cmp(&(&other.name, &other.url)));
        nodes.dedup_by(|one, other| one.name == other.name);
        nodes
    }

    /// Assigns the row groups of a plan to nodes. Returns an empty list if the local node must run the plan by itself.
    async fn assign_shares(&self, plan: &Arc<dyn ExecutionPlan>) -> Vec<NodeShare> {
        let min_bytes = self.options.distribute_bytes;
        let scan = plan_split::partitionable_scan(plan);
        let scan = scan.filter(|scan| min_bytes > 0 && scan.max_read_bytes() > min_bytes);
        let Some(scan) = scan else { return Vec::new() };
        let row_groups = scan.row_groups_to_read().await;
        let total = row_groups.iter().fold(0_u64, |total, row_group| total.saturating_add(row_group.uncached_bytes));
        let mut shares = if total > min_bytes { self.candidate_nodes() } else { Vec::new() };
        if shares.len() < 2 {
            return Vec::new();
        }
        let keys: Vec<_> = row_groups.iter().map(|group| (group.stable_name.clone(), group.uncached_bytes)).collect();
        let names: Vec<&str> = shares.iter().map(|share| &*share.name).collect();
        let assignments = affinity::assign_nodes(&keys, &names);
        for (row_group, node) in row_groups.into_iter().zip(assignments) {
            if let Some(share) = shares.get_mut(node) {
                share.row_groups.push(row_group.row_group);
                share.bytes = share.bytes.saturating_add(row_group.uncached_bytes);
            }
        }
        shares.retain(|share| !share.row_groups.is_empty());
        // A query on row groups of one node is not distributed: `datafusion-distributed` would run its task locally.
        if shares.len() < 2 { Vec::new() } else { shares }
    }

    async fn plan_distributed(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        shares: Vec<NodeShare>,
        context: &TaskContext,
        tenant: Option<HashedPrincipal>,
    ) -> Result<DistributedPlan> {
        let Some(scan) = plan_split::partitionable_scan(plan) else {
            return Err(DataFusionError::Internal("a plan without a scan cannot be distributed".to_owned()));
        };
        let urls: Vec<Url> = shares.iter().map(|share| share.url.clone()).collect();
        let node_names = shares.iter().map(|share| (share.url.clone(), share.name.clone())).collect();
        let resolver = NodeChannelResolver { channels: self.channels.clone(), node_names };
        let scans = shares.iter().map(|share| scan.to_partial_scan(share.row_groups.clone())).collect();
        let progress = |share: NodeShare| {
            TaskProgress::new(NodeReport {
                node: share.name,
                is_own: share.is_local,
                row_groups: share.row_groups.len() as u64,
                stored_bytes: share.bytes,
                rows: 0,
                bytes: 0,
            })
        };
        let tasks = Arc::new(QueryTasks(shares.into_iter().map(progress).collect()));
        let engine = self.sessions.engine_for(tenant)?;
        let settings = engine.configure_session(SessionConfig::new());
        let local_runner = TaskRunner { is_diff: scan.is_diff_scan(), permits: None, engine };
        let split_plan = PlanSplitter { scans, tasks: tasks.clone(), local_runner }.distribute(plan)?;

        let task_urls = urls.clone();
        let mut config = settings
            .with_distributed_user_codec(PartialPlanCodec { local: None })
            .with_distributed_channel_resolver(resolver)
            .with_distributed_worker_resolver(NodeUrls(urls))
            .with_distributed_route_tasks_handler(move |_: RouteTasksEvent<'_>| {
                Some(Ok(RouteTasksEventResponse::new(task_urls.clone())))
            })
            .with_distributed_compression(Some(BATCH_COMPRESSION))?
            .with_distributed_passthrough_headers(worker::tenant_headers(tenant))?;
        if let Some(url) = placeholder_node_url() {
            config.set_distributed_local_worker_context(self.worker.to_local_worker_context(url));
        }
        let session = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(context.runtime_env())
            .with_query_planner(Arc::new(FixedPlanPlanner(split_plan)))
            .with_distributed_planner()
            .build();
        let unused_plan =
            LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema: Arc::new(DFSchema::empty()) });
        let plan = session.query_planner().create_physical_plan(&unused_plan, &session).await?;
        Ok(DistributedPlan { plan, context: session.task_ctx(), remote_parts: tasks })
    }
}

fn placeholder_node_url() -> Option<Url> {
    Url::parse("http://own.invalid").ok()
}

impl fmt::Debug for QueryCoordinator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Coordinator").field("own", &self.options.local_node).finish_non_exhaustive()
    }
}

#[async_trait]
impl QueryDistributor for QueryCoordinator {
    async fn distribute(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        context: &TaskContext,
        tenant: Option<HashedPrincipal>,
    ) -> Option<DistributedPlan> {
        let shares = self.assign_shares(plan).await;
        if shares.is_empty() || plan_split::partitionable_scan(plan)?.has_cached_index().await {
            return None;
        }
        match self.plan_distributed(plan, shares, context, tenant).await {
            Ok(plan) => Some(plan),
            Err(error) => {
                tracing::error!(%error, "failed to distribute query plan; running the query on this node");
                None
            }
        }
    }

    fn on_success(&self, _: &DistributedPlan) {
        metrics().distributed_queries.with_label_values(["answered".into()]).increment(1);
    }

    fn on_failure(&self, plan: &DistributedPlan, failure: &str) -> String {
        metrics().distributed_queries.with_label_values(["repeated".into()]).increment(1);
        let tasks: &dyn std::any::Any = &*plan.remote_parts;
        let tasks = tasks.downcast_ref::<QueryTasks>().map(|tasks| tasks.0.as_slice()).unwrap_or_default();
        let others = || tasks.iter().filter(|task| !task.assignment.is_own);
        let nodes_in = |state| {
            others().filter(|task| task.state() == state).map(|task| &*task.assignment.node).collect::<Vec<_>>()
        };
        let has_failed = |task: &TaskProgress| matches!(task.state(), TaskState::Refused | TaskState::Failed);
        let has_failed_here = tasks.iter().any(|task| task.assignment.is_own && has_failed(task));
        let refused = nodes_in(TaskState::Refused);
        let blamed = match nodes_in(TaskState::Failed) {
            failed if !failed.is_empty() => failed,
            // A node that refused a task has not failed, because only the limit of the query's principal is exhausted.
            _ if has_failed_here || !refused.is_empty() => Vec::new(),
            _ => nodes_in(TaskState::Running),
        };
        let now = Instant::now();
        self.failed_nodes.lock().extend(blamed.iter().map(|node| ((*node).to_owned(), now)));
        let nodes = blamed.join(", ");
        tracing::warn!(nodes, error = failure, "failed to run distributed query; running it on this node only");
        match (blamed.is_empty(), refused.is_empty()) {
            (false, _) => format!("failed: {nodes}"),
            (true, false) => format!("no free permit on: {}", refused.join(", ")),
            (true, true) => "the query failed on the other nodes".to_owned(),
        }
    }
}

struct NodeUrls(Vec<Url>);

impl WorkerResolver for NodeUrls {
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        Ok(self.0.clone())
    }
}

#[derive(Debug)]
struct FixedPlanPlanner(Arc<dyn ExecutionPlan>);

#[async_trait]
impl QueryPlanner for FixedPlanPlanner {
    async fn create_physical_plan(&self, _: &LogicalPlan, _: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.0.clone())
    }
}
