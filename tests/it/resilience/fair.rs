//! Tests that heavy use by one client leaves resources for others. Permits, memory, and disk space are shared, so each
//! test lets a hostile client take as much as it can, and then checks that an honest client is still served.
//!
//! For example, a hostile network starts heavy queries until its share of the permits is used up. Its next query waits,
//! but a query from another network starts at once.
//!
//! A test stops polling a request to freeze it. The frozen request holds its permits and memory, as a request that
//! works for a long time does. So the results do not depend on the speed of the machine.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, Response};
use futures::{Future, poll};
use serde_json::{Value, json};
use strata_config::Config;
use strata_testing::metrics::{rendered, value};
use strata_testing::owned::{Owned, add_user};
use strata_testing::{Answer, TestService};
use strata_types::ids::DatasetId;
use strata_types::read_request::ReadRequest;
use strata_types::user::{User, UserPlan};
use strata_types::version::VersionSelector;

const HOSTILE: &str = "192.0.2.66";
const HONEST: &str = "198.51.100.7";

/// A request that the test advances by polling.
type PendingResponse<'a> = Pin<Box<dyn Future<Output = Answer> + 'a>>;

fn get(uri: &str, peer: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let peer = SocketAddr::new(peer.parse().expect("failed to get the address"), 4_711);
    let request = headers.iter().fold(Request::get(uri), |request, (name, value)| request.header(*name, *value));
    request.extension(ConnectInfo(peer)).body(Body::empty()).expect("failed to build the request")
}

/// Reads as an anonymous client with the address `peer`.
fn read<'a>(service: &'a TestService, uri: &str, peer: &str) -> PendingResponse<'a> {
    Box::pin(service.call(get(uri, peer, &[])))
}

/// Makes a management call with a token, or a read with a private key.
fn with_token<'a>(service: &'a TestService, uri: &str, token: &str) -> PendingResponse<'a> {
    Box::pin(service.call(get(uri, HONEST, &[("authorization", &format!("Bearer {token}"))])))
}

/// Explains a query with many keywords. The explanation advances only while the test polls it; over HTTP it would run
/// on its own thread.
fn explain<'a>(service: &'a TestService, user: &'a User, dataset: u64) -> PendingResponse<'a> {
    Box::pin(async move {
        let keywords = unmatched_keywords().split(',').map(str::to_owned).collect();
        let request = ReadRequest { keywords, ..ReadRequest::default() };
        let dataset = DatasetId::new(dataset);
        let explained =
            service.services.reads.explain(Some(user), dataset, VersionSelector::Active, request, Vec::new());
        explained.await.expect("failed to explain");
        service.get("/healthz").await
    })
}

/// Calls a tool.
fn tool<'a>(service: &'a TestService, name: &str, arguments: &Value, token: &str) -> PendingResponse<'a> {
    let params = json!({"name": name, "arguments": arguments});
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).to_string();
    let request = Request::post("/mcp").header("content-type", "application/json").header("host", "127.0.0.1:8080");
    let request = request.header("accept", "application/json, text/event-stream");
    let request = request.header("authorization", format!("Bearer {token}"));
    Box::pin(service.call(request.body(Body::from(body)).expect("failed to build the request")))
}

/// Polls a request until the condition is true, and then stops.
async fn poll_until<'a>(mut pending: PendingResponse<'a>, condition: impl Fn() -> bool) -> PendingResponse<'a> {
    while !condition() {
        if let Poll::Ready(answer) = poll!(&mut pending) {
            panic!("unexpected response, {}: {}", answer.status, answer.text());
        }
        if !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    pending
}

