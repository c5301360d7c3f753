//! The server under load: disconnected, slow, and many streams; limits of connections and heavy queries; shutdown
//! during an export; logs.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use strata_config::{AllowedNetworks, Config};
use strata_testing::binary::Binary;
use strata_testing::loopback_server::{LoopbackServer, ok};
use strata_testing::owned::{Owned, parsed};
use strata_testing::service::ListeningService;
use strata_testing::serving::{get_request, read_head};
use strata_testing::{CapturedLog, TestService, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const EXPORT: &str = "/api/1/large/v1/?format=jsonl";
const PAGE: &str = "/api/1/large/v1/?limit=3&pretty=false";
const ENTITIES: usize = 24_000;

/// A dataset whose export (about 15 MB) exceeds the socket buffers.
fn large() -> String {
    let filler = "the quick brown fox jumps over the lazy dog ".repeat(13);
    (0..ENTITIES).map(|number| format!("{{\"n\":{number},\"text\":\"{filler}{number}\"}}\n")).collect()
}

/// A listening service with this dataset.
struct Listening {
    service: TestService,
    server: ListeningService,
}

impl Listening {
    async fn start(change: impl FnOnce(&mut Config)) -> Listening {
        let service = TestService::configured(change).await;
        service.import("Large", &large()).await;
        Listening { server: service.listen().await, service }
    }

    /// Starts an export on a connection with a small buffer, and reads only the head.
    async fn slow_export(&self) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("failed to create socket");
        socket.set_recv_buffer_size(4_096).expect("invalid size");
        let mut connection = socket.connect(self.server.address).await.expect("failed to connect");
        connection.write_all(get_request(EXPORT).as_bytes()).await.expect("failed to send");
        let head = read_head(&mut connection).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        connection
    }
}

// ---- streams ----

#[tokio::test]
async fn disconnect_stops_work_and_releases_resources() {
    let listening = Listening::start(|_| {}).await;
    let mut connections = Vec::new();
    for _ in 0..3 {
        connections.push(listening.slow_export().await);
    }
    assert_eq!(listening.service.services.current_load().streams_running, 3);
    eventually("bytes wait", async || listening.service.services.current_load().buffered_bytes > 0).await;
    drop(connections);
    eventually("all is given back", async || listening.service.is_idle()).await;
    // No task is left that could continue.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(listening.service.is_idle());
    }
}

/// If a client disconnects or half-closes, its request is canceled, possibly before it is handled. A refresh continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refresh_continues_after_disconnect() {
    let source = LoopbackServer::start(|_| ok("content-type: application/json\r\n", b"[{\"n\":1}]"));
    let owned = Owned::start(|config| {
        config.net.allow = AllowedNetworks::try_from(vec!["127.0.0.0/8".to_owned()]).expect("invalid network");
    })
    .await;
    let pushed = owned.dataset("Pushed", json!({}), &[]).await;
    let pinged = owned.dataset("Pinged", json!({"source": source.url("/data.json")}), &[]).await;
    let view = owned.call("GET", &format!("/dataset/view?dataset_id={pinged}"), "").await;
    let ping = parsed(&view)["dataset"]["ping_url"].as_str().expect("invalid URL").to_owned();
    let ping = format!("GET {} HTTP/1.1\r\nHost: test\r\n\r\n", &ping[ping.find("/ping/").expect("missing path")..]);
    let push = |text_bytes: usize| {
        let entity = format!("{{\"text\":\"{}\"}}\n", "x".repeat(text_bytes));
        format!(
            "POST /dataset/refresh?dataset_id={pushed} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n{entity}",
            owned.token(),
            entity.len()
        )
    };
    let listening = owned.service.listen().await;
    for round in 0..10 {
        for (id, request, before) in
            [(pushed, push(10), 2 * round), (pushed, push(1 << 20), 2 * round + 1), (pinged, ping.clone(), round)]
        {
            let mut connection = TcpStream::connect(listening.address).await.expect("failed to connect");
            connection.write_all(request.as_bytes()).await.expect("failed to send");
            let _half = match round % 2 {
                0 => None,
                _ => {
                    connection.shutdown().await.expect("failed to half-close");
                    Some(connection)
                }
            };
            eventually(&format!("version {before} of {id}, {} bytes, round {round}", request.len()), async || {
                owned.versions(id).await.len() == before + 1
            })
            .await;
        }
    }
}

