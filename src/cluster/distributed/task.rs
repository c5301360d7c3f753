//! What a node does for a query, as the operator at the head of its part: it runs what is below on the threads of
//! heavy queries, so that those that serve connections answer pings, whatever queries do.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::{exec_err, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, Partitioning, PlanProperties};
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::ending;
use super::permits::TaskPermits;
use crate::metrics::metrics;
use crate::query::operator::{Above, Input, Operator};
use crate::query::{Engine, Tenant};

/// Batches that are ready before they are asked for.
const AHEAD: usize = 2;

/// The operator. It has one partition, and gives the rows of what is below and their end.
pub(super) type NodeTask = Above<Task>;

#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) runner: Runner,
}

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

impl Operator for Task {
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
            return internal_err!("the task of a node has one partition");
        }
        let (sender, receiver) = mpsc::channel(AHEAD);
        let (input, runner) = (plan.clone(), self.runner.clone());
        let running = self.runner.engine.spawn(async move {
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
            Some(DataFusionError::ResourcesExhausted("this node has no permit for the task of another one".to_owned()))
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
                exec_err!("the task of another node took longer than {} s", limit.as_secs()).map_err(Failure::Other)
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
