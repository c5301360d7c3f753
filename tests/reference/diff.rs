//! The diff of two versions (docs/reference/diffs.md, Matching), which compares all pairs.

use std::collections::{BTreeMap, BTreeSet};

use super::rules;
use super::value::{Value, quote};

/// The limits beyond which candidates are restricted.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub candidate_pairs: usize,
    pub value_holders: usize,
}

/// The change type of a record, and its JSON text.
pub type Record = (&'static str, String);

/// Returns all records, in order.
pub fn records(v1: &[Value], v2: &[Value], bounds: Bounds) -> Vec<Record> {
    let partners = matches(v1, v2, bounds);
    let mut records = Vec::new();
    for (i, one) in v1.iter().enumerate() {
        match partners.iter().find(|(matched, _)| *matched == i) {
            Some((_, j)) if equal(one, &v2[*j]) => {}
            Some((_, j)) => {
                records.push(("modified", record(&format!("m{i}-{j}"), "modified", Some(one), Some(&v2[*j]))));
            }
            None => records.push(("subtracted", record(&format!("s{i}"), "subtracted", Some(one), None))),
        }
    }
    for (j, other) in v2.iter().enumerate() {
        if partners.iter().all(|(_, matched)| *matched != j) {
            records.push(("added", record(&format!("a{j}"), "added", None, Some(other))));
        }
    }
    records
}

/// Returns the matched pairs of positions.
fn matches(v1: &[Value], v2: &[Value], bounds: Bounds) -> Vec<(usize, usize)> {
    let all: Vec<&Value> = v1.iter().chain(v2).collect();
    let weights: BTreeMap<&str, f64> = names(&all).into_iter().map(|name| (name, weight(name, &all))).collect();
    let mut pairs = Vec::new();
    for (i, one) in v1.iter().enumerate() {
        for (j, other) in v2.iter().enumerate() {
            if same(one.get("_source"), other.get("_source")) {
                pairs.push((similarity(one, other, &weights), i, j));
            }
        }
    }
    // Highest similarity first, then lowest position in v1, then lowest in v2.
    pairs.sort_by(|left, right| {
        right.0.partial_cmp(&left.0).expect("failed to parse number").then((left.1, left.2).cmp(&(right.1, right.2)))
    });

    // The unmatched entities, and for each source the number of its pairs that share a value.
    let equals = pairs.iter().filter(|(_, i, j)| equal(&v1[*i], &v2[*j]));
    let equals = greedy(equals.map(|(_, i, j)| (*i, *j)));
    let left_one = |i: usize| equals.iter().all(|(matched, _)| *matched != i);
    let left_other = |j: usize| equals.iter().all(|(_, matched)| *matched != j);
    let candidates: Vec<(usize, usize)> =
        pairs.iter().map(|(_, i, j)| (*i, *j)).filter(|(i, j)| left_one(*i) && left_other(*j)).collect();
    // A source is represented by the first entity of v1 that has it.
    let source = |i: usize| v1.iter().position(|entity| same(entity.get("_source"), v1[i].get("_source")));
    let mut sharing = BTreeMap::new();
    for (i, j) in &candidates {
        *sharing.entry(source(*i)).or_insert(0) += usize::from(!shared(&v1[*i], &v2[*j]).is_empty());
    }
    let is_candidate = |i: usize, j: usize| {
        if sharing[&source(i)] <= bounds.candidate_pairs {
            return true;
        }
        let holders = |entities: &[Value], left: &dyn Fn(usize) -> bool, name: &str| {
            let holds = |(position, entity): &(usize, &Value)| {
                left(*position)
                    && same(entity.get("_source"), v1[i].get("_source"))
                    && same(entity.get(name), v1[i].get(name))
            };
            entities.iter().enumerate().filter(holds).count()
        };
        shared(&v1[i], &v2[j]).into_iter().any(|name| {
            holders(v1, &left_one, name) <= bounds.value_holders
                && holders(v2, &left_other, name) <= bounds.value_holders
        })
    };
    let restricted: BTreeSet<(usize, usize)> =
        candidates.iter().copied().filter(|(i, j)| !is_candidate(*i, *j)).collect();
    let taken = pairs.iter().filter(|(similarity, i, j)| *similarity >= 0.3 - 1e-9 && !restricted.contains(&(*i, *j)));
    greedy(taken.map(|(_, i, j)| (*i, *j)))
}

/// Returns each pair, in order, whose positions are both not used by an earlier pair.
fn greedy(pairs: impl Iterator<Item = (usize, usize)>) -> Vec<(usize, usize)> {
    let mut taken: Vec<(usize, usize)> = Vec::new();
    for (i, j) in pairs {
        if taken.iter().all(|(one, other)| *one != i && *other != j) {
            taken.push((i, j));
        }
    }
    taken
}

/// Returns true if two values are equal or both missing.
fn same(one: Option<&Value>, other: Option<&Value>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => rules::equal(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// Returns true if two entities are equal except for `_source`.
fn equal(one: &Value, other: &Value) -> bool {
    names(&[one, other]).into_iter().all(|name| same(one.get(name), other.get(name)))
}

/// Returns the fields of the entities, in code point order.
fn names<'v>(entities: &[&'v Value]) -> Vec<&'v str> {
    let mut names: Vec<&str> = Vec::new();
    for entity in entities {
        let Value::Object(members) = entity else { unreachable!("an entity is an object") };
        names.extend(members.iter().map(|(name, _)| name.as_str()).filter(|name| *name != "_source"));
    }
    names.sort_by(|one, other| one.chars().cmp(other.chars()));
    names.dedup();
    names
}

