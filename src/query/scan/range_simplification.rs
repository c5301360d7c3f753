//! Drops range filters that other range filters imply (docs/reference/filters.md, Range filters).
//!
//! An entity matches a lower limit if a value at the path is above the limit. A value above the greatest limit is above
//! all lower limits, so the greatest lower limit is sufficient, and so is the least upper limit. A lower and an upper
//! limit are both necessary, because different elements of an array can match them. A number and a string are both
//! necessary, too, because no value compares with both. At most four filters remain for each path.

use std::collections::HashMap;

use strata_json::{RangeOperand, RangePredicate};
use strata_types::field_path::FieldPath;
use strata_types::read_request::{PathValue, RangeBound, ReadRequest};

#[derive(PartialEq, Eq, Hash)]
struct RangeFilterGroup<'r> {
    path: &'r FieldPath,
    is_lower: bool,
    is_number: bool,
}

/// Returns the range filters that others do not imply, in the order of the request, without duplicates.
pub(crate) fn drop_implied_ranges(request: &ReadRequest) -> Vec<(RangeBound, &PathValue)> {
    let mut strictest: HashMap<RangeFilterGroup<'_>, (usize, RangePredicate)> = HashMap::new();
    let all: Vec<(RangeBound, &PathValue)> = request.range_filters().collect();
    for (number, (bound, condition)) in all.iter().enumerate() {
        let needle = RangePredicate::new(*bound, &condition.value);
        let is_number = matches!(&needle.operand, RangeOperand::Number(_));
        let group = RangeFilterGroup { path: &condition.path, is_lower: bound.is_lower_bound(), is_number };
        if !strictest.get(&group).is_some_and(|(_, before)| before.implies(&needle)) {
            strictest.insert(group, (number, needle));
        }
    }
    let mut numbers: Vec<usize> = strictest.into_values().map(|(number, _)| number).collect();
    numbers.sort_unstable();
    numbers.into_iter().map(|number| all[number]).collect()
}
