//! Random checks of random entities.

use proptest::prelude::*;
use proptest::sample::Index;
use strata_checks::CheckResult;
use strata_reference::checks::{self, Failing};
use strata_reference::hostile;
use strata_reference::value::Value;
use strata_types::field_path::FieldPath;

use crate::run;

const TYPES: [&str; 6] = ["null", "boolean", "number", "string", "object", "array"];

type Keys = Vec<String>;

fn path_text(keys: &Keys) -> String {
    FieldPath::from_keys(keys.clone()).expect("failed to create path").to_string()
}

fn path_texts(paths: &[Keys]) -> Vec<String> {
    paths.iter().map(path_text).collect()
}

/// Entities, many of which are equal or differ only in the notation of a number.
fn entities() -> impl Strategy<Value = Vec<Value>> {
    let pool = prop::collection::vec(hostile::entity(), 1..5);
    (pool, prop::collection::vec((any::<Index>(), any::<bool>()), 0..12)).prop_map(|(pool, choices)| {
        let choose = |(index, respell): (Index, bool)| {
            let entity = index.get(&pool).clone();
            if respell { respell_integers(entity) } else { entity }
        };
        choices.into_iter().map(choose).collect()
    })
}

/// Writes short integers with a fraction, which changes no value.
fn respell_integers(value: Value) -> Value {
    match value {
        Value::Number(text) if text.len() < 15 && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Value::Number(format!("{text}.0"))
        }
        Value::Array(elements) => Value::Array(elements.into_iter().map(respell_integers).collect()),
        Value::Object(members) => {
            Value::Object(members.into_iter().rev().map(|(key, value)| (key, respell_integers(value))).collect())
        }
        other => other,
    }
}

fn assert_result(result: &CheckResult, failing: &[Failing], entity_count: usize) -> Result<(), TestCaseError> {
    let Some(&(first, original)) = failing.first() else {
        prop_assert_eq!(&result.text, &None);
        prop_assert_eq!(&result.entities, &None);
        return Ok(());
    };
    let text = result.text.as_deref().unwrap_or_default();
    let verb = if failing.len() == 1 { "fails" } else { "fail" };
    let count = failing.len();
    let begin =
        format!("{}: {count} of {entity_count} entities {verb}; first at position {first}: ", result.check.as_str());
    prop_assert!(text.starts_with(&begin), "{text}");
    if let Some(original) = original {
        let is_truncated = text.ends_with('…');
        prop_assert!(is_truncated || text.ends_with(&format!(", as at position {original}")), "{text}");
    }
    prop_assert!(text.chars().count() < 270 && !text.contains('\n'), "{text}");
    let entities = result.entities.as_ref().expect("failing entities");
    prop_assert_eq!(entities.count, failing.len() as u64);
    let positions: Vec<u64> = entities.first.iter().map(|entity| entity.position).collect();
    let expected: Vec<u64> = failing.iter().take(3).map(|(position, _)| *position).collect();
    prop_assert_eq!(positions, expected);
    Ok(())
}

proptest! {
    #[test]
    fn checks_equal_reference(
        entities in entities(),
        required in prop::collection::vec(hostile::path(), 0..4),
        unique in prop::collection::vec(prop::collection::vec(hostile::path(), 1..3), 0..3),
        typed in prop::collection::vec((hostile::path(), prop::sample::subsequence(&TYPES[..], 1..6)), 0..4),
        max_keys in 1_usize..8,
    ) {
        let mut typed: Vec<(Keys, Vec<&str>)> = typed;
        typed.sort();
        typed.dedup_by(|one, other| one.0 == other.0);
        let types: serde_json::Map<String, serde_json::Value> =
            typed.iter().map(|(path, names)| (path_text(path), serde_json::json!(names))).collect();
        let lists: Vec<_> = unique.iter().map(|list| path_texts(list)).collect();
        let json = serde_json::json!({ "required": path_texts(&required), "unique": lists, "types": types });
        let documents: Vec<_> = entities.iter().map(|entity| crate::canonical(&entity.write())).collect();
        let report = run(&json.to_string(), &documents, None, max_keys);
        let expected = [
            checks::required(&entities, &required),
            checks::unique(&entities, &unique),
            checks::types(&entities, &typed),
        ];
        prop_assert_eq!(report.results.len(), expected.len());
        for (result, failing) in report.results.iter().zip(&expected) {
            assert_result(result, failing, entities.len())?;
        }
    }
}
