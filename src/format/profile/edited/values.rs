//! How many distinct values a path has after edits, and which are frequent.

use std::collections::HashMap;

use strata_json::Text;

use super::delta::Delta;
use crate::profile::limits::TOP;
use crate::profile::min_max::Cut;
use crate::profile::stored::{Distinct, PathRecord, TopValue, ValueRecord, top_values, value};
use crate::profile::values::{Frequent, ScalarType, Shown, most_frequent};

pub(super) fn change_values(record: &mut PathRecord, delta: &Delta, counted: Option<Counted>) {
    let most = record.types.boolean + record.types.number + record.types.string;
    match counted {
        Some(counted) => (record.distinct.count, record.top) = (counted.distinct, counted.top()),
        None => {
            let came = delta.values.values().filter(|more| **more > 0).count() as u64;
            let least = u64::from(most > 0);
            let count = (record.distinct.count + came).min(most).max(least);
            record.distinct = Distinct { count, estimated: true };
            for ((scalar_type, text), more) in &delta.values {
                let told = value(*scalar_type, &shown(*scalar_type, text).value);
                let listed = record.top.iter_mut().find(|top| (&top.value, top.cut) == (&told.value, told.cut));
                if let Some(top) = listed {
                    top.count = top.count.saturating_add_signed(*more);
                }
            }
            record.top_estimated = true;
            record.top.retain(|top| top.count > 1);
            record.top.sort_by_key(|top| std::cmp::Reverse(top.count));
        }
    }
}

fn shown(scalar_type: ScalarType, text: &[u8]) -> Shown {
    let value = match scalar_type {
        ScalarType::String => Cut::of_string(Text::new(text)),
        ScalarType::Number | ScalarType::Boolean => Cut::new(text),
    };
    Shown { scalar_type, value }
}

fn whole(scalar_type: ScalarType, text: String) -> Shown {
    Shown { scalar_type, value: Cut { bytes: text.into_bytes(), cut: false } }
}

/// The values of a path after edits, where all are known that occur more than once.
pub(super) struct Counted {
    distinct: u64,
    repeated: HashMap<Shown, u64>,
}

impl Counted {
    /// `None` where the record does not name all that occur more than once, or something else that changed.
    pub(super) fn try_new(record: &PathRecord, delta: &Delta) -> Option<Counted> {
        if record.top_estimated || record.distinct.estimated || record.top.len() >= TOP {
            return None;
        }
        let mut known: HashMap<Shown, u64> = HashMap::new();
        for top in &record.top {
            let shown = match &top.value {
                _ if top.cut => return None,
                serde_json::Value::Number(number) => whole(ScalarType::Number, number.to_string()),
                serde_json::Value::Bool(value) => whole(ScalarType::Boolean, value.to_string()),
                serde_json::Value::String(text) => whole(ScalarType::String, text.clone()),
                _ => return None,
            };
            // Numbers of several spellings may be told as one.
            if known.insert(shown, top.count).is_some() {
                return None;
            }
        }
        // Values that occur once; which they are is not known.
        let mut singles = record.distinct.count.checked_sub(known.len() as u64)?;
        // Those that go first, for what comes then is more often known to be new.
        let mut changes: Vec<_> = delta.values.iter().collect();
        changes.sort_by_key(|(_, more)| **more);
        let mut named_singles = Vec::new();
        for ((scalar_type, text), more) in changes {
            let shown = shown(*scalar_type, text);
            // Numbers are told in another spelling, if they have an exponent.
            if shown.value.cut || (*scalar_type == ScalarType::Number && text.iter().any(u8::is_ascii_alphabetic)) {
                return None;
            }
            let count = match known.get(&shown) {
                Some(count) => count.checked_add_signed(*more)?,
                None if *more < 0 => {
                    singles = singles.checked_sub(more.unsigned_abs()).filter(|_| *more == -1)?;
                    continue;
                }
                // It may be one of those that occur once.
                None if singles > 0 => return None,
                None => more.unsigned_abs(),
            };
            known.remove(&shown);
            match count {
                0 => {}
                1 => named_singles.push(shown),
                _ => _ = known.insert(shown, count),
            }
        }
        let distinct = singles + (known.len() + named_singles.len()) as u64;
        Some(Counted { distinct, repeated: known })
    }

    pub(super) fn is_repeated(&self, scalar_type: ScalarType, record: &ValueRecord) -> bool {
        let text = record.value.as_str().map_or_else(|| record.value.to_string(), str::to_owned);
        !record.cut && self.repeated.contains_key(&whole(scalar_type, text))
    }

    fn top(self) -> Vec<TopValue> {
        let repeated = self.repeated.into_iter().map(|(shown, count)| Frequent { shown, count });
        top_values(most_frequent(repeated.collect()))
    }
}
