//! What a node does for a query, as the operator at the head of its part: it runs what is below on the threads of
//! heavy queries, so that those that serve connections answer pings, whatever queries do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::common::{exec_err, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, Partitioning, PlanProperties};
use futures::StreamExt;
use strata_limits::{FairLimit, Principal, Shares};
use strata_query::Engine;
use strata_query::operator::{Above, Input, Operator};
use strata_runtime::metrics::metrics;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::ending;

const AHEAD: usize = 2;

/// How long the task of another node waits for a permit. The query runs without this node then.
const PERMIT_WAIT: Duration = Duration::from_secs(2);

/// The operator. It has one partition, and gives the rows of what is below and their end.
pub(super) type NodeTask = Above<Runner>;

#[derive(Clone)]
pub(super) struct Runner {
    pub(super) engine: Engine,
    /// Whether it is part of a diff, which may take longer than a query.
    pub(super) is_of_diff: bool,
    /// For another node: the permits, and the tenant there. A task of this node's own query has that query's permit.
    pub(super) permits: Option<(FairLimit, Principal)>,
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
        let input = plan.clone();
        let runner = self.clone();
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
            Some((permits, principal)) => {
                let permit = permits.acquire_unbounded(*principal, 1);
                Some(tokio::time::timeout(PERMIT_WAIT, permit).await.map_err(|_| Failure::Busy)?)
            }
            None => None,
        };
        let limit = if self.is_of_diff { self.engine.diff_timeout() } else { self.engine.timeout() };
        let work = async move {
            let mut batches = input.execute(0, context)?;
            while let Some(batch) = batches.next().await {
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

/// Counts a task when it ends, also by an error or when it is dropped.
struct Counted(&'static str);

impl Drop for Counted {
    fn drop(&mut self) {
        metrics().node_tasks.of([self.0.into()]).increment(1);
    }
}

/// Permits for the tasks of other nodes: so many at once. One tenant can have half of them, and at least one.
pub(super) fn task_permits(tasks: usize) -> FairLimit {
    let shares = Shares::new(tasks.max(1) as u64, 100, 0);
    FairLimit::quota(Shares { principal_units: shares.units.div_ceil(2), queue: usize::MAX, ..shares })
}

#[cfg(test)]
mod tests {
    use strata_query::Tenant;

    use super::*;

    #[test]
    fn task_permits_half_is_for_one_tenant() {
        let permits = task_permits(4);
        let tenant = |key| Principal::Hashed(Tenant { key, anonymous: false });
        let held = [permits.try_acquire(tenant(1), 1), permits.try_acquire(tenant(1), 1)];
        assert!(held.iter().all(Result::is_ok) && permits.try_acquire(tenant(1), 1).is_err());
        assert!(permits.try_acquire(tenant(2), 1).is_ok());
    }
}
