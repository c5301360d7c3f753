//! The rules of docs/reference/paths-and-values.md and docs/reference/query-semantics.md over trees.

use std::cmp::Ordering;

use strata_types::read_request::RangeBound;

use super::number;
use super::value::{Value, set};

/// Section 1: folding.
pub fn fold(text: &str) -> String {
    let lower: String = text.chars().flat_map(char::to_lowercase).collect();
    lower.replace('ς', "σ")
}

/// Section 2: the values at a path. An array at its end is one value.
pub fn reach_values<'v>(value: &'v Value, keys: &[String]) -> Vec<&'v Value> {
    let Some((first, rest)) = keys.split_first() else { return vec![value] };
    match value {
        Value::Object(_) => value.get(first).map_or(Vec::new(), |member| reach_values(member, rest)),
        Value::Array(elements) => elements.iter().flat_map(|element| reach_values(element, keys)).collect(),
        _ => Vec::new(),
    }
}

/// Rule 5: the scalars at a path, including the elements of arrays at its end.
pub fn reach<'v>(value: &'v Value, keys: &[String]) -> Vec<&'v Value> {
    fn fan_out(value: &Value) -> Vec<&Value> {
        match value {
            Value::Array(elements) => elements.iter().flat_map(fan_out).collect(),
            Value::Object(_) => Vec::new(),
            _ => vec![value],
        }
    }
    reach_values(value, keys).into_iter().flat_map(fan_out).collect()
}

/// Returns every scalar at any depth.
pub fn scalars(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(elements) => elements.iter().flat_map(scalars).collect(),
        Value::Object(members) => members.iter().flat_map(|(_, value)| scalars(value)).collect(),
        _ => vec![value],
    }
}

/// Rule 5 for a single scalar.
pub fn matches_equal(scalar: &Value, needle: &str) -> bool {
    match scalar {
        Value::Null => fold(needle) == "null",
        Value::Number(text) if number::is_number(needle) && number::compare(text, needle).is_eq() => true,
        _ => scalar.text().is_some_and(|text| fold(&text) == fold(needle)),
    }
}

/// Rule 6 for a single scalar.
pub fn matches_contains(scalar: &Value, needle: &str) -> bool {
    scalar.text().is_some_and(|text| fold(&text).contains(&fold(needle)))
}

/// The range filters for a single scalar. `value` is a quoted text, a JSON number, or any other text.
pub fn matches_range(scalar: &Value, bound: RangeBound, value: &str) -> bool {
    let value: Vec<char> = value.chars().collect();
    let (text, is_quoted) = match value.as_slice() {
        ['"', quoted @ .., '"'] => (quoted.iter().collect::<String>(), true),
        plain => (plain.iter().collect(), false),
    };
    let is_number = !is_quoted && number::is_number(&text);
    let ordering = match scalar {
        Value::Number(number) if is_number => number::compare(number, &text),
        Value::String(string) if !is_number => string.chars().cmp(text.chars()),
        _ => return false,
    };
    match bound {
        RangeBound::Greater => ordering == Ordering::Greater,
        RangeBound::GreaterOrEqual => ordering != Ordering::Less,
        RangeBound::Less => ordering == Ordering::Less,
        RangeBound::LessOrEqual => ordering != Ordering::Greater,
    }
}

/// Rule 1: `include_source=false`.
pub fn strip_source(entity: &Value) -> Value {
    match entity {
        Value::Object(members) => Value::Object(members.iter().filter(|(key, _)| key != "_source").cloned().collect()),
        _ => entity.clone(),
    }
}

