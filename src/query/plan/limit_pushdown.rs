//! A physical optimizer rule that pushes `offset`, `limit`, sorts with a limit, and `dedup` into the scan below them.
//!
//! Without predicates, the scan then starts at the offset. With predicates, the scan ends when enough entities have
//! matched. Below a sort, the scan skips rows that cannot be among the first. Below the aggregate of a `dedup`, the
//! scan skips rows that are not the first of their group.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::sorts::sort::SortExec;

use crate::scan::scan_columns::{GROUP_COLUMN, ORDER_COLUMN, POSITION_COLUMN};
use crate::scan::version_scan::VersionScan;

#[derive(Debug, Default)]
pub(super) struct LimitPushdown;

impl PhysicalOptimizerRule for LimitPushdown {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|plan| {
            if let Some(sort) = plan.downcast_ref::<SortExec>() {
                return match (sort.fetch(), sort.input().downcast_ref::<VersionScan>()) {
                    // DataFusion's operator for the first rows of a sort panics for zero, so an empty plan replaces it.
                    (Some(0), _) => Ok(Transformed::yes(Arc::new(EmptyExec::new(plan.schema())) as _)),
                    (Some(k), Some(scan)) if is_sort_by_order_key(sort) => {
                        let scan: Arc<dyn ExecutionPlan> = Arc::new(scan.with_top_k(k));
                        let sort = SortExec::new(sort.expr().clone(), scan).with_fetch(Some(k));
                        Ok(Transformed::yes(Arc::new(sort) as Arc<dyn ExecutionPlan>))
                    }
                    _ => Ok(Transformed::no(plan)),
                };
            }
            if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
                return match aggregate.input().downcast_ref::<VersionScan>() {
                    Some(scan) if is_first_row_per_group(aggregate) => {
                        let scan: Arc<dyn ExecutionPlan> = Arc::new(scan.with_distinct());
                        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
                        Ok(Transformed::yes(plan.replace_children(vec![scan], options)?))
                    }
                    _ => Ok(Transformed::no(plan)),
                };
            }
            let (input, skip, fetch) = if let Some(limit) = plan.downcast_ref::<GlobalLimitExec>() {
                (limit.input(), limit.skip(), limit.fetch())
            } else if let Some(limit) = plan.downcast_ref::<LocalLimitExec>() {
                (limit.input(), 0, Some(limit.fetch()))
            } else {
                return Ok(Transformed::no(plan));
            };
            // A sort with the same limit needs no limit operator above it.
            if let Some(sort) = input.downcast_ref::<SortExec>()
                && skip == 0
                && sort.fetch() == fetch
            {
                return Ok(Transformed::yes(input.clone()));
            }
            let Some(scan) = input.downcast_ref::<VersionScan>() else { return Ok(Transformed::no(plan)) };
            Ok(Transformed::yes(scan.with_limit(skip, fetch)))
        })
        .data()
    }

    fn name(&self) -> &str {
        "LimitPushdown"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn is_sort_by_order_key(sort: &SortExec) -> bool {
    let [key] = sort.expr().as_ref() else { return false };
    !key.options.descending && key.expr.downcast_ref::<Column>().is_some_and(|column| column.name() == ORDER_COLUMN)
}

fn is_first_row_per_group(aggregate: &AggregateExec) -> bool {
    let has_table_column = |expression: &Arc<dyn PhysicalExpr>, names: &[&str]| {
        expression.downcast_ref::<Column>().is_some_and(|column| names.contains(&column.name()))
    };
    let [(group, _)] = aggregate.group_expr().expr() else { return false };
    has_table_column(group, &[GROUP_COLUMN])
        && match aggregate.aggr_expr() {
            // Without aggregate functions, the result is the number of groups.
            [] => true,
            [function] => {
                let is_order = |arguments: &[Arc<dyn PhysicalExpr>]| {
                    arguments.len() == 1 && has_table_column(&arguments[0], &[ORDER_COLUMN, POSITION_COLUMN])
                };
                function.fun().name() == "min" && is_order(&function.expressions())
            }
            _ => false,
        }
}
