//! Request targets with characters that clients should have escaped, over a connection.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::any;
use http_body_util::BodyExt;
use strata_http as http;
use strata_http::router::with_fallbacks_and_layers;
use strata_http::server::{ServerLimits, serve_router};
use strata_testing::TestService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Returns the response to these bytes, sent in chunks of `part` bytes.
async fn exchange(to: SocketAddr, bytes: &[u8], part: usize) -> String {
    let mut connection = TcpStream::connect(to).await.expect("failed to connect");
    connection.set_nodelay(true).expect("failed to set");
    for part in bytes.chunks(part) {
        connection.write_all(part).await.expect("failed to send");
        tokio::task::yield_now().await;
    }
    let mut answer = Vec::new();
    let reading = connection.read_to_end(&mut answer);
    tokio::time::timeout(std::time::Duration::from_secs(30), reading)
        .await
        .expect("did not end in time")
        .expect("failed to read");
    String::from_utf8(answer).expect("invalid UTF-8")
}

fn get(target: &[u8]) -> Vec<u8> {
    [b"GET ", target, b" HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"].concat()
}

/// Returns the status and the body, and checks that the response has a request ID.
#[track_caller]
fn status_and_body(answer: &str) -> (u16, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer}"));
    assert!(head.contains("\r\nx-request-id: "), "{head}");
    (head[9..12].parse().expect("missing status"), body.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unescaped_query_equals_escaped_query() {
    let service = TestService::start().await;
    let entities = r#"[{"area":">1000"},{"area":"<1"},{"area":"a \"b\" {c|d^e}`"},{"name":"Köln"}]"#;
    service.import("Areas", entities).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("failed to bind");
    let address = listener.local_addr().expect("failed to get address");
    let services = service.services.clone();
    tokio::spawn(async move { http::serve(services, listener, std::future::pending::<()>()).await });
    let read = async |query: &[u8]| {
        let target = [b"/api/1/areas/v1/?pretty=false&include_source=false&", query].concat();
        status_and_body(&exchange(address, &get(&target), 1_000).await)
    };
    for (typed, escaped, found) in [
        (&b"filter=area:>1000"[..], "filter=area:%3E1000", r#"[{"area":">1000"}]"#),
        (b"filter=area:<1", "filter=area:%3C1", r#"[{"area":"<1"}]"#),
        (
            b"filter=area:a+\"b\"+{c|d^e}`",
            "filter=area:a+%22b%22+%7Bc%7Cd%5Ee%7D%60",
            r#"[{"area":"a \"b\" {c|d^e}`"}]"#,
        ),
        ("filter=name:köln".as_bytes(), "filter=name:k%C3%B6ln", r#"[{"name":"Köln"}]"#),
    ] {
        assert_eq!(read(typed).await, (200, found.to_owned()));
        assert_eq!(read(typed).await, read(escaped.as_bytes()).await);
    }
    // Errors have a text.
    let (status, text) = read(b"filter=name:k\xf6ln").await;
    assert_eq!(status, 400);
    assert!(text.contains("parameter filter: \"name:k%F6ln\" is not UTF-8"), "{text}");
    let (status, text) = status_and_body(&exchange(address, &get(b"/api/<1>/areas/v1/"), 1_000).await);
    assert!(status == 400 && text.contains("dataset_id is \"%3C1%3E\""), "{status} {text}");
    let counted = status_and_body(&exchange(address, &get(b"/metrics"), 1_000).await).1;
    let refused = counted.lines().find(|line| line.contains("/api/{*path}") && line.contains("\"400\""));
    assert!(refused.is_some_and(|line| !line.ends_with(" 0")), "{counted}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_are_not_changed() {
    let echo = async |request: Request| {
        let target = request.uri().to_string();
        let body = request.into_body().collect().await.expect("missing body").to_bytes();
        Body::from(format!("[{target} {}]", String::from_utf8_lossy(&body)))
    };
    // This handler does not read the body, which is discarded.
    let refuse = async || "refused";
    let routes = Router::new().route("/echo", any(echo)).route("/refuse", any(refuse));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("failed to bind");
    let address = listener.local_addr().expect("failed to get address");
    let limits = ServerLimits::from(&strata_config::Config::default());
    tokio::spawn(serve_router(
        with_fallbacks_and_layers(routes),
        listener,
        limits,
        std::future::pending::<()>(),
        |_| (),
    ));

    let inner = "GET /echo?<inner> HTTP/1.1\r\nHost: a\r\n\r\n";
    let post = |path: &str, more: &str, body: &str| {
        format!("POST {path}?> HTTP/1.1\r\nHost: a\r\nX: <\r\n{more}Content-Length: {}\r\n\r\n{body}", body.len())
    };
    let stream = [
        "GET /echo?a=<1> HTTP/1.1\r\nHost: a\r\n\r\n",
        &post("/echo", "", inner),
        &post("/echo", "", ""),
        &post("/refuse", "", inner),
        "GET /echo?é HTTP/1.1\r\nHost: a\r\n\r\n",
        &post("/echo", "", &inner.repeat(1_000)),
        "GET /echo?\" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    ]
    .concat();
    let long = inner.repeat(1_000);
    let expected = [
        "[/echo?a=%3C1%3E ]",
        &format!("[/echo?%3E {inner}]"),
        "[/echo?%3E ]",
        "refused",
        "[/echo?%C3%A9 ]",
        &format!("[/echo?%3E {long}]"),
        "[/echo?%22 ]",
    ];
    for part in [1, 10, 100, 100_000] {
        let answer = exchange(address, stream.as_bytes(), part).await;
        let mut rest = answer.as_str();
        for expected in expected {
            let (_, after) = rest.split_once(expected).unwrap_or_else(|| panic!("no {expected:.60} in {rest:.2000}"));
            rest = after;
        }
        assert_eq!(rest, "", "{part}");
        assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), expected.len());
    }
    // A chunked body also reaches the handler. Nothing after it is changed.
    let chunked = format!(
        "POST /echo?> HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{inner}\r\n0\r\n\r\n\
         GET /echo?plain HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        inner.len()
    );
    for part in [1, 100_000] {
        let answer = exchange(address, chunked.as_bytes(), part).await;
        assert!(answer.contains(&format!("[/echo?%3E {inner}]")) && answer.ends_with("[/echo?plain ]"), "{answer}");
    }
}
