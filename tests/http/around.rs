//! HTTP behavior that needs no datasets: the order of checks, the layers, and connections at the byte level.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode, Uri};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use futures::future::join_all;
use futures::{StreamExt, stream};
use http_body_util::BodyExt;
use strata_http::read;
use strata_http::router::with_fallbacks_and_layers;
use strata_http::server::{ServerLimits, serve_router};
use strata_testing::CapturedLog;
use strata_testing::serving::{limits, slow};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tower::Service;

// ---- checks of a read that need no data ----

/// Returns the error of a read that is rejected before any lookup.
async fn refusal(method: &str, uri: &str) -> CollectedResponse {
    let method: Method = method.parse().expect("invalid method");
    let uri: Uri = uri.parse().expect("invalid URI");
    match read::parse_read(&method, &uri) {
        Ok(parsed) => panic!("{method} {uri} was taken as {parsed:?}"),
        Err(error) => CollectedResponse::from_response(error.into_response()).await,
    }
}

#[tokio::test]
async fn read_checks_method_then_path_then_parameters() {
    for method in ["HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH", "BREW"] {
        for uri in ["/api/1/x/active/", "/api/wrong?limit=x", "/api/", "/api"] {
            let answer = refusal(method, uri).await;
            assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{method} {uri}");
            assert_eq!(answer.header("allow"), Some("GET"));
            answer.is_plain_text();
        }
    }

    let answer = refusal("GET", "/api/0/x/active/?limit=x").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        answer.text,
        r#"Invalid path: dataset_id is "0"; valid: a positive integer in decimal digits, without leading zeros."#
    );
    answer.is_plain_text();

    let answer = refusal("GET", "/api/1/x/active/?limit=x").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        answer.text,
        "Invalid query: parameter limit: \"x\" is not a whole number; \
         valid: decimal digits only, from 0 to 18446744073709551615."
    );
    answer.is_plain_text();
}

#[tokio::test]
async fn invalid_path_error_contains_segment() {
    for (path, segment) in [
        ("/api", "dataset_id is missing"),
        ("/api/1", "name_slug is missing"),
        ("/api/1/x/", "version is missing"),
        ("/api/1.0/x/v1", "dataset_id is \"1.0\""),
        ("/api/1/%FF/v1", "name_slug is \"%FF\""),
        ("/api/1/x/V1", "version is \"V1\""),
        ("/api/1/x/v1/alt/x", "\"alt/x\" after the version is not valid"),
    ] {
        let answer = refusal("GET", path).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}");
        assert!(answer.text.contains(segment), "{path}: {}", answer.text);
    }
}

#[tokio::test]
async fn long_query_string_returns_414() {
    let answer = refusal("GET", &format!("/api/1/x/v1?filter=a:{}", "b".repeat(40_000))).await;
    assert_eq!(answer.status, StatusCode::URI_TOO_LONG);
    assert_eq!(answer.text, "Invalid query: the query string is 40009 bytes long; valid: at most 32768 bytes.");
}

#[test]
fn alt_path_suffix_overrides_parameter() {
    for (uri, alt) in [
        ("/api/1/x/v1", false),
        ("/api/1/x/v1?alt=1", true),
        ("/api/1/x/v1/alt/", true),
        ("/api/1/x/v1/alt?alt=false", true),
        ("/api/1/x/v1/?alt=false", false),
    ] {
        let parsed = read::parse_read(&Method::GET, &uri.parse().expect("invalid URI")).expect(uri);
        assert_eq!(parsed.request.alt, alt, "{uri}");
    }
}

// ---- the layers around every route ----

