//! Distinct and frequent values of a path after edits.

use std::collections::HashMap;

use strata_json::JsonStr;

use super::path_changes::PathChange;
use crate::profile::limits::MAX_TOP_VALUES;
use crate::profile::min_max::TruncatedValue;
use crate::profile::stored::{ProfilePathRecord, TopValue, ValueRecord, to_top_values, value_record};
use crate::profile::value_statistics::{DisplayValue, DistinctCount, FrequentValue, ScalarType, most_frequent};

pub(super) fn update_distinct_and_top_values(
    record: &mut ProfilePathRecord,
    change: &PathChange,
    repeated_values: Option<RepeatedValueCounts>,
) {
    let max_count = record.types.boolean + record.types.number + record.types.string;
    match repeated_values {
        Some(repeated_values) => {
            record.distinct.count = repeated_values.distinct_count;
            record.top = repeated_values.into_top_values();
        }
        None => {
            let added = change.values.values().filter(|count_change| **count_change > 0).count() as u64;
            let count = (record.distinct.count + added).min(max_count).max(u64::from(max_count > 0));
            record.distinct = DistinctCount { count, estimated: true };
            for ((scalar_type, text), count_change) in &change.values {
                let changed = value_record(*scalar_type, &display_value(*scalar_type, text).value);
                let listed = record.top.iter_mut().find(|top| (&top.value, top.cut) == (&changed.value, changed.cut));
                if let Some(top) = listed {
                    top.count = top.count.saturating_add_signed(*count_change);
                }
            }
            record.top_estimated = true;
            record.top.retain(|top| top.count > 1);
            record.top.sort_by_key(|top| std::cmp::Reverse(top.count));
        }
    }
}

fn display_value(scalar_type: ScalarType, text: &[u8]) -> DisplayValue {
    let value = match scalar_type {
        ScalarType::String => TruncatedValue::from_string(JsonStr::new(text)),
        ScalarType::Number | ScalarType::Boolean => TruncatedValue::new(text),
    };
    DisplayValue { scalar_type, value }
}

fn untruncated_value(scalar_type: ScalarType, text: String) -> DisplayValue {
    DisplayValue { scalar_type, value: TruncatedValue { bytes: text.into_bytes(), is_truncated: false } }
}

/// Value counts of a path whose repeated values (values that occur more than once) are all known.
pub(super) struct RepeatedValueCounts {
    distinct_count: u64,
    repeated: HashMap<DisplayValue, u64>,
}

impl RepeatedValueCounts {
    /// Returns `None` if the profile does not list all repeated values of the path, or if an edit is ambiguous.
    pub(super) fn try_new(record: &ProfilePathRecord, change: &PathChange) -> Option<RepeatedValueCounts> {
        if record.top_estimated || record.distinct.estimated || record.top.len() >= MAX_TOP_VALUES {
            return None;
        }
        let mut known: HashMap<DisplayValue, u64> = HashMap::new();
        for top in &record.top {
            let shown = match &top.value {
                _ if top.cut => return None,
                serde_json::Value::Number(number) => untruncated_value(ScalarType::Number, number.to_string()),
                serde_json::Value::Bool(value) => untruncated_value(ScalarType::Boolean, value.to_string()),
                serde_json::Value::String(text) => untruncated_value(ScalarType::String, text.clone()),
                _ => return None,
            };
            // Numbers that are written differently can have the same stored form. Their counts are then ambiguous.
            if known.insert(shown, top.count).is_some() {
                return None;
            }
        }
        // Number of values that occur only once. The profile counts these values, but does not list them.
        let mut singles = record.distinct.count.checked_sub(known.len() as u64)?;
        // Removals come first, because they can remove all unlisted values, so that every unlisted added value is new.
        let mut changes: Vec<_> = change.values.iter().collect();
        changes.sort_by_key(|(_, count_change)| **count_change);
        let mut named_singles = Vec::new();
        for ((scalar_type, text), count_change) in changes {
            let shown = display_value(*scalar_type, text);
            // A number with an exponent is stored in another spelling, so its stored count cannot be found.
            if shown.value.is_truncated
                || (*scalar_type == ScalarType::Number && text.iter().any(u8::is_ascii_alphabetic))
            {
                return None;
            }
            let count = match known.get(&shown) {
                Some(count) => count.checked_add_signed(*count_change)?,
                None if *count_change < 0 => {
                    singles = singles.checked_sub(count_change.unsigned_abs()).filter(|_| *count_change == -1)?;
                    continue;
                }
                // The added value might equal one of the values that occur once, which the profile does not list.
                None if singles > 0 => return None,
                None => count_change.unsigned_abs(),
            };
            known.remove(&shown);
            match count {
                0 => {}
                1 => named_singles.push(shown),
                _ => _ = known.insert(shown, count),
            }
        }
        let distinct_count = singles + (known.len() + named_singles.len()) as u64;
        Some(RepeatedValueCounts { distinct_count, repeated: known })
    }

    pub(super) fn is_repeated(&self, scalar_type: ScalarType, record: &ValueRecord) -> bool {
        let text = record.value.as_str().map_or_else(|| record.value.to_string(), str::to_owned);
        !record.cut && self.repeated.contains_key(&untruncated_value(scalar_type, text))
    }

    fn into_top_values(self) -> Vec<TopValue> {
        let repeated = self.repeated.into_iter().map(|(shown, count)| FrequentValue { value: shown, count });
        to_top_values(most_frequent(repeated.collect()))
    }
}
