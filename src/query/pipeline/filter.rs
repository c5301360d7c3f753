//! Step 6: `filter`, exact and case-insensitive; several are ANDed.

use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlanBuilder;

use crate::model::request::ReadRequest;
use crate::query::functions::compare;
use crate::query::predicate::Comparison;

pub(super) fn apply(plan: LogicalPlanBuilder, request: &ReadRequest) -> Result<LogicalPlanBuilder> {
    request
        .filters
        .iter()
        .try_fold(plan, |plan, filter| plan.filter(compare(Comparison::Equal, &filter.path, &filter.value)))
}
