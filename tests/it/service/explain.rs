//! Explanations of reads: the plan is the executed one, the counts are consistent, and a failing read is explained by
//! its own error.

use axum::body::Body;
use axum::http::Request;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use serde_json::{Value as Json, json};
use strata_reference::Value;
use strata_testing::machine::{Machine, failed, one_json_line, succeeded};
use strata_testing::openapi::Document;
use strata_testing::owned::log_in;
use strata_testing::reads::{ServiceLab, cases, entities, no_failure, plan, query};
use strata_testing::versions::{all_shredded, nothing_shredded, options_like, row_groups_of};
use strata_testing::{Answer, CapturedLog, FIXTURES, OWNER, PASSWORD, TestService};
use strata_types::read_request::{ReadRequest, ResponseFormat};
use strata_types::user::UserPlan;

/// An owner with a session.
struct OwnerSession<'a> {
    service: &'a TestService,
    cookie: String,
}

impl OwnerSession<'_> {
    async fn log_in_owner(service: &TestService) -> OwnerSession<'_> {
        OwnerSession::log_in(service, OWNER).await
    }

    async fn log_in<'a>(service: &'a TestService, email: &str) -> OwnerSession<'a> {
        let cookie = log_in(service, email).await;
        OwnerSession { service, cookie }
    }

    /// Explains a read. `query` begins with the parameters of the endpoint.
    async fn ask(&self, query: &str, headers: &[(&str, &str)]) -> Answer {
        let headers = [headers, &[("cookie", self.cookie.as_str())]].concat();
        self.service.get_with(&format!("/dataset/explain?{query}"), &headers).await
    }

    /// Explains a read of dataset 1 as JSON.
    async fn json(&self, query: &str) -> Json {
        let answer = self.ask(&format!("dataset_id=1&explain=json&{query}"), &[]).await;
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, Some("application/json")),
            "{}",
            answer.text()
        );
        serde_json::from_slice(&answer.body).expect("failed to parse JSON")
    }

    async fn text(&self, query: &str) -> String {
        let answer = self.ask(&format!("dataset_id=1&explain=text&{query}"), &[]).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.text().to_owned()
    }
}

/// Returns the number at a JSON pointer of an explanation.
#[track_caller]
fn number_at(explanation: &Json, place: &str) -> u64 {
    explanation.pointer(place).and_then(Json::as_u64).unwrap_or_else(|| panic!("{place} in {explanation:#}"))
}

/// Returns the operators of an explanation, root first.
fn operators(explanation: &Json) -> Vec<String> {
    let operators = explanation["operators"].as_array().expect("missing operators");
    operators.iter().map(|operator| operator["operator"].as_str().expect("invalid text").to_owned()).collect()
}

