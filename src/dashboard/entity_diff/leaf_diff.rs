//! Compares two entities leaf by leaf. A leaf is a scalar, an empty object or array, or a value whose type changed.
//!
//! Members of objects are paired by key. In arrays, the common prefix and suffix are paired, and the elements between
//! them by index: for `[1,2,3]` and `[1,3]`, the leaf `[1]` is removed.

use std::collections::HashMap;

use strata_json::{CanonicalFormWriter, JsonCursor, JsonStr, JsonType};
use strata_types::field_path::FieldPath;

#[derive(Clone, Copy, Debug)]
pub(crate) enum PathStep<'a> {
    Key(JsonStr<'a>),
    /// The index of the element in the old array, or in the new array if the old one is shorter.
    Index(usize),
}

/// The JSON texts of a leaf in the old and in the new entity. At least one of them is present.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafPair<'a> {
    pub(crate) old: Option<&'a [u8]>,
    pub(crate) new: Option<&'a [u8]>,
    pub(crate) is_equal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafEquality {
    /// Compares JSON values, as diffs do: `1.0` equals `1`.
    Value,
    Text,
}

/// Calls `visit` with every leaf of two canonical entities, in the order of `old`; members only in `new` follow.
pub(crate) fn visit_leaves<'a>(
    old: Option<&'a [u8]>,
    new: Option<&'a [u8]>,
    equality: LeafEquality,
    visit: &mut dyn FnMut(&[PathStep<'a>], LeafPair<'a>),
) {
    LeafWalker { equality, canonical: CanonicalFormWriter::default(), steps: Vec::new(), visit }.visit_value(old, new);
}

struct LeafWalker<'a, 'v> {
    equality: LeafEquality,
    canonical: CanonicalFormWriter,
    steps: Vec<PathStep<'a>>,
    visit: &'v mut dyn FnMut(&[PathStep<'a>], LeafPair<'a>),
}

impl<'a> LeafWalker<'a, '_> {
    /// The recursion of this function is as deep as the nesting of entities, which is limited.
    fn visit_value(&mut self, old: Option<&'a [u8]>, new: Option<&'a [u8]>) {
        let is_empty = |value: Option<&[u8]>| value.is_none_or(|value| matches!(value, b"{}" | b"[]"));
        match (old.and_then(json_type), new.and_then(json_type)) {
            _ if is_empty(old) && is_empty(new) => self.visit_leaf(old, new),
            (Some(JsonType::Object) | None, Some(JsonType::Object) | None) => self.visit_objects(old, new),
            (Some(JsonType::Array) | None, Some(JsonType::Array) | None) => self.visit_arrays(old, new),
            _ => self.visit_leaf(old, new),
        }
    }

    fn visit_leaf(&mut self, old: Option<&'a [u8]>, new: Option<&'a [u8]>) {
        let is_equal = match (old, new) {
            (Some(old), Some(new)) => old == new || self.equality == LeafEquality::Value && self.are_equal(old, new),
            _ => false,
        };
        (self.visit)(&self.steps, LeafPair { old, new, is_equal });
    }

    fn are_equal(&mut self, one: &[u8], other: &[u8]) -> bool {
        let [form, other_form] = [one, other].map(|value| {
            let mut form = Vec::new();
            self.canonical.write(value, &mut form);
            form
        });
        form == other_form
    }

    fn visit_objects(&mut self, old: Option<&'a [u8]>, new: Option<&'a [u8]>) {
        let members = |object: Option<&'a [u8]>| object.map(strata_json::members).into_iter().flatten();
        let mut others: HashMap<_, _> = members(new).map(|(key, value)| (key.raw(), value)).collect();
        for (key, value) in members(old) {
            self.visit_child(PathStep::Key(key), Some(value), others.remove(key.raw()));
        }
        for (key, value) in members(new) {
            if others.contains_key(key.raw()) {
                self.visit_child(PathStep::Key(key), None, Some(value));
            }
        }
    }

    fn visit_arrays(&mut self, old: Option<&'a [u8]>, new: Option<&'a [u8]>) {
        let [old, new] = [old, new].map(|array| array.map(array_elements).unwrap_or_default());
        let shorter = old.len().min(new.len());
        let prefix = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
        let suffix = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
        let suffix = suffix.min(shorter - prefix);
        for index in 0..prefix {
            self.visit_child(PathStep::Index(index), Some(old[index]), Some(new[index]));
        }
        let [old_between, new_between] = [&old, &new].map(|all| &all[prefix..all.len() - suffix]);
        for offset in 0..old_between.len().max(new_between.len()) {
            let [old, new] = [old_between, new_between].map(|elements| elements.get(offset).copied());
            self.visit_child(PathStep::Index(prefix + offset), old, new);
        }
        for offset in (1..=suffix).rev() {
            let index = old.len() - offset;
            self.visit_child(PathStep::Index(index), Some(old[index]), Some(new[new.len() - offset]));
        }
    }

    fn visit_child(&mut self, step: PathStep<'a>, old: Option<&'a [u8]>, new: Option<&'a [u8]>) {
        self.steps.push(step);
        self.visit_value(old, new);
        self.steps.pop();
    }
}

