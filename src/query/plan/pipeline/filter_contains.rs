//! Step 7: `filter_contains`, a case-insensitive substring; several are ANDed.

use datafusion::error::Result;

use super::{Pipeline, filter};
use crate::query::scan::predicate::Comparison;

pub(super) fn apply(pipeline: Pipeline<'_>) -> Result<Pipeline<'_>> {
    let filters = &pipeline.request.filters_contain;
    Ok(filter::compare_all(pipeline, filters.iter().map(|condition| (Comparison::Contains, condition))))
}
