//! Steps 12 and 13: `offset`, then `limit`.

use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlanBuilder;

use crate::model::request::ReadRequest;

pub(super) fn apply(plan: LogicalPlanBuilder, request: &ReadRequest) -> Result<LogicalPlanBuilder> {
    if request.offset == 0 && request.limit.is_none() {
        return Ok(plan);
    }
    // DataFusion adds the two and keeps them as i64; no version has so many entities.
    let bounded = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).min(MOST);
    plan.limit(bounded(request.offset), request.limit.map(bounded))
}

const MOST: usize = (i64::MAX / 4) as usize;