#[tokio::test]
async fn slow_readers_use_limited_memory_and_block_no_one() {
    const READERS: usize = 30;
    const BUDGET: u64 = 1 << 20;

    let listening = Listening::start(|config| config.query.stream_bytes = BUDGET).await;
    let expected = listening.service.get(EXPORT).await;
    let page = listening.service.get(PAGE).await;
    let mut readers = Vec::new();
    for _ in 0..READERS {
        readers.push(listening.slow_export().await);
    }
    // All streams are blocked, so nothing is encoded anymore.
    eventually("the streams are all that is left", async || {
        listening.service.services.current_load().encodes_running == 0
            && listening.service.services.current_load().streams_running == READERS
    })
    .await;
    // The budget, and for each reader the bytes in its connection (up to 128 KiB) and one chunk ahead. Small chunks
    // contain 64 KiB of documents each.
    let max_bytes = BUDGET + READERS as u64 * 3 * (72 << 10);
    for _ in 0..10 {
        let answer = listening.service.get(PAGE).await;
        assert_eq!((answer.status, &answer.body), (200, &page.body));
        let load = listening.service.services.current_load();
        assert!(load.buffered_bytes <= max_bytes && load.reserved_ahead_bytes <= BUDGET, "{load:?}");
    }
    let answer = listening.service.get(EXPORT).await;
    assert_eq!((answer.status, answer.whole), (200, true));
    assert!(answer.body == expected.body, "the export differs with slow readers");

    // The slow readers also get everything.
    let mut reader = readers.pop().expect("a reader");
    let mut body = Vec::new();
    reader.read_to_end(&mut body).await.expect("failed to read");
    assert!(dechunked(&body) == expected.body);
}

/// Decodes a chunked body, which must end correctly.
fn dechunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = memchr::memmem::find(rest, b"\r\n").expect("invalid size");
        let size = std::str::from_utf8(&rest[..end]).expect("invalid size");
        let size = usize::from_str_radix(size, 16).expect("invalid size");
        body.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 2 + size + 2..];
        if size == 0 {
            assert!(rest.is_empty());
            return body;
        }
    }
}

// ---- heavy queries ----

#[tokio::test]
async fn heavy_queries_over_queue_limit_return_503() {
    let service = TestService::configured(|config| {
        config.query.heavy_queries = 1;
        config.query.heavy_queue = 1;
        config.query.heavy_bytes = 1 << 20;
    })
    .await;
    service.import("Large", &large()).await;
    let heavy =
        (0..40).map(|number| format!("/api/1/large/v1/?keywords=dog,{number}&sort=text:desc&count=false&limit=2"));
    let heavy: Vec<String> = heavy.collect();
    let light_queries =
        [PAGE.to_owned(), "/api/1/large/v1/?count=true".to_owned(), "/api/1/large/v1/?limit=1".to_owned()];
    let all = heavy.iter().chain(&light_queries).chain(&light_queries);
    let answers = join_all(all.map(|target| service.get(target))).await;
    let (heavy, light_queries) = answers.split_at(heavy.len());
    let refused: Vec<_> = heavy.iter().filter(|answer| answer.status == 503).collect();
    assert!(!refused.is_empty() && refused.len() < heavy.len(), "{} of {}", refused.len(), heavy.len());
    for answer in refused {
        answer.is_error(503);
        let expected = "Too many concurrent heavy queries, from this client or in total. Try again in 5 s, or make a \
                        smaller request.";
        assert!(answer.text().starts_with(expected), "{}", answer.text());
        // The text contains the delay (docs/reference/errors.md, Errors).
        assert_eq!(answer.header("retry-after"), None);
    }
    assert!(heavy.iter().all(|answer| matches!(answer.status, 200 | 503)));
    assert!(light_queries.iter().all(|answer| answer.status == 200));
    assert!(service.is_idle());
    // Without concurrent queries, each query succeeds.
    assert_eq!(service.get("/api/1/large/v1/?keywords=dog&sort=text:desc&limit=2").await.status, 200);
}

