//! The limits of the server, on routes of the tests' own: responses and clients that take too long, and connections.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use futures::future::join_all;
use futures::{StreamExt, stream};
use strata_config::Config;
use strata_http::server::ServerLimits;
use strata_testing::serving::{limits, slow, start};
use strata_testing::{Log, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

fn request(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
}

async fn head(connection: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(connection.read_u8().await.expect("more"));
    }
    String::from_utf8(read).expect("text")
}

#[tokio::test]
async fn an_answer_that_takes_too_long_is_cut() {
    let routes = Router::new().route(
        "/",
        get(async || {
            let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"first"))]);
            Body::from_stream(first.chain(stream::pending()))
        }),
    );
    let limits = ServerLimits { answer: Duration::from_millis(50), ..limits() };
    let address = start(routes, limits).await;
    let mut connection = TcpStream::connect(address).await.expect("a connection");
    connection.write_all(request("/").as_bytes()).await.expect("sent");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.expect("the server ends it");
    assert!(answer.ends_with("\r\n\r\n5\r\nfirst\r\n"), "without a final chunk: {answer}");
}

#[tokio::test]
async fn an_http2_client_that_opens_no_window_is_cut_too() {
    let (held, is_dropped) = oneshot::channel::<()>();
    let held = Arc::new(Mutex::new(Some(held)));
    let routes = Router::new().route(
        "/",
        get(async move || {
            let held = held.lock().expect("not poisoned").take();
            Body::from_stream(stream::repeat_with(move || {
                let _held = &held;
                Ok::<_, std::io::Error>(Bytes::from_static(b"x"))
            }))
        }),
    );
    let short = Duration::from_millis(50);
    let address = start(routes, ServerLimits { answer: short, write_stall: short, ..limits() }).await;
    let mut connection = TcpStream::connect(address).await.expect("a connection");
    connection.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("sent");
    // SETTINGS with an initial window of 0, then HEADERS on stream 1: GET, http, /.
    connection.write_all(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0]).await.expect("sent");
    connection.write_all(&[0, 0, 3, 1, 0x5, 0, 0, 0, 1, 0x82, 0x86, 0x84]).await.expect("sent");
    assert!(is_dropped.await.is_err(), "the body is dropped");
    drop(connection);
}

#[tokio::test]
async fn idle_connections_make_room_and_busy_ones_stay() {
    let (handler, was_started, finish) = slow();
    let routes = Router::new().route("/whole", get(async || "whole")).route("/slow", handler);
    let address = start(routes, ServerLimits { connections: 3, ..limits() }).await;
    let mut busy = TcpStream::connect(address).await.expect("a connection");
    busy.write_all(request("/slow").as_bytes()).await.expect("sent");
    was_started.await.expect("the handler runs");
    // One that has had its answer, and one that has sent nothing at all.
    let mut idle = TcpStream::connect(address).await.expect("a connection");
    idle.write_all(b"GET /whole HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("sent");
    head(&mut idle).await;
    let silent = TcpStream::connect(address).await.expect("a connection");

    // More of them than were idle, all at once.
    let newcomers = (0..4).map(|_| async {
        let mut connection = TcpStream::connect(address).await.expect("a connection");
        connection.write_all(b"GET /whole HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("sent");
        head(&mut connection).await;
        connection
    });
    let served = join_all(newcomers).await;
    assert_eq!(served.len(), 4);
    finish.send(()).expect("the handler waits");
    let mut answer = String::new();
    busy.read_to_string(&mut answer).await.expect("the answer");
    assert!(answer.ends_with("finished"), "{answer}");
    drop((idle, silent));
}

#[test]
fn every_limit_of_the_server_is_an_option() {
    let server = strata_config::Server {
        connections: 1,
        connections_per_client: 8,
        header_timeout_s: 2,
        write_stall_s: 3,
        answer_timeout_s: 4,
        header_bytes: 8_192,
        concurrent_streams: 5,
        keep_alive_s: 6,
        drain_s: 7,
        drain_idle_s: 9,
        ..strata_config::Server::default()
    };
    let seconds = Duration::from_secs;
    let expected = ServerLimits {
        connections: 1,
        connections_per_client: 8,
        trusted_proxies: server.trusted_proxies.clone(),
        header_read_timeout: seconds(2),
        body_bytes_per_s: 1_024,
        write_stall: seconds(3),
        answer: seconds(4),
        header_bytes: 8_192,
        concurrent_streams: 5,
        keep_alive: seconds(6),
        drain: seconds(7),
        drain_idle: seconds(9),
    };
    assert_eq!(ServerLimits::from(&Config { server, ..Config::default() }), expected);
}

/// Nobody asks such a body for its end.
#[tokio::test]
async fn a_streamed_body_whose_length_was_told_counts_as_whole_after_its_last_byte() {
    let told = get(async || {
        let parts = stream::iter(["half", "half"]).map(Ok::<_, std::io::Error>);
        ([("content-length", "8")], Body::from_stream(parts))
    });
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let address = start(Router::new().route("/told", told), limits()).await;
    let mut connection = TcpStream::connect(address).await.expect("a connection");
    connection.write_all(request("/told").as_bytes()).await.expect("sent");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.ends_with("halfhalf"), "{answer}");
    let access = || log.lines().into_iter().find(|line| line["fields"]["message"] == "request");
    eventually("the access line", async || access().is_some()).await;
    let line = access().expect("an access line");
    assert_eq!((&line["fields"]["bytes"], &line["fields"]["whole"]), (&8.into(), &true.into()));
}

#[tokio::test]
async fn the_text_of_a_failure_names_the_request() {
    let routes = Router::new().route("/panic", get(async || -> &'static str { panic!("a secret reason") }));
    let address = start(routes, limits()).await;
    let mut connection = TcpStream::connect(address).await.expect("a connection");
    connection.write_all(request("/panic").as_bytes()).await.expect("sent");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.expect("an answer");
    let (head, text) = answer.split_once("\r\n\r\n").expect("an answer");
    let head = head.to_lowercase();
    let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).expect("a header").to_owned();
    assert!(text.ends_with(&format!(" Request ID: {}.", header("x-request-id: "))), "{text}");
    assert_eq!(header("content-length: "), text.len().to_string());
}
