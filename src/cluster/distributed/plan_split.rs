//! Splits the plan of a query into the part that each node runs and the part of the coordinating node.
//!
//! | Operator above the scan | Each node | Coordinating node |
//! |---|---|---|
//! | a count | scan, partial count | sum |
//! | the first entity of each group, for `dedup` | scan, first entity of each local group | first of these |
//! | a sort with a limit of `k` | scan, local top `k` | sort, top `k` |
//! | the values of fields, for a diff | scan | aggregation |
//! | other operators | scan | merge by position, then the operators |
//!
//! All sort keys end with the position, so no two keys are equal.

use std::sync::Arc;

use arrow::compute::SortOptions;
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
use strata_query::distribution::PartitionableScan;
use strata_query::fields::field_scan::FieldScan;
use strata_query::scan::distinct_cache::FillDistinctCacheOperator;
use strata_query::scan::scan_columns::POSITION_COLUMN;
use strata_query::scan::version_scan::VersionScan;
use strata_query::unary_exec::UnaryExec;

use super::gather::{GatherTasks, QueryTasks};
use super::remote_task::{NodeTaskExec, TaskRunner};

/// Returns the scan of a plan if the plan can be split: all operators except the scan have exactly one input.
pub(super) fn partitionable_scan(plan: &Arc<dyn ExecutionPlan>) -> Option<&dyn PartitionableScan> {
    if let Some(scan) = plan.downcast_ref::<VersionScan>() {
        return scan.can_split_across_nodes().then_some(scan as _);
    }
    if let Some(scan) = plan.downcast_ref::<FieldScan>() {
        return scan.can_split_across_nodes().then_some(scan as _);
    }
    match plan.children().as_slice() {
        [input] => partitionable_scan(input),
        _ => None,
    }
}

pub(super) struct PlanSplitter {
    pub(super) scans: Vec<Arc<dyn ExecutionPlan>>,
    pub(super) tasks: Arc<QueryTasks>,
    pub(super) local_runner: TaskRunner,
}

impl PlanSplitter {
    pub(super) fn distribute(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(scan) = plan.downcast_ref::<VersionScan>() {
            return self.split_scan(scan);
        }
        if plan.is::<FieldScan>() {
            // The operators above a scan that reads field values for a diff do not depend on the order of rows.
            let gathered = self.gather_from_nodes(self.distributed_leaf(plan)?, None)?;
            return Ok(Arc::new(CoalescePartitionsExec::new(gathered)));
        }
        if let Some(aggregate) = plan.downcast_ref::<AggregateExec>()
            && is_splittable_aggregate(aggregate)
        {
            return self.split_aggregate(aggregate);
        }
        if let Some(sort) = plan.downcast_ref::<SortExec>()
            && let Some(k) = sort.fetch()
            && is_unlimited_scan(sort.input())
        {
            return self.split_top_k(sort, k);
        }
        let children: Vec<_> =
            plan.children().into_iter().map(|input| self.distribute(input)).collect::<Result<_>>()?;
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        let split = plan.clone().replace_children(children, options)?;
        Ok(match plan.downcast_ref::<AggregateExec>().and_then(distinct_cache_writer) {
            Some(cache_operator) => Arc::new(UnaryExec::new(cache_operator, split)),
            None => split,
        })
    }

    /// Splits an aggregate: each node runs the partial aggregate. Adds the final aggregate unless the plan has one.
    fn split_aggregate(&self, aggregate: &AggregateExec) -> Result<Arc<dyn ExecutionPlan>> {
        let aggregated = |mode, groups, input| {
            let functions = aggregate.aggr_expr().to_vec();
            let filters = aggregate.filter_expr().to_vec();
            AggregateExec::try_new(mode, groups, functions, filters, input, aggregate.input_schema())
        };
        let groups = aggregate.group_expr();
        let partial = aggregated(AggregateMode::Partial, groups.clone(), self.distributed_leaf(aggregate.input())?)?;
        let gathered = Arc::new(CoalescePartitionsExec::new(self.gather_from_nodes(Arc::new(partial), None)?));
        match aggregate.mode() {
            AggregateMode::Partial => Ok(gathered),
            _ => Ok(Arc::new(aggregated(AggregateMode::Final, groups.as_final(), gathered)?)),
        }
    }

