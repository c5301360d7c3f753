//! The steps of a read as one logical plan, in the order of docs/semantics.md, Steps.
//!
//! Each step takes the plan so far and the request, and gives the plan with its own part on top. A step that
//! the request does not ask for adds nothing. The plan gives the positions of the selected entities, in the
//! order of the answer, or their count.
//!
//! Steps 2 to 5 (`include_source`, `denull`, `keep_field`, `drop_field`) are no nodes of the plan: the steps after them
//! look at entities through [`Reshape`], and the documents that are returned are reshaped then.

mod dedup;
mod filter;
mod filter_contains;
mod filter_range;
mod keywords;
mod offset_limit;
mod sample;
mod sort;

use std::sync::Arc;

use datafusion::datasource::{TableProvider, provider_as_source};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::prelude::{col, lit};

use crate::model::request::ReadRequest;
use crate::query::fetch::reshape::Reshape;
use crate::query::plan::functions::position;
use crate::query::plan::table::VersionTable;
use crate::query::scan::dedup_key::GroupSpec;
use crate::query::scan::schema::{ORDER, POSITION};
use crate::query::scan::sort_key::OrderSpec;

struct Pipeline<'a> {
    plan: LogicalPlanBuilder,
    request: &'a ReadRequest,
    reshape: Reshape,
    /// The column that holds the order of entities, which every step that forgets it restores.
    order: &'static str,
    /// Conditions that [`select`] puts into the plan, all at once.
    conditions: Vec<Expr>,
    /// Whether no entity meets some other condition.
    nothing: bool,
}

type Step = fn(Pipeline<'_>) -> Result<Pipeline<'_>>;

/// The steps, in the order of docs/semantics.md, Steps.
const STEPS: &[Step] = &[
    filter::apply,
    filter_contains::apply,
    filter_range::apply,
    keywords::apply,
    // After all conditions, which become one operator, however many they are.
    select,
    // Before dedup, which keeps the first of each group in the order so far.
    sort::apply,
    dedup::apply,
    sample::apply,
    // After everything that selects: they cut what is left, in its order.
    offset_limit::apply,
];

pub(super) const COUNT: &str = "count";

const TABLE: &str = "entities";

/// The plan of a request over a version.
pub(super) fn plan(table: VersionTable, request: &ReadRequest) -> Result<LogicalPlan> {
    let reshape = Reshape::of(request);
    let order_spec = OrderSpec::of(request, &reshape);
    let order = if order_spec.is_some() { ORDER } else { POSITION };
    let table = table.with_order(order_spec).with_group(GroupSpec::of(request, &reshape));
    let table: Arc<dyn TableProvider> = Arc::new(table);
    let plan = LogicalPlanBuilder::scan(TABLE, provider_as_source(table), None)?;
    let mut pipeline = Pipeline { plan, request, reshape, order, conditions: Vec::new(), nothing: false };
    for step in STEPS {
        pipeline = step(pipeline)?;
    }
    if request.count {
        return pipeline.plan.aggregate(Vec::<Expr>::new(), [count(lit(1_i64)).alias(COUNT)])?.build();
    }
    let position = pipeline.position();
    pipeline.plan.project([position])?.build()
}

/// The entities that meet all conditions so far.
fn select(mut pipeline: Pipeline<'_>) -> Result<Pipeline<'_>> {
    if pipeline.nothing {
        return pipeline.with(|plan| plan.limit(0, Some(0)));
    }
    match conjunction(std::mem::take(&mut pipeline.conditions)) {
        Some(all) => pipeline.with(|plan| plan.filter(all)),
        None => Ok(pipeline),
    }
}

/// All of the conditions as one, nested no deeper than the logarithm of their number: whatever goes through a plan
/// recurses as deep as its expressions nest, and a request may have a thousand conditions.
fn conjunction(mut conditions: Vec<Expr>) -> Option<Expr> {
    while conditions.len() > 1 {
        let mut left = conditions.into_iter();
        conditions = std::iter::from_fn(|| {
            let first = left.next()?;
            Some(match left.next() {
                Some(second) => first.and(second),
                None => first,
            })
        })
        .collect();
    }
    conditions.pop()
}

impl Pipeline<'_> {
    fn with(self, change: impl FnOnce(LogicalPlanBuilder) -> Result<LogicalPlanBuilder>) -> Result<Self> {
        Ok(Pipeline { plan: change(self.plan)?, ..self })
    }

    /// The position of an entity, from whichever column holds it.
    fn position(&self) -> Expr {
        if self.order == ORDER { position(col(ORDER)).alias(POSITION) } else { col(POSITION) }
    }

    fn matching(mut self, condition: Expr) -> Self {
        self.conditions.push(condition);
        self
    }

    fn matching_nothing(self) -> Self {
        Pipeline { nothing: true, ..self }
    }
}
