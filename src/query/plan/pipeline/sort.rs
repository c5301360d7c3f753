//! Step 9: `sort`, by an order key that the scan computes: it holds the direction, what comes last, and the position,
//! so that one ascending column is a stable sort.

use datafusion::error::Result;
use datafusion::prelude::col;

use super::Pipeline;
use crate::query::scan::schema::ORDER;

pub(super) fn apply(pipeline: Pipeline<'_>) -> Result<Pipeline<'_>> {
    // A dedup forgets the order, and sorts what is left by it.
    if pipeline.order != ORDER || pipeline.request.dedup {
        return Ok(pipeline);
    }
    pipeline.with(|plan| plan.sort([col(ORDER).sort(true, false)]))
}
