//! The options of the configuration: those that bound a request, at the bound and past it; all numbers at their least
//! and at their most.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use strata_config::{Config, ConfigOption};
use strata_testing::tests::tests;

use super::{ORDINARY, World};

/// Tries an option that has this value.
type Case = for<'w> fn(&'w World, u64) -> BoxFuture<'w, ()>;

/// Options that bound what one request may hold or have, a small value for each, and what is tried.
const CASES: &[(&str, u64, Case)] = &[
    ("server.header_bytes", 16 << 10, |world, most| header_bytes(world, most).boxed()),
    ("limits.entity_bytes", 4 << 10, |world, most| entity_bytes(world, most).boxed()),
    ("limits.encoded_entity_bytes", 16 << 10, |world, most| encoded_entity_bytes(world, most).boxed()),
    ("limits.body_bytes", 32 << 10, |world, most| body_bytes(world, most).boxed()),
    ("limits.columns", 60, |world, most| columns(world, most).boxed()),
    ("sources.max_bytes", 256 << 10, |world, most| source_bytes(world, most).boxed()),
    ("plans.scale_active_datasets", 20, |world, most| active_datasets(world, most).boxed()),
];

/// Options that bound requests and are tried at their bounds elsewhere: `module::test`.
const ELSEWHERE: &[(&str, &str)] = &[
    ("limits.body_timeout_s", "resilience::limits::options::a_body_that_does_not_come_is_given_up"),
    (
        "limits.public_per_minute",
        "http::read_limits::a_client_gets_what_the_limit_allows_and_then_429_until_its_window_ends",
    ),
    (
        "limits.private_per_minute",
        "http::read_limits::the_private_bucket_is_for_private_datasets_with_an_authorization",
    ),
    (
        "limits.logins_per_minute",
        "http::management::sessions::log_ins_are_limited_for_a_client_and_an_account_together",
    ),
    (
        "limits.account_logins_per_hour",
        "http::management::sessions::many_clients_together_guess_slowly_and_keep_no_owner_out",
    ),
    ("limits.refresh_streams", "dashboard::refresh::streams_are_bounded_for_a_user_and_for_all"),
    ("limits.redis_url", "resilience::shared_limits::processes_share_one_limit_to_the_last_request"),
    ("limits.redis_timeout_ms", "resilience::shared_limits::a_redis_that_hangs_is_waited_for_once"),
    ("limits.body_min_bytes_per_s", "resilience::hostile_sources::bodies::a_body_that_comes_too_slowly_is_refused"),
    ("limits.body_rate_window_s", "resilience::hostile_sources::bodies::a_body_that_comes_too_slowly_is_refused"),
    (
        "limits.refused_body_bytes",
        "resilience::hostile_sources::bodies::a_refusal_reaches_a_client_that_sends_its_whole_body_first",
    ),
    (
        "limits.refused_body_s",
        "resilience::hostile_sources::bodies::a_refusal_reaches_a_client_that_sends_its_whole_body_first",
    ),
    ("sources.free_expansion_bytes", "ingest::bombs::what_becomes_of_a_compressed_source_is_bounded_by_what_came"),
    ("sources.max_expansion", "ingest::bombs::what_becomes_of_a_compressed_source_is_bounded_by_what_came"),
    ("sources.zstd_window_bytes", "ingest::bombs::the_window_of_a_zstandard_frame_is_bounded"),
    ("sources.max_columns", "ingest::bombs::the_columns_of_a_table_are_bounded"),
    ("sources.parquet_memory_bytes", "ingest::parquet_bombs::a_row_with_a_long_list_is_bounded_in_memory"),
    (
        "sources.spool_bytes",
        "resilience::hostile_sources::bodies::the_disk_that_is_spooled_is_bounded_for_one_user_and_in_all",
    ),
    (
        "sources.user_spool_bytes",
        "resilience::hostile_sources::bodies::the_disk_that_is_spooled_is_bounded_for_one_user_and_in_all",
    ),
    ("plans.free_active_datasets", "http::management::datasets::plans_limit_active_datasets"),
    ("plans.pro_active_datasets", "http::management::datasets::plans_limit_active_datasets"),
];

