//! The texts of failed checks.

use crate::failures;

const PEOPLE: &str = r#"[
    {"name":"Ada","age":36,"tags":["a",null]},
    {"name":null,"age":"36","tags":[]},
    {"age":36.0,"tags":[{"x":1},{"x":null}]},
    {"name":"Ada","age":0.36e+2,"tags":null}
]"#;

#[test]
fn failed_checks_name_figure_position_and_value() {
    for (checks, old_count, expected) in [
        (r#"{"min_entities":4,"max_entities":4}"#, None, &[][..]),
        (r#"{"min_entities":5}"#, None, &["min_entities: the list has 4 entities; valid: at least 5"]),
        (r#"{"max_entities":3}"#, None, &["max_entities: the list has 4 entities; valid: at most 3"]),
        (r#"{"max_drop_percent":10}"#, None, &[]),
        (r#"{"max_drop_percent":20}"#, Some(5), &[]),
        (
            r#"{"max_drop_percent":19.9}"#,
            Some(5),
            &[
                "max_drop_percent: the list has 4 entities, 20.00 % less than the 5 of version 7; valid: at most 19.9 % \
               less",
            ],
        ),
        (
            r#"{"required":["age","tags.x"]}"#,
            None,
            &["required: 3 of 4 entities fail; first at position 0: `tags.x` is missing"],
        ),
        (r#"{"required":["name"]}"#, None, &["required: 2 of 4 entities fail; first at position 1: `name` is null"]),
        (r#"{"required":["age"]}"#, None, &[]),
        // An array is a value, even if it is empty.
        (r#"{"required":["tags"]}"#, None, &["required: 1 of 4 entities fails; first at position 3: `tags` is null"]),
        (
            r#"{"unique":[["name"]]}"#,
            None,
            &["unique: 1 of 4 entities fails; first at position 3: `name` is \"Ada\", as at position 0"],
        ),
        (
            r#"{"unique":[["age"]]}"#,
            None,
            &["unique: 2 of 4 entities fail; first at position 2: `age` is 36.0, as at position 0"],
        ),
        (
            r#"{"unique":[["missing"],["age","name"]]}"#,
            None,
            &["unique: 3 of 4 entities fail; first at position 1: `missing` is missing, as at position 0"],
        ),
        (
            r#"{"unique":[["age","name"]]}"#,
            None,
            &[
                "unique: 1 of 4 entities fails; first at position 3: `age` is 0.36e+2 and `name` is \"Ada\", as at position \
               0",
            ],
        ),
        (
            r#"{"types":{"age":["number"]}}"#,
            None,
            &["types: 1 of 4 entities fails; first at position 1: `age` is \"36\" (a string); valid: number"],
        ),
        (
            r#"{"types":{"tags":["array"],"name":["string","null"]}}"#,
            None,
            &["types: 1 of 4 entities fails; first at position 3: `tags` is null; valid: array"],
        ),
        (
            r#"{"types":{"tags.x":["number"]}}"#,
            None,
            &["types: 1 of 4 entities fails; first at position 2: `tags.x` is null; valid: number"],
        ),
        (
            r#"{"json_schema":{"properties":{"age":{"type":"number"}},"required":["tags"]}}"#,
            None,
            &["json_schema: 1 of 4 entities fails; first at position 1: \"/age\": \"36\" is not of type \"number\""],
        ),
        (
            r#"{"json_schema":{"required":["name"]}}"#,
            None,
            &["json_schema: 1 of 4 entities fails; first at position 2: \"name\" is a required property"],
        ),
        (r#"{"json_schema":true}"#, None, &[]),
        (
            r#"{"min_entities":9,"required":["name"],"types":{"age":["number"]}}"#,
            None,
            &[
                "min_entities: the list has 4 entities; valid: at least 9",
                "required: 2 of 4 entities fail; first at position 1: `name` is null",
                "types: 1 of 4 entities fails; first at position 1: `age` is \"36\" (a string); valid: number",
            ],
        ),
    ] {
        assert_eq!(failures(checks, PEOPLE, old_count), expected, "{checks}");
    }
}

#[test]
fn empty_list_passes_checks_of_entities() {
    let checks = r#"{"max_entities":0,"required":["a"],"unique":[["a"]],"types":{"a":["null"]},"json_schema":false}"#;
    assert_eq!(failures(checks, "[]", None), Vec::<String>::new());
    assert_eq!(
        failures(r#"{"min_entities":1,"max_drop_percent":99}"#, "[]", Some(2)),
        [
            "min_entities: the list has 0 entities; valid: at least 1",
            "max_drop_percent: the list has 0 entities, 100.00 % less than the 2 of version 7; valid: at most 99 % less",
        ]
    );
}

#[test]
fn texts_of_large_and_hostile_values_are_short() {
    let long = "\u{202e}ä\n".repeat(10_000);
    let entities = serde_json::json!([{ "a": long, "b": 1 }, { "a": long, "b": 1 }]).to_string();
    let path = serde_json::json!("x".repeat(1_000));
    let checks = format!(
        r#"{{"min_entities":9,"max_entities":1,"max_drop_percent":0,"required":[{path}],"unique":[["a","b",{path}]],
            "types":{{"a":["number"]}},"json_schema":{{"properties":{{"a":{{"type":"number"}}}}}}}}"#
    );
    let texts = failures(&checks, &entities, Some(u64::MAX));
    assert_eq!(texts.len(), 7);
    for text in &texts {
        assert!(text.chars().count() <= 261 && !text.contains(['\n', '\u{202e}']), "{text}");
    }
    assert!(texts.join("; ").chars().count() <= strata_checks::MAX_REPORT_CHARACTERS);
}
