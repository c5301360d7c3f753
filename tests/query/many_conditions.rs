//! The maximum number of filters, keywords and paths in one request: exact, with and without indexed columns,
//! explained, and through the tools for agents.

use std::fmt::Write;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value as Json, json};
use strata_format::writer::WriteOptions;
use strata_http::params::MAX_QUERY_ITEMS;
use strata_query::fetch::entity_projection::EntityProjection;
use strata_query::scan::predicate::{KeywordSearch, Predicate};
use strata_reference::Value;
use strata_testing::TestService;
use strata_testing::owned::Owned;
use strata_testing::reads::{ServiceLab, query};
use strata_testing::versions::{all_shredded, nothing_shredded, segments};
use strata_types::field_path::FieldPath;
use strata_types::read_request::{KeywordsMode, PathValue, RangeBound, ReadRequest, ResponseFormat, SortField};

/// Entities with 40 fields, most of which are equal in all entities, and a few that differ.
fn fields(entities: usize) -> Vec<Value> {
    let entity = |number: usize| {
        let mut text = format!("{{\"id\":{number},\"odd\":{}", number % 2);
        for field in 0..40 {
            let _ = write!(text, ",\"f{field}\":[\"Text {field}\",{field},{{\"in\":\"{field}\"}}]");
        }
        text.push_str(",\"rare\":\"x\",\"none\":null}");
        Value::parse_entity(&text).expect("an entity")
    };
    (0..entities).map(entity).collect()
}

fn path(text: &str) -> FieldPath {
    FieldPath::parse(text).expect("a path")
}

/// A request with this many conditions of all kinds, which all entities match except for `last`.
fn conditions(random: &mut StdRng, count: usize, last: &PathValue) -> ReadRequest {
    let mut request = ReadRequest { format: ResponseFormat::Jsonl, ..ReadRequest::default() };
    for _ in 1..count {
        let field = random.random_range(0..40);
        if random.random_bool(0.3) {
            let (bound, place, value) = [
                (RangeBound::Greater, format!("f{field}"), "Text".to_owned()),
                (RangeBound::GreaterOrEqual, format!("f{field}.in"), format!("\"{field}\"")),
                (RangeBound::Less, format!("f{field}"), format!("{field}.5")),
                (RangeBound::LessOrEqual, format!("f{field}"), "\"u\"".to_owned()),
            ][random.random_range(0..4)]
            .clone();
            request.range_filters[bound as usize].push(PathValue { path: path(&place), value });
            continue;
        }
        let (place, value) = match random.random_range(0..4) {
            0 => (format!("f{field}"), format!("TEXT {field}")),
            1 => (format!("f{field}"), format!("{field}.0")),
            2 => (format!("f{field}.in"), field.to_string()),
            _ => ("none".to_owned(), "null".to_owned()),
        };
        let contains = random.random_bool(0.5) && place != "none" && !value.ends_with(".0");
        let condition = PathValue { path: path(&place), value };
        if contains { &mut request.contains_filters } else { &mut request.filters }.push(condition);
    }
    let place = random.random_range(0..=request.filters.len());
    request.filters.insert(place, last.clone());
    request
}

#[test]
fn thousand_filters_match_reference() {
    let random = &mut StdRng::seed_from_u64(7);
    let lab = ServiceLab::with_threads(2);
    let entities = fields(20);
    for shredding_limits in [WriteOptions::default().shredding_limits, all_shredded(), nothing_shredded()] {
        let options = WriteOptions {
            shredding_limits,
            max_row_group_rows: 7,
            keyword_limits: segments(10),
            ..WriteOptions::default()
        };
        let version = lab.publish(&entities, &options);
        for (place, value, count) in
            [("odd", "1", MAX_QUERY_ITEMS), ("id", "17.0", MAX_QUERY_ITEMS), ("rare", "y", 700), ("f3.in", "3", 421)]
        {
            let last = PathValue { path: path(place), value: value.to_owned() };
            let request = conditions(random, count, &last);
            let others = request.contains_filters.len() + request.range_filters().count();
            assert_eq!(request.filters.len() + others, count);
            let checked = lab.check(version, &entities, &request).map_err(|error| error.to_string());
            assert_eq!(checked.map_err(|text| text.chars().take(300).collect::<String>()), Ok(()));
        }
    }
}

