//! Strategies for pairs of similar versions, which diff tests compare.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use strata_diff::{ChangeType, DiffPage};
use strata_reference::{Value, hostile, value};

/// Values of `_source`, some of which are equal as JSON.
pub const SOURCES: &[&str] = &[
    "\"a\"",
    "\"A\"",
    "null",
    "\"\"",
    "1",
    "1.0",
    "true",
    "[\"a\",1]",
    "[\"a\",1.0]",
    r#"{"x":1,"y":[]}"#,
    r#"{"y":[],"x":10e-1}"#,
    r#""\"\\\n\u0001é😀""#,
    "{}",
];

/// Names whose order of code points differs from the order of their escapes and from the order in UTF-16.
pub const NAMES: &[&str] = &["a", "b", "c", "\"", "\u{1}", "\\", "é", "\u{ffff}", "😀", "", "_source2"];

pub const VALUES: &[&str] = &[
    "1",
    "1.0",
    "10e-1",
    "2",
    "true",
    "null",
    "\"x\"",
    "\"X\"",
    "\"1\"",
    "[1,2]",
    "[1.0,2]",
    r#"{"a":1,"b":2}"#,
    r#"{"b":2.0,"a":1}"#,
    "[]",
    "{}",
];

/// The plan from which two versions are built.
#[derive(Clone, Debug)]
pub struct VersionPairPlan {
    pub v1: Vec<Value>,
    derivations: Vec<EntityDerivation>,
}

/// The way in which an entity of v2 is derived.
#[derive(Clone, Debug)]
pub enum EntityDerivation {
    Copy(Index),
    Set(Index, String, Value),
    Remove(Index, Index),
    Reverse(Index),
    Fresh(Value),
}

pub fn parsed(text: &str) -> Value {
    Value::parse(text).expect(text)
}

pub fn name(names: usize) -> impl Strategy<Value = String> {
    prop_oneof![20 => select(&NAMES[..names]).prop_map(str::to_owned), 1 => hostile::key()]
}

pub fn field_value(values: usize) -> impl Strategy<Value = Value> {
    prop_oneof![20 => select(&VALUES[..values]).prop_map(parsed), 1 => hostile::value()]
}

pub fn entity(sources: usize, names: usize, values: usize) -> impl Strategy<Value = Value> {
    let source = prop_oneof![1 => Just(None), 3 => select(&SOURCES[..sources]).prop_map(Some)];
    let fields = vec((name(names), field_value(values)), 0..6);
    (source, any::<Index>(), fields).prop_map(|(source, place, fields)| {
        let mut members = Vec::new();
        fields.into_iter().for_each(|(name, value)| value::set(&mut members, name, value));
        if let Some(source) = source
            && members.iter().all(|(name, _)| name != "_source")
        {
            members.insert(place.index(members.len() + 1), ("_source".to_owned(), parsed(source)));
        }
        // Parsed like in the service, because hostile values can repeat a key.
        Value::parse_entity(&Value::Object(members).write()).expect("failed to parse entity")
    })
}

pub fn plan() -> impl Strategy<Value = VersionPairPlan> {
    let sizes = (1..=SOURCES.len(), 1..=NAMES.len(), 1..=VALUES.len(), prop_oneof![6 => 0..8_usize, 1 => 8..30_usize]);
    sizes.prop_flat_map(|(sources, names, values, size)| {
        // Mostly few sources, so that many entities have the same source.
        let sources = if sources % 2 == 0 { 1 } else { sources };
        let derivation = prop_oneof![
            3 => any::<Index>().prop_map(EntityDerivation::Copy),
            4 => (any::<Index>(), name(names), field_value(values))
                .prop_map(|(of, name, value)| EntityDerivation::Set(of, name, value)),
            2 => any::<(Index, Index)>().prop_map(|(of, field)| EntityDerivation::Remove(of, field)),
            1 => any::<Index>().prop_map(EntityDerivation::Reverse),
            2 => entity(sources, names, values).prop_map(EntityDerivation::Fresh),
        ];
        let v1 = vec(entity(sources, names, values), size..=size);
        (v1, vec(derivation, 0..=size + 2)).prop_map(|(v1, derivations)| VersionPairPlan { v1, derivations })
    })
}

impl VersionPairPlan {
    pub fn v1(&self) -> &[Value] {
        &self.v1
    }

    pub fn v2(&self) -> Vec<Value> {
        let of = |index: &Index| match self.v1.as_slice() {
            [] => Vec::new(),
            v1 => match index.get(v1) {
                Value::Object(members) => members.clone(),
                _ => unreachable!("an entity is an object"),
            },
        };
        let derived = self.derivations.iter().map(|derivation| match derivation {
            EntityDerivation::Fresh(entity) => entity.clone(),
            EntityDerivation::Copy(index) => Value::Object(of(index)),
            EntityDerivation::Reverse(index) => Value::Object(of(index).into_iter().rev().collect()),
            EntityDerivation::Set(index, name, value) => {
                let mut members = of(index);
                value::set(&mut members, name.clone(), value.clone());
                Value::Object(members)
            }
            EntityDerivation::Remove(index, field) => {
                let mut members = of(index);
                if !members.is_empty() {
                    members.remove(field.index(members.len()));
                }
                Value::Object(members)
            }
        });
        derived.map(|entity| Value::parse_entity(&entity.write()).expect("failed to parse entity")).collect()
    }
}

pub fn page() -> impl Strategy<Value = DiffPage> {
    let change_type = prop_oneof![2 => Just(None), 3 => select(&ChangeType::ALL[..]).prop_map(Some)];
    let offset = prop_oneof![4 => 0..12_u64, 1 => Just(u64::MAX)];
    let limit = prop_oneof![1 => Just(None), 4 => (0..12_u64).prop_map(Some), 1 => Just(Some(u64::MAX))];
    (change_type, offset, limit).prop_map(|(change_type, offset, limit)| DiffPage { change_type, offset, limit })
}
