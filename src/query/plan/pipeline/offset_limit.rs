//! Steps 12 and 13: `offset`, then `limit`.

use datafusion::error::Result;

use super::Pipeline;

pub(super) fn apply(pipeline: Pipeline<'_>) -> Result<Pipeline<'_>> {
    let (offset, limit) = (pipeline.request.offset, pipeline.request.limit);
    if offset == 0 && limit.is_none() {
        return Ok(pipeline);
    }
    pipeline.with(|plan| plan.limit(bounded(offset), limit.map(bounded)))
}

/// DataFusion adds offset and limit and keeps them as i64; no version has so many entities.
pub(super) fn bounded(number: u64) -> usize {
    const MOST: usize = (i64::MAX / 4) as usize;
    usize::try_from(number).unwrap_or(usize::MAX).min(MOST)
}
