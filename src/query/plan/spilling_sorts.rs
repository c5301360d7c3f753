//! Rewrites physical plans so that their sorts can spill.
//!
//! [`CompactBeforeSort`]: an aggregate returns its groups as slices of one batch. A sort charges each slice to the
//! memory pool with the size of the whole batch, and fails despite using little memory. So slices are copied first.
//!
//! [`replace_top_k_by_full_sorts`]: the operator for the first `k` rows of an order is fast, but cannot spill. It holds
//! `k` keys with their batches. If keys have megabytes, this can need more memory than a sort that spills.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use crate::scan::version_scan::VersionScan;
use crate::unary_exec::{OperatorInput, UnaryExec, UnaryOperator};

/// An optimizer rule that copies the input of sorts. The batches of scans need no copy, because they own their memory.
#[derive(Debug, Default)]
pub(super) struct CompactBeforeSort;

impl PhysicalOptimizerRule for CompactBeforeSort {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let Some(sort) = plan.downcast_ref::<SortExec>() else { return Ok(Transformed::no(plan)) };
            if sort.fetch().is_some() || is_output_compact(sort.input()) {
                return Ok(Transformed::no(plan));
            }
            let input = compact_sort_input(sort.input());
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

fn is_output_compact(input: &Arc<dyn ExecutionPlan>) -> bool {
    input.is::<VersionScan>() || input.is::<CompactBatchesExec>()
}

fn compact_sort_input(input: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    if is_output_compact(input) {
        return input.clone();
    }
    Arc::new(CompactBatchesExec::new(CompactBatchesOperator::default(), input.clone()))
}

pub(crate) fn replace_top_k_by_full_sorts(plan: Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let changed = plan.transform_up(|plan| {
        let Some((sort, k)) = plan.downcast_ref::<SortExec>().and_then(|sort| Some((sort, sort.fetch()?))) else {
            return Ok(Transformed::no(plan));
        };
        let sorted = Arc::new(SortExec::new(sort.expr().clone(), compact_sort_input(sort.input())));
        Ok(Transformed::yes(Arc::new(GlobalLimitExec::new(sorted, 0, Some(k))) as Arc<dyn ExecutionPlan>))
    })?;
    Ok(changed.transformed.then_some(changed.data))
}

type CompactBatchesExec = UnaryExec<CompactBatchesOperator>;

#[derive(Clone, Debug, Default)]
struct CompactBatchesOperator {
    metrics: ExecutionPlanMetricsSet,
}

fn compact_batch(batch: &RecordBatch) -> Result<RecordBatch> {
    let rows = UInt32Array::from_iter_values(0..u32::try_from(batch.num_rows()).unwrap_or(u32::MAX));
    let columns: Vec<ArrayRef> =
        batch.columns().iter().map(|column| take(column, &rows, None)).collect::<arrow::error::Result<_>>()?;
    Ok(RecordBatch::try_new(batch.schema(), columns)?)
}

impl UnaryOperator for CompactBatchesOperator {
    const NAME: &'static str = "CompactBatches";

    fn execute(&self, input: OperatorInput<'_>) -> Result<SendableRecordBatchStream> {
        let measured = BaselineMetrics::new(&self.metrics, input.partition);
        let batches = input.execute()?.map(move |batch| {
            let _timer = measured.elapsed_compute().timer();
            compact_batch(&batch?).record_output(&measured)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(input.schema, batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
