//! Heavy work of one neighbour beside honest work of another, at every gate: permits, places, memory and disk are
//! shared.
//!
//! A request that is not polled any more holds what it has, as one that works for long does: so it does not matter how
//! fast the machine is.

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
use strata_types::request::ReadRequest;
use strata_types::user::{Plan, User};
use strata_types::version::VersionSelector;

const HOSTILE: &str = "192.0.2.66";
const HONEST: &str = "198.51.100.7";

/// An answer that is on its way.
type Asking<'a> = Pin<Box<dyn Future<Output = Answer> + 'a>>;

fn get(uri: &str, peer: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let peer = SocketAddr::new(peer.parse().expect("an address"), 4_711);
    let request = headers.iter().fold(Request::get(uri), |request, (name, value)| request.header(*name, *value));
    request.extension(ConnectInfo(peer)).body(Body::empty()).expect("a request")
}

/// A read by an anonymous client.
fn read<'a>(service: &'a TestService, uri: &str, peer: &str) -> Asking<'a> {
    Box::pin(service.call(get(uri, peer, &[])))
}

/// A call with a token, or a read with a key.
fn with_token<'a>(service: &'a TestService, uri: &str, token: &str) -> Asking<'a> {
    Box::pin(service.call(get(uri, HONEST, &[("authorization", &format!("Bearer {token}"))])))
}

/// An explanation of a query of many keywords, which nothing advances unless it is polled. Over HTTP it has a thread.
fn explain<'a>(service: &'a TestService, user: &'a User, dataset: u64) -> Asking<'a> {
    Box::pin(async move {
        let keywords = keywords().split(',').map(str::to_owned).collect();
        let request = ReadRequest { keywords, ..ReadRequest::default() };
        let dataset = DatasetId::new(dataset);
        let explained =
            service.services.reads.explain(Some(user), dataset, VersionSelector::Active, request, Vec::new());
        explained.await.expect("an explanation");
        service.get("/healthz").await
    })
}

/// A call of a tool.
fn tool<'a>(service: &'a TestService, name: &str, arguments: &Value, token: &str) -> Asking<'a> {
    let params = json!({"name": name, "arguments": arguments});
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).to_string();
    let request = Request::post("/mcp").header("content-type", "application/json").header("host", "127.0.0.1:8080");
    let request = request.header("accept", "application/json, text/event-stream");
    let request = request.header("authorization", format!("Bearer {token}"));
    Box::pin(service.call(request.body(Body::from(body)).expect("a request")))
}

/// Goes on with a request until something is so, and no further.
async fn until<'a>(mut asking: Asking<'a>, is_so: impl Fn() -> bool) -> Asking<'a> {
    while !is_so() {
        if let Poll::Ready(answer) = poll!(&mut asking) {
            panic!("it has an answer already, {}: {}", answer.status, answer.text());
        }
        if !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    asking
}

