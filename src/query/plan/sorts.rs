//! Changes of a physical plan that let its sorts spill.
//!
//! [`CompactBeforeSort`]: an aggregate returns its groups as slices of one batch. A sort charges every slice to the
//! memory pool with the whole batch, and fails although it uses little memory. So the slices are copied before.
//!
//! [`spilling`]: the operator for the first `k` of an order is fast, but cannot spill. It keeps `k` keys with their
//! batches. If keys have megabytes, this can need more memory than a sort that spills.

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

use crate::operator::{Above, Input, Operator};
use crate::scan::version_scan::VersionScan;

/// Applies to sorts whose input is not a scan, which returns batches that own their memory.
#[derive(Debug, Default)]
pub(super) struct CompactBeforeSort;

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

fn is_compact(input: &Arc<dyn ExecutionPlan>) -> bool {
    input.is::<VersionScan>() || input.is::<CompactBatches>()
}

/// The input of a sort that spills.
fn before_sort(input: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    if is_compact(input) { input.clone() } else { Arc::new(CompactBatches::new(Compact::default(), input.clone())) }
}

/// The plan with sorts that can spill. `None` if all of them can.
pub(crate) fn spilling(plan: Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let changed = plan.transform_up(|plan| {
        let Some((sort, k)) = plan.downcast_ref::<SortExec>().and_then(|sort| Some((sort, sort.fetch()?))) else {
            return Ok(Transformed::no(plan));
        };
        let all = Arc::new(SortExec::new(sort.expr().clone(), before_sort(sort.input())));
        Ok(Transformed::yes(Arc::new(GlobalLimitExec::new(all, 0, Some(k))) as Arc<dyn ExecutionPlan>))
    })?;
    Ok(changed.transformed.then_some(changed.data))
}

type CompactBatches = Above<Compact>;

#[derive(Clone, Debug, Default)]
struct Compact {
    metrics: ExecutionPlanMetricsSet,
}

/// Copies a batch.
fn compact(batch: &RecordBatch) -> Result<RecordBatch> {
    let rows = UInt32Array::from_iter_values(0..u32::try_from(batch.num_rows()).unwrap_or(u32::MAX));
    let columns: Vec<ArrayRef> =
        batch.columns().iter().map(|column| take(column, &rows, None)).collect::<arrow::error::Result<_>>()?;
    Ok(RecordBatch::try_new(batch.schema(), columns)?)
}

impl Operator for Compact {
    const NAME: &'static str = "CompactBatches";

    fn execute(&self, input: Input<'_>) -> Result<SendableRecordBatchStream> {
        let measured = BaselineMetrics::new(&self.metrics, input.partition);
        let batches = input.execute()?.map(move |batch| {
            let _timer = measured.elapsed_compute().timer();
            compact(&batch?).record_output(&measured)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(input.schema, batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
