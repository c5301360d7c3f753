//! JSON Schemas: validity, references, and limits of the work for hostile schemas. Without the limits, some of these
//! tests would never end.

use serde_json::{Value, json};

use crate::{canonical, failures, parse, parse_error, run};

fn schema_error(schema: &Value) -> String {
    let error = parse_error(&json!({ "json_schema": schema }).to_string());
    error.strip_prefix("`json_schema`: ").expect("the error names the check").to_owned()
}

#[test]
fn invalid_schemas_are_rejected() {
    for (schema, expected) in [
        (
            json!({ "type": "strin" }),
            "not a valid JSON Schema: \"/type\": \"strin\" is not valid under any of the schemas listed in the 'anyOf' keyword",
        ),
        (json!({ "minimum": "1" }), "not a valid JSON Schema: \"/minimum\": \"1\" is not of type \"number\""),
        (
            json!({ "$schema": "http://json-schema.org/draft-07/schema#" }),
            "$schema: \"http://json-schema.org/draft-07/schema#\" is not valid; valid: \
             https://json-schema.org/draft/2020-12/schema",
        ),
        (
            json!({ "$ref": "https://example.org/schema.json" }),
            "the reference \"https://example.org/schema.json\" leads to nothing in the schema; strata does not fetch \
             remote references",
        ),
        (
            json!({ "$ref": "#/$defs/missing", "$defs": {} }),
            "the reference \"#/$defs/missing\" leads to nothing in the schema; strata does not fetch remote references",
        ),
        (
            json!({ "$ref": "https://json-schema.org/draft/2020-12/schema" }),
            "the reference \"https://json-schema.org/draft/2020-12/schema\" leads to nothing in the schema; strata \
             does not fetch remote references",
        ),
        (
            json!({ "$schema": "https://example.org/meta.json" }),
            "$schema: \"https://example.org/meta.json\" is not valid; valid: \
             https://json-schema.org/draft/2020-12/schema",
        ),
        (json!({ "$ref": "#" }), "a reference leads back to its own schema for the same value"),
        (
            json!({ "allOf": [{ "$ref": "#/$defs/a" }], "$defs": { "a": { "anyOf": [{ "$ref": "#" }] } } }),
            "a reference leads back to its own schema for the same value",
        ),
    ] {
        assert_eq!(schema_error(&schema), expected, "{schema}");
    }
}

#[test]
fn local_references_are_valid() {
    let invalid = |schema: Value| {
        let checks = json!({ "json_schema": schema }).to_string();
        !failures(&checks, r#"[{"a":{"a":{"b":1}}}]"#, None).is_empty()
    };
    let by = |reference: &str| {
        json!({
            "$id": "https://example.org/root.json",
            "properties": { "a": { "$ref": reference } },
            "$defs": {
                "named/é": { "$anchor": "anchor", "type": "string" },
                "other": { "$id": "other.json", "type": "string", "$defs": { "inner": { "type": "string" } } }
            }
        })
    };
    for reference in [
        "#/$defs/named~1%C3%A9",
        "#anchor",
        "other.json",
        "https://example.org/other.json",
        "other.json#/$defs/inner",
        "root.json#anchor",
    ] {
        assert!(invalid(by(reference)), "{reference}");
    }
    // Recursion into values is valid.
    let tree = json!({ "properties": { "a": { "$ref": "#" }, "b": { "type": "string" } } });
    assert!(invalid(tree));
    let dynamic = json!({
        "$dynamicAnchor": "node",
        "properties": { "a": { "$dynamicRef": "#node" }, "b": { "type": "string" } }
    });
    assert!(invalid(dynamic));
    parse(r#"{"json_schema":{"$schema":"https://json-schema.org/draft/2020-12/schema"}}"#);
}

/// Definitions that each refer twice to the next one.
fn doubling(keyword: &str, levels: usize, last: Value) -> Value {
    let mut definitions = serde_json::Map::new();
    for level in 0..levels {
        let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
        definitions.insert(format!("d{level}"), json!({ keyword: [next, next] }));
    }
    definitions.insert(format!("d{levels}"), last);
    json!({ "$ref": "#/$defs/d0", "$defs": definitions })
}

#[test]
fn exponential_schemas_are_rejected() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let error = schema_error(&doubling(keyword, 60, json!({ "type": "string" })));
        assert!(error.starts_with("the references of the schema expand to "), "{error}");
        parse(&json!({ "json_schema": doubling(keyword, 10, json!({})) }).to_string());
    }
    let chain: serde_json::Map<String, Value> = (0..1_100)
        .map(|level| (format!("d{level}"), json!({ "$ref": format!("#/$defs/d{}", (level + 1).min(1_099)) })))
        .chain([("d1099".to_owned(), json!(true))])
        .collect();
    assert_eq!(
        schema_error(&json!({ "$ref": "#/$defs/d0", "$defs": chain })),
        "the schema nests more than 1024 levels for a value of 128 levels"
    );
}

