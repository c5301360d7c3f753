//! The logical plan of a request, in the order of docs/reference/query-semantics.md, Steps. It returns the positions of
//! the selected entities, in the order of the response, or their count.
//!
//! Steps 2 to 5 (`include_source`, `denull`, `keep_field`, `drop_field`) are not nodes of the plan: later steps use
//! [`Reshape`], and documents are reshaped when they are returned.

use std::sync::Arc;

use datafusion::datasource::{TableProvider, provider_as_source};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::{count, min};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::prelude::{col, lit};
use strata_format::reader::VersionReader;
use strata_types::request::ReadRequest;

use crate::fetch::reshape::Reshape;
use crate::plan::functions::{FunctionKind, call_predicate};
use crate::plan::table::VersionTable;
use crate::scan::dedup_key::GroupSpec;
use crate::scan::predicate::{Comparison, Predicate};
use crate::scan::schema::{Computed, GROUP, ORDER, POSITION};
use crate::scan::sort_key::OrderSpec;

const COUNT: &str = "count";
const SHUFFLE: &str = "shuffle";
const TABLE: &str = "entities";

/// The plan of a request. The scan processes `threads` row groups at once.
pub(super) fn plan(reader: VersionReader, threads: usize, request: &ReadRequest) -> Result<LogicalPlan> {
    let reshape = Reshape::of(request);
    let computed = Computed {
        order: OrderSpec::from_request(request, &reshape),
        group: GroupSpec::from_request(request, &reshape),
    };
    // The column that restores the order after a step that loses it.
    let mut order = if computed.order.is_some() { ORDER } else { POSITION };
    let table: Arc<dyn TableProvider> = Arc::new(VersionTable { reader, threads, computed });
    let mut plan = LogicalPlanBuilder::scan(TABLE, provider_as_source(table), None)?;
    plan = select(plan, request, &reshape)?;
    if request.dedup {
        // Aggregation loses the order: the first entity is the minimum, and the order is restored by it.
        plan = plan.aggregate([col(GROUP)], [min(col(order)).alias(order)])?.project([col(order)])?;
        if !request.count {
            plan = plan.sort([col(order).sort(true, false)])?;
        }
    } else if order == ORDER {
        // The key contains the direction and the position, so the sort is stable.
        plan = plan.sort([col(ORDER).sort(true, false)])?;
    }
    if let Some(sample) = request.sample {
        if !request.count {
            plan = shuffle(plan, position_by(order), request.seed)?;
            order = POSITION;
        }
        plan = plan.limit(0, Some(bounded(sample)))?;
    }
    // After all selecting steps.
    if request.offset > 0 || request.limit.is_some() {
        plan = plan.limit(bounded(request.offset), request.limit.map(bounded))?;
    }
    if request.count {
        return plan.aggregate(Vec::<Expr>::new(), [count(lit(1_i64)).alias(COUNT)])?.build();
    }
    plan.project([position_by(order)])?.build()
}

/// The entities that match all conditions, in one operator.
fn select(plan: LogicalPlanBuilder, request: &ReadRequest, reshape: &Reshape) -> Result<LogicalPlanBuilder> {
    if Comparison::from_request(request).any(|(_, condition)| !reshape.sees(condition.path.keys())) {
        // No entity matches.
        return plan.limit(0, Some(0));
    }
    match conjunction(Predicate::from_request(request, reshape).map(call_predicate).collect()) {
        Some(all) => plan.filter(all),
        None => Ok(plan),
    }
}

/// All conditions in a balanced expression: there can be a thousand, and DataFusion recurses into expressions.
fn conjunction(mut conditions: Vec<Expr>) -> Option<Expr> {
    if conditions.len() < 2 {
        return conditions.pop();
    }
    let second_half = conditions.split_off(conditions.len() / 2);
    Some(conjunction(conditions)?.and(conjunction(second_half)?))
}

/// Shuffles entities randomly, or by a seed. The previous order is lost, so the plan needs only positions.
fn shuffle(plan: LogicalPlanBuilder, position: Expr, seed: Option<u64>) -> Result<LogicalPlanBuilder> {
    let by_rank = col(SHUFFLE).sort(true, false);
    let (rank, order) = match seed {
        Some(seed) => {
            let rank = FunctionKind::Seeded.call(vec![position.clone().unalias(), lit(seed)]);
            (rank, vec![by_rank, col(POSITION).sort(true, false)])
        }
        None => (FunctionKind::Random.call(Vec::new()), vec![by_rank]),
    };
    plan.project([position, rank.alias(SHUFFLE)])?.sort(order)
}

/// The position of an entity, from the column of the order.
fn position_by(order: &str) -> Expr {
    if order != ORDER {
        return col(POSITION);
    }
    FunctionKind::Position.call(vec![col(ORDER)]).alias(POSITION)
}

/// DataFusion adds offset and limit as i64. No version has as many entities.
fn bounded(number: u64) -> usize {
    const MAX: usize = (i64::MAX / 4) as usize;
    usize::try_from(number).unwrap_or(usize::MAX).min(MAX)
}