/// Returns a hundred entities: a text, an ascending number, a rare number, and a text that is too long for an indexed
/// column.
fn hundred_entities() -> Vec<Value> {
    let entity = |number: u64| {
        let rare = if number % 50 == 7 { ",\"rare\":true" } else { "" };
        let text =
            format!(r#"{{"name":"Name{number}","n":{number},"k":{},"text":"{}"{rare}}}"#, number % 5, "x".repeat(300));
        Value::parse_entity(&text).expect("failed to parse entity")
    };
    (0..100).map(entity).collect()
}

/// Imports the fixture of 250 countries for the owner.
async fn import_countries(service: &TestService) {
    let countries =
        std::fs::read(std::path::Path::new(FIXTURES).join("world-countries/countries.json")).expect("missing file");
    service.try_import("World Countries", false, &countries).await.expect("failed to import");
}

#[tokio::test]
async fn plan_contains_operators_of_each_request_kind() {
    let service = TestService::start().await;
    import_countries(&service).await;
    let owner = OwnerSession::log_in_owner(&service).await;
    for (query, words) in [
        ("", &["VersionScan: positions=0..250", "all defaults", "250 entities"][..]),
        ("offset=10&limit=5", &["VersionScan: positions=10..15", "5 selected"]),
        ("count=true", &["PlaceholderRowExec", "a count of 250", "none: no entities had to be read"]),
        ("filter=cca3:fra", &["filter=cca3:fra: by the indexed column cca3, 250 -> 1", "1 entity"]),
        ("filter=cca3:fra&count=true", &["AggregateExec", "VersionScan", "a count of 1"]),
        ("filter_contains=name.common:land", &["filter_contains=name.common:land: by the indexed column name.common"]),
        ("filter_gt=area:1e6", &["filter_gt=area:1e6: by the indexed column area, 250 -> "]),
        ("filter_gt=area:x", &["row groups: 1 in total, 0 scanned, 1 pruned by the minimum and maximum string values"]),
        ("filter_gt=area:x", &["`area` contains numbers but no strings", "use a JSON number, such as `1.5`"]),
        ("filter_gt=area:1,5", &["Did you mean `filter_gt=area:1.5`?"]),
        (
            "filter_gt=region:60",
            &["`region` contains strings but no numbers", "`filter_gt=region:\"60\"` compares strings"],
        ),
        ("filter_lt=area:-2", &["1 pruned by the minimum and maximum numeric values", "0 entities"]),
        ("filter_lte=cca3:ZZZ", &["statistics: all entities of 1 row group match", "250 selected"]),
        ("filter_gte=nowhere:7", &["filter_gte=nowhere:7: by documents", "so `filter_gte` finds nothing"]),
        ("filter_gt=regoin:x", &["No entity in this version has `regoin`, so `filter_gt`", "Did you mean `region`?"]),
        ("keep_field=area&filter_lt=region:x", &["removes `region` before `filter_lt` runs"]),
        ("filter=nowhere:x", &["filter=nowhere:x: by documents", "No entity in this version has `nowhere`"]),
        ("filter=nowhere:7", &["by documents", "verified in documents: 250 -> 0", "so `filter` finds nothing"]),
        ("filter=regoin:x", &["No entity in this version has `regoin`, so `filter`", "Did you mean `region`?"]),
        ("keep_field=name.comon", &["has `name.comon`, so `keep_field` keeps nothing", "Did you mean `name.common`?"]),
        ("dedup=true&dedup_key=rgion", &["all entities as equal at this path. Did you mean `region`?"]),
        ("keywords=island&keep_field=area", &["`keywords` does not search fields removed by"]),
        ("sort=area&drop_field=area", &["removes `area` before `sort` runs", "`sort` changes nothing"]),
        ("limt=1", &["Ignored unknown parameter `limt`. Did you mean `limit`?", "all defaults"]),
        ("keywords=island,sea", &["keywords=island,sea (or): by documents"]),
        ("sort=area", &["SortExec: expr=[order", "sort by area: from the indexed column area"]),
        (
            "sort=area&limit=3",
            &["SortExec: TopK(fetch=3)", "skipped by the top-k threshold", "from the indexed column area"],
        ),
        ("sort=area&limit=50", &["SortExec: TopK(fetch=50)", "from the cached order of column area"]),
        ("sort=nothing:desc", &["sort by nothing: from documents", "has `nothing`, so `sort`"]),
        (
            "dedup=true",
            &["AggregateExec", "CompactBatches", "dedup by all fields except _source: from the stored hashes"],
        ),
        ("dedup=true&dedup_key=region", &["distinct", "dedup by region: from the cached codes"]),
        ("dedup=true&dedup_key=region&filter=cca3:fra", &["dedup by region: from the cached codes"]),
        ("dedup=true&keep_field=region&sort=region", &["duplicates skipped during the scan: 24"]),
        ("dedup=true&denull=true", &["from documents", "This `dedup` requires reading documents"]),
        ("sample=4", &["SortExec: TopK(fetch=4)", "random()", "never cached"]),
        ("sample=4&seed=9", &["SortExec: TopK(fetch=4)", "seeded(", "not in the response cache"]),
        ("total=true&limit=3&filter=region:africa", &["count matches", "59 entities match in total, across all pages"]),
        ("total=true&filter=cca3:fra", &["1 entity matches in total, across all pages"]),
        ("format=parquet&typed=true", &["find columns", "typed   true"]),
        ("format=csv&limit=3", &["find columns", "text/csv", " columns, not streamed"]),
        ("keep_field=area&filter=region:x", &["removes `region` before `filter` runs"]),
        ("lmit=3&limit=2", &["Ignored unknown parameters: lmit (did you mean `limit`?)."]),
        ("nonsense=3", &["Ignored unknown parameters: nonsense."]),
        // The hint asked whether the user meant the path that the request already contained.
        (
            "sort=name.common",
            &["so `sort` changes nothing. `sort` requires a top-level field, but `name.common` is a nested path."],
        ),
        ("filter=area:%3E1000", &["`filter=area:>1000` finds only the string", "Did you mean `filter_gt=area:1000`?"]),
        ("filter=area:%3C%3D%205&filter=region:Europe", &["Did you mean `filter_lte=area:5`?"]),
        ("filter=area:%3E%3D5", &["Did you mean `filter_gte=area:5`?"]),
        ("filter=area:%3C5", &["Did you mean `filter_lt=area:5`?"]),
        ("filter=region:%3D%3DEurope", &["Did you mean `filter=region:Europe`?"]),
    ] {
        let text = owner.text(query).await;
        for word in words {
            assert!(text.contains(word), "{query} does not say {word}:\n{text}");
        }
        let advice = text.split("\nHints\n").nth(1).unwrap_or_default();
        assert!(
            query.contains("index") || !advice.contains("list it in `index.always`"),
            "{query}: a hint suggests an indexed column
{text}"
        );
        for section in ["Request", "Response", "Time", "Logical plan", "Physical plan", "Scan", "Document pages"] {
            assert!(text.contains(&format!("\n{section}\n")), "{query} has no {section}:\n{text}");
        }
        assert!(text.lines().all(|line| line.trim_end() == line), "{query}:\n{text}");
    }
}

#[test]
fn row_group_page_and_row_counts_are_consistent() {
    let lab = ServiceLab::new(|config| config.query.threads = 1);
    let indexed_columns = lab.publish(&hundred_entities(), &row_groups_of(10, all_shredded()));
    let none = lab.publish(&hundred_entities(), &row_groups_of(10, nothing_shredded()));
    lab.bench.runtime.block_on(async {
        let owner = OwnerSession::log_in_owner(&lab.service).await;
        let explain = async |version: u64, query: &str| {
            let explained = owner.json(&format!("version={version}&{query}")).await;
            let groups = explained["scan"]["row_groups"].as_object().expect("missing row groups");
            let total = groups["total"].as_u64().expect("failed to parse number");
            let sum: u64 = groups.values().map(|number| number.as_u64().expect("failed to parse number")).sum();
            assert_eq!((total, sum), (10, 20), "{query}: {groups:?}");
            let pages = number_at(&explained, "/documents/pages");
            for place in ["pages_to_select", "pages_to_answer", "pages_not_read"] {
                assert!(number_at(&explained, &format!("/documents/{place}")) <= pages, "{query}: {explained:#}");
            }
            explained
        };
        let scanned = |explained: &Json| number_at(explained, "/scan/row_groups/scanned");

        let absent = explain(indexed_columns, "filter=name:037").await;
        assert_eq!((number_at(&absent, "/scan/row_groups/pruned_by_texts"), scanned(&absent)), (10, 0), "{absent:#}");
        let text = explain(indexed_columns, "filter=name:NAME37").await;
        let tested = scanned(&text) * 10;
        assert_eq!((number_at(&text, "/scan/rows_tested"), number_at(&text, "/scan/rows_selected")), (tested, 1));
        let predicate = &text["scan"]["predicates"][0];
        let expected = json!({
            "predicate": "filter=name:NAME37", "access": "shredded_column", "column": "name", "rows_in": tested,
            "rows_out": 1, "keyword_index": null, "settled_by_statistics": null
        });
        assert_eq!(*predicate, expected);
        assert_eq!(
            (number_at(&text, "/documents/pages_to_select"), number_at(&text, "/documents/pages_to_answer")),
            (0, 1)
        );
        assert_eq!(number_at(&text, "/documents/pages_not_read") + 1, number_at(&text, "/documents/pages"));
        let by_number = explain(indexed_columns, "filter=n:37.0").await;
        assert!(number_at(&by_number, "/scan/row_groups/pruned_by_numbers") >= 5, "{by_number:#}");
        assert_eq!((number_at(&by_number, "/scan/rows_selected"), number_at(&by_number, "/answer/total")), (1, 1));

        let range = explain(indexed_columns, "filter_gte=n:37.0").await;
        assert_eq!((number_at(&range, "/scan/row_groups/pruned_by_numbers"), scanned(&range)), (3, 7), "{range:#}");
        assert_eq!(number_at(&range, "/scan/rows_selected"), 63);
        assert_eq!(number_at(&range, "/scan/predicates/0/settled_by_statistics"), 6);
        let texts = explain(indexed_columns, "filter_gt=n:%221%22").await;
        assert_eq!((number_at(&texts, "/scan/row_groups/pruned_by_texts"), scanned(&texts)), (10, 0), "{texts:#}");

        let window = explain(indexed_columns, "offset=25&limit=10").await;
        assert_eq!((scanned(&window), number_at(&window, "/scan/row_groups/outside_positions")), (2, 8));
        assert_eq!((number_at(&window, "/scan/first_position"), number_at(&window, "/scan/end_position")), (25, 35));
        assert_eq!((number_at(&window, "/scan/rows_selected"), number_at(&window, "/scan/rows_tested")), (10, 10));
        let enough = explain(indexed_columns, "filter_contains=name:name&limit=12").await;
        assert_eq!((scanned(&enough), number_at(&enough, "/scan/row_groups/not_reached")), (2, 8));
        assert_eq!(number_at(&enough, "/scan/rows_selected"), 12);
        // The number of selected rows before and after offset and limit.
        let page = explain(indexed_columns, "filter=k:3&sort=n:desc&offset=4&limit=2").await;
        assert_eq!((number_at(&page, "/scan/predicates/0/rows_out"), number_at(&page, "/answer/total")), (20, 2));
        assert_eq!(page["scan"]["sort"]["column"], "n");
        let first = explain(indexed_columns, "sort=n:asc&limit=3").await;
        let pruned_rows = 10 * number_at(&first, "/scan/row_groups/pruned_by_order");
        assert!(pruned_rows + number_at(&first, "/scan/left_out_early") >= 90, "{first:#}");

        let searched = explain(none, "filter=name:name37").await;
        let pages = number_at(&searched, "/documents/pages");
        assert_eq!(searched["scan"]["predicates"][0]["access"], "documents");
        assert_eq!(searched["scan"]["verification"], json!({"rows_in": 100, "rows_out": 1, "pages": pages}));
        let read = explain(none, "filter=n:37").await;
        assert_eq!(read["scan"]["predicates"][0]["rows_in"], Json::Null);
        assert_eq!(read["scan"]["verification"], json!({"rows_in": 100, "rows_out": 1, "pages": pages}));
        assert_eq!(
            (number_at(&read, "/documents/pages_to_select"), number_at(&read, "/documents/pages_not_read")),
            (pages, 0)
        );
        let both = explain(none, "filter=name:name37&filter=n:37&sort=k&dedup=true&dedup_key=rare").await;
        assert_eq!(number_at(&both, "/scan/verification/rows_in"), 100);
        for (keys, by) in [("sort", "k"), ("dedup", "rare")] {
            let expected = json!({"by": by, "access": "documents", "column": null, "pages": 1});
            assert_eq!(both["scan"][keys], expected);
        }
    });
}

#[test]
fn repeated_read_finds_everything_cached() {
    let lab = ServiceLab::new(|config| config.query.threads = 2);
    let version = lab.publish(&hundred_entities(), &row_groups_of(10, all_shredded()));
    lab.bench.runtime.block_on(async {
        let owner = OwnerSession::log_in_owner(&lab.service).await;
        for query in ["filter=name:name37", "sort=text:desc", "keywords=name3&format=csv", "filter=text:7&dedup=true"] {
            let query = format!("version={version}&{query}");
            let first = owner.json(&query).await;
            let second = owner.json(&query).await;
            for kind in ["footers", "columns", "keyword_index", "document_pages"] {
                let first = &first["parts"][kind];
                let second = &second["parts"][kind];
                let looked_up = |part: &Json| number_at(part, "/hits") + number_at(part, "/misses");
                assert_eq!(number_at(second, "/misses"), 0, "{query}: {kind} {second}");
                assert!((looked_up(first) > 0) == (looked_up(second) > 0), "{query}: {kind} {first} {second}");
            }
            assert_eq!(
                (number_at(&second, "/parts/requests"), number_at(&second, "/parts/request_bytes")),
                (0, 0),
                "{query}"
            );
            assert_eq!(first["documents"], second["documents"], "{query}");
        }
        // The file of another version: at least its footer must be fetched.
        let other = lab.service.import("data", "[{\"a\":1}]").await.version.get();
        let first = owner.json(&format!("version=v{other}")).await;
        assert!(
            number_at(&first, "/parts/requests") > 0 && number_at(&first, "/parts/footers/misses") == 1,
            "{first:#}"
        );
    });
}

/// Compares a read with its explanation.
async fn check_explanation(
    owner: &OwnerSession<'_>,
    version: u64,
    query: &str,
    bytes: bool,
) -> Result<(), TestCaseError> {
    let read = owner.service.get(&format!("/api/1/data/v{version}/?{query}")).await;
    let explained = owner.ask(&format!("dataset_id=1&version={version}&explain=json&{query}"), &[]).await;
    prop_assert_eq!(explained.status, read.status, "{}: {}", query, String::from_utf8_lossy(&explained.body));
    if read.status != 200 {
        prop_assert_eq!(explained.text(), read.text(), "{}", query);
        return Ok(());
    }
    let explained: Json = serde_json::from_slice(&explained.body).expect("failed to parse JSON");
    let total = read.header("x-total-count").and_then(|total| total.parse::<u64>().ok());
    prop_assert_eq!(explained["answer"]["total"].as_u64(), total, "{}", query);
    let matches = read.header("x-total-matches").and_then(|matches| matches.parse::<u64>().ok());
    prop_assert_eq!(explained["answer"]["matches"].as_u64(), matches, "{}", query);
    prop_assert_eq!(explained["answer"]["content_type"].as_str(), read.header("content-type"), "{}", query);
    if bytes {
        prop_assert_eq!(explained["answer"]["body_bytes"].as_u64(), Some(read.body.len() as u64), "{}", query);
    }
    // The sum of the stages does not exceed the total time.
    let stages = explained["stages"].as_array().expect("missing stages");
    let sum: u64 = stages.iter().map(|stage| number_at(stage, "/duration_us")).sum();
    prop_assert!(sum <= number_at(&explained, "/total_us"), "{}: {}", query, explained);
    Ok(())
}

#[test]
fn explanation_of_random_read_matches_read() {
    let narrow = ServiceLab::new(|config| {
        config.query.threads = 2;
        config.limits.columns = 3;
    });
    let labs = [ServiceLab::without_cache(1), ServiceLab::with_threads(2), narrow];
    let owners = labs.each_ref().map(|lab| lab.bench.runtime.block_on(OwnerSession::log_in_owner(&lab.service)));
    let sample = prop_oneof![4 => Just(None), 1 => (0..8_u64).prop_map(Some)];
    let plans = vec((plan(), sample, any::<bool>()), 6..12);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(12), ..PropertyConfig::default() });
    let result = runner.run(&(entities(), plans, 0..3_usize, 0..2_usize), |(entities, plans, number, bounds)| {
        let lab = &labs[number];
        let owner = &owners[number];
        let version = lab.publish(&entities, &options_like(bounds, bounds + plans.len()));
        lab.bench.runtime.block_on(async {
            for (plan, sample, count) in &plans {
                let request = plan.resolve(&entities);
                if sample.is_some() {
                    // Every sample has other bytes and other columns.
                    let request =
                        ReadRequest { sample: *sample, count: *count, format: ResponseFormat::Json, ..request };
                    check_explanation(owner, version, &query(&request), *count).await?;
                    continue;
                }
                let request = ReadRequest { count: *count, ..request };
                check_explanation(owner, version, &query(&request), true).await?;
                let table = ReadRequest { format: ResponseFormat::Csv, count: false, ..request };
                check_explanation(owner, version, &query(&table), true).await?;
            }
            Ok(())
        })
    });
    no_failure(result);
    // A table with too many columns, which the random requests need not contain.
    let narrow = &labs[2];
    let owner = &owners[2];
    let wide = Value::parse(r#"{"a":1,"b":2,"c":3,"d":4}"#).expect("failed to parse entity");
    let version = narrow.publish_default(&[wide]);
    narrow.bench.runtime.block_on(async {
        narrow.service.get(&format!("/api/1/data/v{version}/?format=csv")).await.is_error(400);
        check_explanation(owner, version, "format=csv", true).await.expect("error differs");
    });
}

