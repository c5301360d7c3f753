//! Query strings are parsed to requests or errors, and the registry is consistent. Other exports have modules.

#![allow(clippy::large_futures, reason = "a test polls few futures")]

mod api_reference;
mod around;
mod caching;
mod changes;
mod clients;
mod connections;
mod content_encoding;
mod errors;
mod fields;
mod files;
mod hosts;
mod openapi;
mod paths;
mod ranges;
mod request_lines;
mod server;
mod stops;

use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::json;
use strata_http::params::{
    MAX_QUERY_BYTES, MAX_QUERY_ITEMS, MAX_UNKNOWN_HEADER_BYTES, PARAMETERS, ParameterKind, ParameterRepetition,
    QueryParameter, UnknownParameter, parse_query, unknown_parameters_header,
};
use strata_http::read::path;
use strata_testing::pages::between;
use strata_testing::reads::{entities, plan};
use strata_types::field_path::FieldPath;
use strata_types::read_request::{KeywordsMode, PathValue, RangeBound, ReadRequest, ResponseFormat, SortField};

/// Checks that a query is parsed to this request, with these unknown parameters.
#[track_caller]
fn accepts(query: &str, expected: ReadRequest, ignored: &[&str]) {
    let ignored = ignored.iter().map(|name| UnknownParameter((*name).to_owned())).collect();
    assert_eq!(parse_query(Some(query)), Ok((expected, ignored)), "{query}");
}

/// Checks that a query is rejected with this text.
#[track_caller]
fn refuses(query: &str, text: &str) {
    match parse_query(Some(query)) {
        Ok(request) => panic!("{query} was accepted as {request:?}"),
        Err(error) => assert_eq!(error.to_string(), text, "{query}"),
    }
}

fn defaults() -> ReadRequest {
    ReadRequest::default()
}

fn condition(path: &str, value: &str) -> PathValue {
    PathValue { path: FieldPath::parse(path).expect(path), value: value.to_owned() }
}

