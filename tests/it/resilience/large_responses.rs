//! Tests of every endpoint and every page with the largest dataset that the limits allow. Slow readers use a limited
//! amount of memory, and building a large response does not delay other requests.
//!
//! The endpoints come from `/openapi.json` and the pages from the router, so new ones are tested automatically. If a
//! path has a parameter that [`value_of`] does not know, the tests fail.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::StatusCode;
use serde_json::{Value, json};
use strata_testing::http_client;
use strata_testing::machine::{Machine, Server, get, one_json_line, request, succeeded};
use strata_testing::metrics;
use strata_testing::wait::eventually;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

/// The number of clients with one address that never read their response.
const SLOW_READERS: usize = 300;

/// The formats of reads. The encoder of JSON also writes JSON lines, and the encoder of CSV also writes TSV.
const READ_FORMATS: [&str; 4] = ["json", "csv", "xml", "parquet"];

/// The number of clients with one address that read at the same time.
const FAST_READERS: usize = 40;

/// The number of attempts before the polls of a target count as long. Other processes can delay a poll, too, but a
/// response that is built in a poll is late every time.
const MAX_ATTEMPTS: usize = 3;

/// The maximum by which the slow readers may increase the resident memory.
const MAX_GROWTH_BYTES: u64 = 128 << 20;

/// Responses up to this size are held without a memory reservation: 19 MiB for all slow readers together.
const UNCHARGED_BYTES: usize = 64 << 10;

/// The number of fields of an entity: the maximum that a profile covers.
const FIELDS: usize = 10_000;

/// The length of a field's text in small entities, and in entities of almost `limits.entity_bytes`.
const SMALL_TEXT_BYTES: usize = 30;
const LARGE_TEXT_BYTES: usize = 1_400;

/// The profile of this many fields is truncated to 4 MiB, the maximum that a version stores. Responses need fewer bytes
/// for it.
const MIN_PROFILE_BYTES: usize = 3_800_000;

const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const HONEST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// Longer than any request takes.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// A server with a wide dataset of two versions, the first with an alternate, and the credentials of its owner.
struct WideDatasetFixture {
    server: Server,
    /// The headers of an owner's requests: a token for endpoints, and a session for pages.
    token: String,
    cookie: String,
    _machine: Machine,
}

fn entity(number: usize, text_bytes: usize) -> Value {
    let field = |field: usize| {
        let value = format!("{number}-{field}-{}", "x".repeat(text_bytes));
        (format!("field_number_{field}"), json!(value))
    };
    Value::Object((0..FIELDS).map(field).collect())
}

