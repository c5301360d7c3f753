//! Step 10: `dedup`, the first of each group in the order so far.

use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::min;
use datafusion::prelude::col;

use super::Pipeline;
use crate::query::scan::schema::GROUP;

pub(super) fn apply(pipeline: Pipeline<'_>) -> Result<Pipeline<'_>> {
    if !pipeline.request.dedup {
        return Ok(pipeline);
    }
    let (order, counted) = (pipeline.order, pipeline.request.count);
    // Aggregation forgets the order of arrival: the first is the minimum, and the order is restored by it.
    pipeline.with(|plan| {
        let firsts = plan.aggregate([col(GROUP)], [min(col(order)).alias(order)])?.project([col(order)])?;
        if counted { Ok(firsts) } else { firsts.sort([col(order).sort(true, false)]) }
    })
}
