//! The logical plan of a request, in the order of docs/reference/query-semantics.md, Steps. The output is the positions
//! of the selected entities in the order of the response, or their count.
//!
//! Steps 2 to 5 (`include_source`, `denull`, `keep_field`, `drop_field`) are not nodes of the plan: later steps use
//! [`EntityProjection`], which is applied to the documents when they are returned.

use std::sync::Arc;

use datafusion::datasource::{TableProvider, provider_as_source};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::{count, min};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::prelude::{col, lit};
use strata_format::reader::VersionReader;
use strata_types::read_request::ReadRequest;

use crate::fetch::entity_projection::EntityProjection;
use crate::plan::functions::{PlanFunctionKind, predicate_call};
use crate::plan::version_table::VersionTable;
use crate::scan::dedup_spec::DedupSpec;
use crate::scan::predicate::{ComparisonOperator, Predicate};
use crate::scan::scan_columns::{ComputedColumns, GROUP_COLUMN, ORDER_COLUMN, POSITION_COLUMN};
use crate::scan::sort_key::OrderSpec;

const COUNT_COLUMN: &str = "count";
const SHUFFLE_COLUMN: &str = "shuffle";
const TABLE_NAME: &str = "entities";

pub(super) fn build_logical_plan(reader: VersionReader, threads: usize, request: &ReadRequest) -> Result<LogicalPlan> {
    let projection = EntityProjection::from_request(request);
    let computed = ComputedColumns {
        order: OrderSpec::from_request(request, &projection),
        group: DedupSpec::from_request(request, &projection),
    };
    // The column by which the order is restored after an aggregation, which loses the order.
    let mut order = if computed.order.is_some() { ORDER_COLUMN } else { POSITION_COLUMN };
    let table: Arc<dyn TableProvider> = Arc::new(VersionTable { reader, threads, computed });
    let mut plan = LogicalPlanBuilder::scan(TABLE_NAME, provider_as_source(table), None)?;
    plan = filter_by_predicates(plan, request, &projection)?;
    if request.dedup {
        plan = plan.aggregate([col(GROUP_COLUMN)], [min(col(order)).alias(order)])?.project([col(order)])?;
        if !request.count {
            plan = plan.sort([col(order).sort(true, false)])?;
        }
    } else if order == ORDER_COLUMN {
        // The order key includes the direction and the position of an entity, so the sort is stable.
        plan = plan.sort([col(ORDER_COLUMN).sort(true, false)])?;
    }
    if let Some(sample) = request.sample {
        if !request.count {
            plan = sort_by_shuffle(plan, position_expr(order), request.seed)?;
            order = POSITION_COLUMN;
        }
        plan = plan.limit(0, Some(clamp_row_count(sample)))?;
    }
    if request.offset > 0 || request.limit.is_some() {
        plan = plan.limit(clamp_row_count(request.offset), request.limit.map(clamp_row_count))?;
    }
    if request.count {
        return plan.aggregate(Vec::<Expr>::new(), [count(lit(1_i64)).alias(COUNT_COLUMN)])?.build();
    }
    plan.project([position_expr(order)])?.build()
}

fn filter_by_predicates(
    plan: LogicalPlanBuilder,
    request: &ReadRequest,
    projection: &EntityProjection,
) -> Result<LogicalPlanBuilder> {
    if ComparisonOperator::from_request(request).any(|(_, filter)| !projection.is_path_included(filter.path.keys())) {
        // The projection removes the path of a filter, so no entity matches.
        return plan.limit(0, Some(0));
    }
    match balanced_conjunction(Predicate::from_request(request, projection).map(predicate_call).collect()) {
        Some(all) => plan.filter(all),
        None => Ok(plan),
    }
}

/// Joins predicates, of which a request can have a thousand, in a balanced expression: DataFusion recurses into it.
fn balanced_conjunction(mut conditions: Vec<Expr>) -> Option<Expr> {
    if conditions.len() < 2 {
        return conditions.pop();
    }
    let second_half = conditions.split_off(conditions.len() / 2);
    Some(balanced_conjunction(conditions)?.and(balanced_conjunction(second_half)?))
}

/// Shuffles entities randomly, or by a seed. The order before the shuffle is lost, so the sort needs only positions.
fn sort_by_shuffle(plan: LogicalPlanBuilder, position: Expr, seed: Option<u64>) -> Result<LogicalPlanBuilder> {
    let by_rank = col(SHUFFLE_COLUMN).sort(true, false);
    let (rank, order) = match seed {
        Some(seed) => {
            let rank = PlanFunctionKind::SeededRank.call_with(vec![position.clone().unalias(), lit(seed)]);
            (rank, vec![by_rank, col(POSITION_COLUMN).sort(true, false)])
        }
        None => (PlanFunctionKind::Random.call_with(Vec::new()), vec![by_rank]),
    };
    plan.project([position, rank.alias(SHUFFLE_COLUMN)])?.sort(order)
}

fn position_expr(order_column: &str) -> Expr {
    if order_column != ORDER_COLUMN {
        return col(POSITION_COLUMN);
    }
    PlanFunctionKind::Position.call_with(vec![col(ORDER_COLUMN)]).alias(POSITION_COLUMN)
}

/// Limits a row count, so that DataFusion's sum of offset and limit fits an `i64`. No version has as many entities.
fn clamp_row_count(number: u64) -> usize {
    const MAX: usize = (i64::MAX / 4) as usize;
    usize::try_from(number).unwrap_or(usize::MAX).min(MAX)
}
