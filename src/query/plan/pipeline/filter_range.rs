//! The range filters `filter_gt`, `filter_gte`, `filter_lt` and `filter_lte`; several are ANDed, and those that others
//! imply are left out.

use datafusion::error::Result;

use super::{Pipeline, filter};
use crate::query::scan::predicate::Comparison;
use crate::query::scan::tightest::tightest;

pub(super) fn apply(pipeline: Pipeline<'_>) -> Result<Pipeline<'_>> {
    let ranges = tightest(pipeline.request).into_iter();
    Ok(filter::compare_all(pipeline, ranges.map(|(bound, condition)| (Comparison::Range(bound), condition))))
}
