//! Refreshes by owners, pings and schedules, and webhooks. Every test runs on an SQLite file and on a PostgreSQL
//! database of its own.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use serde_json::{Value, json};
use strata_config::{AllowedNetworks, CatalogUrl, Config};
use strata_testing::databases::{Database, on_both_databases};
use strata_testing::loopback_server::{LoopbackServer, Received, Reply, ok, with_status};
use strata_testing::metrics::value;
use strata_testing::packed::gzip;
use strata_testing::{Answer, PASSWORD, TestService, eventually, files};
use strata_types::user::UserPlan;
use tokio_util::sync::CancellationToken;

on_both_databases! {
    RefreshOwner:
    every_trigger_creates_next_version
    unchanged_source_shares_version_file
    changed_source_settings_reset_validators
    push_accepts_every_format
    failed_refresh_returns_reason_and_leaves_nothing
    concurrent_refresh_of_dataset_is_rejected
    refresh_with_lost_lease_publishes_nothing
    refresh_during_shutdown_finishes_or_fails
    missed_schedule_runs_once
    run_stored_while_the_clock_was_ahead_is_advanced
    webhook_is_sent_once_by_concurrent_processes
    process_without_background_tasks_runs_nothing
    free_plan_sends_no_webhooks
    pushed_document_uses_records_path_of_dataset
    concurrent_refreshes_keep_version_numbers_correct
}

/// A service whose sources and webhook receivers can be on loopback, and an owner with an API token.
struct RefreshOwner {
    service: TestService,
    token: String,
    database: Database,
}

const EMAIL: &str = "refresher@strata.test";

impl RefreshOwner {
    async fn sqlite() -> RefreshOwner {
        RefreshOwner::start(Database::sqlite().await).await
    }

    async fn postgres() -> RefreshOwner {
        RefreshOwner::start(Database::postgres().await).await
    }

    async fn start(database: Database) -> RefreshOwner {
        let service = TestService::configured(|config: &mut Config| {
            config.catalog.url = Some(CatalogUrl::try_from(database.url.clone()).expect("failed to parse URL"));
            config.net.allow =
                AllowedNetworks::try_from(vec!["127.0.0.0/8".to_owned()]).expect("failed to parse networks");
            config.sources.schedule_spread_s = 0;
        })
        .await;
        let added = service.services.accounts.add_user(EMAIL, PASSWORD, UserPlan::Pro, Some("ci")).await;
        let token = added.expect("failed to add user").expect("missing token").expose().to_owned();
        RefreshOwner { service, token, database }
    }

    /// Sends a request with a body.
    async fn send(&self, method: &str, uri: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
        let mut request = Request::builder().method(method).uri(uri);
        request = request.header("authorization", format!("Bearer {}", self.token));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.service.call(request.body(body.into()).expect("failed to build request")).await
    }

    /// Sends a request with a JSON body.
    async fn post(&self, uri: &str, body: &Value) -> Answer {
        self.send("POST", uri, &[("content-type", "application/json")], body.to_string()).await
    }

    /// Creates a dataset and returns its record.
    async fn create(&self, name: &str, more: Value) -> Value {
        let mut body = json!({"name": name});
        body.as_object_mut().expect("not an object").extend(more.as_object().expect("not an object").clone());
        parse_record(&self.post("/dataset/create", &body).await, "dataset")
    }

    async fn refresh(&self, dataset: &Value) -> Answer {
        self.post("/dataset/refresh", &json!({"dataset_id": dataset["dataset_id"]})).await
    }

    async fn push(&self, dataset: &Value, entities: Value) -> Answer {
        self.post("/dataset/refresh", &json!({"dataset_id": dataset["dataset_id"], "entities": entities})).await
    }

    async fn view(&self, dataset: &Value) -> Value {
        let uri = format!("/dataset/view?dataset_id={}", dataset["dataset_id"]);
        parse_record(&self.send("GET", &uri, &[], "").await, "dataset")
    }

    /// Returns the trigger and the error of each attempt, oldest first.
    async fn attempts(&self, dataset: &Value) -> Vec<(String, Option<String>)> {
        let view = self.view(dataset).await;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let attempts = view["last_attempts"].as_array().expect("missing attempts").iter().rev();
        attempts.map(|attempt| (text(&attempt["trigger"]).expect("missing trigger"), text(&attempt["error"]))).collect()
    }

    /// Returns the entities of a version.
    async fn entities(&self, dataset: &Value, version: u64) -> Value {
        let id = &dataset["dataset_id"];
        let slug = dataset["name_slug"].as_str().expect("missing slug");
        let answer = self.service.get(&format!("/api/{id}/{slug}/v{version}/")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        serde_json::from_slice(&answer.body).expect("failed to parse JSON")
    }

    async fn ping(&self, method: &str, dataset: &Value) -> Answer {
        let url = dataset["ping_url"].as_str().expect("failed to parse URL");
        let path = &url[url.find("/ping/").expect("missing ping URL")..];
        self.service.send(method, path, None).await
    }

    /// Returns the version files, including incomplete ones.
    fn stored_files(&self) -> Vec<PathBuf> {
        files(&self.service.directory().join("store"))
    }

    /// Returns the files in the temporary directory except the lock file.
    fn temporary_files(&self) -> Vec<PathBuf> {
        let all = files(&self.service.directory().join("tmp"));
        all.into_iter().filter(|file| !file.ends_with("lock")).collect()
    }
}

/// Returns the record in an envelope.
#[track_caller]
fn parse_record(answer: &Answer, name: &str) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body: Value = serde_json::from_slice(&answer.body).expect("failed to parse JSON");
    assert_eq!(body["ok"], json!(true));
    body[name].clone()
}

