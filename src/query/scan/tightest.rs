//! The range filters of a request that imply all others (docs/reference/filters.md, Range filters).
//!
//! An entity matches a lower limit if the path reaches some value above it. If it reaches one above the greatest of
//! several limits, this one is above all of them. So of the lower limits on a path the greatest is enough, and of the
//! upper ones the least. A lower limit and an upper one are both needed, because different elements of an array may
//! satisfy them. So are a number and a text, because no value compares with both. That leaves four filters for a path,
//! however many there are.

use std::collections::HashMap;

use strata_json::{RangeLimit, RangeNeedle};
use strata_types::path::Path;
use strata_types::request::{PathValue, RangeBound, ReadRequest};

/// The range filters that others do not imply, in the order of [`ReadRequest::ranges`]. The first one of equal ones.
pub(crate) fn tightest(request: &ReadRequest) -> Vec<(RangeBound, &PathValue)> {
    // What a filter of one kind never implies of another: path, side, type.
    let mut left: HashMap<(&Path, bool, bool), (usize, RangeNeedle)> = HashMap::new();
    let all: Vec<(RangeBound, &PathValue)> = request.ranges().collect();
    for (number, (bound, condition)) in all.iter().enumerate() {
        let needle = RangeNeedle::new(*bound, &condition.value);
        let is_number = matches!(&needle.limit, RangeLimit::Number(_));
        let kind = (&condition.path, bound.is_lower(), is_number);
        if !left.get(&kind).is_some_and(|(_, before)| before.implies(&needle)) {
            left.insert(kind, (number, needle));
        }
    }
    let mut numbers: Vec<usize> = left.into_values().map(|(number, _)| number).collect();
    numbers.sort_unstable();
    numbers.into_iter().map(|number| all[number]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(conditions: &[(RangeBound, &str)]) -> String {
        let mut request = ReadRequest::default();
        for (bound, condition) in conditions {
            let (path, value) = Path::parse_prefix(condition).expect("a condition");
            request.ranges[*bound as usize].push(PathValue { path, value: value.to_owned() });
        }
        let shown = |(bound, condition): &(RangeBound, &PathValue)| {
            format!("{}={}:{}", bound.parameter(), condition.path, condition.value)
        };
        tightest(&request).iter().map(shown).collect::<Vec<_>>().join("&")
    }

    #[test]
    fn four_filters_are_left_of_a_path() {
        use RangeBound::{Greater, GreaterOrEqual, Less, LessOrEqual};
        for (conditions, expected) in [
            (&[(Greater, "a:1"), (Greater, "a:10"), (Greater, "a:9")][..], "filter_gt=a:10"),
            (&[(Less, "a:1"), (Less, "a:1.0"), (Less, "a:9")], "filter_lt=a:1"),
            // Without its limit it is tighter.
            (&[(GreaterOrEqual, "a:1"), (Greater, "a:1.0")], "filter_gt=a:1.0"),
            (&[(LessOrEqual, "a:b"), (Less, "a:b")], "filter_lt=a:b"),
            (&[(GreaterOrEqual, "a:2"), (Greater, "a:1")], "filter_gte=a:2"),
            (&[(LessOrEqual, "a:A"), (Less, "a:a")], "filter_lte=a:A"),
            // Values that no filter can have in common.
            (
                &[(Greater, "a:9"), (Greater, "a:\"10\""), (Greater, "b:1")],
                "filter_gt=a:9&filter_gt=a:\"10\"&filter_gt=b:1",
            ),
            (&[(Greater, "a:9"), (Less, "a:1")], "filter_gt=a:9&filter_lt=a:1"),
            (
                &[
                    (Greater, "a:1"),
                    (GreaterOrEqual, "a:x"),
                    (Less, "a:0"),
                    (LessOrEqual, "a:y"),
                    (Greater, "a:0"),
                    (Less, "a:z"),
                ],
                "filter_gt=a:1&filter_gte=a:x&filter_lt=a:0&filter_lte=a:y",
            ),
        ] {
            assert_eq!(left(conditions), expected);
        }
    }
}