#[tokio::test]
async fn streamed_responses_have_own_permits() {
    let listening = Listening::start(|config| {
        config.query.streams = 1;
        config.query.heavy_queue = 0;
    })
    .await;
    let reader = listening.slow_export().await;
    for target in [EXPORT, "/api/1/large/v1/?format=csv", "/api/1/large/v1/?format=parquet"] {
        listening.service.get(target).await.is_error(503);
    }
    assert_eq!(listening.service.get(PAGE).await.status, 200);
    assert_eq!(listening.service.get("/api/1/large/v1/?format=csv&limit=3").await.status, 200);
    drop(reader);
    eventually("all is given back", async || listening.service.is_idle()).await;
    assert_eq!(listening.service.get(EXPORT).await.status, 200);
}

#[tokio::test]
async fn parquet_exports_use_half_of_query_memory() {
    let service = TestService::configured(|config| {
        // Half of this is enough for one export with a few columns.
        config.query.memory_bytes = Some(100 << 20);
        config.query.heavy_queue = 0;
        config.query.heavy_bytes = 1 << 40;
    })
    .await;
    service.import("Large", &large()).await;
    // All exports differ, so that no two share a job.
    let exports: Vec<_> = (0..8).map(|less| format!("/api/1/large/v1/?format=parquet&offset={less}")).collect();
    let answers = join_all(exports.iter().map(|target| service.get(target))).await;
    let refused = answers.iter().filter(|answer| answer.status == 503).count();
    assert!((1..exports.len()).contains(&refused), "{refused} of {}", exports.len());
    assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 503)));
    // Rejected exports release everything.
    eventually("all is given back", async || service.is_idle()).await;
    assert_eq!(service.get("/api/1/large/v1/?format=parquet&offset=7").await.status, 200);
}

// ---- logs and health ----

#[tokio::test]
async fn slow_request_log_has_query_and_plan() {
    let service = TestService::configured(|config| config.log.slow_request_ms = 1).await;
    let lines: String = (0..3_000).map(|number| format!("{{\"n\":{number},\"text\":\"word{number}\"}}\n")).collect();
    service.import("Words", &lines).await;
    let log = CapturedLog::default();
    let subscriber = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let answer = service.get("/api/1/words/v1/?keywords=word7&sort=n:desc&limit=2").await;
    let lines = log.lines();
    let line = |message: &str| lines.iter().find(|line| line["fields"]["message"] == message);
    let slow = line("slow request").unwrap_or_else(|| panic!("{lines:?}"));
    assert_eq!(slow["span"]["id"], answer.header("x-request-id").expect("missing ID"));
    assert_eq!(slow["fields"]["query"], "keywords=word7&sort=n:desc&limit=2");
    let plan = slow["fields"]["plan"].as_str().expect("missing plan");
    assert!(plan.contains("SortExec") && plan.contains(" <- VersionScan: positions=0..3000"), "{plan}");
    assert!(plan.contains("keywords=word7"), "{plan}");
    // The access log line does not change.
    let access = line("request").expect("missing access line");
    assert!(!access.to_string().contains("word7"), "{access}");
    assert_eq!(access["fields"]["path"], "/api/1/words/v1/");
    assert_eq!(access["fields"]["whole"], true);
}

#[tokio::test]
async fn draining_service_is_not_ready_but_responds() {
    let service = TestService::start().await;
    assert_eq!(service.get("/readyz").await.text(), "ok");
    service.services.readiness.begin_draining();
    service.get("/readyz").await.is_error(503);
    assert_eq!(service.get("/healthz").await.text(), "ok");
}

