//! The columns that a table has when fields are taken away, told from those of the whole version by their names alone.

use std::cell::Cell;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_json::Columns;
use strata_query::fetch::reshape::Reshape;
use strata_reference::{Value, formats, hostile, rules};
use strata_types::path::Path;

/// Keys whose flattened names are alike.
fn member() -> impl Strategy<Value = (String, Value)> {
    let key = prop::sample::select(&["a", "b", "a.b", "a_0_b", "_source", "a_b", "a_0", "_source.b", ""][..]);
    let value = prop_oneof![
        Just(r#"1"#),
        Just(r#"{"b":1}"#),
        Just(r#"[{"b":1},{"c":2}]"#),
        Just(r#"[1]"#),
        Just(r#"{"a":{"":[{"_source":1}]}}"#),
    ];
    (key, value).prop_map(|(key, value)| (key.to_owned(), Value::parse(value).expect("JSON")))
}

fn entity() -> impl Strategy<Value = Value> {
    let alike = vec(member(), 0..6).prop_map(|members| {
        let mut object: Vec<(String, Value)> = Vec::new();
        for (key, value) in members {
            if !object.iter().any(|(other, _)| *other == key) {
                object.push((key, value));
            }
        }
        Value::Object(object)
    });
    prop_oneof![2 => alike, 1 => hostile::entity()]
}

#[test]
fn names_tell_the_columns_that_are_left() {
    let told = Cell::new(0);
    let chosen = (vec(any::<Index>(), 0..3), vec(any::<Index>(), 0..3));
    let strategy = (vec(entity(), 0..6), any::<bool>(), chosen);
    let mut runner = TestRunner::new(PropertyConfig { cases: 2_000, ..PropertyConfig::default() });
    let outcome = runner.run(&strategy, |(entities, include_source, (keep, drop))| {
        let mut keys: Vec<String> = ["a", "b", "x", "_source", "a_0"].map(str::to_owned).to_vec();
        for entity in &entities {
            if let Value::Object(members) = entity {
                keys.extend(members.iter().map(|(key, _)| key.clone()));
            }
        }
        let paths = |chosen: &[Index]| -> Vec<Path> {
            chosen.iter().filter_map(|index| Path::from_keys([index.get(&keys).clone()]).ok()).collect()
        };
        let (keep, drop) = (paths(&keep), paths(&drop));
        let keys_of = |paths: &[Path]| paths.iter().map(|path| path.keys().to_vec()).collect::<Vec<_>>();
        let reshaped = entities.iter().map(|entity| {
            let mut entity = if include_source { entity.clone() } else { rules::strip_source(entity) };
            if !keep.is_empty() {
                entity = rules::keep(&entity, &keys_of(&keep));
            }
            rules::drop(&entity, &keys_of(&drop))
        });
        let reshaped: Vec<Value> = reshaped.collect();
        let reshape = Reshape::new(include_source, false, keep, drop);
        if let Some(left) = reshape.columns_left(&Columns::from(formats::columns(&entities))) {
            told.set(told.get() + 1);
            prop_assert_eq!(left.names(), formats::columns(&reshaped));
        }
        let denulled = Reshape::new(include_source, true, Vec::new(), Vec::new());
        prop_assert!(denulled.columns_left(&Columns::default()).is_none());
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    assert!(told.get() > 400, "{} of 2,000", told.get());
}