#[test]
fn thousand_items_of_each_parameter_match_reference() {
    let lab = ServiceLab::with_threads(2);
    let entities = fields(12);
    let options = WriteOptions { max_row_group_rows: 5, keyword_limits: segments(7), ..WriteOptions::default() };
    let version = lab.publish(&entities, &options);
    let paths =
        |count: usize| (0..count).map(|number| path(&format!("f{}.in", number % 50))).collect::<Vec<FieldPath>>();
    let deep = path(&vec!["a"; 128].join("."));
    let words = |count: usize| (0..count).map(|number| format!("text {}", number % 40)).collect::<Vec<String>>();
    let plain = || ReadRequest { format: ResponseFormat::Jsonl, ..ReadRequest::default() };
    // A thousand filters on fields that `keep_field` removes are one operator, not a thousand.
    let hidden = vec![PathValue { path: path("rare"), value: "x".to_owned() }; MAX_QUERY_ITEMS - 1];
    for request in [
        ReadRequest { keywords: words(MAX_QUERY_ITEMS), keywords_mode: KeywordsMode::And, ..plain() },
        ReadRequest { keywords: words(MAX_QUERY_ITEMS), ..plain() },
        ReadRequest { keep_fields: paths(MAX_QUERY_ITEMS), ..plain() },
        ReadRequest { drop_fields: paths(MAX_QUERY_ITEMS), ..plain() },
        ReadRequest { keep_fields: vec![path("id")], filters: hidden, ..plain() },
        ReadRequest { dedup: true, dedup_key: paths(MAX_QUERY_ITEMS), ..plain() },
        ReadRequest { drop_fields: vec![deep.clone(); 100], keep_fields: vec![path("f1"), deep.clone()], ..plain() },
        ReadRequest {
            keep_fields: paths(400),
            drop_fields: paths(100),
            keywords: words(100),
            filters: vec![PathValue { path: path("f7.in"), value: "7".to_owned() }; 200],
            contains_filters: vec![PathValue { path: path("f8.in"), value: String::new() }; 100],
            dedup: true,
            dedup_key: paths(100),
            sort: Some(SortField { field: "f1".to_owned(), descending: true }),
            denull: true,
            format: ResponseFormat::Csv,
            ..plain()
        },
    ] {
        let checked = lab.check(version, &entities, &request);
        let shown = |text: String| text.chars().take(300).collect::<String>();
        assert!(checked.is_ok(), "{}: {}", shown(query(&request)), shown(format!("{checked:?}")));
    }
}

/// Regression test: wide entities were walked once for each path, which took minutes, and a strict read checked its
/// fields again after each step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_paths_finish_within_the_timeout() {
    const ENTITIES: usize = 300;
    const PATHS: usize = MAX_QUERY_ITEMS - 10;
    let service = TestService::configured(|config| config.query.timeout_s = 10).await;
    // More names than a profile lists.
    let entity = |number: usize| {
        let members =
            (0..2_000).map(|field| format!("\"f{}_{field}\":{}", number % 10, (number * 31 + field * 7) % 97));
        format!("{{{}}}\n", members.collect::<Vec<_>>().join(","))
    };
    service.import("Wide", &(0..ENTITIES).map(entity).collect::<String>()).await;
    let list = |prefix: &str| (0..PATHS).map(|number| format!("{prefix}{number}")).collect::<Vec<_>>().join(",");

    let response = service.get(&format!("/api/1/wide/v1/?count=true&dedup=true&dedup_key={}", list("f9_"))).await;
    assert_eq!(response.status, 200, "{}", response.text());
    let counted: Json = serde_json::from_str(response.text()).expect("JSON");
    // The entities with these fields, and the first of all others.
    assert_eq!(counted["count"], json!(ENTITIES / 10 + 1));

    let query = format!("strict=true&denull=true&drop_field=f0_1&dedup=true&dedup_key={}", list("x"));
    let response = service.get(&format!("/api/1/wide/v1/?{query}")).await;
    response.is_error(400);
    let text = response.text();
    assert!(text.contains("dedup_key: \"x2\": no entity") && text.ends_with("And 987 more."), "{text}");
}

