//! The operator that receives the rows of all nodes, with one partition for each node. Counts rows and bytes by node,
//! and checks that the rows of each node are complete and in the correct order.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, Partitioning, PlanProperties};
use futures::StreamExt;
use strata_query::distribution::{DistributedParts, NodeReport};
use strata_query::unary_exec::{OperatorInput, UnaryOperator};

use super::end_marker::EndMarkerChecker;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskState {
    Running,
    Done,
    /// The node refused the task, because it had no permit or memory for the query's principal. It has not failed.
    Refused,
    Failed,
}

#[derive(Debug)]
pub(super) struct TaskProgress {
    pub(super) assignment: NodeReport,
    rows: AtomicU64,
    bytes: AtomicU64,
    outcome: OnceLock<TaskState>,
}

impl TaskProgress {
    pub(super) fn new(assignment: NodeReport) -> TaskProgress {
        TaskProgress { assignment, rows: AtomicU64::new(0), bytes: AtomicU64::new(0), outcome: OnceLock::new() }
    }

    fn set_outcome(&self, outcome: TaskState) {
        let _ = self.outcome.set(outcome);
    }

    pub(super) fn state(&self) -> TaskState {
        self.outcome.get().copied().unwrap_or(TaskState::Running)
    }

    fn count_batch(&self, batch: &RecordBatch) {
        let bytes: usize =
            batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0)).sum();
        self.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(super) struct QueryTasks(pub(super) Vec<TaskProgress>);

impl DistributedParts for QueryTasks {
    fn node_part_reports(&self) -> Vec<NodeReport> {
        let report = |task: &TaskProgress| NodeReport {
            rows: task.rows.load(Ordering::Relaxed),
            bytes: task.bytes.load(Ordering::Relaxed),
            ..task.assignment.clone()
        };
        self.0.iter().map(report).collect()
    }
}

#[derive(Clone, Debug)]
pub(super) struct GatherTasks {
    properties: Arc<PlanProperties>,
    tasks: Arc<QueryTasks>,
    position_column: Option<usize>,
    /// Shared by all clones of the operator: `datafusion-distributed` runs a clone and reports the original's metrics.
    metrics: ExecutionPlanMetricsSet,
}

impl GatherTasks {
    /// `part` has the properties (such as orderings) of the part of the query plan that each node runs.
    pub(super) fn new(part: &PlanProperties, tasks: Arc<QueryTasks>, position_column: Option<usize>) -> GatherTasks {
        let properties = PlanProperties::new(
            part.eq_properties.clone(),
            Partitioning::UnknownPartitioning(tasks.0.len()),
            part.emission_type,
            part.boundedness,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        GatherTasks { properties: Arc::new(properties), tasks, position_column, metrics }
    }
}

impl UnaryOperator for GatherTasks {
    const NAME: &'static str = "GatherTasks";

    fn properties(&self, _: &dyn ExecutionPlan) -> Arc<PlanProperties> {
        self.properties.clone()
    }

    fn fmt_one_line(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<&str> = self.tasks.0.iter().map(|task| &*task.assignment.node).collect();
        write!(formatter, "GatherTasks: nodes=[{}]", nodes.join(", "))
    }

    fn execute(&self, input: OperatorInput<'_>) -> Result<SendableRecordBatchStream> {
        let OperatorInput { partition, ref schema, .. } = input;
        if partition >= self.tasks.0.len() {
            return internal_err!("task {partition} does not exist");
        }
        let batches = input.execute()?;
        let metrics = Arc::new(BaselineMetrics::new(&self.metrics, partition));
        let end_marker = EndMarkerChecker::new(schema.clone(), self.tasks.0[partition].assignment.node.clone());
        let batches =
            CheckedBatches { batches, end_marker, position_column: self.position_column, last_position: None };
        let tasks = self.tasks.clone();
        let checked = futures::stream::try_unfold(batches, move |mut batches| {
            let tasks = tasks.clone();
            let metrics = metrics.clone();
            async move {
                let task = &tasks.0[partition];
                let batch = batches.next_batch().await;
                match &batch {
                    Ok(Some(batch)) => task.count_batch(batch),
                    Ok(None) => task.set_outcome(TaskState::Done),
                    Err(error) => task.set_outcome(match error.find_root() {
                        DataFusionError::ResourcesExhausted(_) => TaskState::Refused,
                        _ => TaskState::Failed,
                    }),
                }
                Ok(batch?.map(|batch| (batch.record_output(&metrics), batches)))
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(input.schema, checked)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

struct CheckedBatches {
    batches: SendableRecordBatchStream,
    end_marker: EndMarkerChecker,
    position_column: Option<usize>,
    last_position: Option<u64>,
}

impl CheckedBatches {
    async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Some(batch) = self.batches.next().await else { return self.end_marker.check_ended().map(|()| None) };
            let Some(batch) = self.end_marker.strip_marker(&batch?)? else { continue };
            if let Some(column) = self.position_column {
                self.last_position = check_ascending(&batch, column, self.last_position, &self.end_marker.node)?;
            }
            return Ok(Some(batch));
        }
    }
}

fn check_ascending(batch: &RecordBatch, column: usize, mut last: Option<u64>, node: &str) -> Result<Option<u64>> {
    for position in batch.column(column).as_primitive::<UInt64Type>().values() {
        if last.is_some_and(|last| last >= *position) {
            return internal_err!("node {node} returned its entities in the wrong order");
        }
        last = Some(*position);
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, UInt64Array};

    use super::*;

    #[test]
    fn positions_out_of_order_are_detected() {
        let batch = |positions: &[u64]| {
            let column: ArrayRef = Arc::new(UInt64Array::from(positions.to_vec()));
            RecordBatch::try_from_iter([("position", column)]).expect("a batch")
        };
        let check = |positions: &[u64], last| check_ascending(&batch(positions), 0, last, "n1").ok();
        assert_eq!(check(&[1, 2, 5], Some(0)), Some(Some(5)));
        assert_eq!(check(&[], Some(7)), Some(Some(7)));
        assert_eq!(check(&[1, 1], None), None);
        assert_eq!(check(&[3, 2], None), None);
        assert_eq!(check(&[4], Some(4)), None);
    }
}
