//! What a node does for a query, as the operator at the head of its part: it runs what is below on the threads of
//! heavy queries, so that those that serve connections answer pings, whatever queries do.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::common::{exec_err, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, Partitioning, PlanProperties};
use futures::StreamExt;
use strata_query::operator::{Above, Input, Operator};
use strata_query::{Engine, Tenant};
use strata_runtime::metrics::metrics;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;

use super::ending;

/// Batches that are ready before they are asked for.
const AHEAD: usize = 2;

/// The operator. It has one partition, and gives the rows of what is below and their end.
pub(super) type NodeTask = Above<Runner>;

#[derive(Clone)]
pub(super) struct Runner {
    pub(super) engine: Engine,
    /// Whether it is part of a diff, which may take longer than a query.
    pub(super) is_of_diff: bool,
    /// For another node: the permits, and the tenant there. A task of this node's own query has that query's permit.
    pub(super) permits: Option<(TaskPermits, Option<Tenant>)>,
}

impl fmt::Debug for Runner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Runner").field("permits", &self.permits).finish_non_exhaustive()
    }
}

impl Operator for Runner {
    const NAME: &'static str = "NodeTask";

    fn properties(&self, input: &dyn ExecutionPlan) -> Arc<PlanProperties> {
        let of_input = input.properties();
        Arc::new(PlanProperties::new(
            EquivalenceProperties::new(ending::with_end(&input.schema())),
            Partitioning::UnknownPartitioning(1),
            of_input.emission_type,
            of_input.boundedness,
        ))
    }

