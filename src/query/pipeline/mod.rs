//! The steps of a read as one logical plan, in the specification's processing order.
//!
//! Each step takes the plan so far and the request, and gives the plan with its own part on top. A step that
//! the request does not ask for adds nothing. The plan gives the positions of the selected entities, in the
//! order of the answer, or their count.

mod filter;
mod filter_contains;
mod offset_limit;

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::datasource::{TableProvider, provider_as_source};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, LogicalPlanBuilderOptions};
use datafusion::prelude::{col, lit};

use crate::model::request::ReadRequest;
use crate::query::table::{POSITION, VersionTable};

/// One step of the pipeline.
type Step = fn(LogicalPlanBuilder, &ReadRequest) -> Result<LogicalPlanBuilder>;

/// The steps, in the order of the specification ("Processing order"); the rest of that list joins them here.
const STEPS: &[Step] = &[
    filter::apply,
    filter_contains::apply,
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
    let table: Arc<dyn TableProvider> = Arc::new(table);
    let mut plan = LogicalPlanBuilder::scan(TABLE, provider_as_source(table), None)?;
    for step in STEPS {
        plan = step(plan, request)?;
    }
    if request.count {
        let options = LogicalPlanBuilderOptions::new();
        let nothing: [datafusion::logical_expr::Expr; 0] = [];
        return plan.with_options(options).aggregate(nothing, [count(lit(1_i64)).alias(COUNT)])?.build();
    }
    debug_assert!(DFSchema::has_column_with_unqualified_name(plan.schema(), POSITION));
    plan.project([col(POSITION)])?.build()
}