#[tokio::test]
async fn service_without_store_is_not_ready() {
    let service = TestService::configured(|config| {
        let endpoint = "http://127.0.0.1:9";
        config.store.allow_http = true;
        config.store.endpoint =
            Some(strata_config::StoreEndpoint::try_from(endpoint.to_owned()).expect("invalid endpoint"));
        config.store.url = Some(strata_config::StoreUrl::try_from("s3://bucket".to_owned()).expect("invalid URL"));
        config.store.region = Some("eu-central-1".to_owned());
        config.store.access_key_id = Some("key".to_owned());
        config.store.secret_access_key = Some(strata_types::secret::Secret::from_stored("secret".to_owned()));
    })
    .await;
    // The response is immediate, although the store client retries for a while.
    let answer = service.get("/readyz").await;
    answer.is_error(503);
    // Regression: the error was reported as a timeout.
    assert!(answer.text().contains("cannot write to the store: the connection was refused"), "{}", answer.text());
    assert_eq!(service.get("/healthz").await.text(), "ok");
}

#[tokio::test]
async fn sigterm_lets_slow_reader_finish_export() {
    let service = TestService::start().await;
    service.import("Large", &large()).await;
    let expected = service.get(EXPORT).await.body;
    let binary = Binary::start(service.directory(), &[]);
    let socket = TcpSocket::new_v4().expect("failed to create socket");
    socket.set_recv_buffer_size(4_096).expect("invalid size");
    let mut connection =
        socket.connect(binary.address.parse().expect("invalid address")).await.expect("failed to connect");
    connection.write_all(get_request(EXPORT).as_bytes()).await.expect("failed to send");
    assert!(read_head(&mut connection).await.starts_with("HTTP/1.1 200 "));

    binary.terminate();
    while TcpStream::connect(&binary.address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut body = vec![0; 100_000];
    // The client first reads small pieces slowly, and then the rest.
    for piece in body.chunks_mut(1_000) {
        connection.read_exact(piece).await.expect("failed to read");
        tokio::task::yield_now().await;
    }
    connection.read_to_end(&mut body).await.expect("failed to read");
    assert!(dechunked(&body) == expected, "the body is whole");
    assert_eq!(binary.exit_code(), Some(0));
}

#[tokio::test]
async fn shutdown_reports_not_ready_before_closing() {
    let service = TestService::start().await;
    let binary = Binary::start(service.directory(), &[("STRATA_SERVER__DRAIN_NOTICE_S", "2")]);
    assert_eq!(binary.get("/readyz").map(|answer| answer.1).as_deref(), Some("ok"));
    binary.terminate();
    let (status, text) = loop {
        let (status, text) = binary.get("/readyz").expect("failed to connect");
        if text != "ok" {
            break (status, text);
        }
    };
    assert!(status.starts_with("HTTP/1.1 503 ") && text.contains("not ready"), "{status}: {text}");
    assert_eq!(binary.get("/healthz").map(|answer| answer.1).as_deref(), Some("ok"));
    assert_eq!(binary.exit_code(), Some(0));
}

/// Sets the limit of open files of a process. `None` restores the original limit.
#[cfg(target_os = "linux")]
fn limit_open_files(process: u32, files: Option<usize>) {
    let files = files.map_or("4096".to_owned(), |files| files.to_string());
    let limited = Command::new("prlimit").args(["--pid", &process.to_string(), &format!("--nofile={files}:")]).status();
    assert!(limited.is_ok_and(|status| status.success()), "prlimit, of util-linux");
}

/// Returns the body of a response on a connection that stays open.
#[cfg(target_os = "linux")]
fn answer_on(connection: &mut std::net::TcpStream, target: &str) -> String {
    // A refused connection might already be closed, but its response is available.
    let _ = write!(connection, "GET {target} HTTP/1.1\r\nHost: test\r\n\r\n");
    let mut read = String::new();
    let mut byte = [0];
    while !read.ends_with("\r\n\r\n") {
        connection.read_exact(&mut byte).expect("failed to read response");
        read.push(char::from(byte[0]));
    }
    let length = read.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.expect("missing length")];
    connection.read_exact(&mut body).expect("missing body");
    String::from_utf8(body).expect("invalid UTF-8")
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn missing_descriptors_do_not_stop_open_connections() {
    use std::net::TcpStream;

    let service = TestService::start().await;
    let binary = Binary::start(service.directory(), &[]);
    let mut existing = TcpStream::connect(&binary.address).expect("failed to connect");
    assert_eq!(answer_on(&mut existing, "/readyz"), "ok");
    let open = format!("/proc/{}/fd", binary.child.id());
    let numbers = || -> std::collections::BTreeSet<usize> {
        let files = std::fs::read_dir(&open).expect("open files").flatten();
        files.filter_map(|file| file.file_name().to_str()?.parse().ok()).collect()
    };

    // All descriptors except two are in use: each new client is served or gets an error.
    let used = numbers();
    let free = (0..).filter(|number| !used.contains(number)).nth(2).expect("missing next item");
    limit_open_files(binary.child.id(), Some(free));
    let connect = || TcpStream::connect(&binary.address).expect("failed to connect");
    let mut newcomers: Vec<TcpStream> = (0..24).map(|_| connect()).collect();
    let mut refused = 0;
    for newcomer in &mut newcomers {
        let text = answer_on(newcomer, "/healthz");
        refused += usize::from(text.contains("no file descriptors left"));
        assert!(text == "ok" || text.contains("no file descriptors left"), "{text}");
        assert_eq!(answer_on(&mut existing, "/healthz"), "ok");
    }
    assert!(refused > 0, "there were descriptors for all");
    assert!(answer_on(&mut existing, "/readyz").contains("not ready"));

    // Without any descriptor, a new client waits.
    limit_open_files(binary.child.id(), Some(3));
    let mut newcomer = TcpStream::connect(&binary.address).expect("failed to connect");
    let waiting = std::thread::spawn(move || answer_on(&mut newcomer, "/healthz"));
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(answer_on(&mut existing, "/healthz"), "ok");
    }
    assert!(!waiting.is_finished());
    limit_open_files(binary.child.id(), None);
    assert_eq!(waiting.join().expect("task panicked"), "ok");
    let mut newcomer = TcpStream::connect(&binary.address).expect("failed to connect");
    assert_eq!(answer_on(&mut newcomer, "/readyz"), "ok");
    assert_eq!(answer_on(&mut existing, "/readyz"), "ok");
}

