//! A change of a physical plan: what sorts for the first of an order hold in memory, sorts of everything spill.
//!
//! The operator for the first `k` of an order is fast, and cannot spill. It keeps `k` keys, and the batches that they
//! came in. Keys of megabytes may need more memory than there is, where a sort of all of them gets by with that of a
//! few batches.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;

use crate::query::plan::compact;

/// The plan with sorts that spill; `None` where all of them do.
pub(in crate::query) fn spilling(plan: Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let changed = plan.transform_up(|plan| {
        let Some((sort, k)) = plan.downcast_ref::<SortExec>().and_then(|sort| Some((sort, sort.fetch()?))) else {
            return Ok(Transformed::no(plan));
        };
        let input = compact::before_sort(sort.input());
        let all = Arc::new(SortExec::new(sort.expr().clone(), input));
        Ok(Transformed::yes(Arc::new(GlobalLimitExec::new(all, 0, Some(k))) as Arc<dyn ExecutionPlan>))
    })?;
    Ok(changed.transformed.then_some(changed.data))
}
