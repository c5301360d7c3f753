//! The unknown fields of a request (docs/reference/query-semantics.md, Unknown fields), found by checking every entity
//! after every step.

use strata_types::field_path::FieldPath;
use strata_types::read_request::ReadRequest;

use super::rules::{denull, drop, keep, reach_values, strip_source};
use super::value::Value;

/// Returns the unknown paths without duplicates, in the order of the steps.
pub fn paths(entities: &[Value], request: &ReadRequest) -> Vec<String> {
    // A version without entities has no unknown paths.
    if entities.is_empty() {
        return Vec::new();
    }
    let keys = |paths: &[FieldPath]| paths.iter().map(|path| path.keys().to_vec()).collect::<Vec<_>>();
    let mut stages = vec![entities.to_vec()];
    let mut step = |is_on: bool, change: &dyn Fn(&Value) -> Value| {
        let last = stages.last().expect("missing stage");
        let next = if is_on { last.iter().map(change).collect() } else { last.clone() };
        stages.push(next);
    };
    step(!request.include_source, &strip_source);
    step(request.denull, &denull);
    step(!request.keep_fields.is_empty(), &|entity| keep(entity, &keys(&request.keep_fields)));
    step(!request.drop_fields.is_empty(), &|entity| drop(entity, &keys(&request.drop_fields)));
    let mut unknown = Vec::new();
    for (parameter, path) in request.paths_by_parameter() {
        let before = match parameter {
            "keep_field" => 2,
            "drop_field" => 3,
            _ => 4,
        };
        let is_there = stages[before].iter().any(|entity| !reach_values(entity, path.keys()).is_empty());
        if !is_there && !unknown.contains(&path.to_string()) {
            unknown.push(path.to_string());
        }
    }
    unknown
}