/// Routes with typical handlers.
fn sample_routes() -> Router {
    Router::new()
        .route("/whole", get(async || "whole"))
        .route("/change", post(async || "changed"))
        .route("/panic", get(async || -> &'static str { panic!("a secret reason") }))
        .route("/cut", get(async || body_that_fails_after("first")))
}

/// A body that fails after its first chunk.
fn body_that_fails_after(first: &'static str) -> Body {
    let fails = stream::once(async {
        // The first chunk must be sent before the failure.
        tokio::time::sleep(Duration::from_millis(20)).await;
        Err(std::io::Error::other("the rest cannot be read"))
    });
    Body::from_stream(stream::iter([Ok(Bytes::from_static(first.as_bytes()))]).chain(fails))
}

#[tokio::test]
async fn unknown_path_returns_404_as_plain_text() {
    for path in ["/", "/nothing", "/apiary", "/API/1/x/v1", "//api/1/x/v1"] {
        let answer = send(&mut with_fallbacks_and_layers(sample_routes()), "GET", path).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        answer.is_plain_text();
    }
}

#[tokio::test]
async fn wrong_method_returns_405_with_allow() {
    let mut routes = with_fallbacks_and_layers(sample_routes());
    for (method, path, allow) in [("POST", "/whole", "GET,HEAD"), ("GET", "/change", "POST")] {
        let answer = send(&mut routes, method, path).await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        assert_eq!(answer.header("allow"), Some(allow), "{path}");
        answer.is_plain_text();
    }
}

#[tokio::test]
async fn handler_panic_returns_500_without_message() {
    let answer = send(&mut with_fallbacks_and_layers(sample_routes()), "GET", "/panic").await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!answer.text.contains("secret"), "{}", answer.text);
    answer.is_plain_text();
}

#[tokio::test]
async fn request_is_logged_once_with_its_id() {
    let log = CapturedLog::default();
    let subscriber = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let mut routes = with_fallbacks_and_layers(sample_routes());

    let answer = send(&mut routes, "GET", "/whole?secret=1").await;
    let id = answer.header("x-request-id").expect("missing request ID").to_owned();
    let lines = log.take();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    let fields = &line["fields"];
    assert_eq!(fields["method"], "GET");
    assert_eq!(fields["path"], "/whole");
    assert_eq!(fields["status"], 200);
    assert_eq!(fields["bytes"], 5);
    assert_eq!(fields["whole"], true);
    assert!(fields["duration_us"].is_u64());
    assert_eq!(line["span"]["id"], id);

    send(&mut routes, "GET", "/panic").await;
    let lines = log.take();
    let [cause, line] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(cause["fields"]["message"], "handler panicked");
    assert_eq!(cause["fields"]["error"], "a secret reason");
    assert_eq!(cause["span"]["id"], line["span"]["id"]);
    assert_ne!(line["span"]["id"], id);

    send(&mut routes, "GET", "/cut").await;
    let lines = log.take();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((&line["fields"]["bytes"], &line["fields"]["whole"]), (&5.into(), &false.into()));
}

// ---- connections, byte by byte ----

#[tokio::test]
async fn whole_body_has_length_and_keeps_connection() {
    let server = LayeredServer::start(sample_routes(), limits()).await;
    let mut connection = server.connect().await;
    for _ in 0..2 {
        connection.write_all(b"GET /whole HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("failed to send");
        let answer = read_until(&mut connection, "whole").await.to_lowercase();
        assert!(answer.starts_with("http/1.1 200 ok\r\n"), "{answer}");
        assert!(answer.contains("\r\ncontent-length: 5\r\n"), "{answer}");
    }
}

#[tokio::test]
async fn failed_body_has_no_final_chunk() {
    let server = LayeredServer::start(sample_routes(), limits()).await;
    let answer = server.exchange(b"GET /cut HTTP/1.1\r\nHost: test\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.to_lowercase().contains("\r\ntransfer-encoding: chunked\r\n"), "{answer}");
    // The first chunk is complete, but the connection ended before the final chunk.
    assert!(answer.ends_with("\r\n\r\n5\r\nfirst\r\n"), "{answer}");
}

#[tokio::test]
async fn http2_failed_body_resets_stream() {
    const HEADERS: u8 = 1;
    const DATA: u8 = 0;
    const RST_STREAM: u8 = 3;
    const END_STREAM: u8 = 1;

    let routes = Router::new().route("/", get(async || body_that_fails_after("first")));
    let server = LayeredServer::start(routes, limits()).await;
    let mut connection = server.connect().await;
    connection.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("failed to send");
    connection.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("failed to send");
    // HEADERS on stream 1, complete: GET, http, / from HPACK's static table.
    connection.write_all(&[0, 0, 3, HEADERS, 0x5, 0, 0, 0, 1, 0x82, 0x86, 0x84]).await.expect("failed to send");

    let mut frames = Vec::new();
    loop {
        let mut head = [0; 9];
        connection.read_exact(&mut head).await.expect("missing frame");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        connection.read_exact(&mut payload).await.expect("failed to read payload");
        if head[8] == 1 {
            assert_ne!(head[4] & END_STREAM, END_STREAM, "a cut body must not look whole");
            frames.push((head[3], payload));
        }
        if head[3] == RST_STREAM {
            break;
        }
    }
    let kinds: Vec<u8> = frames.iter().map(|frame| frame.0).collect();
    assert_eq!(kinds, [HEADERS, DATA, RST_STREAM]);
    assert_eq!(frames[1].1, b"first");
}

#[tokio::test]
async fn panicked_body_has_no_final_chunk() {
    let panics = async || {
        let chunks = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"first"))]);
        Body::from_stream(chunks.chain(stream::once(async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            panic!("in the middle of a body")
        })))
    };
    let server = LayeredServer::start(Router::new().route("/", get(panics)), limits()).await;
    let answer = server.exchange(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    assert!(answer.ends_with("\r\n\r\n5\r\nfirst\r\n"), "{answer}");
}

