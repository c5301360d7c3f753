//! What the statistics of a shredded column say of a range filter (docs/reference/filters.md, Range filters).
//!
//! The statistics of numbers are those of their doubles. A number whose double is less than 2^53 in magnitude is that
//! double; of others, numbers on both sides of a limit may share the limit's double. The statistics of texts may be
//! truncated, and cover more texts than the strings: they bound the strings all the same.

use strata_format::layout::ShreddedKind;
use strata_format::reader::VersionReader;
use strata_json::RangeLimit;
use strata_types::request::RangeBound;

use crate::scan::predicate::Compare;

/// The first double that may be the nearest one of several numbers: 2^53.
const INEXACT: f64 = 9_007_199_254_740_992.0;

pub(super) const STRING: i32 = ShreddedKind::String as i32;
pub(super) const NUMBER: i32 = ShreddedKind::Number as i32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    NoRow,
    EveryRow,
    Nothing,
}

/// What statistics say of a comparison with a shredded column in a row group. Costs nothing: the footer holds them.
pub(super) fn told(reader: &VersionReader, row_group: usize, shredded: usize, compare: &Compare) -> Told {
    let (Some(range), Some(kinds)) = (compare.range(), reader.kind_range(row_group, shredded)) else {
        return Told::Nothing;
    };
    let (least_kind, greatest_kind) = kinds;
    let has_one_in_each_row = !reader.layout().shredded_columns[shredded].fans_out;
    let bound = range.bound;
    match &range.limit {
        RangeLimit::Number(_) if greatest_kind < NUMBER => Told::NoRow,
        RangeLimit::Number(limit) => {
            let Some((best, worst)) =
                reader.number_range(row_group, shredded).map(|range| best_and_worst(bound, range))
            else {
                return Told::Nothing;
            };
            let limit = limit.double_and_side();
            if greatest_kind == NUMBER && admits(bound, best, limit) == Some(false) {
                return Told::NoRow;
            }
            let is_every =
                has_one_in_each_row && kinds == (NUMBER, NUMBER) && admits(bound, worst, limit) == Some(true);
            if is_every { Told::EveryRow } else { Told::Nothing }
        }
        RangeLimit::Text(_) if greatest_kind < STRING || least_kind > STRING => Told::NoRow,
        RangeLimit::Text(limit) => {
            let Some(bounds) = reader.string_bounds(row_group, shredded) else { return Told::Nothing };
            let may_be_gone = compare.denull && bounds.0.is_empty();
            let (best, worst) = best_and_worst(bound, bounds);
            if !bound.admits(best.cmp(limit.as_bytes())) {
                return Told::NoRow;
            }
            let is_every = has_one_in_each_row
                && kinds == (STRING, STRING)
                && !may_be_gone
                && bound.admits(worst.cmp(limit.as_bytes()));
            if is_every { Told::EveryRow } else { Told::Nothing }
        }
    }
}

/// Of a minimum and a maximum, the value that is most likely to fit, and the one that is least likely to.
fn best_and_worst<T>(bound: RangeBound, (min, max): (T, T)) -> (T, T) {
    if bound.is_lower() { (max, min) } else { (min, max) }
}

/// Whether a number of which the double is known lies on the right side of a limit; `None` where its double does not
/// tell.
fn admits(bound: RangeBound, double: f64, (limit, side): (f64, i128)) -> Option<bool> {
    let ordering = double.partial_cmp(&limit)?;
    match ordering.is_eq() {
        true if double.abs() < INEXACT => Some(bound.admits(0_i128.cmp(&side))),
        true => None,
        false => Some(bound.admits(ordering)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_json::NumericValue;

    #[test]
    fn a_double_tells_of_its_number_what_it_can() {
        let told = |bound, double, limit| {
            admits(bound, double, NumericValue::parse(limit).expect("a number").double_and_side())
        };
        use RangeBound::{Greater, GreaterOrEqual, Less, LessOrEqual};
        for (bound, double, limit, expected) in [
            (Greater, 10.0, "10", Some(false)),
            (GreaterOrEqual, 10.0, "1e1", Some(true)),
            (Less, -0.0, "0", Some(false)),
            (LessOrEqual, 0.0, "-0", Some(true)),
            (Greater, 9_007_199_254_740_991.0, "9007199254740991", Some(false)),
            // Integers above and below the limit share its double.
            (Greater, 9_007_199_254_740_992.0, "9007199254740992", None),
            (Less, 9_007_199_254_740_992.0, "9007199254740993", None),
            (Less, f64::INFINITY, "1e400", None),
            (Less, 1e308, "1e400", Some(true)),
            (Greater, -1e308, "-1e400", Some(true)),
        ] {
            assert_eq!(told(bound, double, limit), expected, "{bound:?} {double} {limit}");
        }
    }
}