/// Calls a tool and returns its result.
async fn tool(owned: &Owned, name: &str, arguments: Json) -> Json {
    let call =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}});
    let request = axum::http::Request::post("/mcp").header("content-type", "application/json");
    let request = request.header("accept", "application/json, text/event-stream").header("host", "localhost");
    let request = request.header("authorization", format!("Bearer {}", owned.token()));
    let response = owned.service.call(request.body(call.to_string().into()).expect("a request")).await;
    assert_eq!(response.status, 200, "{}", response.text());
    serde_json::from_str::<Json>(response.text()).expect("JSON")["result"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_and_explain_accept_a_thousand_filters() {
    let owned = Owned::sqlite().await;
    let entities: Vec<String> = fields(30).iter().map(Value::write).collect();
    let id = owned.dataset("Fields", json!({}), &[&format!("[{}]", entities.join(","))]).await;
    let filters: Vec<String> = (0..MAX_QUERY_ITEMS).map(|number| format!("f{0}:text {0}", number % 40)).collect();
    let arguments = json!({"dataset_id": id, "filter": filters, "limit": 3, "keep_field": []});
    let result = tool(&owned, "read", arguments).await;
    assert_ne!(result["isError"], json!(true), "{result}");
    let about: Json = serde_json::from_str(result["content"][0]["text"].as_str().expect("a text")).expect("JSON");
    assert_eq!((&about["returned"], &about["total_count"]), (&json!(3), &json!(30)), "{about}");
    let shown = result["content"][1]["text"].as_str().expect("a text");
    assert_eq!(shown, format!("[{}]", entities[..3].join(",")));

    // The result explains the query, or reports that there is too much to explain.
    let result = tool(&owned, "explain", json!({"dataset_id": id, "filter": filters})).await;
    assert!(result["content"][0]["text"].as_str().is_some_and(|text| text.contains("ilter")), "{result}");
    let query: String = filters.iter().map(|filter| format!("&filter={}", filter.replace(' ', "+"))).collect();
    let response = owned.call("GET", &format!("/dataset/explain?dataset_id={id}{query}"), "").await;
    assert_eq!(response.status, 200, "{}", response.text());
    let explained: Json = serde_json::from_str(response.text()).expect("JSON");
    assert_eq!(explained["scan"]["rows_selected"], json!(30));
    // Of a thousand conditions, forty remain, each once.
    assert_eq!(explained["scan"]["predicates"].as_array().map(Vec::len), Some(40));

    // One more filter returns an error that names the limit.
    let more: Vec<String> = [filters, vec!["f1:1".to_owned()]].concat();
    let result = tool(&owned, "read", json!({"dataset_id": id, "filter": more})).await;
    assert_eq!(result["isError"], json!(true));
    assert!(result["content"][0]["text"].as_str().is_some_and(|text| text.contains("at most 1000")), "{result}");
}

#[test]
fn equal_keywords_are_searched_once() {
    let words = ["Äpfel", "a", "ÄPFEL", "b", "A", "a"].map(str::to_owned).to_vec();
    let projection = EntityProjection::from_request(&ReadRequest::default());
    let predicate = Predicate::Keywords(KeywordSearch::new(words, KeywordsMode::And, projection));
    assert_eq!(predicate.to_string(), "keywords=Äpfel,a,b (and)");
    assert_eq!(predicate.full_text_needles().expect("words").0.len(), 3);
}