impl WideDatasetFixture {
    fn new(entities: usize, text_bytes: usize) -> WideDatasetFixture {
        let machine = Machine::new();
        let add = ["user", "add", "ada@example.test", "--plan", "pro", "--token", "tests"];
        let token = succeeded(&machine.run_with_input(&add, "correct horse\n"));
        let token = token.lines().last().expect("failed to find the token").to_owned();
        for version in 1..=2 {
            let lines: String =
                (0..entities).map(|number| format!("{}\n", entity(number * version, text_bytes))).collect();
            machine.write("wide.jsonl", &lines);
            let import = ["import", "wide.jsonl", "--name", "Wide", "--owner", "ada@example.test"];
            assert_eq!(one_json_line(&machine.run(&import))["version"], version);
        }
        let environment = [
            ("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0"),
            ("STRATA_LIMITS__PRIVATE_PER_MINUTE", "0"),
            ("STRATA_QUERY__HEAVY_WAIT_S", "1"),
            ("STRATA_LIMITS__BODY_BYTES", "16MiB"),
            // The memory limit in a container of 1 GiB.
            ("STRATA_QUERY__MEMORY_BYTES", "128MiB"),
        ];
        let server = Server::start(&machine, &[], &environment);
        let call = |path: &str, headers: &str, body: Value| {
            let headers = format!("Content-Type: application/json\r\n{headers}");
            let (head, body) = request("POST", &format!("{}{path}", server.base_url), &headers, &body.to_string());
            assert!(head.starts_with("http/1.1 200"), "{path}: {head} {body}");
            head
        };
        let by_token = format!("Authorization: Bearer {token}\r\n");
        let alternate = json!({"dataset_id": 1, "version": 1, "entities": [entity(1, text_bytes)]});
        call("/dataset/alternate/save", &by_token, alternate);
        let signed_in = json!({"email": "ada@example.test", "password": "correct horse"});
        let head = call("/session/login", "", signed_in);
        let cookie =
            head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("failed to find the cookie");
        let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap_or_default());
        // The test client converts headers to lower case. That is harmless, because the ID of a session is hexadecimal.
        WideDatasetFixture { server, token: by_token, cookie, _machine: machine }
    }

    fn address(&self) -> SocketAddr {
        self.server.base_url.trim_start_matches("http://").parse().expect("failed to get the address")
    }

    /// Returns every GET target with the headers of its caller; reads once for each format.
    fn targets(&self, read_formats: &[&str]) -> Vec<(String, &str)> {
        let (_, document) = get(&format!("{}/openapi.json", self.server.base_url), None);
        let document: Value = serde_json::from_str(&document).expect("failed to parse JSON");
        let paths = document["paths"].as_object().expect("paths");
        let endpoints = paths.iter().filter(|(_, item)| item.get("get").is_some());
        let endpoints =
            endpoints.flat_map(|(path, item)| in_formats(path, endpoint(path, item, &document), read_formats));
        let endpoints = endpoints.map(|target| (target, &*self.token));
        let pages = strata_testing::html::page_paths().flat_map(|path| variants(&filled(path)));
        endpoints.chain(pages.map(|target| (target, &*self.cookie))).collect()
    }

    fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.id())).expect("failed to run");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("failed to parse the number") << 10
    }

    fn metric(&self, series: &str) -> f64 {
        let (_, text) = get(&format!("{}/metrics", self.server.base_url), None);
        metrics::value(&text, series).unwrap_or_else(|| panic!("no series {series}"))
    }

    /// Returns the 90th percentile of the latency of `/healthz`, in milliseconds.
    async fn health_p90_ms(&self, calls: usize) -> f64 {
        let mut durations = Vec::new();
        for _ in 0..calls {
            let start = Instant::now();
            assert_eq!(self.read(HONEST, "/healthz", "").await.0, StatusCode::OK);
            durations.push(start.elapsed().as_secs_f64() * 1_000.0);
        }
        durations.sort_by(f64::total_cmp);
        durations[calls * 9 / 10]
    }

    /// Returns the number of polls of more than 10 ms while fast readers read a target.
    async fn long_polls(&self, target: &str, headers: &str) -> f64 {
        let before = self.metric("strata_long_polls_total");
        let read = join_all((0..FAST_READERS).map(|_| self.read(HOSTILE, target, headers)));
        let (read, health) = tokio::join!(read, self.health_p90_ms(10));
        // All requests would return 503 if each waited for memory that the requests of its own client hold.
        let served = read.iter().filter(|(status, _)| !status.is_server_error()).count();
        assert!(served > 0, "{target}: no response");
        let wrong = read.iter().find(|(status, _)| status.is_server_error() && *status != 503);
        assert!(wrong.is_none(), "{target}: {wrong:?}");
        let long_polls = self.metric("strata_long_polls_total") - before;
        eprintln!("{target}: {long_polls} long polls, p90 of /healthz {health:.1} ms");
        long_polls
    }

    /// Returns the status and the size of a response, which is read to its end. An event stream is read for half a
    /// second.
    async fn read(&self, from: Ipv4Addr, target: &str, headers: &str) -> (StatusCode, usize) {
        let client = http_client()
            .local_address(std::net::IpAddr::from(from))
            .timeout(HANG_TIMEOUT)
            .build()
            .expect("failed to build the client");
        let mut call = client.get(format!("{}{target}", self.server.base_url));
        if let Some((name, value)) = headers.trim_end().split_once(": ") {
            call = call.header(name, value);
        }
        let response = call.send().await.unwrap_or_else(|error| panic!("{target}: {error:?}"));
        let status = response.status();
        if response.headers().get("content-type").is_some_and(|value| value == "text/event-stream") {
            return (status, 0);
        }
        let body = response.bytes().await.unwrap_or_else(|error| panic!("{target}: {error:?}"));
        (status, body.len())
    }
}

/// Returns the path with a value in place of each parameter.
fn filled(pattern: &str) -> String {
    let mut path = pattern.to_owned();
    while let Some((before, rest)) = path.clone().split_once('{') {
        let (name, after) = rest.split_once('}').expect("a closing brace");
        path = format!("{before}{}{after}", value_of(name, pattern));
    }
    path
}

/// Returns a value of a path or query parameter with which the request finds the wide dataset.
fn value_of(name: &str, pattern: &str) -> &'static str {
    match (name, pattern) {
        ("dataset_id" | "v1", _) => "1",
        ("v2", _) => "2",
        ("name_slug", _) => "wide",
        ("version" | "since", _) => "v1",
        ("file", _) => "v1.jsonl",
        ("position", _) => "0",
        ("resource", _) => "versions",
        ("action", pattern) if pattern.ends_with("/alternate/{action}") => "edit",
        ("action", pattern) if pattern.contains("/manage/") => "rollback",
        // Paths that accept only forms, and paths without a page.
        ("action" | "page" | "of" | "*rest" | "token" | "name", _) => "other",
        _ => panic!("add a value of {name} in {pattern} to this test"),
    }
}

/// Returns the target of an endpoint with its required parameters.
fn endpoint(path: &str, item: &Value, document: &Value) -> String {
    let parameters = item["get"]["parameters"].as_array().into_iter().flatten();
    let resolved = parameters.map(|parameter| match parameter["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).expect("a component"),
        None => parameter,
    });
    let required = resolved.filter(|parameter| parameter["in"] == "query" && parameter["required"] == true);
    let pair = |parameter: &Value| {
        let name = parameter["name"].as_str().expect("a name").to_owned();
        format!("{name}={}", value_of(&name, path))
    };
    let query: Vec<String> = required.map(pair).collect();
    format!("{}?{}", filled(path), query.join("&"))
}

