//! The steps of a read as one logical plan, in the specification's processing order.
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
use crate::query::functions::position;
use crate::query::reshape::Reshape;
use crate::query::table::{ORDER, POSITION, VersionTable};

/// The plan so far.
struct Pipeline<'a> {
    plan: LogicalPlanBuilder,
    request: &'a ReadRequest,
    reshape: Reshape,
    /// The column that holds the order of entities, which every step that forgets it restores.
    order: &'static str,
}

/// One step of the pipeline.
type Step = fn(Pipeline<'_>) -> Result<Pipeline<'_>>;

/// The steps, in the order of the specification ("Processing order").
const STEPS: &[Step] = &[
    filter::apply,
    filter_contains::apply,
    keywords::apply,
    // Before dedup, which keeps the first of each group in the order so far.
    sort::apply,
    dedup::apply,
    sample::apply,
    // After everything that selects: they cut what is left, in its order.
    offset_limit::apply,
];

/// The name of the column that a counting plan gives.
pub const COUNT: &str = "count";

/// The name that the version has in plans.
const TABLE: &str = "entities";

/// The plan of a request over a version.
///
/// # Errors
/// When DataFusion refuses the plan, which no request should bring about.
pub fn plan(table: VersionTable, request: &ReadRequest) -> Result<LogicalPlan> {
    let reshape = Reshape::of(request);
    let order_spec = sort::order_spec(request, &reshape);
    let order = if order_spec.is_some() { ORDER } else { POSITION };
    let table = table.with_order(order_spec).with_group(dedup::group_spec(request, &reshape));
    let table: Arc<dyn TableProvider> = Arc::new(table);
    let plan = LogicalPlanBuilder::scan(TABLE, provider_as_source(table), None)?;
    let mut pipeline = Pipeline { plan, request, reshape, order };
    for step in STEPS {
        pipeline = step(pipeline)?;
    }
    if request.count {
        return pipeline.plan.aggregate(Vec::<Expr>::new(), [count(lit(1_i64)).alias(COUNT)])?.build();
    }
    let position = pipeline.position();
    pipeline.plan.project([position])?.build()
}

impl Pipeline<'_> {
    /// The same with a new plan.
    fn with(self, change: impl FnOnce(LogicalPlanBuilder) -> Result<LogicalPlanBuilder>) -> Result<Self> {
        Ok(Pipeline { plan: change(self.plan)?, ..self })
    }

    /// The position of an entity, from whichever column holds it.
    fn position(&self) -> Expr {
        if self.order == ORDER { position(col(ORDER)).alias(POSITION) } else { col(POSITION) }
    }

    /// Nothing is selected.
    fn nothing(self) -> Result<Self> {
        self.with(|plan| plan.limit(0, Some(0)))
    }
}