/// Rule 2.
pub fn denull(entity: &Value) -> Value {
    fn keep(value: &Value) -> Option<Value> {
        match value {
            Value::Null => None,
            Value::String(text) if text.is_empty() => None,
            Value::Array(elements) => {
                let remaining: Vec<Value> = elements.iter().filter_map(keep).collect();
                (elements.is_empty() || !remaining.is_empty()).then_some(Value::Array(remaining))
            }
            Value::Object(members) => {
                let remaining = members.iter().filter_map(|(key, value)| Some((key.clone(), keep(value)?)));
                Some(Value::Object(remaining.collect()))
            }
            _ => Some(value.clone()),
        }
    }
    keep(entity).expect("object became empty value")
}

/// Rule 3. `paths` is not empty.
pub fn keep(entity: &Value, paths: &[Vec<String>]) -> Value {
    reduce(entity, paths).expect("entity is a scalar")
}

/// Returns the part of a value that the paths keep; `None` for a scalar.
fn reduce(value: &Value, paths: &[Vec<String>]) -> Option<Value> {
    match value {
        Value::Object(members) => {
            let reduced = members.iter().filter_map(|(key, value)| {
                let inner: Vec<Vec<String>> =
                    paths.iter().filter(|path| path[0] == *key).map(|path| path[1..].to_vec()).collect();
                if inner.is_empty() {
                    return None;
                }
                let whole = inner.iter().any(Vec::is_empty);
                Some((key.clone(), if whole { value.clone() } else { reduce(value, &inner)? }))
            });
            Some(Value::Object(reduced.collect()))
        }
        Value::Array(elements) => {
            Some(Value::Array(elements.iter().filter_map(|element| reduce(element, paths)).collect()))
        }
        _ => None,
    }
}

/// Rule 4.
pub fn drop(entity: &Value, paths: &[Vec<String>]) -> Value {
    fn remove(value: &mut Value, path: &[String]) {
        match value {
            Value::Object(members) => match path {
                [last] => members.retain(|(key, _)| key != last),
                [first, rest @ ..] => {
                    if let Some((_, value)) = members.iter_mut().find(|(key, _)| key == first) {
                        remove(value, rest);
                    }
                }
                [] => unreachable!("a path has a key"),
            },
            Value::Array(elements) => elements.iter_mut().for_each(|element| remove(element, path)),
            _ => {}
        }
    }
    let mut entity = entity.clone();
    paths.iter().for_each(|path| remove(&mut entity, path));
    entity
}

/// Rule 12.
pub fn flatten(entity: &Value) -> Value {
    fn put(out: &mut Vec<(String, Value)>, name: String, value: &Value) {
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    put(out, format!("{name}.{key}"), value);
                }
            }
            Value::Array(elements)
                if !elements.is_empty() && elements.iter().all(|element| matches!(element, Value::Object(_))) =>
            {
                for (number, element) in elements.iter().enumerate() {
                    let Value::Object(members) = element else { unreachable!("all are objects") };
                    for (key, value) in members {
                        put(out, format!("{name}_{number}_{key}"), value);
                    }
                }
            }
            Value::Array(_) => set(out, name, Value::String(value.write())),
            _ => set(out, name, value.clone()),
        }
    }
    let Value::Object(members) = entity else { panic!("entity is not an object") };
    let mut out = Vec::new();
    for (key, value) in members {
        put(&mut out, key.clone(), value);
    }
    Value::Object(out)
}

/// Rule 9: returns true if two values are equal.
pub fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => number::compare(left, right).is_eq(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(members), Value::Object(others)) => {
            members.len() == others.len()
                && members.iter().all(|(key, value)| right.get(key).is_some_and(|other| equal(value, other)))
        }
        _ => left == right,
    }
}

/// The separator in the full text, which is a byte that no UTF-8 text contains.
const SEPARATOR: u8 = 0xFF;

/// Returns the folded texts of an entity, each preceded by [`SEPARATOR`].
pub fn search_text(entity: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    for text in scalars(entity).into_iter().filter_map(Value::text) {
        bytes.push(SEPARATOR);
        bytes.extend_from_slice(fold(&text).as_bytes());
    }
    bytes.push(SEPARATOR);
    bytes
}
