//! Drops range filters that other range filters imply (docs/reference/filters.md, Range filters).
//!
//! An entity matches a lower limit if some value at the path is above it. A value above the greatest limit is above all
//! lower limits, so the greatest lower limit is sufficient, and so is the least upper limit. A lower and an upper limit
//! are both necessary, because different elements of an array can match them. So are a number and a string, because no
//! value compares with both. At most four filters are left for each path.

use std::collections::HashMap;

use strata_json::{RangeLimit, RangeNeedle};
use strata_types::path::Path;
use strata_types::request::{PathValue, RangeBound, ReadRequest};

/// Filters that can imply each other.
#[derive(PartialEq, Eq, Hash)]
struct FilterKind<'r> {
    path: &'r Path,
    is_lower: bool,
    is_number: bool,
}

/// The range filters that others do not imply, in the order of [`ReadRequest::ranges`], without duplicates.
pub(crate) fn simplify(request: &ReadRequest) -> Vec<(RangeBound, &PathValue)> {
    let mut left: HashMap<FilterKind<'_>, (usize, RangeNeedle)> = HashMap::new();
    let all: Vec<(RangeBound, &PathValue)> = request.ranges().collect();
    for (number, (bound, condition)) in all.iter().enumerate() {
        let needle = RangeNeedle::new(*bound, &condition.value);
        let is_number = matches!(&needle.limit, RangeLimit::Number(_));
        let kind = FilterKind { path: &condition.path, is_lower: bound.is_lower(), is_number };
        if !left.get(&kind).is_some_and(|(_, before)| before.implies(&needle)) {
            left.insert(kind, (number, needle));
        }
    }
    let mut numbers: Vec<usize> = left.into_values().map(|(number, _)| number).collect();
    numbers.sort_unstable();
    numbers.into_iter().map(|number| all[number]).collect()
}
