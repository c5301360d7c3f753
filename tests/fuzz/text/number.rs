//! Numbers, separated by spaces: which strings are numbers, and their order.

use std::cmp::Ordering;

use strata_json::{EqualsPredicate, JsonScalar, NumericValue, SortDirection, matches_equal, write_sort_key};
use strata_reference::number;

use crate::harness::text;

pub fn check(bytes: &[u8]) {
    let mut numbers = Vec::new();
    for word in text(bytes).split_ascii_whitespace().take(3) {
        let value = NumericValue::parse(word);
        assert_eq!(value.is_some(), number::is_number(word), "{word}");
        let Some(value) = value else { continue };
        let expected: f64 = word.parse().expect("a JSON number is a double");
        assert_eq!(value.nearest_double(), expected, "{word}");
        if let Some(integer) = value.as_i64() {
            assert!(number::compare(word, &integer.to_string()).is_eq(), "{word} as {integer}");
        }
        numbers.push((word, value));
    }
    for (one, left) in &numbers {
        for (other, right) in &numbers {
            let expected = compare(one, other);
            assert_eq!(left.cmp(right), expected, "{one} with {other}");
            assert_eq!(left == right, expected.is_eq(), "{one} with {other}");
            for (direction, key_ordering) in
                [(SortDirection::Ascending, expected), (SortDirection::Descending, expected.reverse())]
            {
                let ordering = sort_key(one, direction).cmp(&sort_key(other, direction));
                assert_eq!(ordering, key_ordering, "{one} with {other}");
            }
            let equal = matches_equal(JsonScalar::Number(one), &EqualsPredicate::new(other));
            assert_eq!(equal, expected.is_eq() || one.eq_ignore_ascii_case(other), "{one} is {other}");
        }
    }
}

/// Compares like the reference, but without writing out all digits of simple cases.
fn compare(one: &str, other: &str) -> Ordering {
    match (one.parse::<i64>(), other.parse::<i64>()) {
        (Ok(one), Ok(other)) => one.cmp(&other),
        _ if one == other => Ordering::Equal,
        _ => number::compare(one, other),
    }
}

fn sort_key(number: &str, direction: SortDirection) -> Vec<u8> {
    let mut key = Vec::new();
    write_sort_key(Some(JsonScalar::Number(number)), direction, &mut key);
    key
}
