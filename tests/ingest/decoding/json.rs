//! JSON and JSON Lines.

use std::io;

use strata_ingest::{DecodeOptions, SourceInput};
use strata_types::source::SourceFormat;

use super::{as_format, at_path, check, check_with, decode};

#[test]
fn json_array_is_decoded() {
    check("a.json", "[]", "");
    check("a.json", " [ ] \r\n", "");
    check("a.json", "\u{feff}[{}]", "{}");
    check(
        "a.json",
        "[ {\"b\" : 1.0, \"a\":[ 1e400 , {} ]}\n,\t{\"\\u00e9\\/\":\"\\u0041\"} ]",
        r#"{"b":1.0,"a":[1e400,{}]}
           {"é/":"A"}"#,
    );
    check("a.json", r#"[{"a":1,"b":2,"a":3}]"#, r#"{"a":3,"b":2}"#);
}

#[test]
fn invalid_json_item_reports_position() {
    check(
        "a.json",
        r#"[{"a":1},{"a":2},[3]]"#,
        r#"{"a":1}
           {"a":2}
           ! item 3 (line 1, column 18): an entity must be a JSON object, but this is an array"#,
    );
    for (item, kind) in [("null", "null"), ("\"x\"", "a string"), ("-1", "a number"), ("true", "a boolean")] {
        let expected = format!("! item 1 (line 1, column 2): an entity must be a JSON object, but this is {kind}");
        check("a.json", format!("[{item}]"), &expected);
    }
    check("a.json", r#"[{"a":01}]"#, "! item 1 (line 1, column 8): invalid JSON number");
    check("a.json", r#"[{"a":"\ud800"}]"#, "! item 1 (line 1, column 8): unpaired surrogate");
    check("a.json", b"[{\"a\":\"\xff\"}]", "! item 1 (line 1, column 8): invalid UTF-8");
    check("a.json", r#"[{"a":[}]"#, "! item 1 (line 1, column 8): expected a value, found '}'");
}

/// Earlier errors contained only the byte offset within the item.
#[test]
fn json_error_reports_line_and_column() {
    let document = "[\n  {\"a\": \"ä\"},\r\n\n  {\"ö\": {\n    \"ü\": nul}}\n]";
    check("a.json", document, "{\"a\":\"ä\"}\n! item 2 (line 5, column 10): expected a value, found 'n'");
    let document = "{\"é\":\n 1, \"rows\": [ {},\n\t7]}";
    check_with(
        &at_path("rows"),
        "a.json",
        document,
        "{}\n! item 2 (line 3, column 2): an entity must be a JSON object, but this is a number",
    );
    let whitespace = format!("[{}{{}}{}x]", "\n".repeat(300_000), " ".repeat(300_000));
    check(
        "a.json",
        whitespace,
        "{}\n! invalid JSON: expected a comma or a closing bracket after item 1, but found 'x' (line 300001, column \
         300003)",
    );
}

#[test]
fn truncated_or_trailing_json_is_invalid() {
    check("a.json", "", "! invalid JSON: expected an array, but the document ends");
    check("a.json", "[", "! invalid JSON: expected an item, but the document ends");
    check("a.json", r#"[{"a":1"#, "! item 1 (line 1, column 2): the document ends in the middle of a value");
    check(
        "a.json",
        r#"[{"a":1}"#,
        r#"{"a":1}
           ! invalid JSON: expected a comma or a closing bracket after item 1, but the document ends"#,
    );
    check(
        "a.json",
        r#"[{"a":1},]"#,
        r#"{"a":1}
           ! invalid JSON: expected an item after item 1, but found ']' (line 1, column 10)"#,
    );
    check(
        "a.json",
        r#"[{"a":1} {"a":2}]"#,
        r#"{"a":1}
           ! invalid JSON: expected a comma or a closing bracket after item 1, but found '{' (line 1, column 10)"#,
    );
    check("a.json", "[] []", "! invalid JSON: expected the end of the document, but found '[' (line 1, column 4)");
    check("a.json", "[,]", "! invalid JSON: expected an item, but found ',' (line 1, column 2)");
    check("a.json", "<a>", "! invalid JSON: expected an array, but found '<' (line 1, column 1)");
}

#[test]
fn json_nesting_matches_entity_limit() {
    let nested = |levels: usize| format!("[{{\"a\":{}{}}}]", "[".repeat(levels - 1), "]".repeat(levels - 1));
    let deepest = nested(128);
    check("a.json", &deepest, &deepest[1..deepest.len() - 1]);
    let text =
        decode(SourceInput::from_reader(io::Cursor::new(nested(129))).with_name("a.json"), &DecodeOptions::default());
    assert!(
        text.starts_with("! item 1 (line 1, column ") && text.ends_with("nested deeper than 128 levels\n"),
        "{text}"
    );
    // Hundreds of thousands of levels must not exhaust the stack.
    let text = decode(
        SourceInput::from_reader(io::Cursor::new("[{\"a\":".to_owned() + &"[".repeat(300_000))).with_name("a.json"),
        &DecodeOptions::default(),
    );
    assert!(text.contains("nested deeper than 128 levels"), "{text}");
}

#[test]
fn json_records_at_path_are_decoded() {
    let document = r#"
        {"meta": {"items": [1, "]}", {"x":"\\\""}], "n": -1.5e3}, "other" : "a,]}" , "t":true,
         "data": {"next": null, "items": [{"a":1}, {"a":2}], "after": [[]]},
         "last": "items"}"#;
    check_with(&at_path("data.items"), "a.json", document, "{\"a\":1}\n{\"a\":2}");
    check_with(&at_path("data.items"), "", document, "{\"a\":1}\n{\"a\":2}");
    check_with(&at_path("rows"), "a.json", r#"{"rows":[]}"#, "");
    check_with(&at_path(r"a\.b"), "a.json", r#"{"a":{"b":[{"no":1}]},"a.b":[{"yes":1}]}"#, r#"{"yes":1}"#);
    check_with(&at_path("é"), "a.json", r#"{"\u00e9":[{}]}"#, "{}");
    check_with(&at_path("a..b"), "a.json", r#"{"a":{"":{"b":[{}]}}}"#, "{}");
}

#[test]
fn json_records_path_without_array_is_rejected() {
    let missing = "! the document has no value at the records path";
    check_with(&at_path("data.items"), "a.json", r#"{"data":{"x":1}}"#, &format!("{missing} data.items"));
    check_with(&at_path("data.items"), "a.json", r#"{"data":{}}"#, &format!("{missing} data.items"));
    check_with(&at_path("data.items"), "a.json", r#"{"dat":{"items":[]}}"#, &format!("{missing} data"));
    check_with(
        &at_path("data.items"),
        "a.json",
        r#"{"data":{"items":{"a":1}}}"#,
        "! the value at the records path data.items is an object, not an array",
    );
    check_with(
        &at_path("data.items"),
        "a.json",
        r#"{"data":[{"items":[]}]}"#,
        "! the value at the records path data is an array, not an object",
    );
    check_with(&at_path("data"), "a.json", "[{}]", "! the document is an array, not an object");
    check_with(
        &at_path("items"),
        "a.json",
        r#"{"items":[{}],"items":[]}"#,
        "{}
         ! the key at the records path items occurs twice",
    );
    check_with(
        &at_path("items"),
        "a.json",
        r#"{"items":[{}]"#,
        "{}
         ! invalid JSON: expected a comma or a closing brace after item 1, but the document ends",
    );
    check_with(
        &at_path("items"),
        "a.json",
        r#"{"x":tru,"items":[]}"#,
        r#"! invalid JSON outside the array of records: "tru""#,
    );
    check_with(
        &at_path("items"),
        "a.csv",
        "a,b\n",
        "! a records path applies only to json sources, but the format is csv",
    );
}

#[test]
fn json_object_without_records_path_is_rejected() {
    let advice = "! the document is an object, not an array: set `records_path` to the path of the array of records, \
                  or set `format` to jsonl if every line is an object";
    check("", "{\n  \"items\": []\n}\n", advice);
    check_with(&as_format(SourceFormat::Json), "a.jsonl", "{}\n{}\n", advice);
    // The error suggests no arrays of scalars, nested arrays, or arrays without a valid path.
    check("a.json", r#"{"a":[1],"b":[[{}]],"c":{"d":[{}]},"":[{}],"e":"[{"}"#, advice);
    check("a.json", format!("{{\"{}\":[{{}}]}}", "x".repeat(61)), advice);
    check("a.json", r#"{"a\nb":[{}]}"#, advice);
    check("a.json", r#"{"a" [{}]}"#, advice);
}

#[test]
fn json_object_error_suggests_records_paths() {
    let advice = |arrays: &str| {
        format!(
            "! the document is an object, not an array: set `records_path` to the path of the array of records (did \
             you mean {arrays}?), or set `format` to jsonl if every line is an object"
        )
    };
    check("a.json", r#"{"items":[{"a":1}]}"#, &advice("items"));
    check("a.json", "{\n  \"items\": [\n    {\"a\": 1}\n  ]\n}\n", &advice("items"));
    let collection = r#"{"type":"FeatureCollection","bbox":[1,2.5],"crs":{"a":[{}]},"features":[{"type":"Feature"}]}"#;
    check("a.geojson", collection, &advice("features"));
    check("a.json", r#" { "a.b" : [ {} ] , "\u00e9":[{}], "n":null}"#, &advice(r"a\.b or é"));
    check("a.json", r#"{"a":[{}],"a":[{}],"b":[{}],"c":[{}],"d":[{}]}"#, &advice("a or b or c"));
    // A truncated document is enough for a suggestion.
    check("a.json", r#"{"rows":[{"a":"#, &advice("rows"));
}

#[test]
fn jsonl_lines_are_decoded() {
    check("a.jsonl", "", "");
    check("a.ndjson", "\n \n", "");
    check("a.jsonl", " \t \r\n{\"a\":1}\t \r\n", "{\"a\":1}");
    // These characters are whitespace in Unicode, but not in JSON.
    for bad in ["\u{c}\n", "{}\u{c}\n", "\u{b}{}", "\u{a0}\n"] {
        let input = SourceInput::from_reader(io::Cursor::new(bad.to_owned())).with_name("a.jsonl");
        let text = decode(input, &DecodeOptions::default());
        assert!(text.starts_with("! item 1 (line 1): "), "{bad:?}: {text}");
    }
    check("a.jsonl", "\u{feff}{\"a\":1}\r\n\r\n  { \"a\" : 2 }  \n{\"a\":3}", "{\"a\":1}\n{\"a\":2}\n{\"a\":3}");
    check(
        "a.jsonl",
        "{}\n\n\n[1]\n{}",
        "{}
         ! item 2 (line 4): an entity must be a JSON object, but this is an array",
    );
    check(
        "a.jsonl",
        "{}\n{\"a\":\n1}\n",
        "{}
         ! item 2 (line 2): byte 5: expected a value, found the end of the text",
    );
    check("a.jsonl", "{} {}\n", "! item 1 (line 1): byte 3: text after the end of the object");
    check(
        "a.jsonl",
        "{\"a\":1",
        "! item 1 (line 1): byte 6: expected a comma or a closing brace, found the end of the text",
    );
}