/// Returns the fields whose values two entities share.
fn shared<'v>(one: &'v Value, other: &'v Value) -> Vec<&'v str> {
    let equal = |name: &&str| match (one.get(name), other.get(name)) {
        (Some(one), Some(other)) => rules::equal(one, other),
        _ => false,
    };
    names(&[one, other]).into_iter().filter(equal).collect()
}

fn weight(name: &str, all: &[&Value]) -> f64 {
    let values: Vec<&Value> = all.iter().filter_map(|entity| entity.get(name)).collect();
    let is_first = |place: &usize| values[..*place].iter().all(|before| !rules::equal(before, values[*place]));
    let distinct = (0..values.len()).filter(is_first).count();
    distinct as f64 / values.len() as f64
}

fn similarity(one: &Value, other: &Value, weights: &BTreeMap<&str, f64>) -> f64 {
    let names = names(&[one, other]);
    if names.is_empty() {
        return 1.0;
    }
    let shared = shared(one, other);
    let mut equal = 0.0;
    let mut sum = 0.0;
    for name in names {
        let weight = weights[name];
        if shared.contains(&name) {
            equal += weight;
        }
        sum += weight;
    }
    equal / sum
}

fn record(id: &str, change_type: &str, v1: Option<&Value>, v2: Option<&Value>) -> String {
    let write = |value: Option<&Value>| value.map_or_else(|| "null".to_owned(), Value::write);
    let source = v1.or(v2).and_then(|entity| entity.get("_source"));
    let source = match source {
        None | Some(Value::Null) => String::new(),
        Some(value) => value.text().unwrap_or_else(|| value.write()),
    };
    let mut diffs = Vec::new();
    if let (Some(Value::Object(ones)), Some(Value::Object(others))) = (v1, v2) {
        let differs =
            |name: &str| name != "_source" && !same(v1.and_then(|v| v.get(name)), v2.and_then(|v| v.get(name)));
        let new = others.iter().filter(|(name, _)| v1.is_some_and(|v| v.get(name).is_none()));
        for (name, _) in ones.iter().chain(new).filter(|(name, _)| differs(name)) {
            diffs.push(format!(
                r#"{{"field":{},"v1":{},"v2":{}}}"#,
                quote(name),
                write(v1.and_then(|v| v.get(name))),
                write(v2.and_then(|v| v.get(name)))
            ));
        }
    }
    format!(
        r#"{{"id":"{id}","change_type":"{change_type}","source":{},"v1":{},"v2":{},"field_diffs":[{}]}}"#,
        quote(&source),
        write(v1),
        write(v2),
        diffs.join(",")
    )
}
