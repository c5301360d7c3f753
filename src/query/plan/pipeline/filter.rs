//! Step 6: `filter`, exact and case-insensitive; several are ANDed.

use datafusion::error::Result;

use super::Pipeline;
use crate::model::request::PathValue;
use crate::query::plan::functions::compare;
use crate::query::scan::predicate::Comparison;

pub(super) fn apply(pipeline: Pipeline<'_>) -> Result<Pipeline<'_>> {
    let filters = &pipeline.request.filters;
    Ok(compare_all(pipeline, filters.iter().map(|condition| (Comparison::Equal, condition))))
}

/// All entities in which every path compares with its value.
pub(super) fn compare_all<'a>(
    pipeline: Pipeline<'a>,
    conditions: impl Iterator<Item = (Comparison, &'a PathValue)>,
) -> Pipeline<'a> {
    let denull = pipeline.reshape.denull();
    conditions.fold(pipeline, |pipeline, (comparison, condition)| {
        if pipeline.reshape.sees(condition.path.keys()) {
            pipeline.matching(compare(comparison, &condition.path, &condition.value, denull))
        } else {
            pipeline.matching_nothing()
        }
    })
}
