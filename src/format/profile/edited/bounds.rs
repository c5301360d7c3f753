//! The minima and maxima of a path after edits. They only widen.
//!
//! A value that came beyond a bound replaces it. If a value that equals a bound went, another one may equal it, and
//! only the list would tell. The bound stays then, marked as estimated: all values lie within it, and perhaps none
//! equals it. Values `3, 5, 9`, of which `9` goes: the maximum is `9`, estimated. If `9` or `12` comes later, it is
//! exact again.

use std::cmp::Ordering;

use strata_json::{NumericValue, Text};

use super::delta::Delta;
use super::values::Counted;
use crate::profile::min_max::{Cut, number};
use crate::profile::stored::{PathRecord, ValueRecord, value};
use crate::profile::values::ScalarType;

struct Change<K> {
    key: K,
    record: ValueRecord,
    more: i64,
}

/// Widens the bounds of a path whose types are counted as they are after edits; `None` where a number is too long to
/// be compared.
pub(super) fn widen_bounds(record: &mut PathRecord, delta: &Delta, counted: Option<&Counted>) -> Option<()> {
    let numbers = delta.of_type(ScalarType::Number).map(|(text, more)| {
        let text = std::str::from_utf8(text).ok()?;
        Some(Change { key: number(text)?, record: value(ScalarType::Number, &Cut::new(text.as_bytes())), more })
    });
    let numbers = numbers.collect::<Option<Vec<_>>>()?;
    let strings = delta.of_type(ScalarType::String).map(|(text, more)| {
        let record = value(ScalarType::String, &Cut::of_string(Text::new(text)));
        Change { key: string_key(&record), record, more }
    });
    let strings: Vec<_> = strings.collect();
    let is_repeated = |scalar_type: ScalarType, bound: &ValueRecord| {
        counted.is_some_and(|counted| counted.is_repeated(scalar_type, bound))
    };
    for (min, bound) in [(true, &mut record.number_min), (false, &mut record.number_max)] {
        let key = |bound: &ValueRecord| NumericValue::parse(&bound.value.to_string()).filter(|_| !bound.cut);
        widen(bound, record.types.number, min, &numbers, key, |bound| is_repeated(ScalarType::Number, bound))?;
    }
    for (min, bound) in [(true, &mut record.string_min), (false, &mut record.string_max)] {
        let key = |bound: &ValueRecord| Some(string_key(bound));
        widen(bound, record.types.string, min, &strings, key, |bound| is_repeated(ScalarType::String, bound))?;
    }
    Some(())
}

/// Orders strings as far as they are shown. A character that is cut takes more bytes than any that is shown in its
/// place, so the string is the greater one.
fn string_key(record: &ValueRecord) -> Vec<u8> {
    let mut key = record.value.as_str().unwrap_or_default().as_bytes().to_vec();
    key.extend(record.cut.then_some(u8::MAX));
    key
}

fn widen<K: Ord>(
    bound: &mut Option<ValueRecord>,
    count: u64,
    min: bool,
    changes: &[Change<K>],
    key: impl Fn(&ValueRecord) -> Option<K>,
    is_repeated: impl Fn(&ValueRecord) -> bool,
) -> Option<()> {
    if count == 0 {
        *bound = None;
    }
    if count == 0 || changes.is_empty() {
        return Some(());
    }
    let oriented = |ordering: Ordering| if min { ordering } else { ordering.reverse() };
    // Of equal numbers the same spelling, whatever the order of the changes is.
    let outermost = changes.iter().filter(|change| change.more > 0).min_by(|one, other| {
        let spelled = |change: &Change<K>| change.record.value.to_string();
        oriented(one.key.cmp(&other.key)).then_with(|| spelled(one).cmp(&spelled(other)))
    });
    let Some(known) = bound else {
        *bound = Some(outermost?.record.clone());
        return Some(());
    };
    let known_key = key(known)?;
    let went = changes.iter().any(|change| change.more < 0 && change.key == known_key);
    let estimated = (known.estimated || went) && !is_repeated(known);
    match outermost.map(|outermost| (outermost, oriented(outermost.key.cmp(&known_key)))) {
        Some((outermost, Ordering::Less)) => *known = outermost.record.clone(),
        Some((outermost, Ordering::Equal)) if estimated => *known = outermost.record.clone(),
        _ => known.estimated = estimated,
    }
    Some(())
}