/// Whether an option bounds what one request, one caller or one entity may have.
fn bounds_requests(option: &ConfigOption) -> bool {
    let most = option.name.ends_with("_bytes") || option.name.starts_with("max_");
    // What must stay free is no bound.
    let sized = most && !option.name.ends_with("_reserve_bytes");
    matches!(option.section, "limits" | "plans")
        || (sized && matches!(option.section, "server" | "sources" | "net" | "webhook"))
}

#[test]
fn every_option_that_bounds_requests_is_tried() {
    for option in Config::options().iter().filter(|option| bounds_requests(option)) {
        let key = option.key();
        let here = CASES.iter().any(|(name, ..)| *name == key);
        let elsewhere = ELSEWHERE.iter().any(|(name, _)| *name == key);
        assert!(here != elsewhere, "{key} bounds requests: it needs a case in CASES, or its test named in ELSEWHERE");
    }
    for (key, _, _) in CASES {
        assert!(Config::options().iter().any(|option| option.key() == *key), "there is no option {key}");
    }
    let tests = tests();
    for (key, test) in ELSEWHERE {
        assert!(tests.contains(*test), "{key}: there is no test {test}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_that_bound_requests_hold_at_the_bound_and_refuse_beyond() {
    let values: Vec<(String, String)> =
        CASES.iter().map(|(key, value, _)| (variable(key), value.to_string())).collect();
    let environment: Vec<(&str, &str)> = values.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let world = World::configured(&environment).await;
    for (_, value, case) in CASES {
        case(&world, *value).await;
        world.is_well().await;
    }
    world.end();
}

/// What the options bound is little or nothing, and then as much as may be: the service serves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_every_number_at_its_least_and_at_its_most_the_service_serves() {
    // Not where nothing else could be tried: threads beyond what the process may have, more free disk or faster bodies
    // than there are, sources of one byte, times that are too short for some machine.
    let tried = |option: &&ConfigOption, most: bool| {
        const BEYOND: [&str; 3] = ["query.threads", "sources.disk_reserve_bytes", "limits.body_min_bytes_per_s"];
        option.range.is_some()
            && !BEYOND.contains(&option.key().as_str())
            && (most || option.section != "sources")
            && (most || !(option.name.ends_with("_s") || option.name.ends_with("_ms")))
    };
    for most in [false, true] {
        let options = Config::options();
        let mut values: Vec<(String, String)> = options
            .iter()
            .filter(|option| tried(option, most))
            .map(|option| {
                let range = option.range.clone().expect("a range");
                let value = if most { *range.end() } else { *range.start() };
                (option.environment_variable(), value.to_string())
            })
            .collect();
        if most {
            // Files must be kept for longer than reads may last, and there is no time for that many.
            let set = |values: &mut Vec<(String, String)>, key: &str, value: &str| {
                values.retain(|(name, _)| *name != variable(key));
                values.push((variable(key), value.to_owned()));
            };
            set(&mut values, "sweep.older_than_s", "31536000");
            set(&mut values, "server.drain_notice_s", "0");
            // The client would keep its connection until it takes it for idle.
            set(&mut values, "server.drain_idle_s", "0");
        }
        let environment: Vec<(&str, &str)> =
            values.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let world = World::configured(&environment).await;
        world.is_well().await;
        let small = world.post("/dataset/create", &json!({"name": "Small"})).await;
        small.is(&[200], "create");
        let id = small.json()["dataset"]["dataset_id"].as_u64().expect("an id");
        world.push(id, "[{\"a\":1},{\"a\":2}]").await.is(&[200], "push");
        for (query, body) in [
            ("format=csv", "a\n1\n2\n"),
            ("filter=a:2&format=jsonl", "{\"a\":2}\n"),
            ("sort=a:desc&pretty=false", "[{\"a\":2},{\"a\":1}]"),
        ] {
            let answer = world.read(&format!("{id}/small"), query).await;
            answer.is(&[200], query);
            assert_eq!(answer.text(), body, "{query}");
        }
        let answer = world.read(&format!("{id}/small"), "format=parquet").await;
        // With 16 MiB for all queries, one row group is always too much.
        answer.is(if most { &[200] } else { &[200, 400] }, "format=parquet");
        world.read(ORDINARY, "dedup=true&sort=region&limit=3").await.is(&[200, 503], "a query");
        world.is_well().await;
        world.end();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_does_not_come_is_given_up() {
    // What has not come by then is not waited for once more, although refused bodies are read.
    let world =
        World::configured(&[("STRATA_LIMITS__BODY_TIMEOUT_S", "1"), ("STRATA_LIMITS__REFUSED_BODY_S", "3600")]).await;
    let host = world.server.base_url.strip_prefix("http://").expect("an address");
    for path in ["/dataset/create", "/mcp", "/session/login", "/dataset/refresh"] {
        let mut connection = TcpStream::connect(host).expect("a connection");
        connection.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        let accept = "Accept: application/json, text/event-stream";
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\n{accept}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{{",
            world.token
        );
        connection.write_all(head.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{path}: {answer}");
    }
    world.is_well().await;
    world.end();
}

/// Others wait for the room of a large body, so it must come steadily, however long it may take.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_body_that_rests_is_given_up_early() {
    let world = World::configured(&[("STRATA_LIMITS__BODY_TIMEOUT_S", "3600")]).await;
    let host = world.server.base_url.strip_prefix("http://").expect("an address");
    let opened = |begun: &str| {
        let mut connection = TcpStream::connect(host).expect("a connection");
        connection.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        let head = format!(
            "POST /dataset/create HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: 1000000\r\nConnection: close\r\n\r\n{begun}",
            world.token
        );
        connection.write_all(head.as_bytes()).expect("sent");
        connection
    };
    // The second is ahead of an even pace by far.
    let (mut resting, mut steady) = (opened("{"), opened(&" ".repeat(500_000)));
    let mut answer = String::new();
    resting.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    let told = "The body is arriving too slowly: 1 of 1000000 bytes after 10 s. ";
    assert!(answer.contains(told), "{answer}");
    steady.write_all(" ".repeat(500_000).as_bytes()).expect("sent");
    let mut answer = String::new();
    steady.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    world.is_well().await;
    world.end();
}

fn variable(key: &str) -> String {
    let options = Config::options();
    options.iter().find(|option| option.key() == key).expect(key).environment_variable()
}

/// The status of a request with so long a head.
fn status_with_head(world: &World, bytes: usize) -> Option<u16> {
    let host = world.server.base_url.strip_prefix("http://").expect("an address");
    let start = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nX-Long: ");
    let head = format!("{start}{}\r\n\r\n", "x".repeat(bytes - start.len() - 4));
    let mut connection = TcpStream::connect(host).expect("a connection");
    connection.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    // It may be closed before all is sent.
    let _ = connection.write_all(head.as_bytes());
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
}

async fn header_bytes(world: &World, most: u64) {
    let most = most as usize;
    assert_eq!(status_with_head(world, most - 100), Some(200));
    assert_eq!(status_with_head(world, 4 * most), Some(431));
    // Many of the longest at once.
    let long = "x".repeat(most / 2);
    let requests = (0..50).map(|_| world.send(world.client.get(world.url("/healthz")).header("x-long", &long)));
    for answer in futures::future::join_all(requests).await {
        assert_eq!(answer.status, 200);
    }
}

async fn entity_bytes(world: &World, most: u64) {
    let id = world.dataset("Entity bytes").await;
    let entity = |bytes: u64| format!("[{{\"a\":\"{}\"}}]", "x".repeat(bytes as usize - "{\"a\":\"\"}".len()));
    world.push(id, &entity(most)).await.is(&[200], "the longest");
    let answer = world.push(id, &entity(most + 1)).await;
    answer.is(&[413], "one byte more");
    assert!(answer.text().contains("limits.entity_bytes"), "{}", answer.shown());
}

async fn encoded_entity_bytes(world: &World, most: u64) {
    let id = world.dataset("Encoded").await;
    // A tag of 1,000 letters around and in each of some values.
    let entity = |values: usize| format!("[{{\"{}\":[{}]}}]", "t".repeat(1_000), vec!["1"; values].join(","));
    let fits = (most as usize - 2 * 1_020) / 2_020;
    world.push(id, &entity(fits - 1)).await.is(&[200], "the most values");
    world.push(id, &entity(fits + 2)).await.is(&[200], "more values");
    world.get(&format!("/api/{id}/encoded/v1/?format=xml")).await.is(&[200], "the most values");
    let answer = world.get(&format!("/api/{id}/encoded/v2/?format=xml")).await;
    answer.is(&[400], "more values");
    assert!(answer.text().contains(&format!("larger than {most} bytes")), "{}", answer.shown());
    world.get(&format!("/api/{id}/encoded/v2/?format=json")).await.is(&[200], "in another form");
}

async fn body_bytes(world: &World, most: u64) {
    let body = |bytes: u64| {
        let text = json!({"dataset_id": 1}).to_string();
        format!("{text}{}", " ".repeat(bytes as usize - text.len()))
    };
    for path in ["/dataset/rotate_key", "/dataset/unpin", "/agent/pull_for_edit"] {
        let taken = world.call(reqwest::Method::POST, path, body(most)).await;
        assert!(taken.status < 500 && taken.status != 413, "{path}: {}", taken.shown());
        world.call(reqwest::Method::POST, path, body(most + 1)).await.is(&[413], path);
    }
    world.message(" ".repeat(most as usize + 1)).await.is(&[413], "/mcp");
}

async fn columns(world: &World, most: u64) {
    let id = world.dataset("Columns").await;
    let entity = |columns: u64| {
        let members: Vec<String> = (0..columns).map(|column| format!("\"c{column}\":1")).collect();
        format!("[{{{}}}]", members.join(","))
    };
    world.push(id, &entity(most)).await.is(&[200], "the most columns");
    world.push(id, &entity(most + 1)).await.is(&[200], "one more");
    for format in ["csv", "tsv", "parquet"] {
        world.get(&format!("/api/{id}/columns/v1/?format={format}")).await.is(&[200], format);
        let answer = world.get(&format!("/api/{id}/columns/v2/?format={format}")).await;
        answer.is(&[400], format);
        assert!(answer.text().contains(&format!("more than {most} columns")), "{}", answer.shown());
    }
}

async fn source_bytes(world: &World, most: u64) {
    let id = world.dataset("Source bytes").await;
    let push = async |bytes: u64| {
        let entities = "[{\"a\":1}]".to_owned();
        let body = format!("{entities}{}", " ".repeat(bytes as usize - entities.len()));
        let request = world.client.post(world.url(&format!("/dataset/refresh?dataset_id={id}")));
        let request = request.bearer_auth(&world.token).header("content-type", "application/json").body(body);
        world.send(request).await
    };
    push(most).await.is(&[200], "the longest");
    push(most + 1).await.is(&[413], "one byte more");
}

async fn active_datasets(world: &World, most: u64) {
    let create = async |number: u64| world.post("/dataset/create", &json!({"name": format!("Active {number}")})).await;
    let mut created = 0;
    let refused = loop {
        let answer = create(created).await;
        if answer.status != 200 {
            break answer;
        }
        created += 1;
        assert!(created <= most, "there are more than {most}");
    };
    refused.is(&[403], "one more");
}