/// Polls a request for a while and asserts that it does not finish.
async fn assert_pending(pending: &mut PendingResponse<'_>) {
    for _ in 0..30 {
        if let Poll::Ready(answer) = poll!(&mut *pending) {
            panic!("unexpected response, {}: {}", answer.status, answer.text());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Returns the response of a request that must finish soon, regardless of other clients.
async fn response_in_time(pending: PendingResponse<'_>) -> Answer {
    tokio::time::timeout(Duration::from_secs(60), pending).await.expect("failed to get a response in time")
}

async fn assert_served(pending: PendingResponse<'_>) -> Answer {
    let answer = response_in_time(pending).await;
    assert_eq!((answer.status, answer.whole), (200, true), "{}", String::from_utf8_lossy(&answer.body));
    answer
}

async fn wait_until_idle(service: &TestService) {
    while !service.is_idle() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Configures the service so that every query is heavy and four heavy queries run at the same time. Anonymous clients
/// can use three of these permits.
fn four_heavy(config: &mut Config) {
    config.query.heavy_bytes = 1;
    config.query.heavy_queries = 4;
    config.query.heavy_queue = 4;
    config.query.diffs = 2;
    config.query.timeout_s = 300;
}

const NUMBERS: &str = "[{\"n\":1},{\"n\":2},{\"n\":3}]";

/// Returns the URI of a read that is identical to no other read (no single flight).
fn unique_read(number: usize) -> String {
    format!("/api/1/numbers/v1/?filter=n:{number}")
}

/// Returns keywords without a match. The search takes so long that no query finishes between two polls of a request.
fn unmatched_keywords() -> String {
    (0..1_000).map(|number| format!("zq{number}x")).collect::<Vec<_>>().join(",")
}

/// Returns the URI of a slow read that is identical to no other read.
fn slow_read(number: usize) -> String {
    format!("/api/2/long/v1/?keywords={}&offset={number}", unmatched_keywords())
}

/// Creates a dataset that is fast to read and one that is slow to read.
async fn two_datasets(service: &TestService) {
    service.import("Numbers", NUMBERS).await;
    service.import("Long", &long_entities()).await;
}

fn refused_by(answer: &Answer, what: &str) {
    answer.is_error(503);
    let expected = format!("Too many concurrent {what}, from this client or in total.");
    assert!(answer.text().starts_with(&expected), "{}", answer.text());
    assert!(answer.text().contains("Try again in 5 s"), "{}", answer.text());
}

#[tokio::test]
async fn heavy_queries_of_one_network_leave_permits() {
    let service = TestService::configured(four_heavy).await;
    two_datasets(&service).await;
    let private = service.try_import("Mine", true, NUMBERS.as_bytes()).await.expect("failed to import");
    let key = private.private_key.expect("a key").expose().to_owned();
    let running = || service.services.current_load().heavy_running;
    let waiting = || service.services.current_load().heavy_waiting;

    let first = poll_until(read(&service, &slow_read(0), HOSTILE), || running() == 1).await;
    // Further queries of the same network wait, and the service rejects those that exceed the queue.
    let mut more = Vec::new();
    for number in 1..=4 {
        more.push(poll_until(read(&service, &slow_read(number), HOSTILE), || waiting() == number).await);
    }
    refused_by(&response_in_time(read(&service, &slow_read(5), HOSTILE)).await, "heavy queries");
    assert_eq!(running(), 1);
    assert_served(read(&service, &unique_read(6), HONEST)).await;
    assert_served(with_token(&service, "/api/3/mine/v1/", &key)).await;

    // Several hostile networks together can use the share of anonymous clients, but not the share of users.
    let second = poll_until(read(&service, &slow_read(7), "192.0.2.67"), || running() == 2).await;
    let third = poll_until(read(&service, &slow_read(8), "192.0.2.68"), || running() == 3).await;
    let mut late = read(&service, &unique_read(9), HONEST);
    assert_pending(&mut late).await;
    for _ in 0..3 {
        assert_served(with_token(&service, "/api/3/mine/v1/", &key)).await;
    }
    // The honest network is next, although the hostile network has waited for longer.
    drop(third);
    assert_served(late).await;
    drop((first, second, more));
    wait_until_idle(&service).await;
}

#[tokio::test]
async fn medium_queries_of_one_network_leave_permits() {
    let service = TestService::configured(|config| {
        let query = &mut config.query;
        (query.medium_bytes, query.medium_queries, query.light_queue, query.timeout_s) = (1, 4, 4, 300);
    })
    .await;
    two_datasets(&service).await;
    let running = || service.services.current_load().medium_running;

    let first = poll_until(read(&service, &slow_read(0), HOSTILE), || running() == 1).await;
    let mut more = Vec::new();
    for number in 1..=4 {
        let mut waits = read(&service, &slow_read(number), HOSTILE);
        assert_pending(&mut waits).await;
        more.push(waits);
    }
    refused_by(&response_in_time(read(&service, &slow_read(5), HOSTILE)).await, "medium queries");
    assert_eq!((running(), service.services.current_load().heavy_running), (1, 0));
    assert_served(read(&service, &unique_read(6), HONEST)).await;
    // Light queries of any client do not wait for heavy queries.
    assert_served(read(&service, "/api/1/numbers/v1/?offset=1", HOSTILE)).await;
    drop((first, more));
    wait_until_idle(&service).await;
}

#[tokio::test]
async fn refusal_is_not_shared_with_identical_query() {
    let service = TestService::configured(|config| {
        four_heavy(config);
        config.query.heavy_wait_s = 1;
    })
    .await;
    two_datasets(&service).await;
    let load = || service.services.current_load();
    let _first = poll_until(read(&service, &slow_read(0), HOSTILE), || load().heavy_running == 1).await;
    let same = poll_until(read(&service, &unique_read(1), HOSTILE), || load().heavy_waiting == 1).await;
    assert_served(read(&service, &unique_read(1), HONEST)).await;
    refused_by(&response_in_time(same).await, "heavy queries");
}

#[tokio::test]
async fn immediate_disconnects_leave_no_work() {
    let service = TestService::configured(four_heavy).await;
    service.import("Numbers", NUMBERS).await;
    for round in 0..50 {
        let mut abandoned_read = read(&service, &unique_read(round), HOSTILE);
        let _ = poll!(&mut abandoned_read);
        drop(abandoned_read);
        let export = format!("/api/1/numbers/v1/?format=parquet&filter=n:{round}");
        let mut abandoned_read = read(&service, &export, HOSTILE);
        let _ = poll!(&mut abandoned_read);
    }
    assert_served(read(&service, &unique_read(0), HONEST)).await;
    wait_until_idle(&service).await;
}

#[tokio::test]
async fn light_queries_of_one_client_leave_permits() {
    let configure = |config: &mut Config| {
        (config.query.light_queries, config.query.timeout_s) = (4, 300);
        // All queries are light.
        (config.query.medium_bytes, config.query.heavy_bytes) = (1 << 40, 1 << 40);
    };
    let owned = Owned::configured(configure, None).await;
    two_datasets(&owned.service).await;
    let (user, other) = add_user(&owned.service, "eve@strata.test", UserPlan::Free).await;
    let hostile = Owned { service: owned.service, user, token: other.clone(), _server: None };
    let service = &hostile.service;
    let hers = hostile.dataset("Hers", json!({}), &[&json_array(&long_entities())]).await;
    let running = || service.services.current_load().light_running;
    let profile = |token: &str| with_token(service, "/dataset/profile?dataset_id=1", token);
    // A user can use half of the permits that others leave free.
    let one = poll_until(explain(service, &hostile.user, hers), || running() == 1).await;
    let two = poll_until(explain(service, &hostile.user, hers), || running() == 2).await;
    let mut three = profile(&other);
    assert_pending(&mut three).await;
    let mut four = tool(service, "read", &json!({"dataset_id": 2}), &other);
    assert_pending(&mut four).await;
    assert_served(profile(&owned.token)).await;
    assert_served(read(service, &unique_read(1), HONEST)).await;
    let mut reads = vec![poll_until(read(service, &slow_read(2), HOSTILE), || running() == 3).await];
    let mut stuck = read(service, &slow_read(3), HOSTILE);
    assert_pending(&mut stuck).await;
    reads.push(stuck);
    assert_served(read(service, &unique_read(4), HONEST)).await;
    assert_served(tool(service, "read", &json!({"dataset_id": 1}), &owned.token)).await;
    drop((one, two, three, four, reads));
    wait_until_idle(service).await;
}

#[tokio::test]
async fn explains_and_tools_of_one_user_leave_permits() {
    let owned = Owned::configured(four_heavy, None).await;
    let own = owned.dataset("Mine", json!({}), &[NUMBERS]).await;
    let token = owned.token.clone();
    let (user, other) = add_user(&owned.service, "eve@strata.test", UserPlan::Free).await;
    let hostile = Owned { service: owned.service, user, token: other.clone(), _server: None };
    let hers = hostile.dataset("Long", json!({}), &[&json_array(&long_entities())]).await;
    let service = &hostile.service;
    let running = || service.services.current_load().heavy_running;

    // Explanations and tool calls count toward the same user.
    let one = poll_until(explain(service, &hostile.user, hers), || running() == 1).await;
    let two = poll_until(explain(service, &hostile.user, hers), || running() == 2).await;
    let mut explained = with_token(service, &format!("/dataset/explain?dataset_id={hers}&keywords=zq"), &other);
    assert_pending(&mut explained).await;
    let mut three = tool(service, "read", &json!({"dataset_id": hers, "keywords": ["zq"]}), &other);
    assert_pending(&mut three).await;
    let target = format!("/dataset/explain?dataset_id={own}&filter=n:1");
    assert_served(with_token(service, &target, &token)).await;
    let honest = assert_served(tool(service, "read", &json!({"dataset_id": own}), &token)).await;
    assert!(!honest.text().contains("\"isError\":true"), "{}", honest.text());
    assert_served(tool(service, "explain", &json!({"dataset_id": own}), &token)).await;
    drop((one, two, explained, three));
    wait_until_idle(service).await;
}

#[tokio::test]
async fn refusals_state_when_to_retry() {
    let owned = Owned::configured(
        |config| {
            four_heavy(config);
            config.query.heavy_queue = 0;
        },
        None,
    )
    .await;
    let service = &owned.service;
    let own = owned.dataset("Mine", json!({}), &[&json_array(&long_entities())]).await;
    let target = format!("/dataset/explain?dataset_id={own}&keywords={}", unmatched_keywords());
    let running = || service.services.current_load().heavy_running;
    let _one = poll_until(explain(service, &owned.user, own), || running() == 1).await;
    let _two = poll_until(explain(service, &owned.user, own), || running() == 2).await;
    let refused = response_in_time(with_token(service, &target, &owned.token)).await;
    refused_by(&refused, "heavy queries");
    assert_eq!(refused.header("retry-after"), Some("5"));
    let _three = poll_until(
        read(service, &format!("/api/1/mine/v1/?keywords={}&offset=1", unmatched_keywords()), HOSTILE),
        || running() == 3,
    )
    .await;
    let refused = response_in_time(read(
        service,
        &format!("/api/1/mine/v1/?keywords={}&offset=2", unmatched_keywords()),
        HOSTILE,
    ))
    .await;
    refused_by(&refused, "heavy queries");
    // For reads, the text states when to retry, not a header (docs/reference/errors.md).
    assert_eq!(refused.header("retry-after"), None);
}

#[tokio::test]
async fn diffs_of_one_user_leave_permits() {
    let owned = Owned::configured(four_heavy, None).await;
    let service = &owned.service;
    let versions = ["[{\"a\":1,\"b\":1}]", "[{\"a\":1,\"b\":2}]", "[{\"a\":1,\"b\":3}]"];
    let own = owned.dataset("Mine", json!({}), &versions).await;
    let (user, token) = add_user(service, "eve@strata.test", UserPlan::Free).await;
    let hostile = Owned { service: owned.service, user, token, _server: None };
    // Two lists in which any two entities are candidates for a match, so that the diff takes long.
    let crowd = |salt: u64| {
        let entity = |number: u64| json!({"id": number * 2 + salt, "salt": salt, "same": 1}).to_string();
        format!("[{}]", (0..3_000).map(entity).collect::<Vec<_>>().join(","))
    };
    let others = hostile.dataset("Hers", json!({}), &[&crowd(0), &crowd(1)]).await;
    let service = &hostile.service;
    let running = || service.services.current_load().diffs_running;
    let diff = |id: u64, v1: u64, v2: u64, token: &str| {
        with_token(service, &format!("/dataset/diff?dataset_id={id}&v1={v1}&v2={v2}"), token)
    };
    let one = poll_until(diff(others, 1, 2, &hostile.token), || running() == 1).await;
    let mut two = diff(others, 2, 1, &hostile.token);
    assert_pending(&mut two).await;
    for v2 in [2, 3] {
        assert_served(diff(own, 1, v2, &owned.token)).await;
    }
    assert_served(with_token(service, &format!("/dataset/explain?dataset_id={own}"), &owned.token)).await;
    assert_served(read(service, "/api/1/mine/v1/", HONEST)).await;
    drop((one, two));
    wait_until_idle(service).await;
}

/// Returns the response without reading its body.
async fn get_unread(service: &TestService, uri: &str, peer: &str) -> Response<Body> {
    let pending = service.respond(get(uri, peer, &[]));
    tokio::time::timeout(Duration::from_secs(60), pending).await.expect("failed to get a response")
}

/// Returns JSON lines as a JSON array.
fn json_array(lines: &str) -> String {
    format!("[{}]", lines.lines().collect::<Vec<_>>().join(","))
}

/// Returns an array of about 4 MB.
fn long_entities() -> String {
    let filler = "the quick brown fox jumps over the lazy dog ".repeat(13);
    (0..7_000).map(|number| format!("{{\"n\":{number},\"text\":\"{filler}{number}\"}}\n")).collect()
}

#[tokio::test]
async fn slow_readers_leave_stream_permits() {
    let service = TestService::configured(|config| {
        config.query.streams = 4;
        config.query.heavy_queue = 0;
    })
    .await;
    service.import("Long", &long_entities()).await;
    let private = service.try_import("Mine", true, long_entities().as_bytes()).await.expect("failed to import");
    let key = private.private_key.expect("a key").expose().to_owned();
    const EXPORT: &str = "/api/1/long/v1/?format=jsonl";
    let mut slow = vec![get_unread(&service, EXPORT, HOSTILE).await];
    assert_eq!(slow[0].status(), 200);
    refused_by(&response_in_time(read(&service, EXPORT, HOSTILE)).await, "streamed responses");
    assert_served(read(&service, EXPORT, HONEST)).await;
    for other in ["192.0.2.67", "192.0.2.68"] {
        slow.push(get_unread(&service, EXPORT, other).await);
    }
    assert!(slow.iter().all(|response| response.status() == 200));
    refused_by(&response_in_time(read(&service, EXPORT, HONEST)).await, "streamed responses");
    assert_served(with_token(&service, "/api/2/mine/v1/?format=jsonl", &key)).await;
    // A response that is not streamed needs no stream permit.
    assert_served(read(&service, "/api/1/long/v1/?limit=3", HONEST)).await;
    drop(slow);
    wait_until_idle(&service).await;
    assert_served(read(&service, EXPORT, HONEST)).await;
}

/// Regression test: queries that waited for a stream permit held their query permits, so that no other dataset could be
/// read.
#[tokio::test]
async fn stream_waiter_holds_no_query_permit() {
    let service = TestService::configured(|config| {
        (config.query.streams, config.query.light_queries, config.query.medium_queries) = (1, 1, 1);
        config.query.heavy_bytes = u64::MAX;
        config.query.heavy_wait_s = 60;
    })
    .await;
    two_datasets(&service).await;
    let stream = get_unread(&service, "/api/2/long/v1/?format=jsonl", HOSTILE).await;
    assert_eq!(stream.status(), 200);
    for format in ["jsonl", "xml", "csv"] {
        let waiting = read(&service, &format!("/api/2/long/v1/?format={format}&offset=1"), HOSTILE);
        let waits = || value(&rendered(), "strata_gate_waiting{gate=\"stream\"}").is_some_and(|waiting| waiting > 0.0);
        let mut waiting = poll_until(waiting, || {
            service.services.update_metrics();
            waits()
        })
        .await;
        assert_served(read(&service, &unique_read(1), HONEST)).await;
        assert_pending(&mut waiting).await;
    }
    drop(stream);
    wait_until_idle(&service).await;
}

/// Regression test: a profile that was larger than one client's share of `query.stream_bytes` could not be read.
#[tokio::test]
async fn response_over_memory_share_runs_alone() {
    let service = TestService::configured(|config| {
        config.query.stream_bytes = 1 << 20;
        (config.fair.share_percent, config.fair.user_percent) = (1, 90);
    })
    .await;
    let fields: Vec<String> =
        (0..3_000).map(|field| format!("\"field_number_{field}\":\"{}\"", "x".repeat(40))).collect();
    service.import("Wide", &format!("[{{{}}}]", fields.join(","))).await;
    for uri in ["/dataset/profile?dataset_id=1", "/ui/1/wide/v1?view=json", "/openapi.json"] {
        let answer = assert_served(read(&service, uri, HONEST)).await;
        assert!(answer.body.len() > 1 << 17, "{uri}: {} bytes", answer.body.len());
    }
}

#[tokio::test]
async fn slow_sample_readers_leave_export_memory() {
    let service = TestService::configured(|config| {
        config.query.memory_bytes = Some(400 << 20);
        config.query.heavy_wait_s = 1;
    })
    .await;
    service.import("Long", &long_entities()).await;
    let private = service.try_import("Mine", true, long_entities().as_bytes()).await.expect("failed to import");
    let key = private.private_key.expect("a key").expose().to_owned();
    const SAMPLE: &str = "/api/1/long/v1/?format=parquet&sample=6000";
    let mut slow = Vec::new();
    for _ in 0..12 {
        slow.push(tokio::time::timeout(Duration::from_secs(60), get_unread(&service, SAMPLE, HOSTILE)).await);
    }
    assert!(slow.iter().flatten().any(|response| response.status() == 200));
    for uri in [SAMPLE, "/api/1/long/v1/?format=parquet", "/api/1/long/v1/?format=parquet&offset=1"] {
        let export = assert_served(read(&service, uri, HONEST)).await;
        assert!(export.body.starts_with(b"PAR1") && export.body.ends_with(b"PAR1"));
    }
    assert_served(with_token(&service, "/api/2/mine/v1/?format=parquet", &key)).await;
    drop(slow);
    wait_until_idle(&service).await;
}

/// Returns the export files of a service.
fn export_files(service: &TestService) -> BTreeSet<PathBuf> {
    let entries = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let own = entries(service.directory().join("exports")).filter(|path| path.is_dir());
    own.flat_map(entries).filter(|path| path.extension().is_some_and(|extension| extension == "parquet")).collect()
}

#[tokio::test]
async fn exports_of_one_client_evict_no_other_exports() {
    let service = TestService::configured(|config| config.cache.export_bytes = 20_000).await;
    service.import("Numbers", NUMBERS).await;
    let export = |number: usize| format!("/api/1/numbers/v1/?format=parquet&filter=n:{number}");
    let honest = assert_served(read(&service, &export(1_000), HONEST)).await;
    let its_file = export_files(&service);
    assert_eq!(its_file.len(), 1);
    let size = honest.body.len();
    assert!(size * 8 < 20_000, "{size}");
    for number in 0..100 {
        assert_served(read(&service, &export(number), HOSTILE)).await;
    }
    let files = export_files(&service);
    assert!(files.is_superset(&its_file), "the honest client's export was evicted");
    assert!((4..=20_000 / size).contains(&files.len()), "{} files of {size} bytes", files.len());
    let part = response_in_time(Box::pin(service.call(get(&export(1_000), HONEST, &[("range", "bytes=0-3")])))).await;
    assert_eq!((part.status, &part.body[..]), (206, &b"PAR1"[..]));
}

#[tokio::test]
async fn admission_metrics_count_by_outcome() {
    let service = TestService::configured(four_heavy).await;
    two_datasets(&service).await;
    let count = |outcome: &str| {
        let series = format!("strata_gate_total{{gate=\"heavy\",outcome=\"{outcome}\"}}");
        value(&rendered(), &series).unwrap_or_default()
    };
    let before = ["entered", "full", "left"].map(count);
    let running = || service.services.current_load().heavy_running;
    let held = poll_until(read(&service, &slow_read(0), HOSTILE), || running() == 1).await;
    let mut waiting = Vec::new();
    for number in 1..=4 {
        waiting.push(
            poll_until(read(&service, &slow_read(number), HOSTILE), || {
                service.services.current_load().heavy_waiting == number
            })
            .await,
        );
    }
    refused_by(&response_in_time(read(&service, &slow_read(5), HOSTILE)).await, "heavy queries");
    let text = service.get("/metrics").await;
    // Other tests of this process change these metrics, too. So only their existence is checked.
    for series in ["strata_gate_units", "strata_gate_held_units", "strata_gate_waiting"] {
        for gate in ["light", "medium", "heavy", "diff", "stream", "parquet", "unit", "ahead"] {
            assert!(value(text.text(), &format!("{series}{{gate=\"{gate}\"}}")).is_some(), "{series} of {gate}");
        }
    }
    drop((held, waiting));
    let after = ["entered", "full", "left"].map(count);
    for (before, after) in before.iter().zip(after) {
        assert!(after > *before, "{before} and {after}");
    }
}
