//! The profile of a version over trees: every path and every value looked at, nothing bounded.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use strata_format::profile::{PathRecord, TOP, VALUE_BYTES};
use strata_types::path::Path;

use strata_reference::Value;
use strata_reference::number;
use strata_reference::value::quote;

/// What is known of one path.
#[derive(Debug, Default)]
pub(crate) struct PathTruth {
    pub keys: Vec<String>,
    pub entities: u64,
    /// null, boolean, number, string, object, array.
    pub types: [u64; 6],
    pub fans_out: bool,
    /// Scalars but nulls, in document order.
    values: Vec<Value>,
}

/// Every path below the top, in the order of first appearance.
pub(crate) fn paths(entities: &[Value]) -> Vec<PathTruth> {
    let mut found = Vec::new();
    for entity in entities {
        let Value::Object(members) = entity else { unreachable!("an entity is an object") };
        let mut counted = Vec::new();
        for (key, value) in members {
            visit(std::slice::from_ref(key), value, false, &mut found, &mut counted);
        }
    }
    found
}

fn visit(keys: &[String], value: &Value, fanned: bool, found: &mut Vec<PathTruth>, counted: &mut Vec<Vec<String>>) {
    let place = found.iter().position(|path| path.keys == keys).unwrap_or_else(|| {
        found.push(PathTruth { keys: keys.to_vec(), ..PathTruth::default() });
        found.len() - 1
    });
    if !counted.iter().any(|path| path == keys) {
        counted.push(keys.to_vec());
        found[place].entities += 1;
    }
    let kind = match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Object(_) => 4,
        Value::Array(_) => 5,
    };
    found[place].types[kind] += 1;
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                visit(&[keys, std::slice::from_ref(key)].concat(), value, fanned, found, counted);
            }
        }
        Value::Array(elements) => {
            elements.iter().for_each(|element| visit(keys, element, true, found, counted));
        }
        scalar => {
            found[place].fans_out |= fanned;
            if *scalar != Value::Null {
                found[place].values.push(scalar.clone());
            }
        }
    }
}

impl PathTruth {
    /// Whether the record says this, where all is exact.
    pub(crate) fn check(&self, record: &PathRecord) {
        let path = Path::from_keys(self.keys.clone()).map_or(String::new(), |path| path.to_string());
        assert_eq!(record.path, path);
        let types = record.types;
        let found = [types.null, types.boolean, types.number, types.string, types.object, types.array];
        assert_eq!((record.entities, found, record.fans_out), (self.entities, self.types, self.fans_out), "{path}");
        let bytes = self.values.iter().map(|value| match value {
            Value::Number(text) => text.len(),
            Value::String(text) => quote(text).len() - 2,
            _ => 0,
        });
        assert_eq!(record.text_bytes, bytes.sum::<usize>() as u64, "{path}");

        let mut counts: BTreeMap<(u8, String), u64> = BTreeMap::new();
        for value in &self.values {
            *counts.entry((kind(value), value.text().expect("a scalar"))).or_default() += 1;
        }
        assert_eq!((record.distinct.count, record.distinct.estimated), (counts.len() as u64, false), "{path}");
        let mut top: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
        // Values that begin alike are shown alike, whichever is first.
        top.sort_by_key(|((kind, text), count)| (std::cmp::Reverse(**count), *kind, head(text)));
        let expected: Vec<_> =
            top.into_iter().take(TOP).map(|((kind, text), count)| (shown(*kind, text), *count)).collect();
        let found: Vec<_> = record.top.iter().map(|top| ((top.value.to_string(), top.cut), top.count)).collect();
        assert_eq!((found, record.top_estimated), (expected, false), "{path}");

        let numbers: Vec<&str> = self.texts(2);
        let strings: Vec<&str> = self.texts(3);
        let mut lengths = Vec::new();
        for string in &strings {
            let (mut place, mut above) = (0, 1);
            while string.chars().count() >= above {
                (place, above) = (place + 1, above * 2);
            }
            lengths.resize(lengths.len().max(place + 1), 0);
            lengths[place] += 1;
        }
        assert_eq!(record.string_lengths, lengths, "{path}");
        // Of equal ones, the first.
        let least = numbers.iter().copied().reduce(|one, other| match number::compare(other, one) {
            Ordering::Less => other,
            _ => one,
        });
        let greatest = numbers.iter().copied().reduce(|one, other| match number::compare(other, one) {
            Ordering::Greater => other,
            _ => one,
        });
        for (found, expected) in [
            (&record.number_min, least.map(|text| shown(0, text))),
            (&record.number_max, greatest.map(|text| shown(0, text))),
            (&record.string_min, strings.iter().min().map(|text| shown(1, text))),
            (&record.string_max, strings.iter().max().map(|text| shown(1, text))),
        ] {
            assert_eq!(found.as_ref().map(|value| (value.value.to_string(), value.cut)), expected, "{path}");
        }
        assert_eq!(record.shredded, record.why_not_shredded.is_none(), "{path}");
    }

    fn texts<'v>(&'v self, kind: usize) -> Vec<&'v str> {
        let text = |value: &'v Value| match (kind, value) {
            (2, Value::Number(text)) | (3, Value::String(text)) => Some(text.as_str()),
            _ => None,
        };
        self.values.iter().filter_map(text).collect()
    }
}

fn kind(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        _ => 2,
    }
}

/// What of a text is kept.
fn head(text: &str) -> (Vec<u8>, bool) {
    (text.bytes().take(VALUE_BYTES).collect(), text.len() > VALUE_BYTES)
}

/// A value as JSON, or its beginning as a string.
fn shown(kind: u8, text: &str) -> (String, bool) {
    let cut = text.len() > VALUE_BYTES;
    if kind != 1 && !cut {
        // Whoever reads JSON may write an exponent with its sign.
        return (serde_json::from_str::<serde_json::Value>(text).expect("a scalar").to_string(), false);
    }
    let mut bytes = 0;
    let whole = text.chars().take_while(|character| {
        bytes += character.len_utf8();
        bytes <= VALUE_BYTES
    });
    (quote(&whole.collect::<String>()), cut)
}