#[tokio::test]
async fn invalid_read_is_rejected_like_read() {
    let service = TestService::start().await;
    service.import("Data", "[{\"a\":1}]").await;
    let owner = OwnerSession::log_in_owner(&service).await;
    let document = Document::fetch(&service).await;
    let long = "x".repeat(40_000);
    for query in
        ["limit=x", "limit=1&limit=2", "format=pdf", "filter=a", "alt=true", "sort=", "keywords=%FF", long.as_str()]
    {
        let read = service.get(&format!("/api/1/data/v1/?{query}")).await;
        let explained = owner.ask(&format!("dataset_id=1&version=v1&{query}"), &[]).await;
        document.describes_call("GET", "/dataset/explain", &explained);
        explained.is_error(read.status);
        if query != long {
            assert_eq!(explained.text(), read.text(), "{query}");
        }
    }
    for (version, text) in [("v2", "2; its only version is 1."), ("9", "9; its only version is 1.")] {
        let explained = owner.ask(&format!("dataset_id=1&version={version}"), &[]).await;
        explained.is_error(404);
        assert_eq!(explained.text(), format!("This dataset has no version {text}"));
    }
    for (query, word) in [
        ("version=new", "version"),
        ("version=", "version"),
        ("explain=xml", "text, json"),
        ("version=1&version=1", "more than once"),
    ] {
        let explained = owner.ask(&format!("dataset_id=1&{query}"), &[]).await;
        explained.is_error(400);
        document.describes_call("GET", "/dataset/explain", &explained);
        assert!(explained.text().contains(word), "{}", explained.text());
    }
    // A missing file: both requests return 500 without the cause.
    for file in service.version_files() {
        std::fs::remove_file(file).expect("failed to remove");
    }
    let other = service.open_instance(|_| {}).await;
    let read = other.get("/api/1/data/v1/").await;
    let owner = OwnerSession::log_in_owner(&other).await;
    let explained = owner.ask("dataset_id=1", &[]).await;
    assert_eq!(
        (read.status, explained.status, text_without_request_id(&read)),
        (500, 500, text_without_request_id(&explained))
    );
}

