//! Fetching over HTTP: bodies, redirects, credentials, and invalid responses.

use std::io::{Read, Write};
use std::net::TcpListener;

use strata_ingest::{DecodeOptions, FetchLimits, FetchOutcome, FetchedSource, SourceError, SourceInput};
use strata_testing::loopback_client;
use strata_testing::loopback_server::{LoopbackServer, Reply, ok, redirect};
use strata_testing::packed::gzip;

use super::decoding::decode;
use super::decoding::parquet::{mixed_batch, parquet_bytes};

/// Starts a server that responds to each request with `respond(path)`.
fn serve(respond: impl Fn(&str) -> Reply + Send + 'static) -> LoopbackServer {
    LoopbackServer::start(move |request| {
        assert_eq!(request.header("accept-encoding"), Some("identity"));
        respond(&request.target)
    })
}

async fn open_document(url: &str, limits: &FetchLimits) -> Result<FetchedSource, SourceError> {
    match loopback_client(limits.clone()).open(url, None).await? {
        FetchOutcome::Document(fetched) => Ok(fetched),
        FetchOutcome::NotModified(_) => panic!("unexpected 304 to an unconditional request"),
    }
}

fn fetch_with(url: &str, limits: &FetchLimits) -> Result<(String, FetchedSource), SourceError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("failed to build runtime");
    runtime.block_on(async {
        let mut fetched = open_document(url, limits).await?;
        let options = DecodeOptions { source_url: Some(fetched.validators.url.clone()), ..DecodeOptions::default() };
        let input = std::mem::replace(&mut fetched.input, SourceInput::from_reader(std::io::empty()));
        let text = tokio::task::spawn_blocking(move || decode(input, &options)).await.expect("failed to join decoder");
        Ok((text, fetched))
    })
}

fn fetch(url: &str) -> Result<(String, FetchedSource), SourceError> {
    fetch_with(url, &FetchLimits::default())
}

