//! Large queries that other nodes help with: what the engine asks of who knows them.
//!
//! A query is distributed at most once. Where that fails in whatever way, or takes too long, it runs again, here. A
//! selection is complete before the first byte of its answer, so nothing is answered twice or in part.

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use futures::FutureExt;
use serde::Serialize;
use strata_limits::HashedPrincipal;
use strata_types::causes::Causes;
use utoipa::ToSchema;

use crate::error::QueryError;

/// Who has parts of queries run by other nodes.
#[async_trait]
pub trait Distribution: fmt::Debug + Send + Sync {
    /// The same plan, parts of which other nodes run for a tenant; `None` where all of it should run here, in this
    /// context.
    async fn distribute(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        context: &TaskContext,
        tenant: Option<HashedPrincipal>,
    ) -> Option<DistributedPlan>;

    /// Is told that a distributed plan gave all it should.
    fn succeeded(&self, plan: &DistributedPlan);

    /// Is told what a distributed plan failed with. What may be told of it to who asked.
    fn failed(&self, plan: &DistributedPlan, failure: &str) -> String;
}

/// A plan, parts of which other nodes run.
#[derive(Clone, Debug)]
pub struct DistributedPlan {
    pub plan: Arc<dyn ExecutionPlan>,
    pub context: Arc<TaskContext>,
    pub parts: Arc<dyn Parts>,
}

pub trait Parts: Any + fmt::Debug + Send + Sync {
    fn used(&self) -> Vec<NodeUse>;
}

/// A node's part of a distributed query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct NodeUse {
    /// The name of the node.
    pub node: String,
    /// Whether this is the node that sends the response.
    pub is_own: bool,
    /// The number of row groups that were assigned to the node.
    pub row_groups: u64,
    /// The estimated number of bytes that the node had to read, based on the cache of the node that sends the response.
    pub stored_bytes: u64,
    /// The number of rows that the node returned.
    pub rows: u64,
    /// The size of the returned rows in memory, in bytes.
    pub bytes: u64,
}

/// The nodes of a distributed query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct DistributedUse {
    /// The nodes that took part, ordered by name.
    pub nodes: Vec<NodeUse>,
    /// Why the query ran again on a single node. Null if the query did not run again.
    pub fallback: Option<String>,
}

/// An operator at the end of a plan, parts of which other nodes can run: it looks at row groups, each for itself.
#[async_trait]
pub trait Divisible: Send + Sync {
    /// Whether it is part of a diff, which may take longer than a query.
    fn is_of_diff(&self) -> bool;

    /// Bytes of its files. It reads no more.
    fn most_bytes(&self) -> u64;

    /// Whether something that is kept leaves little to read.
    async fn is_kept(&self) -> bool;

    async fn row_groups_to_read(&self) -> Vec<RowGroupToRead>;

    /// The same operator on some of them, ascending, which another process can be given. It shares no metrics with this
    /// one.
    fn part(&self, row_groups: Vec<usize>) -> Arc<dyn ExecutionPlan>;
}

#[derive(Clone, Debug)]
pub struct RowGroupToRead {
    pub number: usize,
    /// A name of its bytes that is the same everywhere.
    pub name: Vec<u8>,
    /// About how many bytes of it are to be read that are not in the cache.
    pub bytes: u64,
}

/// What comes of a plan that other nodes help with; why nothing does, where it fails in whatever way or takes longer
/// than `limit`: then the same is to be found without them.
pub async fn finish<T>(
    distribution: &dyn Distribution,
    plan: &DistributedPlan,
    limit: Duration,
    collected: impl Future<Output = Result<T, QueryError>>,
) -> Result<T, String> {
    // What arrives may be damaged on its way, and be of a form that its decoder does not expect.
    let collected = AssertUnwindSafe(collected).catch_unwind();
    let failure = match tokio::time::timeout(limit, collected).await {
        Ok(Ok(Ok(outcome))) => {
            distribution.succeeded(plan);
            return Ok(outcome);
        }
        Ok(Ok(Err(error))) => Causes(&error).to_string(),
        Ok(Err(_panic)) => "the data from a node cannot be decoded".to_owned(),
        Err(_) => format!("the nodes took longer than {} s", limit.as_secs()),
    };
    Err(distribution.failed(plan, &failure))
}

/// How long other nodes may help with a query that may take so long. The rest is for running it here.
pub fn most_time(limit: Duration) -> Duration {
    limit * 2 / 3
}
