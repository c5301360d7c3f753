//! Query strings in, requests or refusals out; and the registry's promises about itself.

use std::collections::HashSet;

use proptest::prelude::*;
use strata::{
    http::{
        params::{
            HEADER_BYTES_LIMIT, PARAMETERS, QUERY_BYTES_LIMIT, Repetition, UnknownParameter, markdown_table, parse,
            unknown_parameters_header,
        },
        path,
    },
    model::{
        path::Path,
        request::{Format, PathValue, ReadRequest},
    },
};

/// The query is taken, as this request, with these parameters ignored.
#[track_caller]
fn accepts(query: &str, expected: ReadRequest, ignored: &[&str]) {
    let ignored = ignored.iter().map(|name| UnknownParameter((*name).to_owned())).collect();
    assert_eq!(parse(Some(query)), Ok((expected, ignored)), "{query}");
}

/// The query is refused with this text.
#[track_caller]
fn refuses(query: &str, text: &str) {
    match parse(Some(query)) {
        Ok(taken) => panic!("{query} was taken as {taken:?}"),
        Err(error) => assert_eq!(error.to_string(), text, "{query}"),
    }
}

fn defaults() -> ReadRequest {
    ReadRequest::default()
}

fn condition(path: &str, value: &str) -> PathValue {
    PathValue { path: Path::parse(path).expect(path), value: value.to_owned() }
}

#[test]
fn nothing_given_is_the_default() {
    assert_eq!(parse(None), Ok((defaults(), Vec::new())));
    accepts("", defaults(), &[]);
    accepts("&&&", defaults(), &[]);
}

#[test]
fn each_parameter_sets_its_part_of_the_request() {
    accepts("filter=a.b:C", ReadRequest { filters: vec![condition("a.b", "C")], ..defaults() }, &[]);
    accepts("filter_contains=a:", ReadRequest { filters_contain: vec![condition("a", "")], ..defaults() }, &[]);
    accepts("offset=5", ReadRequest { offset: 5, ..defaults() }, &[]);
    accepts("limit=0", ReadRequest { limit: Some(0), ..defaults() }, &[]);
    accepts("format=jsonl", ReadRequest { format: Format::Jsonl, ..defaults() }, &[]);
    accepts("pretty=FALSE", ReadRequest { pretty: false, ..defaults() }, &[]);
    accepts("count=1", ReadRequest { count: true, ..defaults() }, &[]);
    accepts("alt=True", ReadRequest { alt: true, ..defaults() }, &[]);
}

#[test]
fn values_are_decoded_as_a_form() {
    for (query, path, value) in [
        ("filter=name:a+b", "name", "a b"),
        ("filter=name:a%2Bb", "name", "a+b"),
        ("filter=name%3AK%C3%B6ln", "name", "Köln"),
        ("filter=name:Köln", "name", "Köln"),
        ("filter=name:100%", "name", "100%"),
        ("filter=name:a=b", "name", "a=b"),
        ("filter=name:a%26b", "name", "a&b"),
        ("f%69lter=a%5C.b:1", r"a\.b", "1"),
        ("filter=_source:https://shop.test/2", "_source", "https://shop.test/2"),
        ("filter=a..b:x", "a..b", "x"),
        ("filter=a:%00", "a", "\0"),
    ] {
        accepts(query, ReadRequest { filters: vec![condition(path, value)], ..defaults() }, &[]);
    }
}

#[test]
fn filters_repeat_in_order_whatever_stands_between() {
    accepts(
        "filter=a:1&limit=2&filter_contains=c:3&filter=b:2&&filter=a:1",
        ReadRequest {
            filters: vec![condition("a", "1"), condition("b", "2"), condition("a", "1")],
            filters_contain: vec![condition("c", "3")],
            limit: Some(2),
            ..defaults()
        },
        &[],
    );
}

#[test]
fn unknown_parameters_are_ignored_and_named_once_in_order() {
    accepts("lmit=3", defaults(), &["lmit"]);
    accepts("z=1&Limit=3&a%20b&limit=4&z=2&=x&=", ReadRequest { limit: Some(4), ..defaults() }, &["z", "Limit", "a b"]);
}