fn json_type(value: &[u8]) -> Option<JsonType> {
    value.first().and_then(|first| JsonType::from_first_byte(*first))
}

pub(crate) fn array_elements(array: &[u8]) -> Vec<&[u8]> {
    let mut cursor = JsonCursor::new(array);
    cursor.enter();
    std::iter::from_fn(|| cursor.next_element().then(|| cursor.skip_value())).collect()
}

/// Formats a path: `stock.berlin` or `tags[2]`.
pub(crate) fn path_with_indexes<'a>(steps: impl IntoIterator<Item = &'a PathStep<'a>>) -> String {
    let mut text = String::new();
    for step in steps {
        match step {
            PathStep::Index(index) => text.push_str(&format!("[{index}]")),
            PathStep::Key(key) => {
                if !text.is_empty() {
                    text.push('.');
                }
                // An empty key is not a valid path, so it is shown as `""`.
                let path = FieldPath::from_keys([key.unescape()]);
                text.push_str(&path.map_or_else(|_| "\"\"".to_owned(), |path| path.to_string()));
            }
        }
    }
    text
}

pub(crate) fn path_without_indexes(steps: &[PathStep<'_>]) -> String {
    path_with_indexes(steps.iter().filter(|step| matches!(step, PathStep::Key(_))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differences(old: &str, new: &str, equality: LeafEquality) -> Vec<String> {
        let text = |value: Option<&[u8]>| value.map_or("-".into(), |value| String::from_utf8_lossy(value).into_owned());
        let mut lines = Vec::new();
        visit_leaves(Some(old.as_bytes()), Some(new.as_bytes()), equality, &mut |steps, leaf| {
            if !leaf.is_equal {
                lines.push(format!("{}: {} {}", path_with_indexes(steps), text(leaf.old), text(leaf.new)));
            }
        });
        lines
    }

    #[test]
    fn entities_are_compared_leaf_by_leaf() {
        for (old, new, expected) in [
            (r#"{"a":1}"#, r#"{"a":1.0}"#, &[][..]),
            (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, &[]),
            (r#"{"a":1,"b":{"c":1,"d":2}}"#, r#"{"a":2,"b":{"c":1,"e":3}}"#, &["a: 1 2", "b.d: 2 -", "b.e: - 3"]),
            (r#"{"a":[1,2,3]}"#, r#"{"a":[1,3]}"#, &["a[1]: 2 -"]),
            (r#"{"a":[1,2,3]}"#, r#"{"a":[0,1,2,3]}"#, &["a[0]: - 0"]),
            (r#"{"a":[{"x":1},{"x":2}]}"#, r#"{"a":[{"x":1},{"x":3}]}"#, &["a[1].x: 2 3"]),
            (r#"{"a":{"b":1}}"#, r#"{"a":7}"#, &[r#"a: {"b":1} 7"#]),
            (r#"{"a":{"b":1}}"#, r#"{"a":{}}"#, &["a.b: 1 -"]),
            (r#"{"a":{"b":1}}"#, r#"{"a":[]}"#, &[r#"a: {"b":1} []"#]),
            (r#"{"a":[]}"#, r#"{"a":{}}"#, &["a: [] {}"]),
            (r#"{"a.b":{"":1}}"#, r#"{"a.b":{"":2}}"#, &[r#"a\.b."": 1 2"#]),
            ("{}", r#"{"a":null}"#, &["a: - null"]),
        ] {
            assert_eq!(differences(old, new, LeafEquality::Value), expected, "{old} {new}");
        }
        assert_eq!(differences(r#"{"a":1}"#, r#"{"a":1.0}"#, LeafEquality::Text), ["a: 1 1.0"]);
    }
}