#[tokio::test]
async fn only_owner_can_explain_frozen_dataset() {
    let service = TestService::start().await;
    service.try_import("Data", true, b"[{\"a\":1}]").await.expect("failed to import");
    service
        .services
        .accounts
        .add_user("other@strata.test", PASSWORD, UserPlan::Free, None)
        .await
        .expect("failed to add user");
    let document = Document::fetch(&service).await;
    let nobody = service.get("/dataset/explain?dataset_id=1").await;
    nobody.is_error(401);
    document.describes_call("GET", "/dataset/explain", &nobody);
    let other = OwnerSession::log_in(&service, "other@strata.test").await.ask("dataset_id=1&limit=1", &[]).await;
    other.is_error(404);
    assert_eq!(other.text(), "You have no dataset with this dataset_id.");
    document.describes_call("GET", "/dataset/explain", &other);

    let owner = OwnerSession::log_in_owner(&service).await;
    assert_eq!(owner.json("limit=1").await["frozen"], false);
    let freeze = json!({"dataset_id": 1, "version_number": 1, "freeze": true}).to_string();
    let request = Request::post("/dataset/rollback").header("content-type", "application/json");
    let request = request.header("cookie", &owner.cookie).body(Body::from(freeze)).expect("failed to build request");
    assert_eq!(service.call(request).await.status, 200);
    let frozen = owner.json("limit=1").await;
    assert_eq!((&frozen["frozen"], &frozen["answer"]["total"]), (&json!(true), &json!(1)));
    assert!(frozen["hints"].to_string().contains("410"), "{frozen:#}");
}