fn paths(paths: &[&str]) -> Vec<FieldPath> {
    paths.iter().map(|path| FieldPath::parse(path).expect(path)).collect()
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn sorted(field: &str, descending: bool) -> ReadRequest {
    ReadRequest { sort: Some(SortField { field: field.to_owned(), descending }), ..defaults() }
}

#[test]
fn empty_query_is_default() {
    assert_eq!(parse_query(None), Ok((defaults(), Vec::new())));
    accepts("", defaults(), &[]);
    accepts("&&&", defaults(), &[]);
}

#[test]
fn parameters_set_request_fields() {
    accepts("include_source=False", ReadRequest { include_source: false, ..defaults() }, &[]);
    accepts("denull=1", ReadRequest { denull: true, ..defaults() }, &[]);
    accepts("keep_field=a,b.c", ReadRequest { keep_fields: paths(&["a", "b.c"]), ..defaults() }, &[]);
    accepts("drop_field=a,b.c", ReadRequest { drop_fields: paths(&["a", "b.c"]), ..defaults() }, &[]);
    accepts("filter=a.b:C", ReadRequest { filters: vec![condition("a.b", "C")], ..defaults() }, &[]);
    accepts("filter_contains=a:", ReadRequest { contains_filters: vec![condition("a", "")], ..defaults() }, &[]);
    for (bound, name) in RangeBound::ALL.into_iter().zip(["filter_gt", "filter_gte", "filter_lt", "filter_lte"]) {
        let mut expected = defaults();
        expected.range_filters[bound as usize] = vec![condition("a.b", "\"5\""), condition("c", " 1 ")];
        accepts(&format!("{name}=a.b:%225%22&limit=1&{name}=c:+1+"), ReadRequest { limit: Some(1), ..expected }, &[]);
    }
    accepts("keywords=a,B+c", ReadRequest { keywords: texts(&["a", "B c"]), ..defaults() }, &[]);
    accepts("keywords_mode=and", ReadRequest { keywords_mode: KeywordsMode::And, ..defaults() }, &[]);
    accepts("sort=a:desc", sorted("a", true), &[]);
    accepts("dedup=TRUE", ReadRequest { dedup: true, ..defaults() }, &[]);
    accepts("dedup_key=a,_source", ReadRequest { dedup_key: paths(&["a", "_source"]), ..defaults() }, &[]);
    accepts("sample=0", ReadRequest { sample: Some(0), ..defaults() }, &[]);
    accepts("offset=5", ReadRequest { offset: 5, ..defaults() }, &[]);
    accepts("limit=0", ReadRequest { limit: Some(0), ..defaults() }, &[]);
    accepts("flatten=1", ReadRequest { flatten: true, ..defaults() }, &[]);
    for format in ResponseFormat::ALL {
        accepts(&format!("format={}", format.name()), ReadRequest { format, ..defaults() }, &[]);
    }
    accepts("pretty=FALSE", ReadRequest { pretty: false, ..defaults() }, &[]);
    accepts("count=1", ReadRequest { count: true, ..defaults() }, &[]);
    accepts("alt=True", ReadRequest { alt: true, ..defaults() }, &[]);
}

#[test]
fn booleans_ignore_case_and_numbers_allow_zeros() {
    for value in ["true", "TRUE", "tRuE", "1"] {
        accepts(&format!("dedup={value}"), ReadRequest { dedup: true, ..defaults() }, &[]);
    }
    for value in ["false", "False", "0"] {
        accepts(&format!("pretty={value}"), ReadRequest { pretty: false, ..defaults() }, &[]);
    }
    accepts("offset=007", ReadRequest { offset: 7, ..defaults() }, &[]);
    let largest = ReadRequest { limit: Some(u64::MAX), ..defaults() };
    accepts("limit=0000000000000000000000018446744073709551615", largest, &[]);
}

#[test]
fn values_are_form_decoded() {
    for (query, path, value) in [
        ("filter=name:a+b", "name", "a b"),
        ("filter=name:a%2Bb", "name", "a+b"),
        ("filter=name%3AK%C3%B6ln", "name", "Köln"),
        ("filter=name:Köln", "name", "Köln"),
        ("filter=name:100%", "name", "100%"),
        ("filter=name:%4", "name", "%4"),
        ("filter=name:%zz%41", "name", "%zzA"),
        ("filter=name:%%41", "name", "%A"),
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
fn repeated_filters_keep_order() {
    accepts(
        "filter=a:1&limit=2&filter_contains=c:3&filter=b:2&&filter=a:1",
        ReadRequest {
            filters: vec![condition("a", "1"), condition("b", "2"), condition("a", "1")],
            contains_filters: vec![condition("c", "3")],
            limit: Some(2),
            ..defaults()
        },
        &[],
    );
}

#[test]
fn repeated_lists_are_trimmed_and_joined() {
    for (query, listed) in [
        ("=a,b", &["a", "b"][..]),
        ("=a&%=b", &["a", "b"]),
        ("=a,&%=,b&%=", &["a", "b"]),
        ("=%09a+,+b%20", &["a", "b"]),
        ("=b,a,b", &["b", "a", "b"]),
        ("=a+b,c", &["a b", "c"]),
        ("=", &[]),
        ("", &[]),
        ("=,", &[]),
        ("=+,%09,&%=,", &[]),
    ] {
        let query = |name| format!("{name}{}", query.replace("%=", &format!("{name}=")));
        accepts(&query("keep_field"), ReadRequest { keep_fields: paths(listed), ..defaults() }, &[]);
        accepts(&query("drop_field"), ReadRequest { drop_fields: paths(listed), ..defaults() }, &[]);
        accepts(&query("dedup_key"), ReadRequest { dedup_key: paths(listed), ..defaults() }, &[]);
        accepts(&query("keywords"), ReadRequest { keywords: texts(listed), ..defaults() }, &[]);
    }
}

#[test]
fn paths_have_escapes_and_keywords_do_not() {
    let list = r"a\,b,c\.d,e\\,\+,f\+";
    let listed = paths(&[r"a\,b", r"c\.d", r"e\\", r"\ ", r"f\ "]);
    accepts(&format!("keep_field={list}"), ReadRequest { keep_fields: listed.clone(), ..defaults() }, &[]);
    accepts(&format!("drop_field={list}"), ReadRequest { drop_fields: listed.clone(), ..defaults() }, &[]);
    accepts(&format!("dedup_key={list}"), ReadRequest { dedup_key: listed, ..defaults() }, &[]);
    let keywords = texts(&[r"a\", "b", r"c\.d", r"e\\", r"\", r"f\"]);
    accepts(&format!("keywords={list}"), ReadRequest { keywords, ..defaults() }, &[]);
    // A percent-encoded comma also separates keywords.
    accepts("keywords=a%2Cb", ReadRequest { keywords: texts(&["a", "b"]), ..defaults() }, &[]);
    // A backslash at the end of one list does not escape the next list.
    accepts(r"keep_field=a\&keep_field=b", ReadRequest { keep_fields: paths(&[r"a\\", "b"]), ..defaults() }, &[]);
}

#[test]
fn sort_splits_at_last_colon() {
    for (value, field, descending) in [
        ("a", "a", false),
        ("a:asc", "a", false),
        ("a:desc", "a", true),
        ("a.b:desc", "a.b", true),
        ("a:b:desc", "a:b", true),
        ("a::asc", "a:", false),
        ("::asc", ":", false),
        (r"a\:desc", r"a\", true),
        (r"a\.b", r"a\.b", false),
        ("desc", "desc", false),
        ("+", " ", false),
        ("_source:desc", "_source", true),
    ] {
        accepts(&format!("sort={value}"), sorted(field, descending), &[]);
    }
}

#[test]
fn dependent_parameter_is_valid_by_itself() {
    accepts("keywords_mode=and", ReadRequest { keywords_mode: KeywordsMode::And, ..defaults() }, &[]);
    accepts("dedup_key=a", ReadRequest { dedup_key: paths(&["a"]), ..defaults() }, &[]);
    accepts("flatten=0&format=csv", ReadRequest { format: ResponseFormat::Csv, ..defaults() }, &[]);
    accepts("count=1&format=parquet", ReadRequest { count: true, format: ResponseFormat::Parquet, ..defaults() }, &[]);
}

#[test]
fn parameter_order_does_not_matter() {
    let mut pairs = vec![
        "include_source=false",
        "denull=true",
        "keep_field=a",
        "drop_field=a.b",
        "filter=c:1",
        "filter_contains=d:2",
        "filter_gt=g:3",
        "filter_gte=g:\"3\"",
        "filter_lt=g:4",
        "filter_lte=g:",
        "keywords=x",
        "keywords_mode=and",
        "sort=e:desc",
        "dedup=true",
        "dedup_key=f",
        "sample=3",
        "seed=6",
        "offset=4",
        "limit=5",
        "flatten=true",
        "format=xml",
        "typed=true",
        "pretty=false",
        "count=true",
        "total=true",
        "alt=true",
        "strict=true",
    ];
    let names: Vec<&str> = pairs.iter().filter_map(|pair| pair.split('=').next()).collect();
    let registered: Vec<&str> = PARAMETERS.iter().map(|parameter| parameter.name).collect();
    assert_eq!(names, registered, "the registry is in the order of docs/reference/query-semantics.md, Steps");
    let expected = ReadRequest {
        include_source: false,
        denull: true,
        keep_fields: paths(&["a"]),
        drop_fields: paths(&["a.b"]),
        filters: vec![condition("c", "1")],
        contains_filters: vec![condition("d", "2")],
        range_filters: ["3", "\"3\"", "4", ""].map(|value| vec![condition("g", value)]),
        keywords: texts(&["x"]),
        keywords_mode: KeywordsMode::And,
        sort: Some(SortField { field: "e".to_owned(), descending: true }),
        dedup: true,
        dedup_key: paths(&["f"]),
        sample: Some(3),
        seed: Some(6),
        offset: 4,
        limit: Some(5),
        flatten: true,
        format: ResponseFormat::Xml,
        typed: true,
        pretty: false,
        count: true,
        total: true,
        alt: true,
        strict: true,
    };
    for _ in 0..pairs.len() {
        pairs.rotate_left(1);
        accepts(&pairs.join("&"), expected.clone(), &[]);
    }
    pairs.reverse();
    accepts(&pairs.join("&"), expected, &[]);
}

#[test]
fn unknown_parameters_are_listed_once_in_order() {
    accepts("lmit=3", defaults(), &["lmit"]);
    accepts("z=1&Limit=3&a%20b&limit=4&z=2&=x&=", ReadRequest { limit: Some(4), ..defaults() }, &["z", "Limit", "a b"]);
    accepts("strict=true&&limit=4&", ReadRequest { limit: Some(4), strict: true, ..defaults() }, &[]);
    for nameless in ["strict=true&=x", "=&strict=true"] {
        let error = parse_query(Some(nameless)).expect_err(nameless).to_string();
        assert!(error.starts_with(r#"unknown parameter "", which strict=true does not allow; valid: "#), "{error}");
    }
}

fn header(names: &[&str]) -> Option<String> {
    let unknown: Vec<_> = names.iter().map(|name| UnknownParameter((*name).to_owned())).collect();
    unknown_parameters_header(&unknown).map(|value| value.to_str().expect("ASCII").to_owned())
}

#[test]
fn unknown_names_header_is_encoded_and_limited() {
    assert_eq!(header(&[]), None);
    assert_eq!(header(&["lmit", "Sort"]).as_deref(), Some("lmit,Sort"));
    assert_eq!(header(&["a,b", "ä", "x\r\ny", "a-b._~"]).as_deref(), Some("a%2Cb,%C3%A4,x%0D%0Ay,a-b._~"));
    let exact = "x".repeat(MAX_UNKNOWN_HEADER_BYTES);
    assert_eq!(header(&[&exact]), Some(exact.clone()));
    assert_eq!(header(&[&exact, "y"]), Some(exact.clone()), "nothing follows a full header");
    assert_eq!(header(&["y", &exact, "z"]).as_deref(), Some("y"), "later names do not jump the gap");
    assert_eq!(header(&[&"ä".repeat(200)]), None, "1200 bytes once encoded");
}

#[test]
fn to_json_converts_text() {
    assert_eq!(ParameterKind::Boolean.to_json("true"), Some(json!(true)));
    assert_eq!(ParameterKind::WholeNumber.to_json("18446744073709551615"), Some(json!(u64::MAX)));
    assert_eq!(ParameterKind::WholeNumber.to_json("all"), None);
    assert_eq!(ParameterKind::OneOf(&["or", "and"]).to_json("and"), Some(json!("and")));
    assert_eq!(ParameterKind::OneOf(&["or", "and"]).to_json("none"), None);
    assert_eq!(ParameterKind::PathValue.to_json("a:b,c"), Some(json!("a:b,c")));
}

#[test]
fn invalid_value_error_has_name_value_and_valid() {
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
        (
            "filter_gt=price",
            format!(r#"parameter filter_gt: "price" has no colon between a path and a value; valid: {path_value}"#),
        ),
        ("filter_gte=:1", format!(r#"parameter filter_gte: ":1" has an empty path; valid: {path_value}"#)),
        (
            "filter_lt=",
            format!(r#"parameter filter_lt: "" has no colon between a path and a value; valid: {path_value}"#),
        ),
        (
            "filter_lte=a%5C:1",
            format!(r#"parameter filter_lte: "a\:1" has no colon between a path and a value; valid: {path_value}"#),
        ),
    ] {
        refuses(query, &text);
    }
    let sort = "field, field:asc, or field:desc, such as price:desc; a name that contains a colon needs a direction";
    for (value, problem) in [
        ("", "has no field name"),
        (":asc", "has no field name"),
        ("a:", "has an unknown direction"),
        (":", "has an unknown direction"),
        ("a:b", "has an unknown direction"),
        ("a:ASC", "has an unknown direction"),
        ("a:asc:", "has an unknown direction"),
        ("name:up", "has an unknown direction"),
    ] {
        refuses(&format!("sort={value}"), &format!(r#"parameter sort: "{value}" {problem}; valid: {sort}"#));
    }
    for value in ["", "OR", "xor", "or,and"] {
        refuses(
            &format!("keywords_mode={value}"),
            &format!(r#"parameter keywords_mode: "{value}" is not a mode; valid: or, and"#),
        );
    }
    for value in ["", "-1", "1 ", "1.0", "1e2", "0x10", "all", "\u{661}"] {
        for name in ["sample", "seed", "offset", "limit"] {
            refuses(
                &format!("{name}={value}"),
                &format!(r#"parameter {name}: "{value}" is not a whole number; valid: {digits}"#),
            );
        }
    }
    for name in ["include_source", "denull", "dedup", "flatten", "pretty", "count", "alt"] {
        for value in ["yes", "", "on", "2", "01", " true", "tru"] {
            refuses(
                &format!("{name}={value}"),
                &format!(r#"parameter {name}: "{value}" is not a boolean; valid: true, false, 1, or 0"#),
            );
        }
    }
    let formats = ResponseFormat::ALL.map(ResponseFormat::name).join(", ");
    for value in ["JSON", "yaml", ""] {
        refuses(
            &format!("format={value}"),
            &format!(r#"parameter format: "{value}" is not a supported format; valid: {formats}"#),
        );
    }
}

#[test]
fn seed_requires_sample() {
    refuses("seed=1", r#"parameter seed: "1" requires sample; valid: seed together with sample"#);
    accepts("seed=1&sample=0", ReadRequest { sample: Some(0), seed: Some(1), ..defaults() }, &[]);
}

#[test]
fn second_value_is_rejected() {
    refuses("limit=1&limit=1", r#"parameter limit: "1" is a second value; valid: limit given at most once"#);
    for parameter in &PARAMETERS {
        let name = parameter.name;
        if parameter.repetition == ParameterRepetition::Single && !["all", "none"].contains(&parameter.default_text) {
            let value = parameter.default_text;
            let refused = parse_query(Some(&format!("{name}={value}&{name}={value}")));
            assert!(refused.is_err_and(|error| error.to_string().contains("second value")), "{name}");
        }
    }
}

#[test]
fn invalid_utf8_is_rejected() {
    refuses("filter=a:%FF", r#"parameter filter: "a:%FF" is not UTF-8; valid: percent-encoded UTF-8"#);
    refuses("other=%C3", r#"parameter "other": "%C3" is not UTF-8; valid: percent-encoded UTF-8"#);
    refuses("%ff=1", r#"parameter name "%ff" is not UTF-8; valid: percent-encoded UTF-8"#);
    refuses("other=%ED%A0%80", r#"parameter "other": "%ED%A0%80" is not UTF-8; valid: percent-encoded UTF-8"#);
}

#[test]
fn error_value_is_escaped_and_truncated() {
    refuses(
        "pretty=a%0D%0Ab%00%1B",
        "parameter pretty: \"a\\u{d}\\u{a}b\\u{0}\\u{1b}\" is not a boolean; valid: true, false, 1, or 0",
    );
    let shown = "ä".repeat(100);
    refuses(
        &format!("pretty={}", "ä".repeat(5000)),
        &format!("parameter pretty: \"{shown}\"… is not a boolean; valid: true, false, 1, or 0"),
    );
}

#[test]
fn query_string_length_is_limited() {
    let exact = format!("x={}", "y".repeat(MAX_QUERY_BYTES - 2));
    accepts(&exact, defaults(), &["x"]);
    refuses(
        &format!("{exact}y"),
        &format!("the query string is {} bytes long; valid: at most {MAX_QUERY_BYTES} bytes", MAX_QUERY_BYTES + 1),
    );
}

#[test]
fn items_of_all_lists_are_limited() {
    let list = |items: usize| vec!["a"; items].join(",");
    let exact = format!(
        "keywords={}&keep_field={}&drop_field=a&dedup_key=a&filter=a:1&filter_contains=a:1&filter_gt=a:1\
         &filter_gte=a:1&filter_lt=a:1&filter_lte=a:1",
        list(MAX_QUERY_ITEMS / 2),
        list(MAX_QUERY_ITEMS / 2 - 8)
    );
    assert!(parse_query(Some(&exact)).is_ok());
    // Empty items do not count, and neither do parameters with a single value.
    assert!(parse_query(Some(&format!("{exact}&keywords=,,&keep_field=&limit=1&sort=a"))).is_ok());
    let text = format!(
        "keep_field, drop_field, filter, filter_contains, filter_gt, filter_gte, filter_lt, filter_lte, keywords, and \
         dedup_key contain {} items; valid: at most {MAX_QUERY_ITEMS} in total",
        MAX_QUERY_ITEMS + 1
    );
    let ranges = ["filter_gt=b:1", "filter_gte=b:1", "filter_lt=b:1", "filter_lte=b:1"];
    let lists = ["keywords=b", "keep_field=b", "drop_field=b", "dedup_key=b", "filter=b:1", "filter_contains=b:1"];
    for more in lists.into_iter().chain(ranges) {
        refuses(&format!("{exact}&{more}"), &text);
    }
}

#[test]
fn path_depth_is_limited() {
    let longest = vec!["a"; 128].join(".");
    let valid = "valid: paths of at most 128 keys, the maximum depth of entities";
    for (name, value) in
        [("keep_field", ""), ("drop_field", ""), ("dedup_key", ""), ("filter", ":1"), ("filter_contains", ":1")]
            .into_iter()
            .chain(RangeBound::ALL.map(|bound| (bound.parameter_name(), ":1")))
    {
        assert!(parse_query(Some(&format!("{name}={longest}{value}"))).is_ok(), "{name}");
        for (path, names) in [(format!("{longest}.a"), 129), (".".repeat(30_000), 30_001)] {
            let refused = parse_query(Some(&format!("{name}={path}{value}"))).expect_err(name).to_string();
            assert!(refused.ends_with(&format!(" has a path of {names} keys; {valid}")), "{refused}");
        }
    }
}

#[test]
fn registry_is_consistent() {
    let mut names = HashSet::new();
    for parameter in &PARAMETERS {
        let name = parameter.name;
        assert!(names.insert(name), "{name} is listed twice");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        assert!(!parameter.kind.label().is_empty(), "{name} has no values");
        let shown =
            matches!(parameter.kind, ParameterKind::Boolean | ParameterKind::OneOf(_)) || parameter.example.is_some();
        assert!(shown, "{name} has no example");
        assert!(parameter.documentation.ends_with('.'), "{name}");
        // If the default can be specified, specifying it has no effect.
        let default = parameter.default_text;
        if !["all", "none"].contains(&default) {
            accepts(&format!("{name}={default}"), defaults(), &[]);
        }
    }
}

/// The columns of the documentation table that come from the registry.
fn row(parameter: &QueryParameter) -> String {
    let repetition = match parameter.repetition {
        ParameterRepetition::Single => "no",
        ParameterRepetition::Repeated => "yes",
        ParameterRepetition::List => "yes, lists are joined",
    };
    format!("| `{}` | {} | {} | {repetition} | ", parameter.name, parameter.kind.label(), parameter.default_text)
}

#[test]
fn documentation_has_row_per_parameter() {
    let table = between("docs/reference/query-semantics.md", "<!-- parameters:begin -->", "<!-- parameters:end -->");
    let rows: Vec<&str> = table.lines().skip(2).collect();
    assert_eq!(rows.len(), PARAMETERS.len());
    for (found, parameter) in rows.into_iter().zip(&PARAMETERS) {
        let meaning = found.strip_prefix(&row(parameter)).and_then(|rest| rest.strip_suffix(" |"));
        let meaning = meaning.unwrap_or_else(|| panic!("{found} should begin with {}", row(parameter)));
        assert!(!meaning.is_empty() && !meaning.ends_with('.'), "{found}");
    }
}

/// Text with many characters and words that are special in paths and queries.
fn hostile() -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        4 => prop::sample::select(vec![
            "&", "=", "+", "%", ":", ".", "\\", ",", "/", "%2", "%41", "%FF", "%C3%A4", "%00", "%2F", "ä", "\u{202e}",
            "filter", "filter_contains", "filter_gt", "filter_lte", "_gte", "\"", "limit", "offset", "format", "pretty", "count", "alt", "true", "0", "1",
            "include_source", "denull", "keep_field", "drop_field", "keywords", "keywords_mode", "sort", "dedup",
            "dedup_key", "sample", "seed", "total", "typed", "flatten", "asc", "desc", "or", "and", "csv", "json", " ", "\t", "/api/", "v1", "active", "latest", "18446744073709551616",
        ]).prop_map(str::to_owned),
        1 => ".*",
    ];
    prop::collection::vec(pieces, 0..24).prop_map(|pieces| pieces.concat())
}

/// Field names with many special characters.
fn key() -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        4 => prop::sample::select(vec![",", " ", "\t", ".", "\\", ":", "a", "ä", "\u{a0}", "asc"]).prop_map(str::to_owned),
        1 => ".*",
    ];
    prop::collection::vec(pieces, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// The non-default parameters describe the whole request.
    #[test]
    fn non_default_parameters_round_trip(plan in plan(), entities in entities()) {
        let request = plan.resolve(&entities);
        let shown = form_urlencoded::Serializer::new(String::new()).extend_pairs(request.non_default_parameters()).finish();
        prop_assert_eq!(parse_query(Some(&shown)).map(|parsed| parsed.0), Ok(request), "{}", shown);
    }

    #[test]
    fn any_query_string_matches_reference(query in hostile()) {
        let found = parse_query(Some(&query));
        match (&found, strata_reference::query::parse(&query, |name| PARAMETERS.iter().any(|parameter| parameter.name == name))) {
            (_, None) => {}
            (Ok((request, unknown)), Some(Ok((expected, names)))) => {
                prop_assert_eq!(request, &expected);
                prop_assert_eq!(unknown.iter().map(|unknown| unknown.0.clone()).collect::<Vec<_>>(), names);
            }
            (Err(_), Some(Err(_))) => {}
            (found, expected) => prop_assert!(false, "{:?} for {:?}", found, expected),
        }
        match found {
            Ok((_, unknown)) => {
                if let Some(header) = unknown_parameters_header(&unknown) {
                    prop_assert!(header.len() <= MAX_UNKNOWN_HEADER_BYTES);
                    prop_assert!(header.to_str().is_ok());
                }
            }
            Err(error) => prop_assert!(!error.to_string().chars().any(char::is_control), "{}", error),
        }
    }

    #[test]
    fn any_path_matches_reference(text in hostile()) {
        for path in [text.clone(), format!("/api/{text}"), format!("/api/1/{text}"), format!("/api/1/x/{text}")] {
            let found = path::parse_path(&path);
            prop_assert_eq!(found.is_ok(), strata_reference::url::parse(&path).is_some(), "{}", path);
            if let Err(error) = found {
                prop_assert!(!error.to_string().chars().any(char::is_control), "{}", error);
            }
        }
    }

    #[test]
    fn encoded_filter_round_trips(keys in prop::collection::vec(".*", 1..4), value in ".*") {
        let Ok(path) = FieldPath::from_keys(keys) else { return Ok(()) };
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("filter", &format!("{path}:{value}"))
            .finish();
        let expected = ReadRequest { filters: vec![PathValue { path, value }], ..defaults() };
        prop_assert_eq!(parse_query(Some(&query)), Ok((expected, Vec::new())));
    }

    #[test]
    fn encoded_path_lists_round_trip(
        lists in prop::collection::vec(prop::collection::vec(prop::collection::vec(key(), 1..4), 0..4), 0..4),
    ) {
        let lists: Vec<Vec<FieldPath>> = lists
            .into_iter()
            .map(|list| list.into_iter().filter_map(|keys| FieldPath::from_keys(keys).ok()).collect())
            .collect();
        let all: Vec<FieldPath> = lists.iter().flatten().cloned().collect();
        for (name, expected) in [
            ("keep_field", ReadRequest { keep_fields: all.clone(), ..defaults() }),
            ("drop_field", ReadRequest { drop_fields: all.clone(), ..defaults() }),
            ("dedup_key", ReadRequest { dedup_key: all.clone(), ..defaults() }),
        ] {
            let mut query = form_urlencoded::Serializer::new(String::new());
            for list in &lists {
                let list: Vec<String> = list.iter().map(|path| format!(" {path}\t")).collect();
                query.append_pair(name, &list.join(","));
            }
            prop_assert_eq!(parse_query(Some(&query.finish())), Ok((expected, Vec::new())));
        }
    }

    #[test]
    fn keywords_match_naive_split(lists in prop::collection::vec(key(), 0..6)) {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for list in &lists {
            query.append_pair("keywords", list);
        }
        // Reference: all lists as one text, split character by character.
        let mut keywords = vec![String::new()];
        for character in lists.join(",").chars() {
            match keywords.last_mut() {
                Some(last) if character != ',' => last.push(character),
                _ => keywords.push(String::new()),
            }
        }
        for keyword in &mut keywords {
            while keyword.ends_with(' ') || keyword.ends_with('\t') {
                keyword.pop();
            }
            while keyword.starts_with(' ') || keyword.starts_with('\t') {
                keyword.remove(0);
            }
        }
        keywords.retain(|keyword| !keyword.is_empty());
        prop_assert_eq!(parse_query(Some(&query.finish())), Ok((ReadRequest { keywords, ..defaults() }, Vec::new())));
    }

    #[test]
    fn encoded_sort_round_trips(field in key().prop_filter("a name", |key| !key.is_empty()), descending: bool) {
        let direction = if descending { "desc" } else { "asc" };
        let query = |value: &str| form_urlencoded::Serializer::new(String::new()).append_pair("sort", value).finish();
        let expected = sorted(&field, descending);
        prop_assert_eq!(parse_query(Some(&query(&format!("{field}:{direction}")))), Ok((expected, Vec::new())));
        if !field.contains(':') {
            prop_assert_eq!(parse_query(Some(&query(&field))), Ok((sorted(&field, false), Vec::new())));
        }
    }

    #[test]
    fn any_slug_round_trips(slug in ".+") {
        let encoded = percent_encoding::utf8_percent_encode(&slug, percent_encoding::NON_ALPHANUMERIC);
        let parsed = path::parse_path(&format!("/api/1/{encoded}/active/"));
        prop_assert_eq!(parsed.map(|parsed| parsed.target.name_slug), Ok(slug));
    }
}