    fn execute(&self, input: Input<'_>) -> Result<SendableRecordBatchStream> {
        let Input { plan, partition, context, schema } = input;
        if partition != 0 {
            return internal_err!("a task has only one partition");
        }
        let (sender, receiver) = mpsc::channel(AHEAD);
        let (input, runner) = (plan.clone(), self.clone());
        let running = self.engine.spawn(async move {
            let mut counted = runner.permits.is_some().then(|| Counted("stopped"));
            let outcome = runner.run(input, context, sender).await;
            if let Some(counted) = &mut counted {
                counted.0 = match &outcome {
                    Ok(()) => "done",
                    Err(Failure::Busy) => "busy",
                    Err(Failure::Other(_)) => "failed",
                };
            }
            outcome
        });
        let given = schema.clone();
        let batches = futures::stream::try_unfold(Some((receiver, running, 0)), move |state| {
            let given = given.clone();
            async move {
                let Some((mut receiver, running, rows)) = state else { return Ok(None) };
                match receiver.recv().await {
                    Some(batch) => {
                        let so_far = rows + batch.num_rows() as u64;
                        Ok(Some((ending::not_last(&batch, &given)?, Some((receiver, running, so_far)))))
                    }
                    // It has ended. Only it tells whether these were all.
                    None => match ended(running).await {
                        Some(error) => Err(error),
                        None => Ok(Some((ending::last(rows, &given)?, None))),
                    },
                }
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// What a task has failed with that has ended.
async fn ended(running: AbortOnDropHandle<std::result::Result<(), Failure>>) -> Option<DataFusionError> {
    match running.await {
        Ok(Ok(())) => None,
        Ok(Err(Failure::Busy)) => {
            Some(DataFusionError::ResourcesExhausted("this node has no free permit for another node's task".to_owned()))
        }
        Ok(Err(Failure::Other(error))) => Some(error),
        Err(error) => Some(DataFusionError::External(Box::new(error))),
    }
}

/// Why a task gives less than all.
enum Failure {
    Busy,
    Other(DataFusionError),
}

impl Runner {
    async fn run(
        self,
        input: Arc<dyn ExecutionPlan>,
        context: Arc<TaskContext>,
        sender: mpsc::Sender<RecordBatch>,
    ) -> std::result::Result<(), Failure> {
        let _permit = match &self.permits {
            Some((permits, tenant)) => Some(permits.acquire(*tenant).await.ok_or(Failure::Busy)?),
            None => None,
        };
        let limit = if self.is_of_diff { self.engine.diff_timeout() } else { self.engine.timeout() };
        let work = async move {
            let mut batches = input.execute(0, context)?;
            while let Some(batch) = batches.next().await {
                // Whoever asked may have enough.
                if sender.send(batch?).await.is_err() {
                    break;
                }
            }
            Ok(())
        };
        match tokio::time::timeout(limit, work).await {
            Ok(outcome) => outcome.map_err(Failure::Other),
            Err(_) => {
                exec_err!("a task from another node took longer than {} s", limit.as_secs()).map_err(Failure::Other)
            }
        }
    }
}

/// Counts a task when it ends in whatever way.
struct Counted(&'static str);

impl Drop for Counted {
    fn drop(&mut self) {
        metrics().node_tasks.of([self.0.into()]).increment(1);
    }
}

/// How many tasks of other nodes run at once on this one, and how many of them for one tenant.
#[derive(Clone, Debug)]
pub(super) struct TaskPermits {
    all: Arc<Semaphore>,
    each: usize,
    wait: Duration,
    tenants: Arc<Mutex<HashMap<Option<Tenant>, Arc<Semaphore>>>>,
}

#[derive(Debug)]
pub(super) struct TaskPermit {
    _of_tenant: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl TaskPermits {
    /// So many tasks at once. One tenant may have half of them, and at least one. A task waits for so long.
    pub(super) fn new(tasks: usize, wait: Duration) -> TaskPermits {
        let tasks = tasks.clamp(1, Semaphore::MAX_PERMITS);
        TaskPermits { all: Arc::new(Semaphore::new(tasks)), each: tasks.div_ceil(2), wait, tenants: Arc::default() }
    }

    pub(super) async fn acquire(&self, tenant: Option<Tenant>) -> Option<TaskPermit> {
        let of_tenant = self.of(tenant);
        let acquired = async {
            // A tenant that has its share waits for itself, and holds nobody up.
            let of_tenant = of_tenant.acquire_owned().await.ok()?;
            let of_all = self.all.clone().acquire_owned().await.ok()?;
            Some(TaskPermit { _of_tenant: of_tenant, _of_all: of_all })
        };
        tokio::time::timeout(self.wait, acquired).await.ok()?
    }

    fn of(&self, tenant: Option<Tenant>) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let found = tenants.entry(tenant).or_insert_with(|| Arc::new(Semaphore::new(self.each))).clone();
        // Nobody else holds or waits for those of tenants that have none.
        tenants.retain(|other, permits| *other == tenant || Arc::strong_count(permits) > 1);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(10);

    fn tenant(key: u64) -> Option<Tenant> {
        Some(Tenant { key, anonymous: false })
    }

    #[tokio::test]
    async fn one_tenant_leaves_room_for_others() {
        let permits = TaskPermits::new(4, WAIT);
        let held = [permits.acquire(tenant(1)).await, permits.acquire(tenant(1)).await];
        assert!(held.iter().all(Option::is_some));
        assert!(permits.acquire(tenant(1)).await.is_none(), "it has its share");
        let other = permits.acquire(tenant(2)).await;
        assert!(other.is_some());
        drop(held);
        assert!(permits.acquire(tenant(1)).await.is_some());
    }

    #[tokio::test]
    async fn no_more_run_than_may() {
        let permits = TaskPermits::new(3, WAIT);
        let mut held = Vec::new();
        for key in 0..3 {
            held.push(permits.acquire(tenant(key)).await.expect("a permit"));
        }
        assert!(permits.acquire(tenant(3)).await.is_none());
        held.pop();
        assert!(permits.acquire(tenant(3)).await.is_some());
        assert!(permits.tenants.lock().expect("unpoisoned").len() <= 3, "those that have none are forgotten");
    }
}