    fn split_top_k(&self, sort: &SortExec, k: usize) -> Result<Arc<dyn ExecutionPlan>> {
        let sorted = |input| Arc::new(SortExec::new(sort.expr().clone(), input).with_fetch(Some(k)));
        let local = sorted(self.distributed_leaf(sort.input())?);
        Ok(sorted(Arc::new(CoalescePartitionsExec::new(self.gather_from_nodes(local, None)?))))
    }

    /// Splits a scan: each node returns its rows ordered by position, and the coordinating node merges them.
    fn split_scan(&self, scan: &VersionScan) -> Result<Arc<dyn ExecutionPlan>> {
        let leaf = self.distributed_leaf(&(Arc::new(scan.clone()) as Arc<dyn ExecutionPlan>))?;
        let fetch = scan.max_entities();
        let Ok(position) = scan.schema().index_of(POSITION_COLUMN) else {
            // If the scan does not return the positions of entities, the operators above it only count rows, or sort by
            // keys that end with the position.
            return Ok(Arc::new(CoalescePartitionsExec::new(self.gather_from_nodes(leaf, None)?).with_fetch(fetch)));
        };
        let options = SortOptions { descending: false, nulls_first: false };
        let by_position = PhysicalSortExpr::new(Arc::new(Column::new(POSITION_COLUMN, position)), options);
        let gathered = self.gather_from_nodes(leaf, Some(position))?;
        Ok(Arc::new(SortPreservingMergeExec::new(LexOrdering::from([by_position]), gathered).with_fetch(fetch)))
    }

    fn distributed_leaf(&self, scan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(DistributedLeafExec::try_new(scan.clone(), self.scans.iter().cloned())?))
    }

    fn gather_from_nodes(
        &self,
        part: Arc<dyn ExecutionPlan>,
        position_column: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let gather = GatherTasks::new(part.properties(), self.tasks.clone(), position_column);
        let task = Arc::new(NodeTaskExec::new(self.local_runner.clone(), part));
        let boundary = Arc::new(NetworkCoalesceExec::try_new(task, self.scans.len(), 1)?);
        Ok(Arc::new(UnaryExec::new(gather, boundary)))
    }
}

/// Returns the operator that caches the first entity of each group; `None` if an aggregate does not find all of them.
fn distinct_cache_writer(aggregate: &AggregateExec) -> Option<FillDistinctCacheOperator> {
    let parts = aggregate.input().downcast_ref::<AggregateExec>()?;
    let scan = parts.input().downcast_ref::<VersionScan>()?;
    // A plan that only counts groups returns no positions, so it finds no entities that could be cached.
    if aggregate.aggr_expr().is_empty() {
        return None;
    }
    scan.distinct_cache_operator(aggregate.group_expr().expr().len())
}

/// Returns whether a plan is a scan without a limit. A scan with a limit would apply the limit on each node.
fn is_unlimited_scan(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<VersionScan>().is_some_and(|scan| scan.max_entities().is_none())
}

/// Returns whether an aggregate of an unlimited scan can be computed from partial aggregates: a count or a minimum.
fn is_splittable_aggregate(aggregate: &AggregateExec) -> bool {
    matches!(aggregate.mode(), AggregateMode::Partial | AggregateMode::Single)
        && aggregate.aggr_expr().iter().all(|function| matches!(function.fun().name(), "count" | "min"))
        && aggregate.filter_expr().iter().all(Option::is_none)
        && aggregate.limit_options().is_none()
        && is_unlimited_scan(aggregate.input())
}