#[tokio::test]
async fn format_is_selected_and_json_has_documented_shape() {
    let service = TestService::start().await;
    service.import("Data", "[{\"a\":1,\"_source\":\"x\"},{\"a\":\"<b>\\u202e\"}]").await;
    let owner = OwnerSession::log_in_owner(&service).await;
    let document = Document::fetch(&service).await;
    for (query, accept, form) in [
        ("", None, "application/json"),
        ("", Some("*/*"), "application/json"),
        ("", Some("text/plain"), "text/plain; charset=utf-8"),
        ("", Some("Text/Plain, application/json, */*"), "application/json"),
        ("", Some("text/plain, application/json;q=0.9"), "text/plain; charset=utf-8"),
        ("", Some("text/plain;q=0, */*"), "application/json"),
        ("&explain=text", Some("application/json"), "text/plain; charset=utf-8"),
        ("&explain=json&format=csv", None, "application/json"),
    ] {
        let headers: Vec<_> = accept.map(|accept| ("accept", accept)).into_iter().collect();
        let answer = owner.ask(&format!("dataset_id=1{query}"), &headers).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(form)), "{query} {accept:?}");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        document.describes_call("GET", "/dataset/explain", &answer);
    }
    let explained = owner.json("filter=a:%3Cb%3E%E2%80%AE&lmit=1&limit=7&format=jsonl").await;
    let names: Vec<&str> = explained.as_object().expect("not an object").keys().map(String::as_str).collect();
    let expected = [
        "ok",
        "dataset_id",
        "name_slug",
        "version",
        "alt",
        "frozen",
        "entity_count",
        "document_bytes",
        "request",
        "ignored",
        "answer",
        "stages",
        "total_us",
        "work",
        "kept",
        "logical_plan",
        "optimized_plan",
        "operators",
        "scan",
        "distributed",
        "documents",
        "parts",
        "hints",
    ];
    assert_eq!(names, expected);
    let request = json!([
        {"name": "filter", "value": "a:<b>\u{202e}"}, {"name": "limit", "value": "7"}, {"name": "format", "value": "jsonl"}
    ]);
    assert_eq!((&explained["request"], &explained["ignored"]), (&request, &json!(["lmit"])));
    let answer = &explained["answer"];
    assert_eq!(
        (&answer["total"], &answer["content_type"], &answer["columns"]),
        (&json!(1), &json!("application/x-ndjson"), &Json::Null)
    );
    let stages = explained["stages"].as_array().expect("missing stages");
    let stages: Vec<&str> = stages.iter().filter_map(|stage| stage["stage"].as_str()).collect();
    assert_eq!(stages, ["open", "wait", "plan", "select", "encode"]);
    let scan = &explained["operators"].as_array().expect("missing operators").last().expect("missing scan");
    assert_eq!((&scan["rows"], &scan["spills"]), (&json!(1), &json!(0)));
    assert!(scan["bytes"].is_u64() && scan["compute_us"].is_u64(), "{scan}");
    // Characters of the request cannot reorder the lines of the text.
    let text = owner.text("filter=a:%3Cb%3E%E2%80%AE").await;
    assert!(text.contains("filter  a:<b>\\u{202e}") && !text.contains('\u{202e}'), "{text}");
}

