//! A plan node and a physical rule: batches that are slices of larger ones are copied before they are sorted.
//!
//! An aggregate gives its groups as slices of one batch. A sort charges every slice to the memory pool with all that it
//! keeps alive, which is that whole batch each time, and gives up although little is held. A copy keeps itself alone.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use datafusion::common::config::ConfigOptions;
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::ReplaceChildrenOptions;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt;

use crate::query::scan::version_scan::VersionScan;

/// The rule: below every sort whose input is not the scan itself, which gives batches of their own.
#[derive(Debug, Default)]
pub(in crate::query) struct CompactBeforeSort;

impl PhysicalOptimizerRule for CompactBeforeSort {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let Some(sort) = plan.downcast_ref::<SortExec>() else { return Ok(Transformed::no(plan)) };
            if sort.fetch().is_some() || is_compact(sort.input()) {
                return Ok(Transformed::no(plan));
            }
            let input = before_sort(sort.input());
            let sort: Arc<dyn ExecutionPlan> = Arc::new(SortExec::new(sort.expr().clone(), input));
            Ok(Transformed::yes(sort))
        })
        .data()
    }

    fn name(&self) -> &str {
        "CompactBeforeSort"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether an operator gives batches of their own.
fn is_compact(input: &Arc<dyn ExecutionPlan>) -> bool {
    input.is::<VersionScan>() || input.is::<CompactBatches>()
}

/// What a sort that spills has below it, for this input.
pub(super) fn before_sort(input: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    if is_compact(input) { input.clone() } else { Arc::new(CompactBatches::new(input.clone())) }
}

/// The node. Order, partitions and rows are those of its input.
#[derive(Debug)]
struct CompactBatches {
    input: Arc<dyn ExecutionPlan>,
    metrics: ExecutionPlanMetricsSet,
}

impl CompactBatches {
    fn new(input: Arc<dyn ExecutionPlan>) -> CompactBatches {
        CompactBatches { input, metrics: ExecutionPlanMetricsSet::new() }
    }
}

/// The node above its only child.
fn above(children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
    match <[_; 1]>::try_from(children) {
        Ok([input]) => Ok(Arc::new(CompactBatches::new(input))),
        Err(_) => internal_err!("batches to compact come from one plan"),
    }
}

/// The rows of a batch in memory of their own.
fn compact(batch: &RecordBatch) -> Result<RecordBatch> {
    let rows = UInt32Array::from_iter_values(0..u32::try_from(batch.num_rows()).unwrap_or(u32::MAX));
    let columns: Vec<ArrayRef> =
        batch.columns().iter().map(|column| take(column, &rows, None)).collect::<arrow::error::Result<_>>()?;
    Ok(RecordBatch::try_new(batch.schema(), columns)?)
}

impl DisplayAs for CompactBatches {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CompactBatches")
    }
}

impl ExecutionPlan for CompactBatches {
    fn name(&self) -> &'static str {
        "CompactBatches"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        above(children)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        above(children)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let batches = self.input.execute(partition, context)?;
        let schema = batches.schema();
        let measured = BaselineMetrics::new(&self.metrics, partition);
        let batches = batches.map(move |batch| {
            let _timer = measured.elapsed_compute().timer();
            compact(&batch?).record_output(&measured)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