/// An entity of the maximum depth, with two members at each level.
fn deep_entity() -> Vec<u8> {
    let mut entity = r#"{"b":1}"#.to_owned();
    for _ in 0..127 {
        entity = format!(r#"{{"a":{entity},"b":{{}}}}"#);
    }
    canonical(&entity)
}

#[test]
fn recursive_schemas_take_bounded_time_and_stack() {
    let entity = deep_entity();
    let both = json!({ "$ref": "#" });
    for schema in [
        json!({ "properties": { "a": both }, "patternProperties": { "^a": both, "a$": both } }),
        json!({ "anyOf": [{ "properties": { "a": both } }, { "properties": { "a": both } }] }),
        json!({ "allOf": [{ "additionalProperties": both }, { "additionalProperties": both }] }),
        json!({ "properties": { "a": both }, "anyOf": [{ "properties": { "a": both } }], "unevaluatedProperties": both }),
        json!({ "not": { "additionalProperties": { "not": both } } }),
        // Seven levels of the schema for each level of the entity.
        json!({ "allOf": [{ "anyOf": [{ "not": { "oneOf": [{ "if": true, "then": { "properties": { "a": both } } }] } }] }] }),
    ] {
        for leaf in ["b", "c"] {
            let mut schema = schema.clone();
            let is_negated = schema.get("not").is_some();
            schema["dependentRequired"] = json!({ "b": [leaf] });
            let report = run(&json!({ "json_schema": schema }).to_string(), std::slice::from_ref(&entity), None, 1_000);
            let text = report.results[0].text.as_deref().unwrap_or_default();
            assert!(!text.contains("more than") && (leaf == "c" || is_negated || text.is_empty()), "{schema}: {text}");
        }
    }
}

#[test]
fn entity_with_too_many_values_fails() {
    let entity = canonical(&json!({ "a": vec![1; 400_000] }).to_string());
    let schema = json!({ "properties": { "a": { "items": { "type": "number", "allOf": vec![json!({}); 30] } } } });
    let report = run(&json!({ "json_schema": schema }).to_string(), &[entity], None, 1_000);
    let text = report.results[0].text.as_deref().unwrap_or_default();
    assert!(text.contains(": the entity has more than "), "{text}");
}

#[test]
fn numbers_of_schemas_are_exact() {
    let checks = r#"{"json_schema":{"properties":{"a":{"const":9007199254740993}}}}"#;
    assert_eq!(failures(checks, r#"[{"a":9007199254740993}]"#, None), Vec::<String>::new());
    assert_eq!(failures(checks, r#"[{"a":9007199254740992}]"#, None).len(), 1);
    // A number with a huge exponent takes no time.
    let checks = r#"{"json_schema":{"properties":{"a":{"multipleOf":3,"maximum":1e999999999}}}}"#;
    failures(checks, r#"[{"a":1e999999999}]"#, None);
}

#[test]
fn patterns_take_linear_time() {
    let checks = r#"{"json_schema":{"properties":{"a":{"pattern":"^(a+)+$"}}}}"#;
    let entities = json!([{ "a": "a".repeat(5_000) + "!" }, { "a": "aaa" }, { "a": "\u{e9}" }]).to_string();
    let texts = failures(checks, &entities, None);
    assert!(texts[0].starts_with("json_schema: 2 of 3 entities fail; first at position 0: \"/a\": "), "{texts:?}");
    for pattern in ["^(?!foo)", "(a)\\1", "\\w{1000}{1000}", "("] {
        let error = schema_error(&json!({ "pattern": pattern }));
        assert!(error.ends_with(" is not a pattern, is too large, or has lookaround or backreferences"), "{error}");
    }
}
