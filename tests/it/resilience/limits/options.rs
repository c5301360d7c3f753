//! Tests of the configuration options. An option that limits requests must accept the exact value and reject one more.
//! The service must also work with all numeric options at their minimum, and with all at their maximum.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use strata_config::{Config, ConfigOption};
use strata_testing::tests::tests;

use super::{LimitFixture, ORDINARY};

/// Tests an option that is set to the given value.
type OptionCase = for<'w> fn(&'w LimitFixture, u64) -> BoxFuture<'w, ()>;

/// The options that limit one request or one entity: the option, a small value for it, and the test case.
const CASES: &[(&str, u64, OptionCase)] = &[
    ("server.header_bytes", 16 << 10, |fixture, max| header_bytes(fixture, max).boxed()),
    ("limits.entity_bytes", 4 << 10, |fixture, max| entity_bytes(fixture, max).boxed()),
    ("limits.encoded_entity_bytes", 16 << 10, |fixture, max| encoded_entity_bytes(fixture, max).boxed()),
    ("limits.body_bytes", 32 << 10, |fixture, max| body_bytes(fixture, max).boxed()),
    ("limits.columns", 60, |fixture, max| columns(fixture, max).boxed()),
    ("sources.max_bytes", 256 << 10, |fixture, max| source_bytes(fixture, max).boxed()),
    ("plans.scale_active_datasets", 20, |fixture, max| active_datasets(fixture, max).boxed()),
];

/// The options that limit requests but have their test in another module: the option and `module::test`.
const TESTED_ELSEWHERE: &[(&str, &str)] = &[
    ("limits.body_timeout_s", "resilience::limits::options::missing_body_times_out"),
    ("limits.public_per_minute", "http::read_limits::client_over_rate_limit_gets_429_until_window_ends"),
    ("limits.private_per_minute", "http::read_limits::private_bucket_requires_authorization"),
    ("limits.logins_per_minute", "http::management::sessions::logins_are_limited_per_client_and_account"),
    ("limits.account_logins_per_hour", "http::management::sessions::distributed_guessing_does_not_lock_owner_out"),
    ("limits.refresh_streams", "dashboard::refresh::progress_streams_are_limited"),
    ("limits.redis_url", "resilience::shared_limits::processes_share_one_limit_exactly"),
    ("limits.redis_timeout_ms", "resilience::shared_limits::hanging_redis_is_waited_for_once"),
    ("limits.body_min_bytes_per_s", "resilience::hostile_sources::bodies::slow_body_is_rejected"),
    ("limits.body_rate_window_s", "resilience::hostile_sources::bodies::slow_body_is_rejected"),
    ("limits.refused_body_bytes", "resilience::hostile_sources::bodies::refusal_reaches_client_that_sends_body_first"),
    ("limits.refused_body_s", "resilience::hostile_sources::bodies::refusal_reaches_client_that_sends_body_first"),
    ("sources.free_expansion_bytes", "ingest::bombs::compressed_source_expansion_is_limited"),
    ("sources.max_expansion", "ingest::bombs::compressed_source_expansion_is_limited"),
    ("sources.zstd_window_bytes", "ingest::bombs::zstd_window_is_limited"),
    ("sources.max_columns", "ingest::bombs::table_columns_are_limited"),
    ("sources.parquet_memory_bytes", "ingest::parquet_bombs::long_list_row_memory_is_limited"),
    ("sources.spool_bytes", "resilience::hostile_sources::bodies::spool_space_is_limited_per_user_and_in_total"),
    ("sources.user_spool_bytes", "resilience::hostile_sources::bodies::spool_space_is_limited_per_user_and_in_total"),
    ("plans.free_active_datasets", "http::management::datasets::plans_limit_active_datasets"),
    ("plans.pro_active_datasets", "http::management::datasets::plans_limit_active_datasets"),
];

/// Returns whether an option limits one request, one caller, or one entity.
fn limits_requests(option: &ConfigOption) -> bool {
    let sized_name = option.name.ends_with("_bytes") || option.name.starts_with("max_");
    // An amount of disk space that must stay free is not a limit of requests.
    let limits_size = sized_name && !option.name.ends_with("_reserve_bytes");
    matches!(option.section, "limits" | "plans")
        || (limits_size && matches!(option.section, "server" | "sources" | "net" | "webhook"))
}

