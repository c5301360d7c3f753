//! The leaves of two entities, path by path.
//!
//! Members of objects are paired by key. In two arrays, equal elements at both ends are paired, and those between them
//! by their index. A leaf is a scalar, an empty object or array, or a value that has another type in the other entity.

use std::collections::HashMap;

use strata_json::{CanonicalForm, Cursor, JsonType, Text};
use strata_types::path::Path;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'a> {
    Key(Text<'a>),
    /// In the first entity, or in the second if the first has none.
    Index(usize),
}

/// The texts at a path in both entities. At least one of them has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf<'a> {
    pub(crate) old: Option<&'a [u8]>,
    pub(crate) new: Option<&'a [u8]>,
    pub(crate) is_equal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Equality {
    /// The same JSON value, as in diffs: `1.0` equals `1`.
    Value,
    Text,
}

/// Calls `visit` with every leaf of two canonical entities: those of the first in its order, each object's additional
/// ones of the second behind them.
pub(crate) fn leaves<'a>(
    old: Option<&'a [u8]>,
    new: Option<&'a [u8]>,
    equality: Equality,
    visit: &mut dyn FnMut(&[Step<'a>], Leaf<'a>),
) {
    Walk { equality, canonical: CanonicalForm::default(), steps: Vec::new(), visit }.value(old, new);
}

struct Walk<'a, 'v> {
    equality: Equality,
    canonical: CanonicalForm,
    steps: Vec<Step<'a>>,
    visit: &'v mut dyn FnMut(&[Step<'a>], Leaf<'a>),
}

impl<'a> Walk<'a, '_> {
    /// Recurses at most as deep as entities nest.
    fn value(&mut self, old: Option<&'a [u8]>, new: Option<&'a [u8]>) {
        let is_empty = |value: Option<&[u8]>| value.is_none_or(|value| matches!(value, b"{}" | b"[]"));
        match (old.and_then(json_type), new.and_then(json_type)) {
            _ if is_empty(old) && is_empty(new) => self.leaf(old, new),
            (Some(JsonType::Object) | None, Some(JsonType::Object) | None) => self.objects(old, new),
            (Some(JsonType::Array) | None, Some(JsonType::Array) | None) => self.arrays(old, new),
            _ => self.leaf(old, new),
        }
    }

    fn leaf(&mut self, old: Option<&'a [u8]>, new: Option<&'a [u8]>) {
        let is_equal = match (old, new) {
            (Some(old), Some(new)) => old == new || self.equality == Equality::Value && self.are_equal(old, new),
            _ => false,
        };
        (self.visit)(&self.steps, Leaf { old, new, is_equal });
    }

    fn are_equal(&mut self, one: &[u8], other: &[u8]) -> bool {
        let [form, other_form] = [one, other].map(|value| {
            let mut form = Vec::new();
            self.canonical.write(value, &mut form);
            form
        });
        form == other_form
    }

    fn objects(&mut self, old: Option<&'a [u8]>, new: Option<&'a [u8]>) {
        let members = |object: Option<&'a [u8]>| object.map(strata_json::members).into_iter().flatten();
        let mut others: HashMap<_, _> = members(new).map(|(key, value)| (key.raw(), value)).collect();
        for (key, value) in members(old) {
            let other = others.remove(key.raw());
            self.step(Step::Key(key), Some(value), other);
        }
        for (key, value) in members(new) {
            if others.contains_key(key.raw()) {
                self.step(Step::Key(key), None, Some(value));
            }
        }
    }

    fn arrays(&mut self, old: Option<&'a [u8]>, new: Option<&'a [u8]>) {
        let [old, new] = [old, new].map(|array| array.map(elements).unwrap_or_default());
        let shorter = old.len().min(new.len());
        let before = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
        let behind = old.iter().rev().zip(new.iter().rev()).take_while(|(one, other)| one == other).count();
        let behind = behind.min(shorter - before);
        for index in 0..before {
            self.step(Step::Index(index), Some(old[index]), Some(new[index]));
        }
        let [old_between, new_between] = [&old, &new].map(|all| &all[before..all.len() - behind]);
        for place in 0..old_between.len().max(new_between.len()) {
            self.step(Step::Index(before + place), old_between.get(place).copied(), new_between.get(place).copied());
        }
        for place in (1..=behind).rev() {
            let index = old.len() - place;
            self.step(Step::Index(index), Some(old[index]), Some(new[new.len() - place]));
        }
    }

    fn step(&mut self, step: Step<'a>, old: Option<&'a [u8]>, new: Option<&'a [u8]>) {
        self.steps.push(step);
        self.value(old, new);
        self.steps.pop();
    }
}

fn json_type(value: &[u8]) -> Option<JsonType> {
    value.first().and_then(|first| JsonType::of(*first))
}

pub(crate) fn elements(array: &[u8]) -> Vec<&[u8]> {
    let mut cursor = Cursor::new(array);
    cursor.enter();
    std::iter::from_fn(|| cursor.next_element().then(|| cursor.skip_value())).collect()
}

/// For example, `stock.berlin` or `tags[2]`.
pub(crate) fn way<'a>(steps: impl IntoIterator<Item = &'a Step<'a>>) -> String {
    let mut text = String::new();
    for step in steps {
        match step {
            Step::Index(index) => text.push_str(&format!("[{index}]")),
            Step::Key(key) => {
                if !text.is_empty() {
                    text.push('.');
                }
                // The lone empty key has no spelling.
                let path = Path::from_keys([key.unescape()]);
                text.push_str(&path.map_or_else(|_| "\"\"".to_owned(), |path| path.to_string()));
            }
        }
    }
    text
}

/// The path, which is the same for all elements of an array.
pub(crate) fn path(steps: &[Step<'_>]) -> String {
    way(steps.iter().filter(|step| matches!(step, Step::Key(_))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What differs, a leaf on every line.
    fn differences(old: &str, new: &str, equality: Equality) -> Vec<String> {
        let text = |value: Option<&[u8]>| value.map_or("-".into(), |value| String::from_utf8_lossy(value).into_owned());
        let mut lines = Vec::new();
        leaves(Some(old.as_bytes()), Some(new.as_bytes()), equality, &mut |steps, leaf| {
            if !leaf.is_equal {
                lines.push(format!("{}: {} {}", way(steps), text(leaf.old), text(leaf.new)));
            }
        });
        lines
    }

    #[test]
    fn leaves_of_two_entities_are_compared_by_path() {
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
            assert_eq!(differences(old, new, Equality::Value), expected, "{old} {new}");
        }
        assert_eq!(differences(r#"{"a":1}"#, r#"{"a":1.0}"#, Equality::Text), ["a: 1 1.0"]);
    }
}
