//! Step 6: `filter`, exact and case-insensitive; several are ANDed.

use datafusion::error::Result;

use super::Pipeline;
use crate::model::request::PathValue;
use crate::query::plan::functions::compare;
use crate::query::scan::predicate::Comparison;

pub(super) fn apply(pipeline: Pipeline<'_>) -> Result<Pipeline<'_>> {
    let filters = &pipeline.request.filters;
    Ok(compare_all(pipeline, Comparison::Equal, filters))
}

/// All entities in which every path compares with its value.
pub(super) fn compare_all<'a>(
    pipeline: Pipeline<'a>,
    comparison: Comparison,
    conditions: &[PathValue],
) -> Pipeline<'a> {
    let denull = pipeline.reshape.denull();
    conditions.iter().fold(pipeline, |pipeline, condition| {
        if pipeline.reshape.sees(condition.path.keys()) {
            pipeline.matching(compare(comparison, &condition.path, &condition.value, denull))
        } else {
            pipeline.matching_nothing()
        }
    })
}
