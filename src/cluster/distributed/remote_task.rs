//! The root operator of a task: runs its input on the threads of heavy queries, so that the threads that serve
//! connections can respond to pings, regardless of the load.

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
use strata_limits::{FairLimit, FairShares, Principal};
use strata_query::QueryEngine;
use strata_query::unary_exec::{OperatorInput, UnaryExec, UnaryOperator};
use strata_runtime::metrics::metrics;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::end_marker;

const MAX_BATCHES_AHEAD: usize = 2;

/// Maximum time for which a task of another node waits for a permit on this node. Then the task fails, and the other
/// node runs the query without this node.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The root operator of a node's task. It has one partition, and returns the rows of its input, then an end marker.
pub(super) type NodeTaskExec = UnaryExec<TaskRunner>;

#[derive(Clone)]
pub(super) struct TaskRunner {
    pub(super) engine: QueryEngine,
    pub(super) is_diff: bool,
    /// The limit that grants the permit for another node's task, and the principal that the permit is charged to.
    /// `None` for a local task, which runs under the permit of its query.
    pub(super) permits: Option<(FairLimit, Principal)>,
}

impl fmt::Debug for TaskRunner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Runner").field("permits", &self.permits).finish_non_exhaustive()
    }
}

impl UnaryOperator for TaskRunner {
    const NAME: &'static str = "NodeTask";

    fn properties(&self, input: &dyn ExecutionPlan) -> Arc<PlanProperties> {
        let input_properties = input.properties();
        Arc::new(PlanProperties::new(
            EquivalenceProperties::new(end_marker::schema_with_marker(&input.schema())),
            Partitioning::UnknownPartitioning(1),
            input_properties.emission_type,
            input_properties.boundedness,
        ))
    }

    fn execute(&self, input: OperatorInput<'_>) -> Result<SendableRecordBatchStream> {
        let OperatorInput { plan, partition, context, schema } = input;
        if partition != 0 {
            return internal_err!("a task has only one partition");
        }
        let (sender, receiver) = mpsc::channel(MAX_BATCHES_AHEAD);
        let input = plan.clone();
        let runner = self.clone();
        let task = self.engine.spawn(async move {
            let mut counter = runner.permits.is_some().then(|| TaskOutcomeCounter("stopped"));
            let outcome = runner.run(input, context, sender).await;
            if let Some(counter) = &mut counter {
                counter.0 = match &outcome {
                    Ok(()) => "done",
                    Err(TaskFailure::Busy) => "busy",
                    Err(TaskFailure::Other(_)) => "failed",
                };
            }
            outcome
        });
        let marked_schema = schema.clone();
        let batches = futures::stream::try_unfold(Some((receiver, task, 0)), move |state| {
            let schema = marked_schema.clone();
            async move {
                let Some((mut receiver, task, rows)) = state else { return Ok(None) };
                match receiver.recv().await {
                    Some(batch) => {
                        let rows = rows + batch.num_rows() as u64;
                        Ok(Some((end_marker::append_null_marker(&batch, &schema)?, Some((receiver, task, rows)))))
                    }
                    None => match await_task_error(task).await {
                        Some(error) => Err(error),
                        None => Ok(Some((end_marker::marker_batch(rows, &schema)?, None))),
                    },
                }
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

async fn await_task_error(task: AbortOnDropHandle<std::result::Result<(), TaskFailure>>) -> Option<DataFusionError> {
    match task.await {
        Ok(Ok(())) => None,
        Ok(Err(TaskFailure::Busy)) => {
            Some(DataFusionError::ResourcesExhausted("this node has no free permit for another node's task".to_owned()))
        }
        Ok(Err(TaskFailure::Other(error))) => Some(error),
        Err(error) => Some(DataFusionError::External(Box::new(error))),
    }
}

enum TaskFailure {
    Busy,
    Other(DataFusionError),
}

impl TaskRunner {
    async fn run(
        self,
        input: Arc<dyn ExecutionPlan>,
        context: Arc<TaskContext>,
        sender: mpsc::Sender<RecordBatch>,
    ) -> std::result::Result<(), TaskFailure> {
        let _permit = match &self.permits {
            Some((permits, principal)) => {
                let permit = permits.acquire_without_timeout(*principal, 1);
                Some(tokio::time::timeout(PERMIT_TIMEOUT, permit).await.map_err(|_| TaskFailure::Busy)?)
            }
            None => None,
        };
        let limit = if self.is_diff { self.engine.diff_timeout() } else { self.engine.timeout() };
        let work = async move {
            let mut batches = input.execute(0, context)?;
            while let Some(batch) = batches.next().await {
                if sender.send(batch?).await.is_err() {
                    break;
                }
            }
            Ok(())
        };
        let outcome = tokio::time::timeout(limit, work).await;
        let too_slow = |_| exec_err!("a task from another node took longer than {} s", limit.as_secs());
        outcome.unwrap_or_else(too_slow).map_err(TaskFailure::Other)
    }
}

struct TaskOutcomeCounter(&'static str);

impl Drop for TaskOutcomeCounter {
    fn drop(&mut self) {
        metrics().node_tasks.with_label_values([self.0.into()]).increment(1);
    }
}

pub(super) fn new_task_limit(tasks: usize) -> FairLimit {
    let shares = FairShares::new(tasks.max(1) as u64, 100, 0);
    FairLimit::new_quota(FairShares {
        max_principal_units: shares.total_units.div_ceil(2),
        max_waiters: usize::MAX,
        ..shares
    })
}

#[cfg(test)]
mod tests {
    use strata_query::HashedPrincipal;

    use super::*;

    #[test]
    fn principal_gets_at_most_half_of_task_permits() {
        let permits = new_task_limit(4);
        let tenant = |key| Principal::Hashed(HashedPrincipal { key, is_anonymous: false });
        let acquired = [permits.try_acquire(tenant(1), 1), permits.try_acquire(tenant(1), 1)];
        assert!(acquired.iter().all(Result::is_ok) && permits.try_acquire(tenant(1), 1).is_err());
        assert!(permits.try_acquire(tenant(2), 1).is_ok());
    }
}