#[test]
fn an_invalid_value_is_refused_with_the_parameter_the_value_and_what_is_valid() {
    let digits = "decimal digits only, from 0 to 18446744073709551615";
    let path_value = "path:value, such as address.city:Berlin";
    for (query, text) in [
        ("limit=-1", format!(r#"parameter limit: "-1" is not a whole number; valid: {digits}"#)),
        ("limit=+1", format!(r#"parameter limit: " 1" is not a whole number; valid: {digits}"#)),
        ("limit", format!(r#"parameter limit: "" is not a whole number; valid: {digits}"#)),
        ("offset=1e3", format!(r#"parameter offset: "1e3" is not a whole number; valid: {digits}"#)),
        (
            "offset=18446744073709551616",
            format!(r#"parameter offset: "18446744073709551616" is too large; valid: {digits}"#),
        ),
        (
            "filter=name",
            format!(r#"parameter filter: "name" has no colon between a path and a value; valid: {path_value}"#),
        ),
        ("filter=:x", format!(r#"parameter filter: ":x" has an empty path; valid: {path_value}"#)),
        (
            "filter_contains=a%5C:b",
            format!(
                r#"parameter filter_contains: "a\:b" has no colon between a path and a value; valid: {path_value}"#
            ),
        ),
    ] {
        refuses(query, &text);
    }
    for name in ["pretty", "count", "alt"] {
        refuses(
            &format!("{name}=yes"),
            &format!(r#"parameter {name}: "yes" is not a boolean; valid: true, false, 1 or 0"#),
        );
    }
    let formats = Format::ALL.map(Format::name).join(", ");
    for value in ["JSON", "yaml", ""] {
        refuses(
            &format!("format={value}"),
            &format!(r#"parameter format: "{value}" is not a supported format; valid: {formats}"#),
        );
    }
}

#[test]
fn a_second_value_is_refused_even_when_it_is_the_same() {
    refuses("limit=1&limit=1", r#"parameter limit: "1" is a second value; valid: limit given at most once"#);
    for parameter in PARAMETERS {
        let name = parameter.name();
        if parameter.repetition() == Repetition::Single && !["all", "none"].contains(&parameter.default_text()) {
            let value = parameter.default_text();
            let refused = parse(Some(&format!("{name}={value}&{name}={value}")));
            assert!(refused.is_err_and(|error| error.to_string().contains("second value")), "{name}");
        }
    }
}

#[test]
fn bytes_that_are_not_utf8_are_refused_wherever_they_stand() {
    refuses("filter=a:%FF", r#"parameter filter: "a:%FF" is not UTF-8; valid: percent-encoded UTF-8"#);
    refuses("other=%C3", r#"parameter "other": "%C3" is not UTF-8; valid: percent-encoded UTF-8"#);
    refuses("%ff=1", r#"a parameter's name, "%ff", is not UTF-8; valid: percent-encoded UTF-8"#);
}

#[test]
fn a_refusal_shows_the_value_on_one_line_and_not_at_any_length() {
    refuses(
        "pretty=a%0D%0Ab%00%1B",
        "parameter pretty: \"a\\u{d}\\u{a}b\\u{0}\\u{1b}\" is not a boolean; valid: true, false, 1 or 0",
    );
    let shown = "ä".repeat(100);
    refuses(
        &format!("pretty={}", "ä".repeat(5000)),
        &format!("parameter pretty: \"{shown}\"… is not a boolean; valid: true, false, 1 or 0"),
    );
}

#[test]
fn the_query_string_is_bounded() {
    let exact = format!("x={}", "y".repeat(QUERY_BYTES_LIMIT - 2));
    accepts(&exact, defaults(), &["x"]);
    refuses(
        &format!("{exact}y"),
        &format!("the query string is {} bytes long; valid: at most {QUERY_BYTES_LIMIT} bytes", QUERY_BYTES_LIMIT + 1),
    );
}

#[test]
fn the_registry_is_consistent() {
    let mut names = HashSet::new();
    for parameter in PARAMETERS {
        let name = parameter.name();
        assert!(names.insert(name), "{name} is listed twice");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        assert!(!parameter.values().is_empty(), "{name} has no values");
        assert!(!parameter.summary().is_empty() && !parameter.summary().ends_with('.'), "{name}");
        assert!(parameter.documentation().ends_with('.'), "{name}");
        // A default that can be given is the default.
        let default = parameter.default_text();
        if !["all", "none"].contains(&default) {
            accepts(&format!("{name}={default}"), defaults(), &[]);
        }
    }
}

#[test]
fn the_readme_holds_the_table_of_the_registry() {
    const BEGIN: &str = "<!-- parameters:begin -->";
    const END: &str = "<!-- parameters:end -->";
    // A missing file fails like a missing table, with the table to be put there.
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap_or_default();
    let held = readme.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map(|(table, _)| table.trim());
    let table = markdown_table();
    assert!(
        held == Some(table.trim()),
        "README.md must hold, between {BEGIN} and {END}, each on a line of its own:\n\n{table}\n"
    );
}

/// Text in which what the parsers look at is frequent.
fn hostile() -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        4 => prop::sample::select(vec![
            "&", "=", "+", "%", ":", ".", "\\", ",", "/", "%2", "%41", "%FF", "%C3%A4", "%00", "%2F", "ä", "\u{202e}",
            "filter", "filter_contains", "limit", "offset", "format", "pretty", "count", "alt", "true", "0", "1",
            "json", "/api/", "v1", "active", "latest", "18446744073709551616",
        ]).prop_map(str::to_owned),
        1 => ".*",
    ];
    prop::collection::vec(pieces, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_query_string_is_taken_or_refused_on_one_line(query in hostile()) {
        match parse(Some(&query)) {
            Ok((_, unknown)) => {
                // The twin: a lossy decoder finds the same names wherever strict decoding succeeds.
                let mut seen = HashSet::new();
                let expected: Vec<String> = form_urlencoded::parse(query.as_bytes())
                    .map(|(name, _)| name.into_owned())
                    .filter(|name| !name.is_empty())
                    .filter(|name| !PARAMETERS.iter().any(|parameter| parameter.name() == name))
                    .filter(|name| seen.insert(name.clone()))
                    .collect();
                let found: Vec<String> = unknown.iter().map(|unknown| unknown.0.clone()).collect();
                prop_assert_eq!(found, expected);
                if let Some(header) = unknown_parameters_header(&unknown) {
                    prop_assert!(header.len() <= HEADER_BYTES_LIMIT);
                    prop_assert!(header.to_str().is_ok());
                }
            }
            Err(error) => prop_assert!(!error.to_string().chars().any(char::is_control), "{}", error),
        }
    }

    #[test]
    fn any_path_is_taken_or_refused_on_one_line(text in hostile()) {
        for path in [text.clone(), format!("/api/{text}"), format!("/api/1/{text}"), format!("/api/1/x/{text}")] {
            if let Err(error) = path::parse(&path) {
                prop_assert!(!error.to_string().chars().any(char::is_control), "{}", error);
            }
        }
    }

    #[test]
    fn an_encoded_filter_arrives_as_it_was(keys in prop::collection::vec(".*", 1..4), value in ".*") {
        let Ok(path) = Path::from_keys(keys) else { return Ok(()) };
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("filter", &format!("{path}:{value}"))
            .finish();
        let expected = ReadRequest { filters: vec![PathValue { path, value }], ..defaults() };
        prop_assert_eq!(parse(Some(&query)), Ok((expected, Vec::new())));
    }

    #[test]
    fn any_slug_arrives_as_it_was(slug in ".+") {
        let encoded = percent_encoding::utf8_percent_encode(&slug, percent_encoding::NON_ALPHANUMERIC);
        let parsed = path::parse(&format!("/api/1/{encoded}/active/"));
        prop_assert_eq!(parsed.map(|parsed| parsed.target.name_slug), Ok(slug));
    }
}
