//! Distributed queries: the interface between the engine and the module that knows other nodes.
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
use strata_types::causes::Causes;
use utoipa::ToSchema;

use crate::error::QueryError;

/// Runs parts of queries on other nodes.
#[async_trait]
pub trait Distribution: fmt::Debug + Send + Sync {
    /// A plan that runs parts of this one on other nodes for a tenant. `None` if this node should run all of it.
    async fn distribute(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        context: &TaskContext,
        tenant: Option<HashedPrincipal>,
    ) -> Option<DistributedPlan>;

    /// Called after a distributed plan has succeeded.
    fn succeeded(&self, plan: &DistributedPlan);

    /// Called after a distributed plan has failed. Returns the reason that the requester can see.
    fn failed(&self, plan: &DistributedPlan, failure: &str) -> String;
}

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

/// A leaf of a plan that processes each row group separately, so that other nodes can process some of them.
#[async_trait]
pub trait Divisible: Send + Sync {
    /// Whether it is part of a diff, which has another time limit than a query.
    fn is_of_diff(&self) -> bool {
        false
    }

    /// The most bytes that it reads: the size of its files.
    fn most_bytes(&self) -> u64;

    /// Whether a cached index leaves little to read.
    async fn is_kept(&self) -> bool {
        false
    }

    async fn row_groups_to_read(&self) -> Vec<RowGroupToRead>;

    /// The same operator on some of the row groups, ascending, with its own metrics. Another process can run it.
    fn part(&self, row_groups: Vec<usize>) -> Arc<dyn ExecutionPlan>;
}

#[derive(Clone, Debug)]
pub struct RowGroupToRead {
    pub number: usize,
    /// A name that is the same on all nodes.
    pub name: Vec<u8>,
    /// The estimated number of bytes to read that are not in the cache.
    pub bytes: u64,
}

/// The outcome of a distributed plan, or why it failed. A plan that takes longer than `limit` fails.
pub async fn finish<T>(
    distribution: &dyn Distribution,
    plan: &DistributedPlan,
    limit: Duration,
    collected: impl Future<Output = Result<T, QueryError>>,
) -> Result<T, String> {
    // The decoder can panic if the data of a node is damaged.
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

/// The part of a query's time limit for a distributed plan. The rest is for running the query on this node.
pub fn most_time(limit: Duration) -> Duration {
    limit * 2 / 3
}
