//! Step 11: `sample`, entities at random without repetition, in random order: the first of a shuffle. The order so far
//! is forgotten, so only positions are carried through it.

use datafusion::error::Result;
use datafusion::prelude::col;

use super::{Pipeline, offset_limit};
use crate::query::plan::functions::random;
use crate::query::scan::schema::POSITION;

const SHUFFLE: &str = "shuffle";

pub(super) fn apply(pipeline: Pipeline<'_>) -> Result<Pipeline<'_>> {
    let Some(sample) = pipeline.request.sample else { return Ok(pipeline) };
    if pipeline.request.count {
        return pipeline.with(|plan| plan.limit(0, Some(offset_limit::bounded(sample))));
    }
    let position = pipeline.position();
    let pipeline = Pipeline { order: POSITION, ..pipeline };
    pipeline.with(|plan| {
        plan.project([position, random().alias(SHUFFLE)])?
            .sort([col(SHUFFLE).sort(true, false)])?
            .limit(0, Some(offset_limit::bounded(sample)))
    })
}