/// Returns the version number and the entity count in a response.
#[track_caller]
fn parse_version(answer: &Answer) -> (u64, u64) {
    let version = parse_record(answer, "version");
    assert!(version.get("file_path").is_none());
    let number = |name: &str| version[name].as_u64().expect(name);
    (number("version_number"), number("entity_count"))
}

/// Starts a server whose document changes with each request.
fn changing_source() -> LoopbackServer {
    let number = AtomicU64::new(0);
    LoopbackServer::start(move |_| {
        let number = number.fetch_add(1, Ordering::SeqCst) + 1;
        ok("Content-Type: application/json\r\n", format!("[{{\"n\":{number}}}]").as_bytes())
    })
}

/// Starts a server that responds when it is released, and reports the arrival of each request.
fn blocking_source() -> (LoopbackServer, SyncSender<()>, tokio::sync::mpsc::Receiver<()>) {
    let (release, released) = sync_channel::<()>(100);
    let (arrive, arrived) = tokio::sync::mpsc::channel(100);
    let released = Mutex::new(released);
    let server = LoopbackServer::start(move |_| {
        // The wake-up connection at the end of a test is not a request.
        let _ = arrive.blocking_send(());
        let _ = released.lock().expect("poisoned lock").recv();
        ok("Content-Type: application/json\r\n", b"[{\"n\":1},{\"n\":2}]")
    });
    (server, release, arrived)
}

async fn every_trigger_creates_next_version(owner: RefreshOwner) {
    let source = changing_source();
    let url = source.url("/things.json");
    let dataset = owner.create("Things", json!({"source": url})).await;
    assert_eq!(parse_version(&owner.refresh(&dataset).await), (1, 1));
    assert_eq!(parse_version(&owner.ping("GET", &dataset).await), (2, 1));
    assert_eq!(parse_version(&owner.ping("POST", &dataset).await), (3, 1));
    let uri = format!("/dataset/refresh?dataset_id={}", dataset["dataset_id"]);
    assert_eq!(parse_version(&owner.send("POST", &uri, &[], "").await), (4, 1));
    // The first call computes the next run, the second call starts it.
    let run_due_schedules = async || {
        let started = owner.service.services.refreshes.run_due_schedules(&CancellationToken::new()).await;
        started.expect("failed to run schedules")
    };
    assert_eq!(run_due_schedules().await, 0);
    owner.database.execute("UPDATE datasets SET next_run_at = 1").await;
    assert_eq!(run_due_schedules().await, 1);
    eventually("the scheduled version", async || owner.view(&dataset).await["latest_version"] == json!(5)).await;

    for number in 1..=5 {
        assert_eq!(owner.entities(&dataset, number).await, json!([{"n": number, "_source": url}]));
    }
    let triggers = ["manual", "ping", "ping", "manual", "schedule"];
    assert_eq!(owner.attempts(&dataset).await, triggers.map(|trigger| (trigger.to_owned(), None)));

    owner.ping("HEAD", &dataset).await;
    owner.ping("PUT", &dataset).await.is_error(405);
    owner.service.get("/ping/ping_0000").await.is_error(404);
    assert_eq!(owner.view(&dataset).await["latest_version"], json!(5), "wrong methods and tokens refresh nothing");
    assert!(owner.temporary_files().is_empty(), "{:?}", owner.temporary_files());

    // Pings count toward the rate limit of public reads, and their responses show the limit.
    let limited = owner.service.open_instance(|config| config.limits.public_per_minute = 1).await;
    let path = dataset["ping_url"].as_str().and_then(|url| url.find("/ping/").map(|at| url[at..].to_owned()));
    let path = path.expect("missing path");
    let answer = limited.get(&path).await;
    assert_eq!((parse_version(&answer), answer.header("x-ratelimit-remaining")), ((6, 1), Some("0")));
    limited.get(&path).await.is_error(429);
}

async fn unchanged_source_shares_version_file(owner: RefreshOwner) {
    let source = LoopbackServer::start(|request: &Received| match request.header("if-none-match") {
        Some("\"one\"") => Reply::Bytes(with_status("304 Not Modified", "ETag: \"one\"\r\n", b"")),
        _ => ok("ETag: \"one\"\r\nContent-Type: application/x-ndjson\r\n", b"{\"a\":1}\n{\"a\":2}\n"),
    });
    let url = source.url("/lines");
    let dataset = owner.create("Lines", json!({"source": url})).await;
    for number in 1..=3 {
        assert_eq!(parse_version(&owner.refresh(&dataset).await), (number, 2));
    }
    let etags: Vec<_> =
        source.take_received().iter().map(|request| request.header("if-none-match").map(str::to_owned)).collect();
    assert_eq!(etags, [None, Some("\"one\"".to_owned()), Some("\"one\"".to_owned())]);
    assert_eq!(owner.stored_files().len(), 1, "three versions share one file");
    let entities = json!([{"a": 1, "_source": url}, {"a": 2, "_source": url}]);
    for number in 1..=3 {
        assert_eq!(owner.entities(&dataset, number).await, entities);
    }
    // The same content without validators shares the file, too.
    let since_heartbeat = LoopbackServer::start(|_| ok("Content-Type: text/csv\r\n", b"a,_source\n1,x\n"));
    let dataset = owner.create("Silent", json!({"source": since_heartbeat.url("/")})).await;
    for number in 1..=2 {
        assert_eq!(parse_version(&owner.refresh(&dataset).await), (number, 1));
    }
    assert_eq!(owner.stored_files().len(), 2);
}

