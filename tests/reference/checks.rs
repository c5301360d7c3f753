//! The checks of a refresh (docs/reference/refresh-checks.md) that examine single entities.

use super::rules::{equal, reach_values};
use super::value::Value;

/// A failing entity: its position, and for `unique`, the position of the first entity with its key.
pub type Failing = (u64, Option<u64>);

/// Returns the entities that do not reach a value other than null by one of the paths.
pub fn required(entities: &[Value], paths: &[Vec<String>]) -> Vec<Failing> {
    positions(entities, |entity| {
        paths.iter().any(|path| reach_values(entity, path).into_iter().all(|value| *value == Value::Null))
    })
}

/// Returns the entities with a value at one of the paths whose type is not in the list of the path.
pub fn types(entities: &[Value], paths: &[(Vec<String>, Vec<&str>)]) -> Vec<Failing> {
    positions(entities, |entity| {
        paths
            .iter()
            .any(|(path, names)| reach_values(entity, path).into_iter().any(|value| !names.contains(&type_name(value))))
    })
}

/// Returns the entities that have the key of an earlier entity for one of the lists of paths. The original is the
/// earliest entity with the same key for the first such list.
pub fn unique(entities: &[Value], lists: &[Vec<Vec<String>>]) -> Vec<Failing> {
    let has_equal_key = |paths: &[Vec<String>], left: &Value, right: &Value| {
        paths.iter().all(|path| {
            let left = reach_values(left, path);
            let right = reach_values(right, path);
            left.len() == right.len() && left.into_iter().zip(right).all(|(left, right)| equal(left, right))
        })
    };
    let mut failing = Vec::new();
    for (position, entity) in entities.iter().enumerate() {
        let original = lists
            .iter()
            .find_map(|paths| entities[..position].iter().position(|earlier| has_equal_key(paths, earlier, entity)));
        failing.extend(original.map(|original| (position as u64, Some(original as u64))));
    }
    failing
}

fn positions(entities: &[Value], fails: impl Fn(&Value) -> bool) -> Vec<Failing> {
    (0..).zip(entities).filter(|(_, entity)| fails(entity)).map(|(position, _)| (position, None)).collect()
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