#[tokio::test]
async fn explanation_reports_but_ignores_cached_response() {
    let service = TestService::configured(|config| config.query.heavy_bytes = 1).await;
    import_countries(&service).await;
    let owner = OwnerSession::log_in_owner(&service).await;
    let page = "filter=region:europe&limit=5";
    let get_kept = async |query: &str| owner.json(query).await["kept"].clone();
    assert_eq!(get_kept(page).await, json!({"cacheable": true, "response": [], "export": null}));
    for coding in ["gzip", "zstd"] {
        let uri = format!("/api/1/world-countries/v1/?{page}");
        assert_eq!(service.get_with(&uri, &[("accept-encoding", coding)]).await.status, 200);
    }
    let explained = owner.json(page).await;
    assert_eq!(explained["kept"], json!({"cacheable": true, "response": ["gzip", "zstd"], "export": null}));
    assert!(number_at(&explained, "/scan/rows_tested") == 250 && explained["work"]["heavy"] == true, "{explained:#}");
    assert!(owner.text(page).await.contains("cached in memory with these encodings: gzip, zstd"));
    assert_eq!(get_kept("sample=2").await, json!({"cacheable": false, "response": [], "export": null}));

    let parquet = "format=parquet&limit=5";
    assert_eq!(get_kept(parquet).await["export"], Json::Null);
    let read = service.get(&format!("/api/1/world-countries/v1/?{parquet}")).await;
    assert_eq!(read.status, 200);
    let explained = owner.json(parquet).await;
    assert_eq!(
        (&explained["kept"]["export"], &explained["answer"]["body_bytes"]),
        (&json!("made"), &json!(read.body.len()))
    );
    // All permits and memory were released.
    assert!(service.is_idle());
}