#[tokio::test]
async fn client_without_request_is_disconnected() {
    let impatient = ServerLimits { header_read_timeout: Duration::from_secs(1), ..limits() };
    let server = LayeredServer::start(sample_routes(), impatient).await;
    // Nothing; a prefix of the HTTP/2 preface; half a head; an idle connection after a response.
    let begun = ["", "PRI * HT", "GET /whole HTTP/1.1\r\nHo", "GET /whole HTTP/1.1\r\nHost: test\r\n\r\n"];
    // Each connection is finished when the server has closed it.
    let answers = join_all(begun.map(|begun| server.exchange(begun.as_bytes()))).await;
    for (begun, answer) in begun.iter().zip(answers) {
        assert_eq!(answer.ends_with("whole"), begun.ends_with("\r\n\r\n"), "{begun:?}: {answer}");
    }
}

#[tokio::test]
async fn client_that_does_not_read_is_disconnected() {
    let (drop_signal, is_dropped) = oneshot::channel::<()>();
    let drop_signal = Arc::new(Mutex::new(Some(drop_signal)));
    let endless = async move || {
        let drop_signal = drop_signal.lock().expect("poisoned lock").take();
        Body::from_stream(stream::repeat_with(move || {
            let _permit = &drop_signal;
            Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 65_536]))
        }))
    };
    let impatient = ServerLimits { write_timeout: Duration::from_millis(50), ..limits() };
    let server = LayeredServer::start(Router::new().route("/", get(endless)), impatient).await;
    let mut connection = server.connect().await;
    connection.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("failed to send");
    // The connection is still open on this side; the body is dropped nevertheless.
    assert!(is_dropped.await.is_err());
    drop(connection);
}