async fn changed_source_settings_reset_validators(owner: RefreshOwner) {
    let source = LoopbackServer::start(|request: &Received| {
        if request.header("if-none-match").is_some() || request.header("if-modified-since").is_some() {
            return Reply::Bytes(with_status("304 Not Modified", "", b""));
        }
        let headers = "ETag: W/\"x\"\r\nLast-Modified: Mon, 02 Mar 2026 00:00:00 GMT\r\n";
        ok(headers, b"{\"data\":[{\"a\":\"1\"}],\"more\":[{\"a\":\"2\"}]}")
    });
    let dataset = owner.create("Nested", json!({"source": source.url("/n.json"), "records_path": "data"})).await;
    let id = dataset["dataset_id"].clone();
    let conditional = || {
        let received = source.take_received();
        received.iter().map(|request| request.header("if-none-match").is_some()).collect::<Vec<_>>()
    };
    let change = async |change: Value| {
        let mut body = json!({"dataset_id": id});
        body.as_object_mut().expect("not an object").extend(change.as_object().expect("not an object").clone());
        parse_record(&owner.post("/dataset/update", &body).await, "dataset");
    };
    parse_version(&owner.refresh(&dataset).await);
    change(json!({"name": "Renamed", "schedule": "5 5 * * *"})).await;
    parse_version(&owner.refresh(&dataset).await);
    assert_eq!(conditional(), [false, true], "other changes keep the validators");
    change(json!({"records_path": "more"})).await;
    assert_eq!(parse_version(&owner.refresh(&dataset).await), (3, 1));
    assert_eq!(conditional(), [false]);
    let renamed = owner.view(&dataset).await;
    assert_eq!(owner.entities(&renamed, 3).await[0]["a"], json!("2"));
    change(json!({"format": "json"})).await;
    parse_version(&owner.refresh(&dataset).await);
    change(json!({"source": source.url("/other.json")})).await;
    parse_version(&owner.refresh(&dataset).await);
    assert_eq!(conditional(), [false, false]);
    // A version that was pushed in between does not come from the source.
    change(json!({"source": "push", "records_path": null, "format": null})).await;
    parse_version(&owner.push(&dataset, json!([{"a": "3"}])).await);
    change(json!({"source": source.url("/other.json"), "records_path": "data"})).await;
    assert_eq!(parse_version(&owner.refresh(&dataset).await), (7, 1));
    assert_eq!(conditional(), [false]);
    assert_eq!(owner.entities(&renamed, 7).await[0]["a"], json!("1"));
}

