//! As many filters, keywords and paths as one request may hold: exact, on paths with and without a shredded column,
//! explained, and through the tools for agents.

use std::fmt::Write;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value as Json, json};
use strata_format::writer::WriteOptions;
use strata_http::params::ITEMS_LIMIT;
use strata_query::fetch::reshape::Reshape;
use strata_query::scan::predicate::{Keywords, Predicate};
use strata_reference::Value;
use strata_testing::TestService;
use strata_testing::owned::Owned;
use strata_testing::reads::{Lab, query};
use strata_testing::versions::{all_shredded, nothing_shredded, segments};
use strata_types::path::Path;
use strata_types::request::{Format, KeywordsMode, PathValue, RangeBound, ReadRequest, Sort};

/// Entities of 40 fields, of which most hold the same in all of them, and some what tells them apart.
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

fn path(text: &str) -> Path {
    Path::parse(text).expect("a path")
}

/// A request of so many conditions of all kinds, which all entities meet but for `last`.
fn conditions(random: &mut StdRng, count: usize, last: &PathValue) -> ReadRequest {
    let mut request = ReadRequest { format: Format::Jsonl, ..ReadRequest::default() };
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
            request.ranges[bound as usize].push(PathValue { path: path(&place), value });
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
        if contains { &mut request.filters_contain } else { &mut request.filters }.push(condition);
    }
    let place = random.random_range(0..=request.filters.len());
    request.filters.insert(place, last.clone());
    request
}

#[test]
fn a_thousand_conditions_are_as_exact_as_one() {
    let random = &mut StdRng::seed_from_u64(7);
    let lab = Lab::with_threads(2);
    let entities = fields(20);
    for shredding in [WriteOptions::default().shredding, all_shredded(), nothing_shredded()] {
        let options = WriteOptions { shredding, row_group_rows: 7, keywords: segments(10), ..WriteOptions::default() };
        let version = lab.publish(&entities, &options);
        for (place, value, count) in
            [("odd", "1", ITEMS_LIMIT), ("id", "17.0", ITEMS_LIMIT), ("rare", "y", 700), ("f3.in", "3", 421)]
        {
            let last = PathValue { path: path(place), value: value.to_owned() };
            let request = conditions(random, count, &last);
            let others = request.filters_contain.len() + request.ranges().count();
            assert_eq!(request.filters.len() + others, count);
            let checked = lab.check(version, &entities, &request).map_err(|error| error.to_string());
            assert_eq!(checked.map_err(|text| text.chars().take(300).collect::<String>()), Ok(()));
        }
    }
}

#[test]
fn a_thousand_of_each_other_kind_are_exact_too() {
    let lab = Lab::with_threads(2);
    let entities = fields(12);
    let options = WriteOptions { row_group_rows: 5, keywords: segments(7), ..WriteOptions::default() };
    let version = lab.publish(&entities, &options);
    let paths = |count: usize| (0..count).map(|number| path(&format!("f{}.in", number % 50))).collect::<Vec<Path>>();
    let deep = path(&vec!["a"; 128].join("."));
    let words = |count: usize| (0..count).map(|number| format!("text {}", number % 40)).collect::<Vec<String>>();
    let plain = || ReadRequest { format: Format::Jsonl, ..ReadRequest::default() };
    // What keep_field takes away, a thousand filters do not find, which is one operator and not a thousand.
    let hidden = vec![PathValue { path: path("rare"), value: "x".to_owned() }; ITEMS_LIMIT - 1];
    for request in [
        ReadRequest { keywords: words(ITEMS_LIMIT), keywords_mode: KeywordsMode::And, ..plain() },
        ReadRequest { keywords: words(ITEMS_LIMIT), ..plain() },
        ReadRequest { keep: paths(ITEMS_LIMIT), ..plain() },
        ReadRequest { drop: paths(ITEMS_LIMIT), ..plain() },
        ReadRequest { keep: vec![path("id")], filters: hidden, ..plain() },
        ReadRequest { dedup: true, dedup_key: paths(ITEMS_LIMIT), ..plain() },
        ReadRequest { drop: vec![deep.clone(); 100], keep: vec![path("f1"), deep.clone()], ..plain() },
        ReadRequest {
            keep: paths(400),
            drop: paths(100),
            keywords: words(100),
            filters: vec![PathValue { path: path("f7.in"), value: "7".to_owned() }; 200],
            filters_contain: vec![PathValue { path: path("f8.in"), value: String::new() }; 100],
            dedup: true,
            dedup_key: paths(100),
            sort: Some(Sort { field: "f1".to_owned(), descending: true }),
            denull: true,
            format: Format::Csv,
            ..plain()
        },
    ] {
        let checked = lab.check(version, &entities, &request);
        let shown = |text: String| text.chars().take(300).collect::<String>();
        assert!(checked.is_ok(), "{}: {}", shown(query(&request)), shown(format!("{checked:?}")));
    }
}

