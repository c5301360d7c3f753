//! Step 7: `filter_contains`, a case-insensitive substring; several are ANDed.

use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlanBuilder;

use crate::model::request::ReadRequest;
use crate::query::functions::compare;
use crate::query::predicate::Comparison;

pub(super) fn apply(plan: LogicalPlanBuilder, request: &ReadRequest) -> Result<LogicalPlanBuilder> {
    request
        .filters_contain
        .iter()
        .try_fold(plan, |plan, filter| plan.filter(compare(Comparison::Contains, &filter.path, &filter.value)))
}
