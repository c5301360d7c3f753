//! HTTP around the service: the order of the checks, the layers, and connections as a peer sees them.
//!
//! Here the routes are the tests' own or need no data; what needs datasets is tested beside them.

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
use strata_http::router::around;
use strata_http::server::{ServerLimits, serve_router};
use strata_testing::Log;
use strata_testing::serving::{limits, slow};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tower::Service;

// ---- the checks of a read that need no data ----

/// The answer to a read that is refused before any dataset is looked for.
async fn refusal(method: &str, uri: &str) -> Answer {
    let method: Method = method.parse().expect("a method");
    let uri: Uri = uri.parse().expect("a URI");
    match read::parse(&method, &uri) {
        Ok(parsed) => panic!("{method} {uri} was taken as {parsed:?}"),
        Err(error) => Answer::of(error.into_response()).await,
    }
}

#[tokio::test]
async fn the_method_is_checked_before_the_path_and_the_path_before_the_parameters() {
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
async fn a_wrong_path_names_the_wrong_part() {
    for (path, named) in [
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
        assert!(answer.text.contains(named), "{path}: {}", answer.text);
    }
}

#[tokio::test]
async fn a_query_string_that_is_too_long_is_414() {
    let answer = refusal("GET", &format!("/api/1/x/v1?filter=a:{}", "b".repeat(40_000))).await;
    assert_eq!(answer.status, StatusCode::URI_TOO_LONG);
    assert_eq!(answer.text, "Invalid query: the query string is 40009 bytes long; valid: at most 32768 bytes.");
}

#[test]
fn the_path_suffix_wins_over_the_parameter() {
    for (uri, alt) in [
        ("/api/1/x/v1", false),
        ("/api/1/x/v1?alt=1", true),
        ("/api/1/x/v1/alt/", true),
        ("/api/1/x/v1/alt?alt=false", true),
        ("/api/1/x/v1/?alt=false", false),
    ] {
        let parsed = read::parse(&Method::GET, &uri.parse().expect("a URI")).expect(uri);
        assert_eq!(parsed.request.alt, alt, "{uri}");
    }
}

// ---- the layers around every route ----

/// Routes that do what handlers may do.
fn sample_routes() -> Router {
    Router::new()
        .route("/whole", get(async || "whole"))
        .route("/change", post(async || "changed"))
        .route("/panic", get(async || -> &'static str { panic!("a secret reason") }))
        .route("/cut", get(async || body_that_fails_after("first")))
}

/// A body whose first chunk arrives, and then nothing but an error.
fn body_that_fails_after(first: &'static str) -> Body {
    let fails = stream::once(async {
        // So that the first chunk is on its way before the failure.
        tokio::time::sleep(Duration::from_millis(20)).await;
        Err(std::io::Error::other("the rest cannot be read"))
    });
    Body::from_stream(stream::iter([Ok(Bytes::from_static(first.as_bytes()))]).chain(fails))
}

#[tokio::test]
async fn a_path_without_a_route_is_404_in_plain_text() {
    for path in ["/", "/nothing", "/apiary", "/API/1/x/v1", "//api/1/x/v1"] {
        let answer = send(&mut around(sample_routes()), "GET", path).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        answer.is_plain_text();
    }
}

#[tokio::test]
async fn a_method_that_a_route_does_not_take_is_405_and_lists_those_it_takes() {
    let mut routes = around(sample_routes());
    for (method, path, allow) in [("POST", "/whole", "GET,HEAD"), ("GET", "/change", "POST")] {
        let answer = send(&mut routes, method, path).await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        assert_eq!(answer.header("allow"), Some(allow), "{path}");
        answer.is_plain_text();
    }
}

#[tokio::test]
async fn a_panic_is_500_in_plain_text_without_its_message() {
    let answer = send(&mut around(sample_routes()), "GET", "/panic").await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!answer.text.contains("secret"), "{}", answer.text);
    answer.is_plain_text();
}

#[tokio::test]
async fn every_request_is_logged_once_with_the_id_that_the_caller_gets() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let mut routes = around(sample_routes());

    let answer = send(&mut routes, "GET", "/whole?secret=1").await;
    let id = answer.header("x-request-id").expect("a request id").to_owned();
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
async fn a_whole_body_has_its_length_and_the_connection_stays_open() {
    let server = Server::start(sample_routes(), limits()).await;
    let mut connection = server.connect().await;
    for _ in 0..2 {
        connection.write_all(b"GET /whole HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("sent");
        let answer = read_until(&mut connection, "whole").await.to_lowercase();
        assert!(answer.starts_with("http/1.1 200 ok\r\n"), "{answer}");
        assert!(answer.contains("\r\ncontent-length: 5\r\n"), "{answer}");
    }
}

#[tokio::test]
async fn a_body_that_fails_is_cut_without_a_final_chunk() {
    let server = Server::start(sample_routes(), limits()).await;
    let answer = server.exchange(b"GET /cut HTTP/1.1\r\nHost: test\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.to_lowercase().contains("\r\ntransfer-encoding: chunked\r\n"), "{answer}");
    // The chunk came whole, and then the connection ended where a next chunk or the final one would stand.
    assert!(answer.ends_with("\r\n\r\n5\r\nfirst\r\n"), "{answer}");
}

#[tokio::test]
async fn http2_is_spoken_without_tls_and_a_body_that_fails_resets_its_stream() {
    const HEADERS: u8 = 1;
    const DATA: u8 = 0;
    const RST_STREAM: u8 = 3;
    const END_STREAM: u8 = 1;

    let server = Server::start(Router::new().route("/", get(async || body_that_fails_after("first"))), limits()).await;
    let mut connection = server.connect().await;
    connection.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("sent");
    connection.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("sent");
    // HEADERS on stream 1, complete: GET, http, / from HPACK's static table.
    connection.write_all(&[0, 0, 3, HEADERS, 0x5, 0, 0, 0, 1, 0x82, 0x86, 0x84]).await.expect("sent");

    let mut frames = Vec::new();
    loop {
        let mut head = [0; 9];
        connection.read_exact(&mut head).await.expect("a frame");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        connection.read_exact(&mut payload).await.expect("its payload");
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
async fn a_body_that_panics_is_cut_too() {
    let panics = async || {
        let chunks = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"first"))]);
        Body::from_stream(chunks.chain(stream::once(async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            panic!("in the middle of a body")
        })))
    };
    let server = Server::start(Router::new().route("/", get(panics)), limits()).await;
    let answer = server.exchange(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    assert!(answer.ends_with("\r\n\r\n5\r\nfirst\r\n"), "{answer}");
}

#[tokio::test]
async fn a_peer_that_does_not_send_its_request_is_let_go() {
    let impatient = ServerLimits { header_read_timeout: Duration::from_secs(1), ..limits() };
    let server = Server::start(sample_routes(), impatient).await;
    // Nothing at all; what might become HTTP/2; half a head; an idle connection after an answer.
    let begun = ["", "PRI * HT", "GET /whole HTTP/1.1\r\nHo", "GET /whole HTTP/1.1\r\nHost: test\r\n\r\n"];
    // Each returns when the server has closed the connection.
    let answers = join_all(begun.map(|begun| server.exchange(begun.as_bytes()))).await;
    for (begun, answer) in begun.iter().zip(answers) {
        assert_eq!(answer.ends_with("whole"), begun.ends_with("\r\n\r\n"), "{begun:?}: {answer}");
    }
}

#[tokio::test]
async fn a_peer_that_does_not_read_its_answer_is_let_go() {
    let (held, is_dropped) = oneshot::channel::<()>();
    let held = Arc::new(Mutex::new(Some(held)));
    let endless = async move || {
        let held = held.lock().expect("not poisoned").take();
        Body::from_stream(stream::repeat_with(move || {
            let _held = &held;
            Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 65_536]))
        }))
    };
    let impatient = ServerLimits { write_stall: Duration::from_millis(50), ..limits() };
    let server = Server::start(Router::new().route("/", get(endless)), impatient).await;
    let mut connection = server.connect().await;
    connection.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("sent");
    // The connection is still open on this side; the body is dropped nevertheless.
    assert!(is_dropped.await.is_err());
    drop(connection);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let server = Server::start(sample_routes(), limits()).await;
    let large = "x".repeat(limits().header_bytes as usize + 1);
    let request = format!("GET /whole HTTP/1.1\r\nHost: test\r\nX: {large}\r\n\r\n");
    let mut connection = server.connect().await;
    // The server may close before all of it is sent.
    let _ = connection.write_all(request.as_bytes()).await;
    let answer = read_until(&mut connection, "\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn connections_past_the_limit_wait_for_their_turn() {
    let server = Server::start(sample_routes(), ServerLimits { connections: 1, ..limits() }).await;
    let mut first = server.connect().await;
    first.write_all(b"GET /whole HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("sent");
    read_until(&mut first, "whole").await;

    let mut second = server.connect().await;
    second.write_all(b"GET /whole HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("sent");
    let mut byte = [0; 1];
    let early = tokio::time::timeout(Duration::from_millis(100), second.read(&mut byte)).await;
    assert!(early.is_err(), "served beside the first connection");
    drop(first);
    read_until(&mut second, "whole").await;
}

#[tokio::test]
async fn shutdown_lets_a_request_finish_and_accepts_no_other() {
    let (handler, was_started, finish) = slow();
    let routes = Router::new().route("/slow", handler);
    let mut server = Server::start(routes, limits()).await;
    let mut connection = server.connect().await;
    connection.write_all(b"GET /slow HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("sent");
    was_started.await.expect("the handler runs");

    server.begin_shutdown();
    while TcpStream::connect(server.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    finish.send(()).expect("the handler waits");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.expect("the whole answer, then the end");
    assert!(answer.ends_with("finished"), "{answer}");
    server.ended().await;
}

#[tokio::test]
async fn shutdown_cuts_what_does_not_end_within_the_drain_limit() {
    let routes = Router::new().route(
        "/endless",
        get(async || {
            let chunks = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"first"))]);
            Body::from_stream(chunks.chain(stream::once(pending())))
        }),
    );
    let mut server = Server::start(routes, ServerLimits { drain: Duration::from_millis(50), ..limits() }).await;
    let mut connection = server.connect().await;
    connection.write_all(b"GET /endless HTTP/1.1\r\nHost: test\r\n\r\n").await.expect("sent");
    read_until(&mut connection, "first").await;

    server.begin_shutdown();
    server.ended().await;
    let mut rest = Vec::new();
    // Either an end or a reset, but no final chunk.
    let _ = connection.read_to_end(&mut rest).await;
    assert_eq!(String::from_utf8_lossy(&rest).trim(), "");
}

