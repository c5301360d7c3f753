//! Step 11: `sample`, entities at random without repetition, in random order: the first of a shuffle. The order so far
//! is forgotten, so only positions are carried through it. With a seed the shuffle is by a rank that position and seed
//! determine.

use datafusion::error::Result;
use datafusion::prelude::col;

use super::{Pipeline, offset_limit};
use crate::query::plan::functions::{random, seeded};
use crate::query::scan::schema::POSITION;

const SHUFFLE: &str = "shuffle";

pub(super) fn apply(pipeline: Pipeline<'_>) -> Result<Pipeline<'_>> {
    let Some(sample) = pipeline.request.sample else { return Ok(pipeline) };
    if pipeline.request.count {
        return pipeline.with(|plan| plan.limit(0, Some(offset_limit::bounded(sample))));
    }
    let position = pipeline.position();
    let pipeline = Pipeline { order: POSITION, ..pipeline };
    let by_rank = col(SHUFFLE).sort(true, false);
    let (shuffle, order) = match pipeline.request.seed {
        // Of equal ranks, the first position comes first.
        Some(seed) => (seeded(position.clone().unalias(), seed), vec![by_rank, col(POSITION).sort(true, false)]),
        None => (random(), vec![by_rank]),
    };
    pipeline.with(|plan| {
        plan.project([position, shuffle.alias(SHUFFLE)])?.sort(order)?.limit(0, Some(offset_limit::bounded(sample)))
    })
}
