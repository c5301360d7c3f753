//! Valid and invalid checks.

use strata_types::limits::{MAX_CHECK_PATH_BYTES, MAX_CHECK_PATHS, MAX_CHECK_SCHEMA_BYTES, MAX_SCHEMA_PATTERNS};

use crate::{parse, parse_error};

#[test]
fn invalid_checks_are_named() {
    for (checks, expected) in [
        ("[]", "an array is not valid; valid: a JSON object, such as {\"required\":[\"name\"]}, or null"),
        ("7", "7 is not valid; valid: a JSON object, such as {\"required\":[\"name\"]}, or null"),
        (
            r#"{"min_entitys":1}"#,
            "unknown check \"min_entitys\"; did you mean min_entities? valid: min_entities, max_entities, \
             max_drop_percent, required, unique, types, json_schema",
        ),
        (
            "{\"\\u202e\":1}",
            "unknown check \"\\u{202e}\"; valid: min_entities, max_entities, max_drop_percent, required, unique, \
             types, json_schema",
        ),
        (r#"{"min_entities":-1}"#, "`min_entities`: -1 is not valid; valid: an integer from 0"),
        (r#"{"min_entities":1.5}"#, "`min_entities`: 1.5 is not valid; valid: an integer from 0"),
        (r#"{"min_entities":null}"#, "`min_entities`: null is not valid; valid: an integer from 0"),
        (r#"{"max_entities":"9"}"#, "`max_entities`: \"9\" is not valid; valid: an integer from 0"),
        (
            r#"{"max_entities":18446744073709551616}"#,
            "`max_entities`: 18446744073709551616 is not valid; valid: an integer from 0",
        ),
        (r#"{"max_drop_percent":100.5}"#, "`max_drop_percent`: 100.5 is not valid; valid: a number from 0 to 100"),
        (r#"{"max_drop_percent":-0.1}"#, "`max_drop_percent`: -0.1 is not valid; valid: a number from 0 to 100"),
        (r#"{"max_drop_percent":[5]}"#, "`max_drop_percent`: an array is not valid; valid: a number from 0 to 100"),
        (r#"{"required":"name"}"#, "`required`: \"name\" is not valid; valid: a list of paths, such as [\"name\"]"),
        (r#"{"required":[1]}"#, "`required`: 1 is not valid; valid: a list of paths, such as [\"name\"]"),
        (
            r#"{"required":[""]}"#,
            "`required`: \"\" is not valid: the path is empty: it must name a field, such as `name` or `stock.berlin`",
        ),
        (
            r#"{"unique":["id"]}"#,
            "`unique`: \"id\" is not valid; valid: a list of lists of paths, such as [[\"id\"],[\"country\",\"code\"]]",
        ),
        (
            r#"{"unique":[[]]}"#,
            "`unique`: a list without paths is not valid; valid: a list of lists of paths, such as \
             [[\"id\"],[\"country\",\"code\"]]",
        ),
        (
            r#"{"types":{"a":["integer"]}}"#,
            "`types`: \"integer\" is not valid; valid: an object that maps paths to lists of null, boolean, number, \
             string, object, and array, such as {\"price\":[\"number\",\"null\"]}",
        ),
        (
            r#"{"types":{"a":[]}}"#,
            "`types`: a list without types is not valid; valid: an object that maps paths to lists of null, boolean, \
             number, string, object, and array, such as {\"price\":[\"number\",\"null\"]}",
        ),
        (r#"{"json_schema":null}"#, "`json_schema`: null is not valid; valid: a JSON Schema (an object or a boolean)"),
        (
            r#"{"json_schema":[]}"#,
            "`json_schema`: an array is not valid; valid: a JSON Schema (an object or a boolean)",
        ),
    ] {
        assert_eq!(parse_error(checks), expected, "{checks}");
    }
}

#[test]
fn empty_and_boundary_checks_are_valid() {
    for checks in [
        "{}",
        r#"{"min_entities":0,"max_entities":9007199254740993,"max_drop_percent":0}"#,
        r#"{"min_entities":7.0,"max_entities":1e3,"max_drop_percent":100.0}"#,
        r#"{"max_entities":18446744073709551615}"#,
        r#"{"required":[],"unique":[],"types":{}}"#,
        r#"{"required":["a\\.b","a.b","a.b"],"types":{"a":["null","boolean","number","string","object","array"]}}"#,
        r#"{"json_schema":true}"#,
        r#"{"json_schema":{}}"#,
    ] {
        parse(checks);
    }
}

#[test]
fn path_limits_apply() {
    let paths: Vec<String> = (0..=MAX_CHECK_PATHS).map(|number| format!("p{number}")).collect();
    let checks = |required: &[String], unique: &[String]| {
        serde_json::json!({ "required": required, "unique": [unique], "types": { "x": ["null"] } }).to_string()
    };
    let (first, last) = paths.split_at(100);
    parse(&checks(first, &last[2..]));
    assert_eq!(parse_error(&checks(first, &last[1..])), "the checks contain 257 paths; valid: at most 256 in total");
    let path = |bytes: usize| format!(r#"{{"required":["{}"]}}"#, "a".repeat(bytes));
    parse(&path(MAX_CHECK_PATH_BYTES));
    assert_eq!(
        parse_error(&path(MAX_CHECK_PATH_BYTES + 1)),
        "`required`: a path has 1025 bytes; valid: at most 1024 bytes"
    );
}

#[test]
fn schema_limits_apply() {
    let schema = |bytes: usize| format!(r#"{{"json_schema":{{"title":"{}"}}}}"#, "a".repeat(bytes - 12));
    parse(&schema(MAX_CHECK_SCHEMA_BYTES));
    assert_eq!(
        parse_error(&schema(MAX_CHECK_SCHEMA_BYTES + 1)),
        "`json_schema`: the schema has 65537 bytes; valid: at most 65536 bytes"
    );
    let patterns = |count: usize| {
        let properties: serde_json::Map<String, serde_json::Value> =
            (0..count).map(|number| (format!("p{number}"), serde_json::json!({ "pattern": "^a" }))).collect();
        serde_json::json!({ "json_schema": { "properties": properties } }).to_string()
    };
    parse(&patterns(MAX_SCHEMA_PATTERNS));
    assert_eq!(
        parse_error(&patterns(MAX_SCHEMA_PATTERNS + 1)),
        "`json_schema`: the schema has 65 patterns; valid: at most 64"
    );
}