#[track_caller]
fn check_unreachable(url: &str, expected: &str) {
    let error = fetch(url).err().expect("fetched an invalid source");
    assert!(matches!(error, SourceError::Unreachable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(expected), "{text}");
}

#[test]
fn source_is_fetched() {
    let server = serve(|path| match path {
        "/cities.jsonl?key=1" => ok("ETag: \"v1\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n", b"{\"a\":1}\n"),
        "/typed" => ok("Content-Type: text/csv; charset=utf-8\r\n", b"a\n1\n"),
        "/packed" => ok("Content-Type: text/csv\r\nContent-Encoding: gzip\r\n", &gzip(b"a\n1\n")),
        "/chunked" => Reply::Bytes(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[{},{\r\n2\r\n}]\r\n0\r\n\r\n".to_vec(),
        ),
        "/data.parquet" => ok("", &parquet_bytes(&mixed_batch(), 1)),
        _ => ok("", b""),
    });
    let root = server.url("");
    let (text, fetched) = fetch(&server.url("/cities.jsonl?key=1#part")).expect("failed to fetch");
    assert_eq!(text, format!("{{\"a\":1,\"_source\":\"{root}/cities.jsonl?key=1\"}}\n"));
    assert_eq!(fetched.validators.etag.as_deref(), Some("\"v1\""));
    assert_eq!(fetched.validators.last_modified.as_deref(), Some("Thu, 01 Jan 2026 00:00:00 GMT"));
    let (text, _) = fetch(&server.url("/typed")).expect("failed to fetch");
    assert_eq!(text, format!("{{\"a\":\"1\",\"_source\":\"{root}/typed\"}}\n"));
    let (text, _) = fetch(&server.url("/packed")).expect("failed to fetch");
    assert_eq!(text, format!("{{\"a\":\"1\",\"_source\":\"{root}/packed\"}}\n"));
    let (text, _) = fetch(&server.url("/chunked")).expect("failed to fetch");
    assert_eq!(text.lines().count(), 2, "{text}");
    let (text, _) = fetch(&server.url("/data.parquet")).expect("failed to fetch");
    assert_eq!(text.lines().filter(|line| line.contains("\"id\"")).count(), 3, "{text}");
}

#[test]
fn large_body_arrives_complete() {
    let body: String =
        (0..60_000).map(|number| format!("{{\"number\":{number},\"text\":\"{:060}\"}}\n", number)).collect();
    let copy = body.clone();
    let server = serve(move |_| ok("", copy.as_bytes()));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("failed to build runtime");
    let fetched =
        runtime.block_on(open_document(&server.url("/a.jsonl"), &FetchLimits::default())).expect("failed to fetch");
    let progress = fetched.input.progress();
    assert_eq!((progress.read_bytes(), progress.total_bytes()), (0, Some(body.len() as u64)));
    // Outside the runtime, any thread may block.
    assert!(decode(fetched.input, &DecodeOptions::default()) == body);
    assert_eq!(progress.read_bytes(), body.len() as u64);
}

#[test]
fn credentials_are_not_in_entities() {
    let server = serve(|_| ok("", b"{}\n"));
    let root = server.url("");
    let (text, _) =
        fetch(&format!("{}/a.jsonl", server.url("").replace("//", "//user:secret@"))).expect("failed to fetch");
    assert_eq!(text, format!("{{\"_source\":\"{root}/a.jsonl\"}}\n"));
}

#[test]
fn five_redirects_are_followed() {
    // No process listens on this port any longer.
    let closed = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("failed to bind port")
        .port();
    let server = serve(move |path| match path.trim_start_matches("/r").parse::<u32>() {
        Ok(0) => redirect("/opaque"),
        Ok(remaining) => redirect(&format!("/r{}", remaining - 1)),
        Err(_) if path == "/loop" => redirect("/loop"),
        Err(_) if path == "/elsewhere" => redirect("ftp://a.test/x"),
        Err(_) if path == "/local" => redirect("file:///etc/passwd"),
        Err(_) if path == "/closed" => redirect(&format!("http://127.0.0.1:{closed}/x?token=secret")),
        Err(_) if path == "/a.csv" => redirect("/opaque"),
        Err(_) => ok("", b"a\n1\n"),
    });
    let root = server.url("");
    let (text, fetched) = fetch(&server.url("/a.csv")).expect("failed to fetch");
    assert_eq!(text, format!("{{\"a\":\"1\",\"_source\":\"{root}/opaque\"}}\n"));
    assert_eq!(fetched.validators.url, server.url("/opaque"));
    assert!(fetch(&server.url("/r4")).is_ok());
    check_unreachable(&server.url("/r5"), "more than 5 redirects");
    check_unreachable(&server.url("/loop"), "more than 5 redirects");
    let error = fetch(&server.url("/elsewhere")).err().expect("followed a redirect to ftp");
    assert!(matches!(error, SourceError::UnusableUrl { .. }), "{error:?}");
    check_unreachable(&server.url("/local"), "returned 302 Found without an http or https URL to redirect to");
    // The error names the server that did not respond, not the one that redirected.
    check_unreachable(&server.url("/closed"), &format!("fetch the source: 127.0.0.1:{closed} refused the connection"));
}

#[test]
fn invalid_responses_are_rejected() {
    let server = serve(|path| match path {
        "/cut.jsonl" => Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}\n".to_vec()),
        "/cut-chunks.jsonl" => {
            Reply::Bytes(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n".to_vec())
        }
        "/brotli.jsonl" => ok("Content-Encoding: br\r\n", b"{}"),
        "/nothing.jsonl" => Reply::Bytes(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()),
        "/part.jsonl" => Reply::Bytes(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\n\r\n{}\n".to_vec()),
        "/nonsense" => Reply::Bytes(b"SMTP ready\r\n".to_vec()),
        "/nothing-at-all" => Reply::Bytes(Vec::new()),
        "/broken" => Reply::Bytes(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n".to_vec()),
        _ => Reply::Bytes(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone".to_vec()),
    });
    check_unreachable(&server.url("/none?token=secret"), "the server returned 404 Not Found");
    check_unreachable(&server.url("/broken"), "the server returned 500 Internal Server Error");
    check_unreachable(&server.url("/nothing.jsonl"), "returned 204 No Content, which contains no document");
    check_unreachable(&server.url("/part.jsonl"), "returned 206 Partial Content, which contains only part");
    check_unreachable(&server.url("/brotli.jsonl"), "the content encoding \"br\", which was not requested");
    // The reason does not contain the generic errors of the HTTP client.
    check_unreachable(&server.url("/nonsense"), "failed to fetch the source: invalid HTTP version parsed");
    let closed = "failed to fetch the source: connection closed before message completed";
    check_unreachable(&server.url("/nothing-at-all"), closed);
    let unencrypted = TcpListener::bind("127.0.0.1:0").expect("failed to bind port");
    let url = format!("https://{}/", unencrypted.local_addr().expect("failed to read address"));
    let responder = std::thread::spawn(move || {
        let (mut connection, _) = unencrypted.accept().expect("failed to accept connection");
        assert!(connection.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0), "the client's greeting");
        connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("failed to respond");
    });
    check_unreachable(&url, "the server does not speak TLS on this port");
    responder.join().expect("failed to join responder");
    for path in ["cut.jsonl", "cut-chunks.jsonl"] {
        let (text, _) = fetch(&server.url(&format!("/{path}"))).expect("failed to fetch");
        assert!(text.contains("! failed to fetch the source: "), "a truncated body must be an error: {text}");
    }
}

#[test]
fn unusable_urls_are_rejected() {
    for url in ["file:///etc/passwd", "ftp://a.test/x", "not a url", "", "/relative"] {
        let error = fetch(url).err().expect("fetched an unusable URL");
        assert!(matches!(error, SourceError::UnusableUrl { .. }), "{url}: {error:?}");
    }
    // No process listens on this port any longer.
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("failed to bind port")
        .port();
    let url = format!("http://127.0.0.1:{port}/x?token=secret");
    check_unreachable(&url, "refused the connection");
    let error = fetch(&url).err().expect("connected to a closed port");
    assert!(!error.to_string().contains("secret"), "{error}");
}