// ---- what the tests are written with ----

/// A response, read to its end.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    async fn of(response: axum::response::Response) -> Answer {
        let (parts, mut body) = response.into_parts();
        let mut bytes = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
        let text = String::from_utf8(bytes).expect("text");
        Answer { status: parts.status, headers: parts.headers, text }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    /// An error answer: readable, on one line, and not to be taken for anything else.
    #[track_caller]
    fn is_plain_text(&self) {
        assert_eq!(self.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"));
        assert!(!self.text.is_empty() && !self.text.contains('\n'), "{:?}", self.text);
    }
}

/// One request to a router, in process.
async fn send(router: &mut Router, method: &str, uri: &str) -> Answer {
    let request = Request::builder().method(method).uri(uri).body(Body::empty()).expect("a request");
    let response = match router.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    Answer::of(response).await
}

/// A server on a free port, with the layers of the service around the given routes.
struct Server {
    address: SocketAddr,
    shutdown: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn start(routes: Router, limits: ServerLimits) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let (shutdown, is_shutdown) = oneshot::channel();
        let task = tokio::spawn(async move {
            serve_router(around(routes), listener, limits, is_shutdown, |_| ()).await.expect("no failure");
        });
        Server { address, shutdown: Some(shutdown), task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("a connection")
    }

    /// Sends bytes on a new connection and reads until the server closes it.
    async fn exchange(&self, bytes: &[u8]) -> String {
        let mut connection = self.connect().await;
        connection.write_all(bytes).await.expect("sent");
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.expect("an answer");
        String::from_utf8(answer).expect("text")
    }

    fn begin_shutdown(&mut self) {
        self.shutdown.take();
    }

    async fn ended(self) {
        self.task.await.expect("the server ends");
    }
}

/// Reads until the text ends with `end`.
async fn read_until(connection: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    while !read.ends_with(end.as_bytes()) {
        read.push(connection.read_u8().await.expect("more"));
    }
    String::from_utf8(read).expect("text")
}
