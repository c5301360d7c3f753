//! Large queries that other nodes help with: what the engine asks of who knows them.
//!
//! A query is distributed at most once. Where that fails in whatever way, or takes too long, it runs again, here. A
//! selection is complete before the first byte of its answer, so nothing is answered twice or in part.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;

use crate::query::tenants::Tenant;

/// Who has parts of queries run by other nodes.
#[async_trait]
pub trait Distribution: fmt::Debug + Send + Sync {
    /// The same plan, parts of which other nodes run for a tenant; `None` where all of it should run here, in this
    /// context.
    async fn distribute(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        context: &TaskContext,
        tenant: Option<Tenant>,
    ) -> Option<DistributedPlan>;

    /// Is told that a distributed plan gave all it should.
    fn succeeded(&self, plan: &DistributedPlan);

    /// Is told what a distributed plan failed with. What may be told of it to who asked.
    fn failed(&self, plan: &DistributedPlan, failure: &str) -> String;
}

/// A plan, parts of which other nodes run.
#[derive(Clone, Debug)]
pub struct DistributedPlan {
    /// The plan. What it gives is what the original gives.
    pub plan: Arc<dyn ExecutionPlan>,
    /// What it is executed in.
    pub context: Arc<TaskContext>,
    /// What the nodes do.
    pub parts: Arc<dyn Parts>,
}

/// The parts of a distributed plan.
pub trait Parts: Any + fmt::Debug + Send + Sync {
    /// What each node has done so far.
    fn used(&self) -> Vec<NodeUse>;
}

/// What a node has done for a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeUse {
    /// Its name.
    pub node: String,
    /// Whether it is the one that answers.
    pub is_own: bool,
    /// Row groups that it was given.
    pub row_groups: u64,
    /// About how many bytes of them were to be read from the store, as far as the node that answers knew.
    pub stored_bytes: u64,
    /// Rows that it gave.
    pub rows: u64,
    /// Bytes of these in memory.
    pub bytes: u64,
}

/// How a query was distributed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistributedUse {
    /// The nodes, by their names.
    pub nodes: Vec<NodeUse>,
    /// Why the query ran again without the other nodes, if it did.
    pub fallback: Option<String>,
}

/// How long other nodes may help with a query that may take so long. The rest is for running it here.
pub(super) fn most_time(limit: Duration) -> Duration {
    limit * 2 / 3
}