#[test]
fn every_request_limit_option_has_a_test() {
    for option in Config::options().iter().filter(|option| limits_requests(option)) {
        let key = option.key();
        let has_case = CASES.iter().any(|(name, ..)| *name == key);
        let tested_elsewhere = TESTED_ELSEWHERE.iter().any(|(name, _)| *name == key);
        assert!(
            has_case != tested_elsewhere,
            "{key} limits requests, so it needs a case in CASES, or an entry in TESTED_ELSEWHERE"
        );
    }
    for (key, _, _) in CASES {
        assert!(Config::options().iter().any(|option| option.key() == *key), "there is no option {key}");
    }
    let tests = tests();
    for (key, test) in TESTED_ELSEWHERE {
        assert!(tests.contains(*test), "{key}: there is no test {test}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_limit_options_apply_at_exact_value() {
    let values: Vec<(String, String)> =
        CASES.iter().map(|(key, value, _)| (variable(key), value.to_string())).collect();
    let environment: Vec<(&str, &str)> = values.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let fixture = LimitFixture::with_environment(&environment).await;
    for (_, value, case) in CASES {
        case(&fixture, *value).await;
        fixture.assert_healthy().await;
    }
    fixture.stop();
}

/// Tests that the service works with every numeric option at its minimum, and then with every one at its maximum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_with_extreme_option_values_serves() {
    // Some extreme values are left out because nothing else could be tested with them: more threads than the process
    // may have, more free disk space or faster bodies than exist, sources of one byte, and timeouts that are too short
    // for a slow machine.
    let tried = |option: &&ConfigOption, at_maximum: bool| {
        const UNTESTABLE_MAXIMUMS: [&str; 3] =
            ["query.threads", "sources.disk_reserve_bytes", "limits.body_min_bytes_per_s"];
        option.range.is_some()
            && !UNTESTABLE_MAXIMUMS.contains(&option.key().as_str())
            && (at_maximum || option.section != "sources")
            && (at_maximum || !(option.name.ends_with("_s") || option.name.ends_with("_ms")))
    };
    for at_maximum in [false, true] {
        let options = Config::options();
        let mut values: Vec<(String, String)> = options
            .iter()
            .filter(|option| tried(option, at_maximum))
            .map(|option| {
                let range = option.range.clone().expect("a range");
                let value = if at_maximum { *range.end() } else { *range.start() };
                (option.environment_variable(), value.to_string())
            })
            .collect();
        if at_maximum {
            // Old files must be retained for longer than a read may last. With the longest read timeout, the test could
            // not wait for that.
            let set = |values: &mut Vec<(String, String)>, key: &str, value: &str| {
                values.retain(|(name, _)| *name != variable(key));
                values.push((variable(key), value.to_owned()));
            };
            set(&mut values, "sweep.older_than_s", "31536000");
            set(&mut values, "server.drain_notice_s", "0");
            // The client would keep its connection open until the idle timeout.
            set(&mut values, "server.drain_idle_s", "0");
        }
        let environment: Vec<(&str, &str)> =
            values.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let fixture = LimitFixture::with_environment(&environment).await;
        fixture.assert_healthy().await;
        let small = fixture.post("/dataset/create", &json!({"name": "Small"})).await;
        small.assert_status(&[200], "create");
        let id = small.json()["dataset"]["dataset_id"].as_u64().expect("failed to find the ID");
        fixture.push(id, "[{\"a\":1},{\"a\":2}]").await.assert_status(&[200], "push");
        for (query, body) in [
            ("format=csv", "a\n1\n2\n"),
            ("filter=a:2&format=jsonl", "{\"a\":2}\n"),
            ("sort=a:desc&pretty=false", "[{\"a\":2},{\"a\":1}]"),
        ] {
            let answer = fixture.read(&format!("{id}/small"), query).await;
            answer.assert_status(&[200], query);
            assert_eq!(answer.text(), body, "{query}");
        }
        let answer = fixture.read(&format!("{id}/small"), "format=parquet").await;
        // With 16 MiB for all queries, a single row group always exceeds the memory limit.
        answer.assert_status(if at_maximum { &[200] } else { &[200, 400] }, "format=parquet");
        fixture.read(ORDINARY, "dedup=true&sort=region&limit=3").await.assert_status(&[200, 503], "a query");
        fixture.assert_healthy().await;
        fixture.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_body_times_out() {
    // After the timeout, the server does not wait for the rest of the body, although it usually reads the bodies of
    // rejected requests.
    let environment = [("STRATA_LIMITS__BODY_TIMEOUT_S", "1"), ("STRATA_LIMITS__REFUSED_BODY_S", "3600")];
    let fixture = LimitFixture::with_environment(&environment).await;
    let host = fixture.server.base_url.strip_prefix("http://").expect("failed to get the address");
    for path in ["/dataset/create", "/mcp", "/session/login", "/dataset/refresh"] {
        let mut connection = TcpStream::connect(host).expect("failed to connect");
        connection.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        let accept = "Accept: application/json, text/event-stream";
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\n{accept}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{{",
            fixture.token
        );
        connection.write_all(head.as_bytes()).expect("failed to send");
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).expect("failed to get a response");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{path}: {answer}");
    }
    fixture.assert_healthy().await;
    fixture.stop();
}

/// A large body holds memory that other requests wait for. So it must arrive at a steady pace, but may take any time in
/// total.
#[tokio::test(flavor = "multi_thread")]
async fn stalled_large_body_is_rejected_early() {
    let fixture = LimitFixture::with_environment(&[("STRATA_LIMITS__BODY_TIMEOUT_S", "3600")]).await;
    let host = fixture.server.base_url.strip_prefix("http://").expect("failed to get the address");
    let opened = |begun: &str| {
        let mut connection = TcpStream::connect(host).expect("failed to connect");
        connection.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        let head = format!(
            "POST /dataset/create HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: 1000000\r\nConnection: close\r\n\r\n{begun}",
            fixture.token
        );
        connection.write_all(head.as_bytes()).expect("failed to send");
        connection
    };
    // The second body has sent far more than an even pace requires.
    let mut stalled = opened("{");
    let mut steady = opened(&" ".repeat(500_000));
    let mut answer = String::new();
    stalled.read_to_string(&mut answer).expect("failed to get a response");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    let expected_text = "The body is arriving too slowly: 1 of 1000000 bytes after 10 s. ";
    assert!(answer.contains(expected_text), "{answer}");
    steady.write_all(" ".repeat(500_000).as_bytes()).expect("failed to send");
    let mut answer = String::new();
    steady.read_to_string(&mut answer).expect("failed to get a response");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    fixture.assert_healthy().await;
    fixture.stop();
}

fn variable(key: &str) -> String {
    let options = Config::options();
    options.iter().find(|option| option.key() == key).expect(key).environment_variable()
}

/// Returns the response status for a request whose headers take `bytes` bytes; `None` if there was no response.
fn status_with_head(fixture: &LimitFixture, bytes: usize) -> Option<u16> {
    let host = fixture.server.base_url.strip_prefix("http://").expect("failed to get the address");
    let start = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nX-Long: ");
    let head = format!("{start}{}\r\n\r\n", "x".repeat(bytes - start.len() - 4));
    let mut connection = TcpStream::connect(host).expect("failed to connect");
    connection.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    // The server may close the connection before it has received all bytes.
    let _ = connection.write_all(head.as_bytes());
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
}

async fn header_bytes(fixture: &LimitFixture, max: u64) {
    let max = max as usize;
    assert_eq!(status_with_head(fixture, max - 100), Some(200));
    assert_eq!(status_with_head(fixture, 4 * max), Some(431));
    // Many requests with maximum headers at the same time.
    let long = "x".repeat(max / 2);
    let requests = (0..50).map(|_| fixture.send(fixture.client.get(fixture.url("/healthz")).header("x-long", &long)));
    for answer in futures::future::join_all(requests).await {
        assert_eq!(answer.status, 200);
    }
}

async fn entity_bytes(fixture: &LimitFixture, max: u64) {
    let id = fixture.create_dataset("Entity bytes").await;
    let entity = |bytes: u64| format!("[{{\"a\":\"{}\"}}]", "x".repeat(bytes as usize - "{\"a\":\"\"}".len()));
    fixture.push(id, &entity(max)).await.assert_status(&[200], "the longest");
    let answer = fixture.push(id, &entity(max + 1)).await;
    answer.assert_status(&[413], "one byte more");
    assert!(answer.text().contains("limits.entity_bytes"), "{}", answer.summary());
}

async fn encoded_entity_bytes(fixture: &LimitFixture, max: u64) {
    let id = fixture.create_dataset("Encoded").await;
    // In XML, a tag of 1,000 letters encloses all values, and another one encloses each value.
    let entity = |values: usize| format!("[{{\"{}\":[{}]}}]", "t".repeat(1_000), vec!["1"; values].join(","));
    let fits = (max as usize - 2 * 1_020) / 2_020;
    fixture.push(id, &entity(fits - 1)).await.assert_status(&[200], "the maximum number of values");
    fixture.push(id, &entity(fits + 2)).await.assert_status(&[200], "more values");
    let encoded = fixture.get(&format!("/api/{id}/encoded/v1/?format=xml")).await;
    encoded.assert_status(&[200], "the maximum number of values");
    let answer = fixture.get(&format!("/api/{id}/encoded/v2/?format=xml")).await;
    answer.assert_status(&[400], "more values");
    assert!(answer.text().contains(&format!("larger than {max} bytes")), "{}", answer.summary());
    fixture.get(&format!("/api/{id}/encoded/v2/?format=json")).await.assert_status(&[200], "in another form");
}

async fn body_bytes(fixture: &LimitFixture, max: u64) {
    let body = |bytes: u64| {
        let text = json!({"dataset_id": 1}).to_string();
        format!("{text}{}", " ".repeat(bytes as usize - text.len()))
    };
    for path in ["/dataset/rotate_key", "/dataset/unpin", "/agent/pull_for_edit"] {
        let taken = fixture.call(reqwest::Method::POST, path, body(max)).await;
        assert!(taken.status < 500 && taken.status != 413, "{path}: {}", taken.summary());
        fixture.call(reqwest::Method::POST, path, body(max + 1)).await.assert_status(&[413], path);
    }
    fixture.message(" ".repeat(max as usize + 1)).await.assert_status(&[413], "/mcp");
}

async fn columns(fixture: &LimitFixture, max: u64) {
    let id = fixture.create_dataset("Columns").await;
    let entity = |columns: u64| {
        let members: Vec<String> = (0..columns).map(|column| format!("\"c{column}\":1")).collect();
        format!("[{{{}}}]", members.join(","))
    };
    fixture.push(id, &entity(max)).await.assert_status(&[200], "the maximum number of columns");
    fixture.push(id, &entity(max + 1)).await.assert_status(&[200], "one more");
    for format in ["csv", "tsv", "parquet"] {
        fixture.get(&format!("/api/{id}/columns/v1/?format={format}")).await.assert_status(&[200], format);
        let answer = fixture.get(&format!("/api/{id}/columns/v2/?format={format}")).await;
        answer.assert_status(&[400], format);
        assert!(answer.text().contains(&format!("more than {max} columns")), "{}", answer.summary());
    }
}

async fn source_bytes(fixture: &LimitFixture, max: u64) {
    let id = fixture.create_dataset("Source bytes").await;
    let push = async |bytes: u64| {
        let entities = "[{\"a\":1}]".to_owned();
        let body = format!("{entities}{}", " ".repeat(bytes as usize - entities.len()));
        let request = fixture.client.post(fixture.url(&format!("/dataset/refresh?dataset_id={id}")));
        let request = request.bearer_auth(&fixture.token).header("content-type", "application/json").body(body);
        fixture.send(request).await
    };
    push(max).await.assert_status(&[200], "the longest");
    push(max + 1).await.assert_status(&[413], "one byte more");
}

async fn active_datasets(fixture: &LimitFixture, max: u64) {
    let create =
        async |number: u64| fixture.post("/dataset/create", &json!({"name": format!("Active {number}")})).await;
    let mut created = 0;
    let refused = loop {
        let answer = create(created).await;
        if answer.status != 200 {
            break answer;
        }
        created += 1;
        assert!(created <= max, "created more than {max}");
    };
    refused.assert_status(&[403], "one more");
}
