//! Updates the minima and maxima of the values at a path after edits. The range between them only widens.
//!
//! An added value beyond a bound replaces it. If a value that equals a bound was removed, only reading all entities
//! could show whether another value equals it. The bound then stays, marked as estimated. For example, if `9` is
//! removed from `3, 5, 9`, the maximum is an estimated `9`. If `9` or `12` is added later, the maximum is exact again.

use std::cmp::Ordering;

use strata_json::{JsonStr, NumericValue};

use super::path_changes::PathChange;
use super::values::RepeatedValueCounts;
use crate::profile::min_max::{TruncatedValue, parse_number};
use crate::profile::stored::{ProfilePathRecord, ValueRecord, value_record};
use crate::profile::value_statistics::ScalarType;

struct BoundChange<K> {
    key: K,
    record: ValueRecord,
    count_change: i64,
}

/// Updates the minima and maxima of a path after an edit. The type counts in `record` must already include the edit.
/// Returns `None` if a number is too long to compare.
pub(super) fn update_min_max(
    record: &mut ProfilePathRecord,
    change: &PathChange,
    repeated_values: Option<&RepeatedValueCounts>,
) -> Option<()> {
    let numbers = change.values_of_type(ScalarType::Number).map(|(text, count_change)| {
        let text = std::str::from_utf8(text).ok()?;
        Some(BoundChange {
            key: parse_number(text)?,
            record: value_record(ScalarType::Number, &TruncatedValue::new(text.as_bytes())),
            count_change,
        })
    });
    let numbers = numbers.collect::<Option<Vec<_>>>()?;
    let strings = change.values_of_type(ScalarType::String).map(|(text, count_change)| {
        let record = value_record(ScalarType::String, &TruncatedValue::from_string(JsonStr::new(text)));
        BoundChange { key: string_order_key(&record), record, count_change }
    });
    let strings: Vec<_> = strings.collect();
    let is_repeated = |scalar_type: ScalarType, bound: &ValueRecord| {
        repeated_values.is_some_and(|values| values.is_repeated(scalar_type, bound))
    };
    for (min, bound) in [(true, &mut record.number_min), (false, &mut record.number_max)] {
        let key = |bound: &ValueRecord| NumericValue::parse(&bound.value.to_string()).filter(|_| !bound.cut);
        update_bound(bound, record.types.number, min, &numbers, key, |bound| is_repeated(ScalarType::Number, bound))?;
    }
    for (min, bound) in [(true, &mut record.string_min), (false, &mut record.string_max)] {
        let key = |bound: &ValueRecord| Some(string_order_key(bound));
        update_bound(bound, record.types.string, min, &strings, key, |bound| is_repeated(ScalarType::String, bound))?;
    }
    Some(())
}

/// Orders strings by their stored prefix. A truncated string sorts after all strings with its prefix.
fn string_order_key(record: &ValueRecord) -> Vec<u8> {
    let mut key = record.value.as_str().unwrap_or_default().as_bytes().to_vec();
    key.extend(record.cut.then_some(u8::MAX));
    key
}

fn update_bound<K: Ord>(
    bound: &mut Option<ValueRecord>,
    count: u64,
    is_min: bool,
    changes: &[BoundChange<K>],
    key: impl Fn(&ValueRecord) -> Option<K>,
    is_repeated: impl Fn(&ValueRecord) -> bool,
) -> Option<()> {
    if count == 0 {
        *bound = None;
    }
    if count == 0 || changes.is_empty() {
        return Some(());
    }
    let oriented = |ordering: Ordering| if is_min { ordering } else { ordering.reverse() };
    // Among equal numbers, the text decides, so that the result does not depend on the order of the changes.
    let outermost = changes.iter().filter(|change| change.count_change > 0).min_by(|left, right| {
        let text = |change: &BoundChange<K>| change.record.value.to_string();
        oriented(left.key.cmp(&right.key)).then_with(|| text(left).cmp(&text(right)))
    });
    let Some(known) = bound else {
        *bound = Some(outermost?.record.clone());
        return Some(());
    };
    let known_key = key(known)?;
    let was_removed = changes.iter().any(|change| change.count_change < 0 && change.key == known_key);
    let estimated = (known.estimated || was_removed) && !is_repeated(known);
    match outermost.map(|outermost| (outermost, oriented(outermost.key.cmp(&known_key)))) {
        Some((outermost, Ordering::Less)) => *known = outermost.record.clone(),
        Some((outermost, Ordering::Equal)) if estimated => *known = outermost.record.clone(),
        _ => known.estimated = estimated,
    }
    Some(())
}
