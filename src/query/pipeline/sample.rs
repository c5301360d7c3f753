//! Step 11: `sample`, entities at random without repetition, in random order: the first of a shuffle.

use datafusion::error::Result;
use datafusion::prelude::col;

use super::{Pipeline, offset_limit};
use crate::query::functions::random;

const SHUFFLE: &str = "shuffle";

pub(super) fn apply(pipeline: Pipeline<'_>) -> Result<Pipeline<'_>> {
    let Some(sample) = pipeline.request.sample else { return Ok(pipeline) };
    let (order, counted) = (pipeline.order, pipeline.request.count);
    pipeline.with(|plan| {
        if counted {
            return plan.limit(0, Some(offset_limit::bounded(sample)));
        }
        plan.project([col(order), random().alias(SHUFFLE)])?
            .sort([col(SHUFFLE).sort(true, false)])?
            .limit(0, Some(offset_limit::bounded(sample)))
    })
}
