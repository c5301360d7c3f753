//! How many distinct values a path has after edits, and which are frequent.

use std::collections::HashMap;

use super::delta::Delta;
use crate::document::Text;
use crate::storage::profile::TOP;
use crate::storage::profile::min_max::Cut;
use crate::storage::profile::stored::{Distinct, PathRecord, TopValue, ValueRecord, value};
use crate::storage::profile::values::ScalarType;

pub(super) fn change_values(record: &mut PathRecord, delta: &Delta, counted: Option<Counted>) -> Option<()> {
    let most = record.types.boolean + record.types.number + record.types.string;
    match counted {
        Some(counted) => (record.distinct.count, record.top) = (counted.distinct, counted.top()),
        None => {
            let came = delta.values.values().filter(|more| **more > 0).count() as u64;
            let least = u64::from(most > 0);
            let count = (record.distinct.count + came).min(most).max(least);
            record.distinct = Distinct { count, estimated: true };
            for ((scalar_type, text), more) in &delta.values {
                let told = value(*scalar_type, &shown(*scalar_type, text)?);
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
    Some(())
}

fn shown(scalar_type: ScalarType, text: &[u8]) -> Option<Cut> {
    Some(match scalar_type {
        ScalarType::String => Cut::of_string(Text::new(text)),
        ScalarType::Number | ScalarType::Boolean => Cut::of_number(std::str::from_utf8(text).ok()?),
    })
}

/// The values of a path after edits, where all are known that occur more than once.
pub(super) struct Counted {
    distinct: u64,
    repeated: HashMap<(ScalarType, Vec<u8>), u64>,
}

impl Counted {
    /// `None` where the record does not name all that occur more than once, or something else that changed.
    pub(super) fn of(record: &PathRecord, delta: &Delta) -> Option<Counted> {
        if record.top_estimated || record.distinct.estimated || record.top.len() >= TOP {
            return None;
        }
        let mut known: HashMap<(ScalarType, Vec<u8>), u64> = HashMap::new();
        for top in &record.top {
            let (scalar_type, text) = match &top.value {
                _ if top.cut => return None,
                serde_json::Value::Number(number) => (ScalarType::Number, number.to_string().into_bytes()),
                serde_json::Value::Bool(value) => (ScalarType::Boolean, value.to_string().into_bytes()),
                serde_json::Value::String(text) => (ScalarType::String, text.clone().into_bytes()),
                _ => return None,
            };
            // Numbers of several spellings may be told as one.
            if known.insert((scalar_type, text), top.count).is_some() {
                return None;
            }
        }
        // Values that occur once; which they are is not known.
        let mut singles = record.distinct.count.checked_sub(known.len() as u64)?;
        // Those that go first, for what comes then is more often known to be new.
        let mut changes: Vec<_> = delta.values.iter().collect();
        changes.sort_by_key(|(_, more)| **more);
        let mut named_singles: Vec<(ScalarType, Vec<u8>)> = Vec::new();
        for ((scalar_type, text), more) in changes {
            let shown = shown(*scalar_type, text)?;
            // Numbers are told in another spelling, if they have an exponent.
            if shown.cut || (*scalar_type == ScalarType::Number && text.iter().any(u8::is_ascii_alphabetic)) {
                return None;
            }
            let key = (*scalar_type, shown.bytes);
            let count = match known.get(&key) {
                Some(count) => count.checked_add_signed(*more)?,
                None if *more < 0 => {
                    singles = singles.checked_sub(more.unsigned_abs()).filter(|_| *more == -1)?;
                    continue;
                }
                // It may be one of those that occur once.
                None if singles > 0 => return None,
                None => more.unsigned_abs(),
            };
            known.remove(&key);
            match count {
                0 => {}
                1 => named_singles.push(key),
                _ => _ = known.insert(key, count),
            }
        }
        let distinct = singles + (known.len() + named_singles.len()) as u64;
        Some(Counted { distinct, repeated: known })
    }

    pub(super) fn is_repeated(&self, scalar_type: ScalarType, record: &ValueRecord) -> bool {
        let text = record.value.as_str().map_or_else(|| record.value.to_string(), str::to_owned);
        !record.cut && self.repeated.contains_key(&(scalar_type, text.into_bytes()))
    }

    fn top(self) -> Vec<TopValue> {
        let mut top: Vec<_> = self.repeated.into_iter().collect();
        top.sort_by(|(one, one_count), (other, other_count)| (other_count, one).cmp(&(one_count, other)));
        top.truncate(TOP);
        let told = top.into_iter().map(|((scalar_type, bytes), count)| {
            let ValueRecord { value, cut, .. } = value(scalar_type, &Cut { bytes, cut: false });
            TopValue { value, cut, count }
        });
        told.collect()
    }
}