/// Wide entities were walked once for each path, which took minutes here; and the fields of a strict read once more
/// after each step before them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_paths_are_found_within_the_time_limit() {
    const ENTITIES: usize = 300;
    const PATHS: usize = ITEMS_LIMIT - 10;
    let service = TestService::configured(|config| config.query.timeout_s = 10).await;
    // More names than a profile lists.
    let entity = |number: usize| {
        let members =
            (0..2_000).map(|field| format!("\"f{}_{field}\":{}", number % 10, (number * 31 + field * 7) % 97));
        format!("{{{}}}\n", members.collect::<Vec<_>>().join(","))
    };
    service.import("Wide", &(0..ENTITIES).map(entity).collect::<String>()).await;
    let list = |prefix: &str| (0..PATHS).map(|number| format!("{prefix}{number}")).collect::<Vec<_>>().join(",");

    let answer = service.get(&format!("/api/1/wide/v1/?count=true&dedup=true&dedup_key={}", list("f9_"))).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let counted: Json = serde_json::from_str(answer.text()).expect("JSON");
    // Those that have these fields, and the first of all others.
    assert_eq!(counted["count"], json!(ENTITIES / 10 + 1));

    let query = format!("strict=true&denull=true&drop_field=f0_1&dedup=true&dedup_key={}", list("x"));
    let answer = service.get(&format!("/api/1/wide/v1/?{query}")).await;
    answer.is_error(400);
    let text = answer.text();
    assert!(text.contains("dedup_key: \"x2\": no entity") && text.ends_with("And 987 more."), "{text}");
}

/// One tool call, and what it gave.
async fn tool(owned: &Owned, name: &str, arguments: Json) -> Json {
    let call =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}});
    let request = axum::http::Request::post("/mcp").header("content-type", "application/json");
    let request = request.header("accept", "application/json, text/event-stream").header("host", "localhost");
    let request = request.header("authorization", format!("Bearer {}", owned.token()));
    let answer = owned.service.call(request.body(call.to_string().into()).expect("a request")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_str::<Json>(answer.text()).expect("JSON")["result"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_and_explanations_take_as_many() {
    let owned = Owned::sqlite().await;
    let entities: Vec<String> = fields(30).iter().map(Value::write).collect();
    let id = owned.dataset("Fields", json!({}), &[&format!("[{}]", entities.join(","))]).await;
    let filters: Vec<String> = (0..ITEMS_LIMIT).map(|number| format!("f{0}:text {0}", number % 40)).collect();
    let arguments = json!({"dataset_id": id, "filter": filters, "limit": 3, "keep_field": []});
    let given = tool(&owned, "read", arguments).await;
    assert_ne!(given["isError"], json!(true), "{given}");
    let about: Json = serde_json::from_str(given["content"][0]["text"].as_str().expect("a text")).expect("JSON");
    assert_eq!((&about["returned"], &about["total_count"]), (&json!(3), &json!(30)), "{about}");
    let shown = given["content"][1]["text"].as_str().expect("a text");
    assert_eq!(shown, format!("[{}]", entities[..3].join(",")));

    // What it does is told, or that there is too much to tell.
    let given = tool(&owned, "explain", json!({"dataset_id": id, "filter": filters})).await;
    assert!(given["content"][0]["text"].as_str().is_some_and(|text| text.contains("ilter")), "{given}");
    let query: String = filters.iter().map(|filter| format!("&filter={}", filter.replace(' ', "+"))).collect();
    let answer = owned.call("GET", &format!("/dataset/explain?dataset_id={id}{query}"), "").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let explained: Json = serde_json::from_str(answer.text()).expect("JSON");
    assert_eq!(explained["scan"]["rows_selected"], json!(30));
    // Forty conditions are left of a thousand, each once.
    assert_eq!(explained["scan"]["predicates"].as_array().map(Vec::len), Some(40));

    // One more is one too many, and said so.
    let more: Vec<String> = [filters, vec!["f1:1".to_owned()]].concat();
    let given = tool(&owned, "read", json!({"dataset_id": id, "filter": more})).await;
    assert_eq!(given["isError"], json!(true));
    assert!(given["content"][0]["text"].as_str().is_some_and(|text| text.contains("at most 1000")), "{given}");
}

#[test]
fn equal_keywords_are_searched_once() {
    let words = ["Äpfel", "a", "ÄPFEL", "b", "A", "a"].map(str::to_owned).to_vec();
    let reshape = Reshape::of(&ReadRequest::default());
    let predicate = Predicate::Keywords(Keywords::new(words, KeywordsMode::And, reshape));
    assert_eq!(predicate.to_string(), "keywords=Äpfel,a,b (and)");
    assert_eq!(predicate.searched().expect("words").0.len(), 3);
}
