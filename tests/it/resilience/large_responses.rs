//! Every endpoint and every page with the largest dataset that the limits allow: what slow readers hold is bounded,
//! and what takes long to build does not delay other requests.
//!
//! The endpoints come from `/openapi.json`, the pages from the router. A new one is in the list at once; one whose path
//! has a parameter that [`value_of`] does not know fails the tests.

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

/// Readers of one address that take nothing.
const SLOW_READERS: usize = 300;

/// JSON lines are written by the encoder of JSON, and TSV by that of CSV.
const READ_FORMATS: [&str; 4] = ["json", "csv", "xml", "parquet"];

/// Clients of one address that read at the same time.
const FAST_READERS: usize = 40;

/// How often a target is read before its polls count as long. Other processes interrupt polls, too, but a response that
/// is built in a poll is late each time.
const TRIES: usize = 3;

/// By how much the slow readers may raise the resident memory.
const GROWTH_BYTES: u64 = 128 << 20;

/// A response of at most this size is held without a charge: by all slow readers together, 19 MiB.
const UNCHARGED_BYTES: usize = 64 << 10;

/// Fields of an entity: as many as a profile follows.
const FIELDS: usize = 10_000;

/// Bytes of a field's text where entities are small, and where an entity has almost `limits.entity_bytes`.
const SMALL_TEXT_BYTES: usize = 30;
const LARGE_TEXT_BYTES: usize = 1_400;

/// The profile of that many fields is cut to 4 MiB, the most that a version stores. Responses spell it in fewer bytes.
const MIN_PROFILE_BYTES: usize = 3_800_000;

const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const HONEST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// Longer than anything here takes.
const HANG: Duration = Duration::from_secs(120);

/// A server with a wide dataset of two versions, the first with an alternate, and the credentials of its owner.
struct World {
    server: Server,
    /// Headers of an owner's request: a token for endpoints, a session for pages.
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

impl World {
    fn new(entities: usize, text_bytes: usize) -> World {
        let machine = Machine::new();
        let add = ["user", "add", "ada@example.test", "--plan", "pro", "--token", "tests"];
        let token = succeeded(&machine.run_with_input(&add, "correct horse\n"));
        let token = token.lines().last().expect("a token").to_owned();
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
            // As in a container of 1 GiB.
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
        let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
        let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap_or_default());
        // Header names and values were made lower case: the id of a session is hexadecimal.
        World { server, token: by_token, cookie, _machine: machine }
    }

    fn address(&self) -> SocketAddr {
        self.server.base_url.trim_start_matches("http://").parse().expect("an address")
    }

    /// Every GET, reads in each of these formats: its target, and the headers of the caller.
    fn targets(&self, read_formats: &[&str]) -> Vec<(String, &str)> {
        let (_, document) = get(&format!("{}/openapi.json", self.server.base_url), None);
        let document: Value = serde_json::from_str(&document).expect("JSON");
        let paths = document["paths"].as_object().expect("paths");
        let endpoints = paths.iter().filter(|(_, item)| item.get("get").is_some());
        let endpoints =
            endpoints.flat_map(|(path, item)| in_formats(path, endpoint(path, item, &document), read_formats));
        let endpoints = endpoints.map(|target| (target, &*self.token));
        let pages = strata_testing::html::page_paths().flat_map(|path| variants(&filled(path)));
        endpoints.chain(pages.map(|target| (target, &*self.cookie))).collect()
    }

    fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    }

    fn metric(&self, series: &str) -> f64 {
        let (_, text) = get(&format!("{}/metrics", self.server.base_url), None);
        metrics::value(&text, series).unwrap_or_else(|| panic!("no series {series}"))
    }

    /// How long nine of ten calls of `/healthz` took at most, in milliseconds.
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

    /// Polls of more than 10 ms while fast readers read a target.
    async fn long_polls(&self, target: &str, headers: &str) -> f64 {
        let before = self.metric("strata_long_polls_total");
        let read = join_all((0..FAST_READERS).map(|_| self.read(HOSTILE, target, headers)));
        let (read, health) = tokio::join!(read, self.health_p90_ms(10));
        // Pages that wait for a part of their own client's share that they hold themselves would all return 503.
        let served = read.iter().filter(|(status, _)| !status.is_server_error()).count();
        assert!(served > 0, "{target}: no response");
        let wrong = read.iter().find(|(status, _)| status.is_server_error() && *status != 503);
        assert!(wrong.is_none(), "{target}: {wrong:?}");
        let long_polls = self.metric("strata_long_polls_total") - before;
        eprintln!("{target}: {long_polls} long polls, p90 of /healthz {health:.1} ms");
        long_polls
    }

    /// The status and the size of a response that is read to its end, or as far as it is within half a second for
    /// events.
    async fn read(&self, from: Ipv4Addr, target: &str, headers: &str) -> (StatusCode, usize) {
        let client = http_client().local_address(std::net::IpAddr::from(from)).timeout(HANG).build().expect("a client");
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

/// The path with a value in place of each parameter.
fn filled(pattern: &str) -> String {
    let mut path = pattern.to_owned();
    while let Some((before, rest)) = path.clone().split_once('{') {
        let (name, after) = rest.split_once('}').expect("a closing brace");
        path = format!("{before}{}{after}", value_of(name, pattern));
    }
    path
}

/// A value of a parameter of a path or a query, which finds the wide dataset.
fn value_of(name: &str, pattern: &str) -> &'static str {
    match (name, pattern) {
        ("dataset_id" | "v1", _) => "1",
        ("v2", _) => "2",
        ("name_slug", _) => "wide",
        ("version", _) => "v1",
        ("position", _) => "0",
        ("resource", _) => "versions",
        ("action", pattern) if pattern.ends_with("/alternate/{action}") => "edit",
        ("action", pattern) if pattern.contains("/manage/") => "rollback",
        // Paths that take only forms, and paths of no page.
        ("action" | "page" | "of" | "*rest" | "token" | "name", _) => "other",
        _ => panic!("add a value of {name} in {pattern} to this test"),
    }
}