async fn push_accepts_every_format(owner: RefreshOwner) {
    let dataset = owner.create("Pushed", json!({"source": "push"})).await;
    let id = dataset["dataset_id"].as_u64().expect("missing ID");
    let json_type = [("content-type", "application/json")];
    let plain = format!("/dataset/refresh?dataset_id={id}");
    let filler = "x".repeat(200_000);
    let mut expected = 0;
    let mut check = async |uri: &str, headers: &[(&str, &str)], body: Vec<u8>, entities: Value| {
        // In several chunks, as from a network.
        let pieces: Vec<Result<Bytes, std::io::Error>> =
            body.chunks(30_000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let answer = owner.send("POST", uri, headers, Body::from_stream(futures::stream::iter(pieces))).await;
        expected += 1;
        let count = entities.as_array().expect("missing entities").len() as u64;
        assert_eq!(parse_version(&answer), (expected, count), "{uri} {headers:?}");
        assert_eq!(owner.entities(&dataset, expected).await, entities);
    };
    let one = json!([{"a": 1}, {"a": null}]);
    // The envelope with its members in any order, as a small body and as a body that exceeds the head limit.
    let text = format!("{{\"dataset_id\":{id},\"entities\":[{{\"a\":1}},{{\"a\":null}}]}}");
    check("/dataset/refresh", &json_type, text.clone().into_bytes(), one.clone()).await;
    check("/dataset/refresh", &json_type, gzip(text.as_bytes()), one.clone()).await;
    check(&plain, &json_type, text.into_bytes(), one.clone()).await;
    let after = format!("{{\"entities\":[{{\"a\":\"{filler}\"}}],\"dataset_id\":{id}}}");
    check("/dataset/refresh", &json_type, after.into_bytes(), json!([{"a": filler}])).await;
    let before = format!("{{\"dataset_id\":{id},\"entities\":[{{\"b\":\"{filler}\"}}]}}");
    check("/dataset/refresh", &json_type, before.into_bytes(), json!([{"b": filler}])).await;
    let neither = format!("{{\"entities\":[{{\"c\":\"{filler}\"}}]}}");
    check(&plain, &json_type, neither.into_bytes(), json!([{"c": filler}])).await;
    // Documents in source formats that are declared, detected, or derived from the file name.
    check(&plain, &json_type, b" [{\"a\":1},{\"a\":null}]".to_vec(), one.clone()).await;
    check(&plain, &[("content-type", "application/x-ndjson")], b"{\"a\":1}\n{\"a\":null}\n".to_vec(), one.clone())
        .await;
    check(
        &plain,
        &[("content-type", "text/csv; charset=utf-8")],
        b"a,b\n1,x\n".to_vec(),
        json!([{"a": "1", "b": "x"}]),
    )
    .await;
    check(
        &plain,
        &[("content-type", "text/tab-separated-values")],
        b"a\tb\n1\tx\n".to_vec(),
        json!([{"a": "1", "b": "x"}]),
    )
    .await;
    check(&plain, &[("content-type", "application/gzip")], gzip(b"{\"a\":1}\n{\"a\":null}\n"), one.clone()).await;
    let zstd = zstd::encode_all(&b"[{\"a\":1},{\"a\":null}]"[..], 3).expect("failed to compress");
    check(&plain, &[("content-type", "application/json"), ("content-encoding", "zstd")], zstd, one.clone()).await;
    check(&format!("{plain}&format=csv"), &[("content-type", "text/plain")], b"a\n1\n".to_vec(), json!([{"a": "1"}]))
        .await;
    check(&format!("{plain}&format=jsonl"), &json_type, b"{\"entities\":[]}\n".to_vec(), json!([{"entities": []}]))
        .await;
    let parquet = owner.service.get(&format!("/api/{id}/pushed/v9/?format=parquet")).await;
    let kind = [("content-type", "application/vnd.apache.parquet")];
    check(&plain, &kind, parquet.body.to_vec(), json!([{"a": "1", "b": "x"}])).await;
    // An object with entities is recognized by its first bracket.
    let object = b"{\"entities\":[{\"a\":1},{\"a\":null}]}".to_vec();
    let marked = [&b"\xef\xbb\xbf\r\n "[..], &object].concat();
    let behind = |blanks: usize, text: &[u8]| [" ".repeat(blanks).as_bytes(), text].concat();
    let late = behind(65_535, &object);
    for body in [gzip(&object), gzip(&marked), marked, gzip(b"\n [{\"a\":1},{\"a\":null}]"), gzip(&late), late] {
        check(&plain, &json_type, body, one.clone()).await;
    }
    // After the head limit, it is rejected, regardless of the chunk size.
    let later = behind(65_536, &object);
    for (body, piece) in [(later.clone(), 65_600), (later.clone(), 30_000), (later.clone(), 1_000), (gzip(&later), 10)]
    {
        let pieces: Vec<Result<Bytes, std::io::Error>> =
            body.chunks(piece).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let answer = owner.send("POST", &plain, &json_type, Body::from_stream(futures::stream::iter(pieces))).await;
        answer.is_error(422);
        assert!(answer.text().contains("first bracket must be within the first 65,536 bytes"), "{}", answer.text());
    }
    // An empty array is valid.
    // So is a body of another JSON type.
    for content_type in ["application/json", "application/ld+json"] {
        let body = format!("{{\"dataset_id\":{id},\"entities\":[]}}").into_bytes();
        check("/dataset/refresh", &[("content-type", content_type)], body, json!([])).await;
    }
    check(&plain, &[("content-type", "application/x-ndjson")], Vec::new(), json!([])).await;
    assert!(owner.temporary_files().is_empty(), "{:?}", owner.temporary_files());
}

async fn pushed_document_uses_records_path_of_dataset(owner: RefreshOwner) {
    let nested = r#"{"data":{"items":[{"a":1},{"a":2}]},"more":1}"#;
    let binary = [("content-type", "application/octet-stream")];
    let json_type = [("content-type", "application/json")];
    let dataset = owner.create("Nested", json!({"records_path": "data.items"})).await;
    let own = |more: &str| format!("/dataset/refresh?dataset_id={}{more}", dataset["dataset_id"]);
    let plain = own("");
    let named = own("&format=json");
    for (number, (uri, headers)) in [(&plain, &binary), (&named, &binary), (&named, &json_type)].iter().enumerate() {
        let answer = owner.send("POST", uri, &headers[..], nested).await;
        assert_eq!(parse_version(&answer), (number as u64 + 1, 2), "{uri}");
        assert_eq!(owner.entities(&dataset, number as u64 + 1).await, json!([{"a": 1}, {"a": 2}]));
    }
    // The path of the entities in the `entities` envelope is fixed.
    assert_eq!(parse_version(&owner.push(&dataset, json!([{"b": 1}])).await), (4, 1));
    assert_eq!(owner.entities(&dataset, 4).await, json!([{"b": 1}]));
    // Like documents from a URL, other formats have no path.
    let refused = owner.send("POST", &plain, &[("content-type", "text/csv")], "a\n1\n").await;
    refused.is_error(422);
    assert!(refused.text().contains("a records path applies only to json sources"), "{}", refused.text());
    let refused = owner.send("POST", &named, &binary, r#"{"data":{}}"#).await;
    refused.is_error(422);
    assert!(refused.text().contains("no value at the records path data.items"), "{}", refused.text());
    // Without a path, a JSON document must be an array.
    let other = owner.create("Plain", json!({})).await;
    let uri = format!("/dataset/refresh?dataset_id={}&format=json", other["dataset_id"]);
    let refused = owner.send("POST", &uri, &binary, nested).await;
    refused.is_error(422);
    assert!(refused.text().contains("set `records_path` to the path of the array of records"), "{}", refused.text());
}

async fn failed_refresh_returns_reason_and_leaves_nothing(owner: RefreshOwner) {
    let source = LoopbackServer::start(|request: &Received| match request.target.as_str() {
        "/gone" => Reply::Bytes(with_status("404 Not Found", "", b"")),
        "/bad.json" => ok("", b"[{\"a\":1},{\"a\":2},3]"),
        "/cut.json" => Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[{\"a\":1},".to_vec()),
        _ => ok("", b"[]"),
    });
    let fetched = owner.create("Fetched", json!({"source": source.url("/bad.json")})).await;
    let pushed = owner.create("Pushed", json!({})).await;
    parse_version(&owner.push(&pushed, json!([{"a": 1}])).await);
    let stored = owner.stored_files();
    let id = pushed["dataset_id"].clone();
    let check = async |uri: &str, kind: Option<&str>, body: String, status: u16, text: &str| {
        let headers: Vec<_> = kind.map(|kind| ("content-type", kind)).into_iter().collect();
        let answer = owner.send("POST", uri, &headers, body.clone()).await;
        answer.is_error(status);
        assert!(answer.text().contains(text), "{uri} {body}: {}", answer.text());
        assert_eq!(owner.stored_files(), stored, "{text}");
    };
    const JSON: Option<&str> = Some("application/json");
    let entities = |entities: &str| format!("{{\"dataset_id\":{id},\"entities\":{entities}}}");
    let fetch = |dataset: &Value| json!({"dataset_id": dataset["dataset_id"]}).to_string();
    let own = |more: &str| format!("/dataset/refresh?dataset_id={id}{more}");
    let refresh = "/dataset/refresh";
    // Errors of the request.
    check(refresh, Some("text/html"), String::new(), 415, "Content-Type").await;
    check(refresh, Some("text/csv"), "a\n1\n".into(), 400, "dataset_id: missing").await;
    check(refresh, JSON, String::new(), 400, "it is empty; valid: a JSON object, such as {\"dataset_id\":1}").await;
    check(refresh, JSON, "{nope}".into(), 400, "a key in quotes").await;
    check(refresh, JSON, "[]".into(), 400, "not an object; valid: a JSON object, such as {\"dataset_id\":1}").await;
    check(refresh, JSON, "{}".into(), 400, "dataset_id: missing").await;
    check(refresh, JSON, "{\"dataset_id\":\"x\"}".into(), 400, "dataset_id: \"x\" is not valid").await;
    check(refresh, JSON, "{\"entities\":[]}".into(), 400, "dataset_id is missing").await;
    check(refresh, JSON, "{\"dataset_id\":\"x\",\"entities\":[]}".into(), 400, "dataset_id must be").await;
    check(refresh, JSON, entities("{}"), 400, "entities").await;
    check("/dataset/refresh?dataset_id=0", JSON, entities("[]"), 400, "dataset_id").await;
    check(&own("&format=xml"), JSON, entities("[]"), 400, "format").await;
    check("/dataset/refresh?dataset_id=99", JSON, entities("[]"), 404, "no dataset").await;
    check(refresh, JSON, "{\"dataset_id\":99}".into(), 404, "no dataset").await;
    check(refresh, JSON, "{\"dataset_id\":99,\"entities\":[]}".into(), 404, "no dataset").await;
    let other = format!("/dataset/refresh?dataset_id={}", fetched["dataset_id"]);
    check(&other, JSON, entities("[]"), 409, "has a source URL").await;
    // Errors of the document.
    check(refresh, JSON, entities("[{},7]"), 422, "item 2").await;
    check(refresh, JSON, entities("[{\"a\":1]"), 422, "item 1").await;
    check(&own(""), Some("text/csv"), "a,b\n1\n".into(), 422, "item 1").await;
    check(&own(""), JSON, "[{}".into(), 422, "").await;
    // Errors of the state.
    check(refresh, JSON, fetch(&pushed), 409, "nothing to fetch").await;
    owner.ping("GET", &pushed).await.is_error(409);
    // Errors of the source.
    check(refresh, JSON, fetch(&fetched), 422, "item 3").await;
    let point = async |url: String| {
        let body = json!({"dataset_id": fetched["dataset_id"], "source": url});
        parse_record(&owner.post("/dataset/update", &body).await, "dataset");
    };
    for (path, status, text) in [("/gone", 502, "404"), ("/cut.json", 502, "failed to fetch the source")] {
        point(source.url(path)).await;
        check(refresh, JSON, fetch(&fetched), status, text).await;
        let answer = owner.ping("POST", &fetched).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
    // An address that was allowed when it was set.
    let strict = owner.service.open_instance(|config| config.net.allow = AllowedNetworks::default()).await;
    let path = fetched["ping_url"].as_str().and_then(|url| url.find("/ping/").map(|at| &url[at..]));
    strict.get(path.expect("missing path")).await.is_error(400);
    let small = owner.service.open_instance(|config| config.sources.max_bytes = 10).await;
    let request = Request::builder().method("POST").uri(own("")).header("content-type", "application/json");
    let request = request.header("authorization", format!("Bearer {}", owner.token));
    small
        .call(request.body(Body::from(" [{\"a\":\"0123456789\"}]")).expect("failed to build request"))
        .await
        .is_error(413);

    assert_eq!(owner.stored_files(), stored);
    assert!(owner.temporary_files().is_empty(), "{:?}", owner.temporary_files());
    let failures = owner.attempts(&fetched).await;
    assert_eq!(failures.len(), 6, "{failures:?}");
    assert!(failures[0].1.as_ref().is_some_and(|error| error.contains("item 3")), "{failures:?}");
    assert!(failures[5].1.as_ref().is_some_and(|error| error.contains("address")), "{failures:?}");
    let failures = owner.attempts(&pushed).await;
    assert!(failures.iter().any(|(_, error)| error.as_ref().is_some_and(|error| error.contains("item 2"))));
    assert_eq!(owner.view(&fetched).await["latest_version"], Value::Null);
    assert_eq!(owner.view(&pushed).await["latest_version"], json!(1));

    // A frozen dataset rejects every trigger.
    let body = json!({"dataset_id": id, "version_number": 1, "freeze": true});
    parse_record(&owner.post("/dataset/rollback", &body).await, "dataset");
    check(refresh, JSON, entities("[]"), 409, "frozen").await;
    check(refresh, JSON, fetch(&pushed), 409, "frozen").await;
    owner.ping("GET", &pushed).await.is_error(409);
    owner.service.send("POST", refresh, None).await.is_error(401);
}

async fn concurrent_refresh_of_dataset_is_rejected(owner: RefreshOwner) {
    let (source, release, mut arrived) = blocking_source();
    let dataset = owner.create("Held", json!({"source": source.url("/")})).await;
    {
        let mut first_refresh = Box::pin(owner.refresh(&dataset));
        tokio::select! {
            answer = &mut first_refresh => panic!("responded early: {}", answer.text()),
            arrival = arrived.recv() => arrival.expect("failed to receive request"),
        }
        for answer in [owner.refresh(&dataset).await, owner.ping("GET", &dataset).await] {
            answer.is_error(409);
            assert!(answer.text().contains("another refresh"), "{}", answer.text());
        }
        // The first client disconnects here.
    }
    release.send(()).expect("failed to release request");
    eventually("the version", async || owner.view(&dataset).await["latest_version"] == json!(1)).await;
    release.send(()).expect("failed to queue");
    assert_eq!(parse_version(&owner.refresh(&dataset).await), (2, 2));
    let attempts = owner.attempts(&dataset).await;
    assert_eq!(
        attempts,
        [("manual".to_owned(), None), ("manual".to_owned(), None)],
        "a rejected refresh is not an attempt"
    );
}

async fn refresh_with_lost_lease_publishes_nothing(owner: RefreshOwner) {
    let (source, release, mut arrived) = blocking_source();
    let dataset = owner.create("Lost", json!({"source": source.url("/")})).await;
    let mut refreshing = Box::pin(owner.refresh(&dataset));
    tokio::select! {
        answer = &mut refreshing => panic!("responded early: {}", answer.text()),
        arrival = arrived.recv() => arrival.expect("failed to receive request"),
    }
    // As if the process had been suspended for longer than its lease.
    owner.database.execute("UPDATE refresh_leases SET expires_at = 1").await;
    let other_service = owner.service.open_instance(|_| {}).await;
    let path =
        dataset["ping_url"].as_str().and_then(|url| url.find("/ping/").map(|at| &url[at..])).expect("missing path");
    let mut taking_over = Box::pin(other_service.get(path));
    release.send(()).expect("failed to release request");
    tokio::select! {
        answer = &mut taking_over => panic!("responded early: {}", answer.text()),
        answer = &mut refreshing => {
            // Either the refresh ended before the other one began, or it lost its lease.
            if answer.status != 200 {
                answer.is_error(503);
                assert!(owner.stored_files().is_empty(), "the version file was not removed");
            }
        }
    }
    release.send(()).expect("failed to release request");
    let (number, _) = parse_version(&taking_over.await);
    assert_eq!(owner.view(&dataset).await["latest_version"], json!(number));
    assert_eq!(owner.stored_files().len(), 1);
}

async fn refresh_during_shutdown_finishes_or_fails(owner: RefreshOwner) {
    for finishes in [true, false] {
        let (source, release, mut arrived) = blocking_source();
        let name = format!("Ending {finishes}");
        let dataset = owner.create(&name, json!({"source": source.url("/")})).await;
        let process = owner.service.open_instance(|_| {}).await;
        let background = process.services.start_background();
        let path =
            dataset["ping_url"].as_str().and_then(|url| url.find("/ping/").map(|at| &url[at..])).expect("missing path");
        let mut pinging = Box::pin(process.get(path));
        tokio::select! {
            answer = &mut pinging => panic!("responded early: {}", answer.text()),
            arrival = arrived.recv() => arrival.expect("failed to receive request"),
        }
        let limit = if finishes { Duration::from_secs(60) } else { Duration::ZERO };
        let ending = tokio::spawn(background.finish(limit));
        if finishes {
            release.send(()).expect("failed to release request");
            assert_eq!(parse_version(&pinging.await), (1, 2));
        } else {
            pinging.await.is_error(503);
        }
        ending.await.expect("failed to wait for end");
        process.get(path).await.is_error(503);
        let attempts = owner.attempts(&dataset).await;
        assert_eq!(attempts.len(), 1);
        assert_eq!(attempts[0].1.is_none(), finishes, "{attempts:?}");
        // Wait only for requests that the server has not answered yet.
        release.send(()).expect("failed to queue");
    }
    assert_eq!(owner.stored_files().len(), 1);
}

async fn missed_schedule_runs_once(owner: RefreshOwner) {
    let source = changing_source();
    let dataset = owner.create("Nightly", json!({"source": source.url("/"), "schedule": "* * * * *"})).await;
    let push = owner.create("Push", json!({"source": "push"})).await;
    let services = &owner.service.services;
    assert_eq!(
        services.refreshes.run_due_schedules(&CancellationToken::new()).await.expect("failed to run schedules"),
        0,
        "the first call only computes the next run"
    );
    // The schedule is a week overdue, and four processes start at the same time.
    owner
        .database
        .execute("UPDATE datasets SET next_run_at = next_run_at - 604800000000 WHERE next_run_at IS NOT NULL")
        .await;
    let processes = [owner.service.open_instance(|_| {}).await, owner.service.open_instance(|_| {}).await];
    let never = CancellationToken::new();
    let (one, two, three) = tokio::join!(
        services.refreshes.run_due_schedules(&never),
        processes[0].services.refreshes.run_due_schedules(&never),
        processes[1].services.refreshes.run_due_schedules(&never)
    );
    assert_eq!(
        one.expect("failed to find one") + two.expect("failed to run second") + three.expect("failed to run third"),
        1
    );
    eventually("the version", async || owner.view(&dataset).await["latest_version"] == json!(1)).await;
    assert_eq!(source.received().len(), 1);

    // A failed run is recorded and repeated later. A frozen dataset is not refreshed.
    owner.post("/dataset/update", &json!({"dataset_id": dataset["dataset_id"], "format": "parquet"})).await;
    owner.database.execute("UPDATE datasets SET next_run_at = 1 WHERE next_run_at IS NOT NULL").await;
    assert_eq!(
        services.refreshes.run_due_schedules(&CancellationToken::new()).await.expect("failed to run schedules"),
        1
    );
    eventually("the failure", async || owner.attempts(&dataset).await.iter().any(|(_, error)| error.is_some())).await;
    let body = json!({"dataset_id": dataset["dataset_id"], "version_number": 1, "freeze": true});
    parse_record(&owner.post("/dataset/rollback", &body).await, "dataset");
    owner.database.execute("UPDATE datasets SET next_run_at = 1 WHERE next_run_at IS NOT NULL").await;
    assert_eq!(
        services.refreshes.run_due_schedules(&CancellationToken::new()).await.expect("failed to run schedules"),
        0
    );
    assert_eq!(owner.view(&push).await["latest_version"], Value::Null);

    // The scheduler ends the attempts of exited processes.
    let (blocked_source, release, mut arrived) = blocking_source();
    let stuck = owner.create("Stuck", json!({"source": blocked_source.url("/")})).await;
    let refreshing = Box::pin(owner.refresh(&stuck));
    tokio::select! {
        answer = refreshing => panic!("responded early: {}", answer.text()),
        arrival = arrived.recv() => arrival.expect("failed to receive request"),
    }
    owner.database.execute("UPDATE refresh_leases SET expires_at = 1").await;
    let background = processes[0].services.start_background();
    eventually("the record", async || {
        owner
            .attempts(&stuck)
            .await
            .iter()
            .any(|(_, error)| error.as_ref().is_some_and(|text| text.contains("stopped")))
    })
    .await;
    release.send(()).expect("failed to release request");
    background.finish(Duration::from_secs(60)).await;
}

/// The run stayed years ahead, also after a restart.
async fn run_stored_while_the_clock_was_ahead_is_advanced(owner: RefreshOwner) {
    let source = changing_source();
    for (name, schedule) in [("Nightly", "0 2 * * *"), ("Yearly", "0 0 1 1 *"), ("Leap", "0 0 29 2 *")] {
        owner.create(name, json!({"source": source.url("/"), "schedule": schedule})).await;
    }
    let never = CancellationToken::new();
    let schedules = &owner.service.services.refreshes;
    assert_eq!(
        schedules.run_due_schedules(&never).await.expect("failed to run schedules"),
        0,
        "the first call only computes the next run"
    );
    let count = async |condition: &str| {
        let sql = format!("SELECT COUNT(*) FROM datasets WHERE next_run_at IS NOT NULL AND {condition}");
        owner.database.number(&sql).await
    };
    assert_eq!(
        schedules.move_scheduled_runs_earlier(&never).await.expect("failed to run schedules"),
        0,
        "a correct run was advanced"
    );
    // The same day as tomorrow, in the year 2100.
    let ahead = "UPDATE datasets SET next_run_at = 4102452000000000 WHERE next_run_at IS NOT NULL";
    owner.database.execute(ahead).await;
    assert_eq!(schedules.move_scheduled_runs_earlier(&never).await.expect("failed to run schedules"), 3);
    assert_eq!(count("next_run_at < 4102452000000000").await, 3);
    owner.database.execute(ahead).await;
    let restarted = owner.service.open_instance(|_| {}).await;
    let background = restarted.services.start_background();
    eventually("the runs are advanced", async || count("next_run_at < 4102452000000000").await == 3).await;
    background.finish(Duration::from_secs(60)).await;
    assert_eq!(source.received().len(), 0, "a schedule is due");
}

async fn webhook_is_sent_once_by_concurrent_processes(owner: RefreshOwner) {
    const VERSIONS: u64 = 12;
    let receiver = LoopbackServer::start(|request: &Received| match request.body.len() % 2 {
        0 => ok("", b""),
        _ => Reply::Bytes(with_status("500 Internal Server Error", "", b"")),
    });
    let dataset = owner.create("Hooked", json!({})).await;
    let id = dataset["dataset_id"].clone();
    parse_version(&owner.push(&dataset, json!([])).await);
    let body = json!({"dataset_id": id, "url": receiver.url("/hook"), "secret": "s"});
    assert_eq!(owner.post("/webhook/register", &body).await.status, 200);
    // Deliveries that were due but not sent when the process ended.
    parse_version(&owner.push(&dataset, json!([{"n": 2}])).await);
    assert!(receiver.received().is_empty());
    let processes = [owner.service.open_instance(|_| {}).await, owner.service.open_instance(|_| {}).await];
    let backgrounds = processes.each_ref().map(|process| process.services.start_background());
    for number in 3..=VERSIONS {
        parse_version(&owner.push(&dataset, json!([{"n": number}])).await);
    }
    eventually("the posts", async || receiver.received().len() as u64 >= VERSIONS - 1).await;
    for background in backgrounds {
        background.finish(Duration::from_secs(60)).await;
    }
    owner.service.services.deliveries.send_due().await.expect("failed to send webhooks");
    let mut versions: Vec<u64> = receiver
        .received()
        .iter()
        .map(|request| {
            assert_eq!(request.header("content-type"), Some("application/json"));
            assert!(request.header("x-service-signature").is_some());
            let event: Value = serde_json::from_slice(&request.body).expect("failed to parse JSON");
            assert_eq!((&event["dataset_id"], &event["entity_count"]), (&id, &json!(1)));
            event["version"].as_u64().expect("missing version")
        })
        .collect();
    versions.sort_unstable();
    assert_eq!(versions, (2..=VERSIONS).collect::<Vec<_>>());
    let view = owner.send("GET", &format!("/webhook/view?dataset_id={id}"), &[], "").await;
    let view: Value = serde_json::from_slice(&view.body).expect("failed to parse JSON");
    assert!(view["last_fired_at"].is_string() && view["last_status"].is_number(), "{view}");

    // The process that publishes a version wakes its dispatcher without waiting for the next poll.
    let background = owner.service.services.start_background();
    parse_version(&owner.push(&dataset, json!([{"n": 0}])).await);
    eventually("the last post", async || receiver.received().len() as u64 == VERSIONS).await;
    background.finish(Duration::from_secs(60)).await;
    let rendering = owner.service.metrics();
    let counted = ["accepted", "rejected"].map(|outcome| {
        value(&rendering, &format!("strata_webhooks_total{{outcome=\"{outcome}\"}}")).unwrap_or_default()
    });
    // Version 1 was published before the webhook was registered. Other tests of this binary can increase the metric,
    // too.
    assert!(counted.iter().sum::<f64>() >= VERSIONS as f64, "{counted:?}");
}

async fn process_without_background_tasks_runs_nothing(owner: RefreshOwner) {
    let source = changing_source();
    let receiver = LoopbackServer::start(|_| ok("", b""));
    let dataset = owner.create("Nightly", json!({"source": source.url("/"), "schedule": "* * * * *"})).await;
    let hooked = owner.create("Hooked", json!({})).await;
    let body = json!({"dataset_id": hooked["dataset_id"], "url": receiver.url("/hook")});
    assert_eq!(owner.post("/webhook/register", &body).await.status, 200);
    parse_version(&owner.push(&hooked, json!([{"n": 1}])).await);
    let never = CancellationToken::new();
    assert_eq!(
        owner.service.services.refreshes.run_due_schedules(&never).await.expect("failed to run schedules"),
        0,
        "the first call only computes the next run"
    );
    owner.database.execute("UPDATE datasets SET next_run_at = 1 WHERE next_run_at IS NOT NULL").await;

    let idle = owner.service.open_instance(|config| config.server.background = false).await;
    let background = idle.services.start_background();
    // Longer than the interval of any background task.
    tokio::time::sleep(Duration::from_secs(2)).await;
    background.finish(Duration::from_secs(60)).await;
    assert_eq!((source.received().len(), receiver.received().len()), (0, 0));
    assert_eq!(owner.view(&dataset).await["latest_version"], Value::Null);

    // Everything remains due for a process with background tasks.
    let background = owner.service.open_instance(|_| {}).await.services.start_background();
    eventually("the version", async || owner.view(&dataset).await["latest_version"] == json!(1)).await;
    eventually("the post", async || receiver.received().len() == 1).await;
    background.finish(Duration::from_secs(60)).await;
}

async fn free_plan_sends_no_webhooks(owner: RefreshOwner) {
    let receiver = LoopbackServer::start(|_| ok("", b""));
    let dataset = owner.create("Downgraded", json!({})).await;
    let body = json!({"dataset_id": dataset["dataset_id"], "url": receiver.url("/hook")});
    assert_eq!(owner.post("/webhook/register", &body).await.status, 200);
    owner.database.execute(&format!("UPDATE users SET plan = 'free' WHERE email = '{EMAIL}'")).await;
    parse_version(&owner.push(&dataset, json!([])).await);
    owner.service.services.deliveries.send_due().await.expect("failed to send webhooks");
    owner.database.execute(&format!("UPDATE users SET plan = 'pro' WHERE email = '{EMAIL}'")).await;
    owner.service.services.deliveries.send_due().await.expect("failed to send webhooks");
    assert!(receiver.received().is_empty());
    parse_version(&owner.push(&dataset, json!([])).await);
    owner.service.services.deliveries.send_due().await.expect("failed to send webhooks");
    assert_eq!(receiver.received().len(), 1);
}

/// The number of rounds of each client; set `CONCURRENCY_ROUNDS` for a longer run.
const ROUNDS: u64 = 6;

const CLIENTS: usize = 20;

async fn concurrent_refreshes_keep_version_numbers_correct(owner: RefreshOwner) {
    let rounds =
        std::env::var("CONCURRENCY_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().expect("failed to parse number"));
    let mut datasets = Vec::new();
    for name in ["One", "Two"] {
        let dataset = owner.create(name, json!({})).await;
        parse_version(&owner.push(&dataset, json!([{"n": 0}])).await);
        datasets.push(dataset);
    }
    let other_service = owner.service.open_instance(|_| {}).await;
    let made = AtomicU64::new(2);
    let client = async |client: usize| {
        let dataset = &datasets[client % 2];
        let id = &dataset["dataset_id"];
        let slug = dataset["name_slug"].as_str().expect("missing slug");
        for round in 0..rounds {
            match client / 2 % 5 {
                0 | 1 => {
                    let answer = owner.push(dataset, json!([{"n": round, "client": client}])).await;
                    match answer.status {
                        200 => drop(made.fetch_add(1, Ordering::SeqCst)),
                        status => assert_eq!(status, 409, "{}", answer.text()),
                    }
                }
                2 => {
                    let body = json!({"dataset_id": id, "version_number": 1 + round % 2});
                    let answer = owner.post("/dataset/rollback", &body).await;
                    assert!([200, 404].contains(&answer.status), "{}", answer.text());
                    let answer = owner.post("/dataset/unpin", &json!({"dataset_id": id})).await;
                    assert_eq!(answer.status, 200, "{}", answer.text());
                }
                3 => {
                    let view = owner.view(dataset).await;
                    let versions = view["versions"].as_array().expect("missing versions");
                    let numbers: Vec<_> = versions.iter().map(|version| version["version_number"].as_u64()).collect();
                    let latest = versions.len() as u64;
                    assert_eq!(numbers, (1..=latest).rev().map(Some).collect::<Vec<_>>());
                    let active: Vec<_> =
                        versions.iter().filter(|version| version["is_active"] == json!(true)).collect();
                    assert_eq!(active.len(), 1, "{view}");
                    assert_eq!(active[0]["version_number"], view["active_version"]);
                }
                _ => {
                    for (service, version) in
                        [(&owner.service, "active"), (&other_service, "latest"), (&other_service, "v1")]
                    {
                        let answer = service.get(&format!("/api/{id}/{slug}/{version}/?limit=1")).await;
                        assert_eq!(answer.status, 200, "{}", answer.text());
                    }
                }
            }
        }
    };
    futures::future::join_all((0..CLIENTS).map(client)).await;
    let mut published = 0;
    for dataset in &datasets {
        let view = owner.view(dataset).await;
        let count = view["versions"].as_array().expect("missing versions").len() as u64;
        assert_eq!(view["latest_version"], json!(count));
        published += count;
        for number in 1..=count {
            assert_eq!(owner.entities(dataset, number).await.as_array().map(Vec::len), Some(1));
        }
    }
    assert_eq!(published, made.load(Ordering::SeqCst), "lost or duplicate version");
    assert!(published > 2);
}
