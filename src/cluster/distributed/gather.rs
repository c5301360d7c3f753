//! What the nodes give, as an operator: a partition for each. It counts rows and bytes by node, and checks that each
//! gives all that it found, and its entities in their order.

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
use strata_query::distribute::{NodeUse, Parts};
use strata_query::operator::{Input, Operator};

use super::ending::Ending;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Running,
    Done,
    /// It has no permit, or no memory left for whom the query runs: nothing is wrong with the node.
    Refused,
    Failed,
}

#[derive(Debug)]
pub(super) struct TaskProgress {
    /// As given, without rows and bytes.
    pub(super) given: NodeUse,
    rows: AtomicU64,
    bytes: AtomicU64,
    end: OnceLock<Stage>,
}

impl TaskProgress {
    pub(super) fn new(given: NodeUse) -> TaskProgress {
        TaskProgress { given, rows: AtomicU64::new(0), bytes: AtomicU64::new(0), end: OnceLock::new() }
    }

    fn set_end(&self, end: Stage) {
        let _ = self.end.set(end);
    }

    pub(super) fn stage(&self) -> Stage {
        self.end.get().copied().unwrap_or(Stage::Running)
    }

    fn count(&self, batch: &RecordBatch) {
        let bytes: usize =
            batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0)).sum();
        self.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// The tasks of a query, in the order of the partitions.
#[derive(Debug)]
pub(super) struct Tasks(pub(super) Vec<TaskProgress>);

impl Parts for Tasks {
    fn used(&self) -> Vec<NodeUse> {
        let used = |task: &TaskProgress| NodeUse {
            rows: task.rows.load(Ordering::Relaxed),
            bytes: task.bytes.load(Ordering::Relaxed),
            ..task.given.clone()
        };
        self.0.iter().map(used).collect()
    }
}

/// What the operator does. What is below comes over the network.
#[derive(Clone, Debug)]
pub(super) struct Gather {
    /// What it gives: rows without their end.
    properties: Arc<PlanProperties>,
    tasks: Arc<Tasks>,
    /// The column of positions, where they must ascend.
    ascending: Option<usize>,
    /// The library runs a copy, and shows this one.
    metrics: ExecutionPlanMetricsSet,
}

impl Gather {
    /// What comes of a part, of which there is one for each task.
    pub(super) fn new(part: &PlanProperties, tasks: Arc<Tasks>, ascending: Option<usize>) -> Gather {
        let properties = PlanProperties::new(
            part.eq_properties.clone(),
            Partitioning::UnknownPartitioning(tasks.0.len()),
            part.emission_type,
            part.boundedness,
        );
        Gather { properties: Arc::new(properties), tasks, ascending, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl Operator for Gather {
    const NAME: &'static str = "GatherTasks";

    fn properties(&self, _: &dyn ExecutionPlan) -> Arc<PlanProperties> {
        self.properties.clone()
    }

    fn describe(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<&str> = self.tasks.0.iter().map(|task| &*task.given.node).collect();
        write!(formatter, "GatherTasks: nodes=[{}]", nodes.join(", "))
    }

    fn execute(&self, input: Input<'_>) -> Result<SendableRecordBatchStream> {
        let Input { partition, schema, .. } = &input;
        let partition = *partition;
        if partition >= self.tasks.0.len() {
            return internal_err!("task {partition} does not exist");
        }
        let batches = input.execute()?;
        let measured = Arc::new(BaselineMetrics::new(&self.metrics, partition));
        let ending = Ending::new(schema.clone(), self.tasks.0[partition].given.node.clone());
        let given = Given { batches, ending, ascending: self.ascending, last: None };
        let tasks = self.tasks.clone();
        let checked = futures::stream::try_unfold(given, move |mut given| {
            let tasks = tasks.clone();
            let measured = measured.clone();
            async move {
                let task = &tasks.0[partition];
                let batch = given.next().await;
                match &batch {
                    Ok(Some(batch)) => task.count(batch),
                    Ok(None) => task.set_end(Stage::Done),
                    Err(error) => task.set_end(match error.find_root() {
                        DataFusionError::ResourcesExhausted(_) => Stage::Refused,
                        _ => Stage::Failed,
                    }),
                }
                Ok(batch?.map(|batch| (batch.record_output(&measured), given)))
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(input.schema, checked)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

struct Given {
    batches: SendableRecordBatchStream,
    ending: Ending,
    ascending: Option<usize>,
    last: Option<u64>,
}

impl Given {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Some(batch) = self.batches.next().await else { return self.ending.end().map(|()| None) };
            let Some(batch) = self.ending.rows(&batch?)? else { continue };
            if let Some(column) = self.ascending {
                self.last = still_ascending(&batch, column, self.last, &self.ending.node)?;
            }
            return Ok(Some(batch));
        }
    }
}

/// The last position of a batch, where all ascend from the last one before.
fn still_ascending(batch: &RecordBatch, column: usize, mut last: Option<u64>, node: &str) -> Result<Option<u64>> {
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
    fn entities_out_of_order_are_noticed_within_and_between_batches() {
        let batch = |positions: &[u64]| {
            let column: ArrayRef = Arc::new(UInt64Array::from(positions.to_vec()));
            RecordBatch::try_from_iter([("position", column)]).expect("a batch")
        };
        let check = |positions: &[u64], last| still_ascending(&batch(positions), 0, last, "n1").ok();
        assert_eq!(check(&[1, 2, 5], Some(0)), Some(Some(5)));
        assert_eq!(check(&[], Some(7)), Some(Some(7)));
        assert_eq!(check(&[1, 1], None), None);
        assert_eq!(check(&[3, 2], None), None);
        assert_eq!(check(&[4], Some(4)), None);
    }
}