#[tokio::test]
async fn explained_plan_equals_executed_plan() {
    let service = TestService::configured(|config| config.log.slow_request_ms = 1).await;
    let lines: String = (0..3_000).map(|number| format!("{{\"n\":{number},\"text\":\"word{number}\"}}\n")).collect();
    service.import("Words", &lines).await;
    let owner = OwnerSession::log_in_owner(&service).await;
    let log = CapturedLog::default();
    let subscriber = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
    let _default = tracing::subscriber::set_default(subscriber);
    for query in [
        "keywords=word7&sort=n:desc&limit=2",
        "filter_contains=text:word1&dedup=true&sort=text&offset=3",
        "filter=text:word7&filter=other:5&offset=1&limit=9",
        "dedup=true&dedup_key=n&denull=true&count=true",
    ] {
        log.take();
        assert_eq!(service.get(&format!("/api/1/words/v1/?{query}")).await.status, 200);
        let explained = owner.json(query).await;
        let lines = log.take();
        let plans: Vec<&str> = lines.iter().filter_map(|line| line["fields"]["plan"].as_str()).collect();
        let plan = operators(&explained).join(" <- ");
        assert_eq!(plans, [plan.as_str(), plan.as_str()], "{query}: {lines:?}");
    }
}

#[test]
fn explain_command_works_during_running_server() {
    let machine = Machine::with_user();
    machine.write("small.jsonl", "{\"name\":\"Ada\",\"born\":1815}\n{\"name\":\"Grace\",\"born\":1906}\n");
    let import = ["import", "small.jsonl", "--name", "Small Things", "--owner", "ada@example.test", "--private"];
    for _ in 0..2 {
        one_json_line(&machine.run(&import));
    }
    let text = succeeded(&machine.run(&["explain", "1", "filter=born:1906&sort=name&lmit=2"]));
    for word in [
        "Query on dataset 1 (small-things), version 2\n",
        "filter  born:1906\n",
        "VersionScan: positions=0..2, filter=born:1906 by ",
        "1 selected",
        "response cache: not available on the command line",
        "Ignored unknown parameter `lmit`. Did you mean `limit`?",
    ] {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
    for (arguments, version) in [
        (&["explain", "1", "--json"][..], 2),
        (&["explain", "1", "?limit=1", "--version", "v1", "--json"], 1),
        (&["explain", "1", "--version", "1", "--json"], 1),
        (&["explain", "1", "/api/1/small-things/v1/?limit=1", "--json"], 1),
        (&["explain", "1", "http://127.0.0.1:8080/api/1/small-things/latest/", "--json"], 2),
    ] {
        let explained = one_json_line(&machine.run(arguments));
        assert_eq!((&explained["version"], &explained["kept"]), (&json!(version), &Json::Null), "{arguments:?}");
    }
    for (arguments, message) in [
        (&["explain", "7"][..], "strata: failed to explain the query on dataset 7: no such dataset"),
        (&["explain", "1", "--version", "3"], "strata: failed to explain the query on dataset 1: no version v3"),
        (&["explain", "1", "--alt"], "strata: failed to explain the query on dataset 1: version 2 has no alternate"),
        (&["explain", "1", "limit=x"], "strata: invalid QUERY: parameter limit: \"x\" is not a whole number; valid: "),
        (
            &["explain", "1", "/api/1/small-things/v"],
            "strata: invalid QUERY: version is \"v\"; valid: active, latest, or v followed by",
        ),
        (&["explain", "1", "/api/2/other/v1/"], "strata: invalid QUERY: it specifies dataset 2, but DATASET_ID is 1"),
    ] {
        let failure = failed(&machine.run(arguments));
        assert!(failure.starts_with(message), "{failure}");
    }
    for arguments in [&["explain"][..], &["explain", "x"], &["explain", "1", "--version", "new"]] {
        assert_eq!(machine.run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

/// Sort keys that exceed the memory limit, and documents that exceed the cache: both spill to disk. With too little
/// memory, the read and its explanation fail with the same error.
#[test]
fn explanation_reports_spills() {
    let filler = "x".repeat(700);
    let entities: Vec<Value> = (0..24_000_u64)
        .map(|number| {
            let text = format!("{{\"v\":\"{filler}{:05}\"}}", number * 7_919 % 24_000);
            Value::parse_entity(&text).expect("failed to parse entity")
        })
        .collect();
    for (memory_bytes, status) in [(16 << 20, 200), (1 << 20, 400)] {
        let lab = ServiceLab::new(|config| {
            config.query.memory_bytes = Some(memory_bytes);
            config.cache.memory_bytes = Some(1 << 20);
        });
        let version = lab.publish(&entities, &row_groups_of(2_500, Default::default()));
        let query = "sort=v:desc&format=jsonl";
        let read = lab.get(version, query);
        let explained = lab.bench.runtime.block_on(async {
            let owner = OwnerSession::log_in_owner(&lab.service).await;
            owner.ask(&format!("dataset_id=1&explain=json&version={version}&{query}"), &[]).await
        });
        assert_eq!((read.status, explained.status), (status, status), "{}", explained.text());
        if status != 200 {
            assert_eq!(text_without_request_id(&read), text_without_request_id(&explained));
            continue;
        }
        let explained: Json = serde_json::from_slice(&explained.body).expect("failed to parse JSON");
        assert_eq!(number_at(&explained, "/answer/body_bytes"), read.body.len() as u64);
        assert_eq!(explained["answer"]["streamed"], true);
        let sort = explained["operators"].as_array().and_then(|operators| {
            operators.iter().find(|operator| operator["operator"].to_string().contains("SortExec"))
        });
        let sort = sort.unwrap_or_else(|| panic!("{explained:#}"));
        assert!(number_at(sort, "/spills") > 0 && number_at(sort, "/spilled_bytes") > 1 << 20, "{sort}");
        assert!(number_at(&explained, "/documents/spilled_bytes") >= 24_000 * 700, "{explained:#}");
        assert!(explained["stages"].to_string().contains("\"order\""), "{explained:#}");
        let hints = explained["hints"].to_string();
        assert!(hints.contains("SortExec spilled") && hints.contains("sorted on disk"), "{hints}");
    }
}

/// Returns the text of an error without the request ID.
fn text_without_request_id(answer: &Answer) -> String {
    answer.text().split(" Request ID").next().unwrap_or_default().to_owned()
}
