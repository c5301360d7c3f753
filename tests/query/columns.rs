//! The columns of a table after fields are removed, derived from the column names of the whole version.

use std::cell::Cell;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_json::TableColumnNames;
use strata_query::fetch::entity_projection::EntityProjection;
use strata_reference::{Value, formats, hostile, rules};
use strata_types::field_path::FieldPath;
use strata_types::read_request::ReadRequest;

/// Keys with similar flattened names.
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
fn projected_columns_match_reference() {
    let decided = Cell::new(0);
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
        let paths = |chosen: &[Index]| -> Vec<FieldPath> {
            chosen.iter().filter_map(|index| FieldPath::from_keys([index.get(&keys).clone()]).ok()).collect()
        };
        let keep = paths(&keep);
        let drop = paths(&drop);
        let keys_of = |paths: &[FieldPath]| paths.iter().map(|path| path.keys().to_vec()).collect::<Vec<_>>();
        let expected = entities.iter().map(|entity| {
            let mut entity = if include_source { entity.clone() } else { rules::strip_source(entity) };
            if !keep.is_empty() {
                entity = rules::keep(&entity, &keys_of(&keep));
            }
            rules::drop(&entity, &keys_of(&drop))
        });
        let expected: Vec<Value> = expected.collect();
        let projection = EntityProjection::from_request(&ReadRequest {
            include_source,
            keep_fields: keep,
            drop_fields: drop,
            ..ReadRequest::default()
        });
        if let Some(projected) = projection.project_columns(&TableColumnNames::from(formats::columns(&entities))) {
            decided.set(decided.get() + 1);
            prop_assert_eq!(projected.names(), formats::columns(&expected));
        }
        let with_denull = ReadRequest { include_source, denull: true, ..ReadRequest::default() };
        let with_denull = EntityProjection::from_request(&with_denull);
        prop_assert!(with_denull.project_columns(&TableColumnNames::default()).is_none());
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    assert!(decided.get() > 400, "{} of 2,000", decided.get());
}
