//! Naive reference for the profile of a version: visits all paths and values, without limits.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use strata_format::profile::{MAX_SHOWN_VALUE_BYTES, MAX_TOP_VALUES, ProfilePathRecord};
use strata_types::field_path::FieldPath;

use strata_reference::Value;
use strata_reference::number;
use strata_reference::value::quote;

/// Expected facts of one path.
#[derive(Debug, Default)]
pub(crate) struct PathTruth {
    pub keys: Vec<String>,
    pub entities: u64,
    /// Counts of null, boolean, number, string, object, and array.
    pub types: [u64; 6],
    pub fans_out: bool,
    /// Scalars except null, in document order.
    values: Vec<Value>,
}

/// Returns all paths in order of first appearance.
pub(crate) fn paths(entities: &[Value]) -> Vec<PathTruth> {
    let mut paths = Vec::new();
    for entity in entities {
        let Value::Object(members) = entity else { unreachable!("an entity is an object") };
        let mut counted_paths = Vec::new();
        for (key, value) in members {
            visit(std::slice::from_ref(key), value, false, &mut paths, &mut counted_paths);
        }
    }
    paths
}

fn visit(
    keys: &[String],
    value: &Value,
    fanned: bool,
    paths: &mut Vec<PathTruth>,
    counted_paths: &mut Vec<Vec<String>>,
) {
    let index = paths.iter().position(|path| path.keys == keys).unwrap_or_else(|| {
        paths.push(PathTruth { keys: keys.to_vec(), ..PathTruth::default() });
        paths.len() - 1
    });
    if !counted_paths.iter().any(|path| path == keys) {
        counted_paths.push(keys.to_vec());
        paths[index].entities += 1;
    }
    let kind = match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Object(_) => 4,
        Value::Array(_) => 5,
    };
    paths[index].types[kind] += 1;
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                visit(&[keys, std::slice::from_ref(key)].concat(), value, fanned, paths, counted_paths);
            }
        }
        Value::Array(elements) => {
            elements.iter().for_each(|element| visit(keys, element, true, paths, counted_paths));
        }
        scalar => {
            paths[index].fans_out |= fanned;
            if *scalar != Value::Null {
                paths[index].values.push(scalar.clone());
            }
        }
    }
}

impl PathTruth {
    /// Compares a record whose values are all exact.
    pub(crate) fn check(&self, record: &ProfilePathRecord) {
        let path = FieldPath::from_keys(self.keys.clone()).map_or(String::new(), |path| path.to_string());
        assert_eq!(record.path, path);
        let types = record.types;
        let counts_by_type = [types.null, types.boolean, types.number, types.string, types.object, types.array];
        assert_eq!(
            (record.entities, counts_by_type, record.fans_out),
            (self.entities, self.types, self.fans_out),
            "{path}"
        );
        let bytes = self.values.iter().map(|value| match value {
            Value::Number(text) => text.len(),
            Value::String(text) => quote(text).len() - 2,
            _ => 0,
        });
        assert_eq!(record.text_bytes, bytes.sum::<usize>() as u64, "{path}");

        let mut counts: BTreeMap<(u8, String), u64> = BTreeMap::new();
        for value in &self.values {
            *counts.entry((kind(value), value.text().expect("failed to write scalar"))).or_default() += 1;
        }
        assert_eq!((record.distinct.count, record.distinct.estimated), (counts.len() as u64, false), "{path}");
        let mut top: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
        // Values with equal prefixes have equal stored forms, in any order.
        top.sort_by_key(|((kind, text), count)| (std::cmp::Reverse(**count), *kind, head(text)));
        let expected: Vec<_> =
            top.into_iter().take(MAX_TOP_VALUES).map(|((kind, text), count)| (shown(*kind, text), *count)).collect();
        let actual: Vec<_> = record.top.iter().map(|top| ((top.value.to_string(), top.cut), top.count)).collect();
        assert_eq!((actual, record.top_estimated), (expected, false), "{path}");

        let numbers: Vec<&str> = self.texts(2);
        let strings: Vec<&str> = self.texts(3);
        let mut lengths = Vec::new();
        for string in &strings {
            let mut bin = 0;
            let mut limit = 1;
            while string.chars().count() >= limit {
                bin += 1;
                limit *= 2;
            }
            lengths.resize(lengths.len().max(bin + 1), 0);
            lengths[bin] += 1;
        }
        assert_eq!(record.string_lengths, lengths, "{path}");
        // Among equal numbers, the first one.
        let min = numbers.iter().copied().reduce(|min, text| match number::compare(text, min) {
            Ordering::Less => text,
            _ => min,
        });
        let max = numbers.iter().copied().reduce(|max, text| match number::compare(text, max) {
            Ordering::Greater => text,
            _ => max,
        });
        for (actual, expected) in [
            (&record.number_min, min.map(|text| shown(0, text))),
            (&record.number_max, max.map(|text| shown(0, text))),
            (&record.string_min, strings.iter().min().map(|text| shown(1, text))),
            (&record.string_max, strings.iter().max().map(|text| shown(1, text))),
        ] {
            assert_eq!(actual.as_ref().map(|value| (value.value.to_string(), value.cut)), expected, "{path}");
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

/// Returns the stored prefix of a text, and whether the text is longer.
fn head(text: &str) -> (Vec<u8>, bool) {
    (text.bytes().take(MAX_SHOWN_VALUE_BYTES).collect(), text.len() > MAX_SHOWN_VALUE_BYTES)
}

/// Returns the stored form of a value: JSON, or a prefix as a string.
fn shown(kind: u8, text: &str) -> (String, bool) {
    let is_truncated = text.len() > MAX_SHOWN_VALUE_BYTES;
    if kind != 1 && !is_truncated {
        // The JSON parser may normalize the sign of an exponent.
        let value = serde_json::from_str::<serde_json::Value>(text).expect("failed to parse scalar");
        return (value.to_string(), false);
    }
    let mut bytes = 0;
    let whole = text.chars().take_while(|character| {
        bytes += character.len_utf8();
        bytes <= MAX_SHOWN_VALUE_BYTES
    });
    (quote(&whole.collect::<String>()), is_truncated)
}