#[tokio::test]
async fn large_request_head_returns_431() {
    let server = LayeredServer::start(sample_routes(), limits()).await;
    let large = "x".repeat(limits().max_header_bytes as usize + 1);
    let request = format!("GET /whole HTTP/1.1\r\nHost: test\r\nX: {large}\r\n\r\n");
    let mut connection = server.connect().await;
    // The server can close the connection before all bytes are sent.
    let _ = connection.write_all(request.as_bytes()).await;
    let answer = read_until(&mut connection, "\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn connection_over_limit_waits() {
    let server = LayeredServer::start(sample_routes(), ServerLimits { max_connections: 1, ..limits() }).await;
    let mut first = server.connect().await;
    first.write_all(b"GET /whole HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("failed to send");
    read_until(&mut first, "whole").await;

    let mut second = server.connect().await;
    second.write_all(b"GET /whole HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("failed to send");
    let mut byte = [0; 1];
    let early = tokio::time::timeout(Duration::from_millis(100), second.read(&mut byte)).await;
    assert!(early.is_err(), "served before the first connection was closed");
    drop(first);
    read_until(&mut second, "whole").await;
}

#[tokio::test]
async fn shutdown_finishes_request_and_accepts_no_other() {
    let (method_router, was_started, finish) = slow();
    let routes = Router::new().route("/slow", method_router);
    let mut server = LayeredServer::start(routes, limits()).await;
    let mut connection = server.connect().await;
    connection.write_all(b"GET /slow HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("failed to send");
    was_started.await.expect("handler is not running");

    server.begin_shutdown();
    while TcpStream::connect(server.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    finish.send(()).expect("handler is not waiting");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.expect("failed to read");
    assert!(answer.ends_with("finished"), "{answer}");
    server.ended().await;
}

#[tokio::test]
async fn shutdown_closes_connections_after_drain_timeout() {
    let routes = Router::new().route(
        "/endless",
        get(async || {
            let chunks = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"first"))]);
            Body::from_stream(chunks.chain(stream::once(pending())))
        }),
    );
    let limits = ServerLimits { drain_timeout: Duration::from_millis(50), ..limits() };
    let mut server = LayeredServer::start(routes, limits).await;
    let mut connection = server.connect().await;
    connection.write_all(b"GET /endless HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("failed to send");
    read_until(&mut connection, "first").await;

    server.begin_shutdown();
    server.ended().await;
    let mut rest = Vec::new();
    // The stream ends or is reset, but has no final chunk.
    let _ = connection.read_to_end(&mut rest).await;
    assert_eq!(String::from_utf8_lossy(&rest).trim(), "");
}

// ---- helpers ----

/// A response, read to its end.
struct CollectedResponse {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl CollectedResponse {
    async fn from_response(response: axum::response::Response) -> CollectedResponse {
        let (parts, mut body) = response.into_parts();
        let mut bytes = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
        let text = String::from_utf8(bytes).expect("invalid UTF-8");
        CollectedResponse { status: parts.status, headers: parts.headers, text }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("invalid UTF-8"))
    }

    /// Checks that the response is an error in plain text on one line.
    #[track_caller]
    fn is_plain_text(&self) {
        assert_eq!(self.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"));
        assert!(!self.text.is_empty() && !self.text.contains('\n'), "{:?}", self.text);
    }
}

/// Sends one request to a router without a connection.
async fn send(router: &mut Router, method: &str, uri: &str) -> CollectedResponse {
    let request = Request::builder().method(method).uri(uri).body(Body::empty()).expect("invalid request");
    let response = match router.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    CollectedResponse::from_response(response).await
}

/// A server on a free port, with the layers of the service around the routes.
struct LayeredServer {
    address: SocketAddr,
    shutdown: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

impl LayeredServer {
    async fn start(routes: Router, limits: ServerLimits) -> LayeredServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("failed to bind");
        let address = listener.local_addr().expect("failed to get address");
        let (shutdown, is_shutdown) = oneshot::channel();
        let task = tokio::spawn(async move {
            serve_router(with_fallbacks_and_layers(routes), listener, limits, is_shutdown, |_| ())
                .await
                .expect("server failed");
        });
        LayeredServer { address, shutdown: Some(shutdown), task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("failed to connect")
    }

    /// Sends bytes on a new connection and reads until the server closes it.
    async fn exchange(&self, bytes: &[u8]) -> String {
        let mut connection = self.connect().await;
        connection.write_all(bytes).await.expect("failed to send");
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.expect("failed to read response");
        String::from_utf8(answer).expect("invalid UTF-8")
    }

    fn begin_shutdown(&mut self) {
        self.shutdown.take();
    }

    async fn ended(self) {
        self.task.await.expect("server did not end");
    }
}

/// Reads until the text ends with `end`.
async fn read_until(connection: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    while !read.ends_with(end.as_bytes()) {
        read.push(connection.read_u8().await.expect("failed to read"));
    }
    String::from_utf8(read).expect("invalid UTF-8")
}
