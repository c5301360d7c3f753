//! Where the plan of a query is cut between the nodes and the one that answers.
//!
//! | What is above the scan | A node does | The node that answers |
//! |---|---|---|
//! | a count | scan, partial count | adds up |
//! | the first of each group, for `dedup` | scan, the first of each group of its own | the first of these |
//! | a sort that wants the first `k` | scan, the first `k` of its own | sorts these, and takes the first `k` |
//! | the values of fields, for a diff | scan | adds up |
//! | anything else | scan | merges by position; all that is above |
//!
//! Keys of an order end with the position, so no two are alike.

use std::sync::Arc;

use arrow::compute::SortOptions;
use datafusion::common::internal_datafusion_err;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion_distributed::{DistributedLeafExec, NetworkCoalesceExec};
use strata_query::distribute::Divisible;
use strata_query::fields::scan::FieldScan;
use strata_query::operator::Above;
use strata_query::scan::distinct_cache::KeepFirsts;
use strata_query::scan::schema::POSITION;
use strata_query::scan::version_scan::VersionScan;

use super::gather::{Gather, Tasks};
use super::task::{NodeTask, Runner};

/// The scan of a plan that can be cut: all operators but the scan have one input.
pub(super) fn divisible_scan(plan: &Arc<dyn ExecutionPlan>) -> Option<&dyn Divisible> {
    if let Some(scan) = plan.downcast_ref::<VersionScan>() {
        return scan.is_divisible().then_some(scan as _);
    }
    if let Some(scan) = plan.downcast_ref::<FieldScan>() {
        return scan.is_divisible().then_some(scan as _);
    }
    match plan.children().as_slice() {
        [input] => divisible_scan(input),
        _ => None,
    }
}

pub(super) struct Cut {
    pub(super) scans: Vec<Arc<dyn ExecutionPlan>>,
    pub(super) tasks: Arc<Tasks>,
    /// Where the part of the node that answers runs.
    pub(super) own: Runner,
}

impl Cut {
    /// The plan with what nodes do in the place of its scan.
    pub(super) fn place(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(scan) = plan.downcast_ref::<VersionScan>() {
            return self.rows(scan);
        }
        if plan.is::<FieldScan>() {
            // The operators above these rows look at each row separately.
            return Ok(Arc::new(CoalescePartitionsExec::new(self.gathered(self.leaf(plan)?, None)?)));
        }
        if let Some(aggregate) = plan.downcast_ref::<AggregateExec>()
            && is_divisible(aggregate)
        {
            return self.aggregate(aggregate);
        }
        if let Some(sort) = plan.downcast_ref::<SortExec>()
            && let Some(k) = sort.fetch()
            && is_whole(sort.input())
        {
            return self.first(sort, k);
        }
        let children: Vec<_> = plan.children().into_iter().map(|input| self.place(input)).collect::<Result<_>>()?;
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        let placed = plan.clone().replace_children(children, options)?;
        Ok(match plan.downcast_ref::<AggregateExec>().and_then(keeping) {
            Some(keep) => Arc::new(Above::new(keep, placed)),
            None => placed,
        })
    }

    /// Each counts its own, or finds the first of its groups. The planner may have put the final step above already.
    fn aggregate(&self, aggregate: &AggregateExec) -> Result<Arc<dyn ExecutionPlan>> {
        let aggregated = |mode, groups, input| {
            let functions = aggregate.aggr_expr().to_vec();
            let filters = aggregate.filter_expr().to_vec();
            AggregateExec::try_new(mode, groups, functions, filters, input, aggregate.input_schema())
        };
        let groups = aggregate.group_expr();
        let partial = aggregated(AggregateMode::Partial, groups.clone(), self.leaf(aggregate.input())?)?;
        let gathered = Arc::new(CoalescePartitionsExec::new(self.gathered(Arc::new(partial), None)?));
        match aggregate.mode() {
            AggregateMode::Partial => Ok(gathered),
            _ => Ok(Arc::new(aggregated(AggregateMode::Final, groups.as_final(), gathered)?)),
        }
    }

    fn first(&self, sort: &SortExec, k: usize) -> Result<Arc<dyn ExecutionPlan>> {
        let sorted = |input| Arc::new(SortExec::new(sort.expr().clone(), input).with_fetch(Some(k)));
        let own = sorted(self.leaf(sort.input())?);
        let gathered = Arc::new(CoalescePartitionsExec::new(self.gathered(own, None)?));
        Ok(sorted(gathered))
    }

    /// Each gives what its scan does, in the order of positions.
    fn rows(&self, scan: &VersionScan) -> Result<Arc<dyn ExecutionPlan>> {
        let leaf = self.leaf(&(Arc::new(scan.clone()) as Arc<dyn ExecutionPlan>))?;
        let fetch = scan.most();
        let Ok(position) = scan.schema().index_of(POSITION) else {
            // Only how many there are counts, or what is above sorts by keys that end with the position.
            let gathered = CoalescePartitionsExec::new(self.gathered(leaf, None)?).with_fetch(fetch);
            return Ok(Arc::new(gathered));
        };
        let options = SortOptions { descending: false, nulls_first: false };
        let by_position = PhysicalSortExpr::new(Arc::new(Column::new(POSITION, position)), options);
        let order = LexOrdering::new([by_position])
            .ok_or_else(|| internal_datafusion_err!("cannot create an ordering by position"))?;
        let gathered = self.gathered(leaf, Some(position))?;
        Ok(Arc::new(SortPreservingMergeExec::new(order, gathered).with_fetch(fetch)))
    }

    fn leaf(&self, scan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(DistributedLeafExec::try_new(scan.clone(), self.scans.iter().cloned())?))
    }

    /// What all nodes give of what each does: a partition for each.
    fn gathered(&self, part: Arc<dyn ExecutionPlan>, ascending: Option<usize>) -> Result<Arc<dyn ExecutionPlan>> {
        let gather = Gather::new(part.properties(), self.tasks.clone(), ascending);
        let task = Arc::new(NodeTask::new(self.own.clone(), part));
        let boundary = Arc::new(NetworkCoalesceExec::try_new(task, self.scans.len(), 1)?);
        Ok(Arc::new(Above::new(gather, boundary)))
    }
}

/// What keeps what an aggregate gives, where that is the first of each group of all that a scan finds.
fn keeping(aggregate: &AggregateExec) -> Option<KeepFirsts> {
    let parts = aggregate.input().downcast_ref::<AggregateExec>()?;
    let scan = parts.input().downcast_ref::<VersionScan>()?;
    // Where groups are counted, it gives no positions.
    if aggregate.aggr_expr().is_empty() { None } else { scan.keeping(aggregate.group_expr().expr().len()) }
}

/// Whether a plan is a scan that gives all that it finds: one that ends early would end early on each node.
fn is_whole(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<VersionScan>().is_some_and(|scan| scan.most().is_none())
}

/// Whether an aggregate is of all that a scan finds, and can be made of parts: a count, or the least of each group.
fn is_divisible(aggregate: &AggregateExec) -> bool {
    matches!(aggregate.mode(), AggregateMode::Partial | AggregateMode::Single)
        && aggregate.aggr_expr().iter().all(|function| matches!(function.fun().name(), "count" | "min"))
        && aggregate.filter_expr().iter().all(Option::is_none)
        && aggregate.limit_options().is_none()
        && is_whole(aggregate.input())
}