/// Goes on with a request for a while, in which it should get nowhere.
async fn is_stuck(asking: &mut Asking<'_>) {
    for _ in 0..30 {
        if let Poll::Ready(answer) = poll!(&mut *asking) {
            panic!("it has an answer, {}: {}", answer.status, answer.text());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// What must come before long, whatever others do.
async fn soon(asking: Asking<'_>) -> Answer {
    tokio::time::timeout(Duration::from_secs(60), asking).await.expect("an answer, whatever the neighbour does")
}

async fn served(asking: Asking<'_>) -> Answer {
    let answer = soon(asking).await;
    assert_eq!((answer.status, answer.whole), (200, true), "{}", String::from_utf8_lossy(&answer.body));
    answer
}

async fn is_idle(service: &TestService) {
    while !service.is_idle() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Every query is heavy, and four run at the same time: anonymous clients have three of them.
fn four_heavy(config: &mut Config) {
    config.query.heavy_bytes = 1;
    config.query.heavy_queries = 4;
    config.query.heavy_queue = 4;
    config.query.diffs = 2;
    config.query.timeout_s = 300;
}

const NUMBERS: &str = "[{\"n\":1},{\"n\":2},{\"n\":3}]";

/// A request that no other one shares.
fn page(number: usize) -> String {
    format!("/api/1/numbers/v1/?filter=n:{number}")
}

/// Keywords that are looked for in vain, for so long that nothing is found out between two steps of a request.
fn keywords() -> String {
    (0..1_000).map(|number| format!("zq{number}x")).collect::<Vec<_>>().join(",")
}

/// A request that takes long, and that no other one shares.
fn slow(number: usize) -> String {
    format!("/api/2/long/v1/?keywords={}&offset={number}", keywords())
}

/// A dataset that is read fast, and one that is not.
async fn two_datasets(service: &TestService) {
    service.import("Numbers", NUMBERS).await;
    service.import("Long", &long()).await;
}

fn refused_by(answer: &Answer, what: &str) {
    answer.is_error(503);
    let expected = format!("Too many concurrent {what}, from this client or in total.");
    assert!(answer.text().starts_with(&expected), "{}", answer.text());
    assert!(answer.text().contains("Try again in 5 s"), "{}", answer.text());
}

#[tokio::test]
async fn heavy_queries_of_one_network_leave_room_for_others_and_users_have_their_own() {
    let service = TestService::configured(four_heavy).await;
    two_datasets(&service).await;
    let private = service.try_import("Mine", true, NUMBERS.as_bytes()).await.expect("imported");
    let key = private.private_key.expect("a key").expose().to_owned();
    let running = || service.services.load().heavy_running;
    let waiting = || service.services.load().heavy_waiting;

    let first = until(read(&service, &slow(0), HOSTILE), || running() == 1).await;
    // What it asks for besides has to wait, and what is too much for the queue is refused.
    let mut more = Vec::new();
    for number in 1..=4 {
        more.push(until(read(&service, &slow(number), HOSTILE), || waiting() == number).await);
    }
    refused_by(&soon(read(&service, &slow(5), HOSTILE)).await, "heavy queries");
    assert_eq!(running(), 1);
    served(read(&service, &page(6), HONEST)).await;
    served(with_token(&service, "/api/3/mine/v1/", &key)).await;

    // Many hostile networks have what anonymous clients may have, and users still theirs.
    let second = until(read(&service, &slow(7), "192.0.2.67"), || running() == 2).await;
    let third = until(read(&service, &slow(8), "192.0.2.68"), || running() == 3).await;
    let mut late = read(&service, &page(9), HONEST);
    is_stuck(&mut late).await;
    for _ in 0..3 {
        served(with_token(&service, "/api/3/mine/v1/", &key)).await;
    }
    // It is the next one's turn, although the hostile one has waited for longer.
    drop(third);
    served(late).await;
    drop((first, second, more));
    is_idle(&service).await;
}

#[tokio::test]
async fn medium_queries_of_one_network_leave_room_for_others_and_keep_no_pages_waiting() {
    let service = TestService::configured(|config| {
        let query = &mut config.query;
        (query.medium_bytes, query.medium_queries, query.light_queue, query.timeout_s) = (1, 4, 4, 300);
    })
    .await;
    two_datasets(&service).await;
    let running = || service.services.load().medium_running;

    let first = until(read(&service, &slow(0), HOSTILE), || running() == 1).await;
    let mut more = Vec::new();
    for number in 1..=4 {
        let mut waits = read(&service, &slow(number), HOSTILE);
        is_stuck(&mut waits).await;
        more.push(waits);
    }
    refused_by(&soon(read(&service, &slow(5), HOSTILE)).await, "medium queries");
    assert_eq!((running(), service.services.load().heavy_running), (1, 0));
    served(read(&service, &page(6), HONEST)).await;
    // What is light waits for none of them, whoever asks.
    served(read(&service, "/api/1/numbers/v1/?offset=1", HOSTILE)).await;
    drop((first, more));
    is_idle(&service).await;
}

#[tokio::test]
async fn one_that_asks_for_the_same_as_a_hostile_neighbour_does_not_share_its_refusal() {
    let service = TestService::configured(|config| {
        four_heavy(config);
        config.query.heavy_wait_s = 1;
    })
    .await;
    two_datasets(&service).await;
    let load = || service.services.load();
    let _first = until(read(&service, &slow(0), HOSTILE), || load().heavy_running == 1).await;
    let same = until(read(&service, &page(1), HOSTILE), || load().heavy_waiting == 1).await;
    served(read(&service, &page(1), HONEST)).await;
    refused_by(&soon(same).await, "heavy queries");
}

#[tokio::test]
async fn clients_that_leave_at_once_leave_no_work_behind() {
    let service = TestService::configured(four_heavy).await;
    service.import("Numbers", NUMBERS).await;
    for round in 0..50 {
        let mut leaving = read(&service, &page(round), HOSTILE);
        let _ = poll!(&mut leaving);
        drop(leaving);
        let export = format!("/api/1/numbers/v1/?format=parquet&filter=n:{round}");
        let mut leaving = read(&service, &export, HOSTILE);
        let _ = poll!(&mut leaving);
    }
    served(read(&service, &page(0), HONEST)).await;
    is_idle(&service).await;
}

#[tokio::test]
async fn light_queries_and_profiles_of_one_neighbour_leave_room_for_others() {
    let owned = Owned::configured(|config| (config.query.light_queries, config.query.timeout_s) = (4, 300), None).await;
    two_datasets(&owned.service).await;
    let (user, other) = add_user(&owned.service, "eve@strata.test", Plan::Free).await;
    let hostile = Owned { service: owned.service, user, token: other.clone(), _server: None };
    let service = &hostile.service;
    let hers = hostile.dataset("Hers", json!({}), &[&array(&long())]).await;
    let running = || service.services.load().light_running;
    let profile = |token: &str| with_token(service, "/dataset/profile?dataset_id=1", token);
    // A user has half of what others leave.
    let one = until(explain(service, &hostile.user, hers), || running() == 1).await;
    let two = until(explain(service, &hostile.user, hers), || running() == 2).await;
    let mut three = profile(&other);
    is_stuck(&mut three).await;
    let mut four = tool(service, "read", &json!({"dataset_id": 2}), &other);
    is_stuck(&mut four).await;
    served(profile(&owned.token)).await;
    served(read(service, &page(1), HONEST)).await;
    let mut reads = vec![until(read(service, &slow(2), HOSTILE), || running() == 3).await];
    let mut stuck = read(service, &slow(3), HOSTILE);
    is_stuck(&mut stuck).await;
    reads.push(stuck);
    served(read(service, &page(4), HONEST)).await;
    served(tool(service, "read", &json!({"dataset_id": 1}), &owned.token)).await;
    drop((one, two, three, four, reads));
    is_idle(service).await;
}

#[tokio::test]
async fn explains_and_tools_of_one_user_leave_room_for_others() {
    let owned = Owned::configured(four_heavy, None).await;
    let own = owned.dataset("Mine", json!({}), &[NUMBERS]).await;
    let token = owned.token.clone();
    let (user, other) = add_user(&owned.service, "eve@strata.test", Plan::Free).await;
    let hostile = Owned { service: owned.service, user, token: other.clone(), _server: None };
    let hers = hostile.dataset("Long", json!({}), &[&array(&long())]).await;
    let service = &hostile.service;
    let running = || service.services.load().heavy_running;

    // Explanations and tools count for the same user.
    let one = until(explain(service, &hostile.user, hers), || running() == 1).await;
    let two = until(explain(service, &hostile.user, hers), || running() == 2).await;
    let mut explained = with_token(service, &format!("/dataset/explain?dataset_id={hers}&keywords=zq"), &other);
    is_stuck(&mut explained).await;
    let mut three = tool(service, "read", &json!({"dataset_id": hers, "keywords": ["zq"]}), &other);
    is_stuck(&mut three).await;
    let target = format!("/dataset/explain?dataset_id={own}&filter=n:1");
    served(with_token(service, &target, &token)).await;
    let honest = served(tool(service, "read", &json!({"dataset_id": own}), &token)).await;
    assert!(!honest.text().contains("\"isError\":true"), "{}", honest.text());
    served(tool(service, "explain", &json!({"dataset_id": own}), &token)).await;
    drop((one, two, explained, three));
    is_idle(service).await;
}

#[tokio::test]
async fn a_refused_call_of_management_says_when_to_come_back_and_a_read_says_it_in_words() {
    let owned = Owned::configured(
        |config| {
            four_heavy(config);
            config.query.heavy_queue = 0;
        },
        None,
    )
    .await;
    let service = &owned.service;
    let own = owned.dataset("Mine", json!({}), &[&array(&long())]).await;
    let target = format!("/dataset/explain?dataset_id={own}&keywords={}", keywords());
    let running = || service.services.load().heavy_running;
    let _one = until(explain(service, &owned.user, own), || running() == 1).await;
    let _two = until(explain(service, &owned.user, own), || running() == 2).await;
    let refused = soon(with_token(service, &target, &owned.token)).await;
    refused_by(&refused, "heavy queries");
    assert_eq!(refused.header("retry-after"), Some("5"));
    let _three =
        until(read(service, &format!("/api/1/mine/v1/?keywords={}&offset=1", keywords()), HOSTILE), || running() == 3)
            .await;
    let refused = soon(read(service, &format!("/api/1/mine/v1/?keywords={}&offset=2", keywords()), HOSTILE)).await;
    refused_by(&refused, "heavy queries");
    // The text says it (docs/reference/errors.md, Errors).
    assert_eq!(refused.header("retry-after"), None);
}

#[tokio::test]
async fn comparisons_of_one_user_leave_room_for_others_and_for_heavy_queries() {
    let owned = Owned::configured(four_heavy, None).await;
    let service = &owned.service;
    let versions = ["[{\"a\":1,\"b\":1}]", "[{\"a\":1,\"b\":2}]", "[{\"a\":1,\"b\":3}]"];
    let own = owned.dataset("Mine", json!({}), &versions).await;
    let (user, token) = add_user(service, "eve@strata.test", Plan::Free).await;
    let hostile = Owned { service: owned.service, user, token, _server: None };
    // Two lists of which all pairs are candidates: comparing them takes long.
    let crowd = |salt: u64| {
        let entity = |number: u64| json!({"id": number * 2 + salt, "salt": salt, "same": 1}).to_string();
        format!("[{}]", (0..3_000).map(entity).collect::<Vec<_>>().join(","))
    };
    let others = hostile.dataset("Hers", json!({}), &[&crowd(0), &crowd(1)]).await;
    let (service, running) = (&hostile.service, || hostile.service.services.load().diffs_running);
    let diff = |id: u64, v1: u64, v2: u64, token: &str| {
        with_token(service, &format!("/dataset/diff?dataset_id={id}&v1={v1}&v2={v2}"), token)
    };
    let one = until(diff(others, 1, 2, &hostile.token), || running() == 1).await;
    let mut two = diff(others, 2, 1, &hostile.token);
    is_stuck(&mut two).await;
    for v2 in [2, 3] {
        served(diff(own, 1, v2, &owned.token)).await;
    }
    served(with_token(service, &format!("/dataset/explain?dataset_id={own}"), &owned.token)).await;
    served(read(service, "/api/1/mine/v1/", HONEST)).await;
    drop((one, two));
    is_idle(service).await;
}

/// The answer, of whose body nothing is read.
async fn unread(service: &TestService, uri: &str, peer: &str) -> Response<Body> {
    let asking = service.respond(get(uri, peer, &[]));
    tokio::time::timeout(Duration::from_secs(60), asking).await.expect("an answer")
}

/// Lines as an array.
fn array(lines: &str) -> String {
    format!("[{}]", lines.lines().collect::<Vec<_>>().join(","))
}

/// Some 4 MB.
fn long() -> String {
    let filler = "the quick brown fox jumps over the lazy dog ".repeat(13);
    (0..7_000).map(|number| format!("{{\"n\":{number},\"text\":\"{filler}{number}\"}}\n")).collect()
}

#[tokio::test]
async fn slow_readers_of_one_network_leave_places_for_other_streams() {
    let service = TestService::configured(|config| {
        config.query.streams = 4;
        config.query.heavy_queue = 0;
    })
    .await;
    service.import("Long", &long()).await;
    let private = service.try_import("Mine", true, long().as_bytes()).await.expect("imported");
    let key = private.private_key.expect("a key").expose().to_owned();
    const EXPORT: &str = "/api/1/long/v1/?format=jsonl";
    let mut slow = vec![unread(&service, EXPORT, HOSTILE).await];
    assert_eq!(slow[0].status(), 200);
    refused_by(&soon(read(&service, EXPORT, HOSTILE)).await, "streamed responses");
    served(read(&service, EXPORT, HONEST)).await;
    for other in ["192.0.2.67", "192.0.2.68"] {
        slow.push(unread(&service, EXPORT, other).await);
    }
    assert!(slow.iter().all(|response| response.status() == 200));
    refused_by(&soon(read(&service, EXPORT, HONEST)).await, "streamed responses");
    served(with_token(&service, "/api/2/mine/v1/?format=jsonl", &key)).await;
    // What is no stream needs no place.
    served(read(&service, "/api/1/long/v1/?limit=3", HONEST)).await;
    drop(slow);
    is_idle(&service).await;
    served(read(&service, EXPORT, HONEST)).await;
}

/// Requests that waited for a place kept the permits of their queries, so that other datasets could not be read.
#[tokio::test]
async fn waiting_for_a_stream_holds_no_permit_of_queries() {
    let service = TestService::configured(|config| {
        (config.query.streams, config.query.light_queries, config.query.medium_queries) = (1, 1, 1);
        config.query.heavy_bytes = u64::MAX;
        config.query.heavy_wait_s = 60;
    })
    .await;
    two_datasets(&service).await;
    let stream = unread(&service, "/api/2/long/v1/?format=jsonl", HOSTILE).await;
    assert_eq!(stream.status(), 200);
    for format in ["jsonl", "xml", "csv"] {
        let waiting = read(&service, &format!("/api/2/long/v1/?format={format}&offset=1"), HOSTILE);
        let waits = || value(&rendered(), "strata_gate_waiting{gate=\"stream\"}").is_some_and(|waiting| waiting > 0.0);
        let mut waiting = until(waiting, || {
            service.services.update_metrics();
            waits()
        })
        .await;
        served(read(&service, &page(1), HONEST)).await;
        is_stuck(&mut waiting).await;
    }
    drop(stream);
    is_idle(&service).await;
}

/// A share of `query.stream_bytes` that was smaller than a profile made it unreadable.
#[tokio::test]
async fn a_response_larger_than_a_share_is_served_alone() {
    let service = TestService::configured(|config| {
        config.query.stream_bytes = 1 << 20;
        (config.fair.share_percent, config.fair.user_percent) = (1, 90);
    })
    .await;
    let fields: Vec<String> =
        (0..3_000).map(|field| format!("\"field_number_{field}\":\"{}\"", "x".repeat(40))).collect();
    service.import("Wide", &format!("[{{{}}}]", fields.join(","))).await;
    for uri in ["/dataset/profile?dataset_id=1", "/ui/1/wide/v1?view=json", "/openapi.json"] {
        let answer = served(read(&service, uri, HONEST)).await;
        assert!(answer.body.len() > 1 << 17, "{uri}: {} bytes", answer.body.len());
    }
}

#[tokio::test]
async fn slow_readers_of_parquet_samples_leave_memory_for_other_exports() {
    let service = TestService::configured(|config| {
        config.query.memory_bytes = Some(400 << 20);
        config.query.heavy_wait_s = 1;
    })
    .await;
    service.import("Long", &long()).await;
    let private = service.try_import("Mine", true, long().as_bytes()).await.expect("imported");
    let key = private.private_key.expect("a key").expose().to_owned();
    const SAMPLE: &str = "/api/1/long/v1/?format=parquet&sample=6000";
    let mut slow = Vec::new();
    for _ in 0..12 {
        slow.push(tokio::time::timeout(Duration::from_secs(60), unread(&service, SAMPLE, HOSTILE)).await);
    }
    assert!(slow.iter().flatten().any(|response| response.status() == 200));
    for uri in [SAMPLE, "/api/1/long/v1/?format=parquet", "/api/1/long/v1/?format=parquet&offset=1"] {
        let export = served(read(&service, uri, HONEST)).await;
        assert!(export.body.starts_with(b"PAR1") && export.body.ends_with(b"PAR1"));
    }
    served(with_token(&service, "/api/2/mine/v1/?format=parquet", &key)).await;
    drop(slow);
    is_idle(&service).await;
}

/// The files of exports.
fn export_files(service: &TestService) -> BTreeSet<PathBuf> {
    let entries = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let own = entries(service.directory().join("exports")).filter(|path| path.is_dir());
    own.flat_map(entries).filter(|path| path.extension().is_some_and(|extension| extension == "parquet")).collect()
}

#[tokio::test]
async fn exports_of_one_client_do_not_push_those_of_others_out_of_the_cache() {
    let service = TestService::configured(|config| config.cache.export_bytes = 20_000).await;
    service.import("Numbers", NUMBERS).await;
    let export = |number: usize| format!("/api/1/numbers/v1/?format=parquet&filter=n:{number}");
    let honest = served(read(&service, &export(1_000), HONEST)).await;
    let its_file = export_files(&service);
    assert_eq!(its_file.len(), 1);
    let size = honest.body.len();
    assert!(size * 8 < 20_000, "{size}");
    for number in 0..100 {
        served(read(&service, &export(number), HOSTILE)).await;
    }
    let files = export_files(&service);
    assert!(files.is_superset(&its_file), "the honest one's export is still there");
    assert!((4..=20_000 / size).contains(&files.len()), "{} files of {size} bytes", files.len());
    let part = soon(Box::pin(service.call(get(&export(1_000), HONEST, &[("range", "bytes=0-3")])))).await;
    assert_eq!((part.status, &part.body[..]), (206, &b"PAR1"[..]));
}

#[tokio::test]
async fn gates_show_in_the_metrics_by_outcome() {
    let service = TestService::configured(four_heavy).await;
    two_datasets(&service).await;
    let count = |outcome: &str| {
        let series = format!("strata_gate_total{{gate=\"heavy\",outcome=\"{outcome}\"}}");
        value(&rendered(), &series).unwrap_or_default()
    };
    let before = ["entered", "full", "left"].map(count);
    let running = || service.services.load().heavy_running;
    let held = until(read(&service, &slow(0), HOSTILE), || running() == 1).await;
    let mut waiting = Vec::new();
    for number in 1..=4 {
        waiting.push(
            until(read(&service, &slow(number), HOSTILE), || service.services.load().heavy_waiting == number).await,
        );
    }
    refused_by(&soon(read(&service, &slow(5), HOSTILE)).await, "heavy queries");
    let text = service.get("/metrics").await;
    // Other tests of this process set these, too: that they are there is what counts.
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