#[tokio::test]
async fn few_descriptors_reduce_connection_limit() {
    let service = TestService::start().await;
    let script = "ulimit -n 96; exec \"$0\" \"$@\"";
    let binary = Binary::start_through(&["sh", "-c", script], service.directory(), &[]);
    // 32 connections get slots. The others wait for idle ones, or get an error.
    let mut connections = Vec::new();
    for number in 0..100 {
        let socket = TcpSocket::new_v4().expect("failed to create socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 2 + number % 3], 0))).expect("an address of this machine");
        let mut connection =
            socket.connect(binary.address.parse().expect("invalid address")).await.expect("failed to connect");
        // A refused connection might already be closed, but its response is available.
        let _ = connection.write_all(b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n").await;
        connections.push(connection);
    }
    let mut served = 0;
    for connection in &mut connections {
        let head = read_head(connection).await;
        assert!(head.starts_with("HTTP/1.1 200 ") || head.starts_with("HTTP/1.1 503 "), "{head}");
        served += usize::from(head.starts_with("HTTP/1.1 200 "));
    }
    assert!(served > 32, "{served}");
    let metrics = binary.get("/metrics").expect("failed to read response").1;
    let count = |series: &str| strata_testing::metrics::value(&metrics, series).unwrap_or_default();
    assert_eq!(count("strata_connections_refused_total{reason=\"descriptors\"}"), 0.0, "{metrics}");
    assert!(count("strata_connections_released_total") > 0.0, "{metrics}");
}

/// A full disk or a closed pipe affects only the log.
#[tokio::test]
async fn unwritable_log_does_not_stop_service() {
    let service = TestService::start().await;
    for script in ["exec \"$0\" \"$@\" 2>/dev/full", "exec \"$0\" \"$@\" 2> >(exec 0<&-)"] {
        let binary = Binary::start_through(&["bash", "-c", script], service.directory(), &[]);
        for _ in 0..20 {
            assert_eq!(binary.get("/healthz").expect("failed to read response").1, "ok", "{script}");
        }
        binary.terminate();
        assert_eq!(binary.exit_code(), Some(0), "{script}");
    }
}
