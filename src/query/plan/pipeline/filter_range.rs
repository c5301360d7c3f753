//! The range filters `filter_gt`, `filter_gte`, `filter_lt` and `filter_lte`; several are ANDed.

use datafusion::error::Result;

use super::{Pipeline, filter};
use crate::query::scan::predicate::Comparison;

pub(super) fn apply(pipeline: Pipeline<'_>) -> Result<Pipeline<'_>> {
    let ranges = pipeline.request.ranges();
    Ok(filter::compare_all(pipeline, ranges.map(|(bound, condition)| (Comparison::Range(bound), condition))))
}