/// Returns a read in each of the formats, and any other endpoint once.
fn in_formats(path: &str, target: String, read_formats: &[&str]) -> Vec<String> {
    match path.starts_with("/api/") {
        true => read_formats.iter().map(|format| format!("{target}format={format}")).collect(),
        false => vec![target],
    }
}

/// Returns the query strings for a page: the views of entities, the editor of an entity, and two versions to compare.
fn variants(path: &str) -> Vec<String> {
    match path {
        path if path.ends_with("/edit") => vec![format!("{path}?position=0")],
        path if path.ends_with("/diff") => vec![format!("{path}?v1=1&v2=2"), format!("{path}?v1=1&v2=2&view=whole")],
        path if path.ends_with("/rollback") => vec![format!("{path}?version=1")],
        path if path.ends_with("/v1") => vec![path.to_owned(), format!("{path}?view=json")],
        path => vec![path.to_owned()],
    }
}

/// Opens a connection that sends a request and does not read the response.
async fn slow_reader(server: SocketAddr, target: &str, headers: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("failed to bind a socket");
    socket.set_recv_buffer_size(4_096).expect("failed to parse the size");
    socket.bind(SocketAddr::from((HOSTILE, 0))).expect("failed to get the address");
    let mut stream = socket.connect(server).await.expect("failed to connect");
    let request = format!("GET {target} HTTP/1.1\r\nHost: test\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.expect("failed to send");
    stream
}

/// Regression test: 300 readers of one address that read nothing held a complete profile or page each, 1.6 GiB in
/// total.
#[tokio::test(flavor = "multi_thread")]
async fn slow_readers_use_limited_memory() {
    let fixture = WideDatasetFixture::new(4, LARGE_TEXT_BYTES);
    let mut large = Vec::new();
    for (target, headers) in fixture.targets(&READ_FORMATS) {
        let (status, bytes) = fixture.read(HONEST, &target, headers).await;
        assert!(!status.is_server_error(), "{target}: {status}");
        if bytes > UNCHARGED_BYTES {
            large.push((target, headers, bytes));
        }
    }
    assert!(large.len() >= 8, "the dataset is not large: {large:?}");
    let profile =
        large.iter().find(|(target, ..)| target.starts_with("/dataset/profile")).map_or(0, |(.., bytes)| *bytes);
    assert!(profile >= MIN_PROFILE_BYTES, "the profile has {profile} bytes");
    let before = fixture.resident_bytes();
    for (target, headers, bytes) in large {
        let readers = (0..SLOW_READERS).map(|_| slow_reader(fixture.address(), &target, headers));
        let readers = join_all(readers).await;
        let answered = join_all(readers.iter().map(|reader| async { reader.peek(&mut [0; 1]).await.expect("a byte") }));
        tokio::time::timeout(HANG_TIMEOUT, answered).await.unwrap_or_else(|_| panic!("{target}: no response"));
        let growth = fixture.resident_bytes().saturating_sub(before);
        let health = fixture.health_p90_ms(50).await;
        eprintln!("{target}: {bytes} bytes, {} MiB more, p90 of /healthz {health:.1} ms", growth >> 20);
        assert!(growth <= MAX_GROWTH_BYTES, "{target}: {} MiB more", growth >> 20);
        let (other, _) = fixture.read(HONEST, "/dataset/profile?dataset_id=1", "").await;
        assert_eq!(other, StatusCode::OK, "{target}: another address");
        drop(readers);
        let held = "strata_gate_held_units{gate=\"response\"}";
        eventually(&format!("{target}: the memory is not released"), async || fixture.metric(held) == 0.0).await;
    }
    assert_eq!(fixture.server.stop("-TERM").0, Some(0));
}

/// Regression test: 20 clients of `/dataset/profile` delayed `/healthz` to 3 s, because responses were built on the
/// threads that serve connections, in polls of more than 10 ms each. One in ten polls may be long, because it may fill
/// a cache.
#[tokio::test(flavor = "multi_thread")]
async fn large_responses_do_not_block_runtime() {
    let fixture = WideDatasetFixture::new(8, SMALL_TEXT_BYTES);
    for (target, headers) in fixture.targets(&READ_FORMATS) {
        let mut long_polls = f64::INFINITY;
        for _ in 0..MAX_ATTEMPTS {
            long_polls = long_polls.min(fixture.long_polls(&target, headers).await);
            if long_polls <= FAST_READERS as f64 / 10.0 {
                break;
            }
        }
        assert!(long_polls <= FAST_READERS as f64 / 10.0, "{target}: {long_polls} polls of more than 10 ms");
    }
    assert_eq!(fixture.server.stop("-TERM").0, Some(0));
}
