//! Distributed queries: the interface between the engine and the crate that knows other nodes.
//!
//! A query is distributed at most once. If that fails or takes too long, the query runs again on this node. A selection
//! is complete before the first byte of the response, so no entity is sent twice.

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
use strata_types::error_chain::ErrorChain;
use utoipa::ToSchema;

use crate::error::QueryError;

#[async_trait]
pub trait QueryDistributor: fmt::Debug + Send + Sync {
    /// Returns a plan that runs parts of `plan` on other nodes for a principal, or `None` to run it all on this node.
    async fn distribute(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        context: &TaskContext,
        principal: Option<HashedPrincipal>,
    ) -> Option<DistributedPlan>;

    fn on_success(&self, plan: &DistributedPlan);

    /// Records the failure of a distributed plan. Returns the reason that the requester can see.
    fn on_failure(&self, plan: &DistributedPlan, failure: &str) -> String;
}

#[derive(Clone, Debug)]
pub struct DistributedPlan {
    pub plan: Arc<dyn ExecutionPlan>,
    pub context: Arc<TaskContext>,
    pub remote_parts: Arc<dyn DistributedParts>,
}

pub trait DistributedParts: Any + fmt::Debug + Send + Sync {
    fn node_part_reports(&self) -> Vec<NodeReport>;
}

/// A node's part of a distributed query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct NodeReport {
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
pub struct DistributionReport {
    /// The nodes that took part, ordered by name.
    pub nodes: Vec<NodeReport>,
    /// Why the query ran again on a single node. Null if the query did not run again.
    pub fallback: Option<String>,
}

/// A leaf of a query plan that processes row groups separately, so that other nodes can process some of them.
#[async_trait]
pub trait PartitionableScan: Send + Sync {
    fn is_diff_scan(&self) -> bool {
        false
    }

    fn max_read_bytes(&self) -> u64;

    async fn has_cached_index(&self) -> bool {
        false
    }

    async fn row_groups_to_read(&self) -> Vec<RowGroupReadEstimate>;

    /// Returns the operator that scans only the specified row groups, which ascend, with its own metrics. Another
    /// process can run this operator.
    fn to_partial_scan(&self, row_groups: Vec<usize>) -> Arc<dyn ExecutionPlan>;
}

#[derive(Clone, Debug)]
pub struct RowGroupReadEstimate {
    pub row_group: usize,
    pub stable_name: Vec<u8>,
    pub uncached_bytes: u64,
}

/// Awaits the outcome of a distributed plan for at most `limit`. The error is the reason that the requester can see.
pub async fn await_distributed<T>(
    distributor: &dyn QueryDistributor,
    plan: &DistributedPlan,
    limit: Duration,
    outcome: impl Future<Output = Result<T, QueryError>>,
) -> Result<T, String> {
    // The decoder can panic if another node sends damaged data.
    let outcome = AssertUnwindSafe(outcome).catch_unwind();
    let failure = match tokio::time::timeout(limit, outcome).await {
        Ok(Ok(Ok(result))) => {
            distributor.on_success(plan);
            return Ok(result);
        }
        Ok(Ok(Err(error))) => ErrorChain(&error).to_string(),
        Ok(Err(_panic)) => "the data from a node cannot be decoded".to_owned(),
        Err(_) => format!("the nodes took longer than {} s", limit.as_secs()),
    };
    Err(distributor.on_failure(plan, &failure))
}

/// The part of a query's time limit for a distributed plan. The rest is for running the query on this node.
pub fn max_distributed_time(limit: Duration) -> Duration {
    limit * 2 / 3
}
