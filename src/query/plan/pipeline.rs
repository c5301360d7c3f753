//! The steps of a read as one logical plan, in the order of docs/reference/query-semantics.md, Steps. It gives the
//! positions of the selected entities, in the order of the answer, or their count. A step that a request does not ask
//! for adds nothing.
//!
//! Steps 2 to 5 (`include_source`, `denull`, `keep_field`, `drop_field`) are no nodes of the plan: the steps after them
//! look at entities through [`Reshape`], and the documents that are returned are reshaped then.

use std::sync::Arc;

use datafusion::datasource::{TableProvider, provider_as_source};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::{count, min};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::prelude::{col, lit};
use strata_format::reader::VersionReader;
use strata_types::request::ReadRequest;

use crate::fetch::reshape::Reshape;
use crate::plan::functions::{FunctionKind, compare, keywords};
use crate::plan::table::VersionTable;
use crate::scan::dedup_key::GroupSpec;
use crate::scan::predicate::Comparison;
use crate::scan::schema::{Computed, GROUP, ORDER, POSITION};
use crate::scan::sort_key::OrderSpec;

/// The column that a counting plan gives.
const COUNT: &str = "count";

const SHUFFLE: &str = "shuffle";

const TABLE: &str = "entities";

/// The plan of a request over a version, whose scan works on so many row groups at once. DataFusion refuses none.
pub(super) fn plan(reader: VersionReader, threads: usize, request: &ReadRequest) -> Result<LogicalPlan> {
    let reshape = Reshape::of(request);
    let computed = Computed { order: OrderSpec::of(request, &reshape), group: GroupSpec::of(request, &reshape) };
    // The column that holds the order of entities, which every step that forgets it restores.
    let mut order = if computed.order.is_some() { ORDER } else { POSITION };
    let table: Arc<dyn TableProvider> = Arc::new(VersionTable { reader, threads, computed });
    let mut plan = LogicalPlanBuilder::scan(TABLE, provider_as_source(table), None)?;
    plan = select(plan, request, &reshape)?;
    if request.dedup {
        // Aggregation forgets the order of arrival: the first is the minimum, and the order is restored by it.
        plan = plan.aggregate([col(GROUP)], [min(col(order)).alias(order)])?.project([col(order)])?;
        if !request.count {
            plan = plan.sort([col(order).sort(true, false)])?;
        }
    } else if order == ORDER {
        // The key holds the direction, what comes last, and the position, so that it makes a stable sort.
        plan = plan.sort([col(ORDER).sort(true, false)])?;
    }
    if let Some(sample) = request.sample {
        if !request.count {
            plan = shuffle(plan, position_by(order), request.seed)?;
            order = POSITION;
        }
        plan = plan.limit(0, Some(bounded(sample)))?;
    }
    // After everything that selects: they cut what is left, in its order.
    if request.offset > 0 || request.limit.is_some() {
        plan = plan.limit(bounded(request.offset), request.limit.map(bounded))?;
    }
    if request.count {
        return plan.aggregate(Vec::<Expr>::new(), [count(lit(1_i64)).alias(COUNT)])?.build();
    }
    plan.project([position_by(order)])?.build()
}

/// The entities that meet all conditions, which are one operator, however many they are.
fn select(plan: LogicalPlanBuilder, request: &ReadRequest, reshape: &Reshape) -> Result<LogicalPlanBuilder> {
    let mut conditions = Vec::new();
    for (comparison, condition) in Comparison::of(request) {
        if !reshape.sees(condition.path.keys()) {
            // No entity meets it.
            return plan.limit(0, Some(0));
        }
        conditions.push(compare(comparison, &condition.path, &condition.value, reshape.denull));
    }
    if !request.keywords.is_empty() {
        conditions.push(keywords(&request.keywords, request.keywords_mode, reshape));
    }
    match conjunction(conditions) {
        Some(all) => plan.filter(all),
        None => Ok(plan),
    }
}

/// All of the conditions as one, nested no deeper than the logarithm of their number: whatever goes through a plan
/// recurses as deep as its expressions nest, and a request may have a thousand conditions.
fn conjunction(mut conditions: Vec<Expr>) -> Option<Expr> {
    if conditions.len() < 2 {
        return conditions.pop();
    }
    let second_half = conditions.split_off(conditions.len() / 2);
    Some(conjunction(conditions)?.and(conjunction(second_half)?))
}

/// Entities in random order, or in that of a rank that position and seed determine. The order so far is forgotten, so
/// only positions are carried through it.
fn shuffle(plan: LogicalPlanBuilder, position: Expr, seed: Option<u64>) -> Result<LogicalPlanBuilder> {
    let by_rank = col(SHUFFLE).sort(true, false);
    let (rank, order) = match seed {
        // Of equal ranks, the first position comes first.
        Some(seed) => {
            let rank = FunctionKind::Seeded.call(vec![position.clone().unalias(), lit(seed)]);
            (rank, vec![by_rank, col(POSITION).sort(true, false)])
        }
        None => (FunctionKind::Random.call(Vec::new()), vec![by_rank]),
    };
    plan.project([position, rank.alias(SHUFFLE)])?.sort(order)
}

/// The position of an entity, from the column that holds the order.
fn position_by(order: &str) -> Expr {
    if order != ORDER {
        return col(POSITION);
    }
    FunctionKind::Position.call(vec![col(ORDER)]).alias(POSITION)
}

/// DataFusion adds offset and limit and keeps them as i64; no version has so many entities.
fn bounded(number: u64) -> usize {
    const MOST: usize = (i64::MAX / 4) as usize;
    usize::try_from(number).unwrap_or(usize::MAX).min(MOST)
}
