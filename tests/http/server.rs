//! The limits of the server, tested with simple routes: slow responses, slow clients, and connections.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use futures::future::join_all;
use futures::{StreamExt, stream};
use strata_config::Config;
use strata_http::server::ServerLimits;
use strata_testing::serving::{get_request, limits, read_head, slow, start};
use strata_testing::{CapturedLog, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

#[tokio::test]
async fn response_over_timeout_is_interrupted() {
    let routes = Router::new().route(
        "/",
        get(async || {
            let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"first"))]);
            Body::from_stream(first.chain(stream::pending()))
        }),
    );
    let limits = ServerLimits { response_timeout: Duration::from_millis(50), ..limits() };
    let address = start(routes, limits).await;
    let mut connection = TcpStream::connect(address).await.expect("failed to connect");
    connection.write_all(get_request("/").as_bytes()).await.expect("failed to send");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.expect("not closed by server");
    assert!(answer.ends_with("\r\n\r\n5\r\nfirst\r\n"), "without a final chunk: {answer}");
}

#[tokio::test]
async fn http2_client_without_window_is_disconnected() {
    let (drop_signal, is_dropped) = oneshot::channel::<()>();
    let drop_signal = Arc::new(Mutex::new(Some(drop_signal)));
    let routes = Router::new().route(
        "/",
        get(async move || {
            let drop_signal = drop_signal.lock().expect("poisoned lock").take();
            Body::from_stream(stream::repeat_with(move || {
                let _permit = &drop_signal;
                Ok::<_, std::io::Error>(Bytes::from_static(b"x"))
            }))
        }),
    );
    let short = Duration::from_millis(50);
    let address = start(routes, ServerLimits { response_timeout: short, write_timeout: short, ..limits() }).await;
    let mut connection = TcpStream::connect(address).await.expect("failed to connect");
    connection.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("failed to send");
    // SETTINGS with an initial window of 0, then HEADERS on stream 1: GET, http, /.
    connection.write_all(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0]).await.expect("failed to send");
    connection.write_all(&[0, 0, 3, 1, 0x5, 0, 0, 0, 1, 0x82, 0x86, 0x84]).await.expect("failed to send");
    assert!(is_dropped.await.is_err(), "the body is dropped");
    drop(connection);
}

#[tokio::test]
async fn idle_connections_are_released_before_busy_ones() {
    let (method_router, was_started, finish) = slow();
    let routes = Router::new().route("/whole", get(async || "whole")).route("/slow", method_router);
    let address = start(routes, ServerLimits { max_connections: 3, ..limits() }).await;
    let mut busy = TcpStream::connect(address).await.expect("failed to connect");
    busy.write_all(get_request("/slow").as_bytes()).await.expect("failed to send");
    was_started.await.expect("handler is not running");
    // One connection has received its response, and one has sent nothing.
    let mut idle = TcpStream::connect(address).await.expect("failed to connect");
    idle.write_all(b"GET /whole HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("failed to send");
    read_head(&mut idle).await;
    let silent = TcpStream::connect(address).await.expect("failed to connect");

    // There are more new clients than idle connections.
    let newcomers = (0..4).map(|_| async {
        let mut connection = TcpStream::connect(address).await.expect("failed to connect");
        connection.write_all(b"GET /whole HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("failed to send");
        read_head(&mut connection).await;
        connection
    });
    let served = join_all(newcomers).await;
    assert_eq!(served.len(), 4);
    finish.send(()).expect("handler is not waiting");
    let mut answer = String::new();
    busy.read_to_string(&mut answer).await.expect("failed to read response");
    assert!(answer.ends_with("finished"), "{answer}");
    drop((idle, silent));
}

#[test]
fn server_limits_come_from_config() {
    let server = strata_config::HttpServerConfig {
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
        ..strata_config::HttpServerConfig::default()
    };
    let seconds = Duration::from_secs;
    let expected = ServerLimits {
        max_connections: 1,
        max_connections_per_client: 8,
        trusted_proxies: server.trusted_proxies.clone(),
        header_read_timeout: seconds(2),
        min_body_bytes_per_s: 1_024,
        write_timeout: seconds(3),
        response_timeout: seconds(4),
        max_header_bytes: 8_192,
        max_concurrent_streams: 5,
        keep_alive_interval: seconds(6),
        drain_timeout: seconds(7),
        idle_drain_timeout: seconds(9),
    };
    assert_eq!(ServerLimits::from(&Config { server, ..Config::default() }), expected);
}

/// Such a body is never polled for its end.
#[tokio::test]
async fn body_with_length_is_whole_after_last_byte() {
    let sized = get(async || {
        let parts = stream::iter(["half", "half"]).map(Ok::<_, std::io::Error>);
        ([("content-length", "8")], Body::from_stream(parts))
    });
    let log = CapturedLog::default();
    let subscriber = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let address = start(Router::new().route("/sized", sized), limits()).await;
    let mut connection = TcpStream::connect(address).await.expect("failed to connect");
    connection.write_all(get_request("/sized").as_bytes()).await.expect("failed to send");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.expect("failed to read response");
    assert!(answer.ends_with("halfhalf"), "{answer}");
    let access = || log.lines().into_iter().find(|line| line["fields"]["message"] == "request");
    eventually("the access line", async || access().is_some()).await;
    let line = access().expect("missing access line");
    assert_eq!((&line["fields"]["bytes"], &line["fields"]["whole"]), (&8.into(), &true.into()));
}

#[tokio::test]
async fn server_error_contains_request_id() {
    let routes = Router::new().route("/panic", get(async || -> &'static str { panic!("a secret reason") }));
    let address = start(routes, limits()).await;
    let mut connection = TcpStream::connect(address).await.expect("failed to connect");
    connection.write_all(get_request("/panic").as_bytes()).await.expect("failed to send");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.expect("failed to read response");
    let (head, text) = answer.split_once("\r\n\r\n").expect("failed to read response");
    let head = head.to_lowercase();
    let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).expect("invalid header").to_owned();
    assert!(text.ends_with(&format!(" Request ID: {}.", header("x-request-id: "))), "{text}");
    assert_eq!(header("content-length: "), text.len().to_string());
}