/// The target of an endpoint with its required parameters.
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

/// A read in each of these formats, and any other endpoint once.
fn in_formats(path: &str, target: String, read_formats: &[&str]) -> Vec<String> {
    match path.starts_with("/api/") {
        true => read_formats.iter().map(|format| format!("{target}format={format}")).collect(),
        false => vec![target],
    }
}

/// What a page is opened with: the views of entities, the editor of an entity, two versions.
fn variants(path: &str) -> Vec<String> {
    match path {
        path if path.ends_with("/edit") => vec![format!("{path}?position=0")],
        path if path.ends_with("/diff") => vec![format!("{path}?v1=1&v2=2"), format!("{path}?v1=1&v2=2&view=whole")],
        path if path.ends_with("/rollback") => vec![format!("{path}?version=1")],
        path if path.ends_with("/v1") => vec![path.to_owned(), format!("{path}?view=json")],
        path => vec![path.to_owned()],
    }
}

/// A connection that has sent a request and takes nothing of the response.
async fn slow_reader(server: SocketAddr, target: &str, headers: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("a size");
    socket.bind(SocketAddr::from((HOSTILE, 0))).expect("an address");
    let mut stream = socket.connect(server).await.expect("a connection");
    let request = format!("GET {target} HTTP/1.1\r\nHost: test\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    stream
}

/// 300 readers of one address that read nothing held a whole profile or page each: 1.6 GiB.
#[tokio::test(flavor = "multi_thread")]
async fn slow_readers_hold_bounded_memory() {
    let world = World::new(4, LARGE_TEXT_BYTES);
    let mut large = Vec::new();
    for (target, headers) in world.targets(&READ_FORMATS) {
        let (status, bytes) = world.read(HONEST, &target, headers).await;
        assert!(!status.is_server_error(), "{target}: {status}");
        if bytes > UNCHARGED_BYTES {
            large.push((target, headers, bytes));
        }
    }
    assert!(large.len() >= 8, "the dataset is not large: {large:?}");
    let profile =
        large.iter().find(|(target, ..)| target.starts_with("/dataset/profile")).map_or(0, |(.., bytes)| *bytes);
    assert!(profile >= MIN_PROFILE_BYTES, "the profile has {profile} bytes");
    let before = world.resident_bytes();
    for (target, headers, bytes) in large {
        let readers = (0..SLOW_READERS).map(|_| slow_reader(world.address(), &target, headers));
        let readers = join_all(readers).await;
        let answered = join_all(readers.iter().map(|reader| async { reader.peek(&mut [0; 1]).await.expect("a byte") }));
        tokio::time::timeout(HANG, answered).await.unwrap_or_else(|_| panic!("{target}: no response"));
        let growth = world.resident_bytes().saturating_sub(before);
        let health = world.health_p90_ms(50).await;
        eprintln!("{target}: {bytes} bytes, {} MiB more, p90 of /healthz {health:.1} ms", growth >> 20);
        assert!(growth <= GROWTH_BYTES, "{target}: {} MiB more", growth >> 20);
        let (other, _) = world.read(HONEST, "/dataset/profile?dataset_id=1", "").await;
        assert_eq!(other, StatusCode::OK, "{target}: another address");
        drop(readers);
        let held = "strata_gate_held_units{gate=\"response\"}";
        eventually(&format!("{target}: the memory is not released"), async || world.metric(held) == 0.0).await;
    }
    assert_eq!(world.server.stop("-TERM").0, Some(0));
}

/// 20 clients of `/dataset/profile` delayed `/healthz` to 3 s: responses were built on the threads that serve
/// connections, in polls of more than 10 ms each. One in ten may be one of a cache that is filled.
#[tokio::test(flavor = "multi_thread")]
async fn heavy_responses_leave_the_runtime_free() {
    let world = World::new(8, SMALL_TEXT_BYTES);
    for (target, headers) in world.targets(&READ_FORMATS) {
        let mut long_polls = f64::INFINITY;
        for _ in 0..TRIES {
            long_polls = long_polls.min(world.long_polls(&target, headers).await);
            if long_polls <= FAST_READERS as f64 / 10.0 {
                break;
            }
        }
        assert!(long_polls <= FAST_READERS as f64 / 10.0, "{target}: {long_polls} polls of more than 10 ms");
    }
    assert_eq!(world.server.stop("-TERM").0, Some(0));
}
