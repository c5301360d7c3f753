//! The origins of sources: servers with conditional requests, objects of the store, and request bodies; and the kinds
//! of errors.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt};
use strata_config::Config;
use strata_ingest::{
    DecodeOptions, EntityDecoder, EnvelopeFields, FetchLimits, FetchOutcome, FetchedSource, ObjectSourceStore,
    SourceClient, SourceError, SourceInput, open_decoder, open_push_decoder,
};
use strata_store::store::{self, S3Options};
use strata_testing::loopback_server::{LoopbackServer, Received, Reply, ok, redirect, with_status};
use strata_testing::machine::without_configuration;
use strata_testing::packed::gzip;
use strata_testing::{loopback, loopback_client};
use strata_types::source::{SourceFormat, SourceValidators};
use tokio_util::io::ReaderStream;

const LONG_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns all entities, one per line.
fn entities(mut decoder: Box<dyn EntityDecoder>) -> Result<String, SourceError> {
    let mut text = Vec::new();
    while decoder.next_entity(&mut text)? {
        text.push(b'\n');
    }
    Ok(String::from_utf8(text).expect("failed to decode UTF-8"))
}

/// Decodes on a thread that may block.
async fn decode(input: SourceInput, options: DecodeOptions) -> Result<String, SourceError> {
    let work = move || open_decoder(input, &options).and_then(|(decoder, _)| entities(decoder));
    tokio::task::spawn_blocking(work).await.expect("failed to join decoder")
}

async fn document(
    client: &SourceClient,
    url: &str,
    known: Option<&SourceValidators>,
) -> Result<FetchedSource, SourceError> {
    match client.open(url, known).await? {
        FetchOutcome::Document(fetched) => Ok(fetched),
        FetchOutcome::NotModified(known) => panic!("not modified: {known:?}"),
    }
}

async fn text_of(fetched: FetchedSource) -> Result<String, SourceError> {
    let options = DecodeOptions { source_url: Some(fetched.validators.url), ..DecodeOptions::default() };
    decode(fetched.input, options).await
}

/// Returns the HTTP status with which the service responds to the error.
fn status(error: &SourceError) -> u16 {
    match error {
        SourceError::UnusableUrl { .. } | SourceError::InvalidBody { .. } | SourceError::Interrupted { .. } => 400,
        SourceError::TooSlow { .. } => 408,
        SourceError::TooLarge { .. } => 413,
        SourceError::InvalidDocument { .. } => 422,
        SourceError::Unreachable { .. } => 502,
        SourceError::DiskQuotaExceeded(_) => 503,
        SourceError::Io(_) => 500,
    }
}

#[track_caller]
fn check_error<T>(result: Result<T, SourceError>, expected_status: u16, expected: &str) {
    let error = result.err().expect("expected an error");
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(status(&error), expected_status, "{error:?}");
}

// ------------------------------------------------------------------------------ conditional requests

/// Responds with the document, or with 304 if the client's `ETag` matches.
fn conditional(request: &Received, etag: &str, body: &[u8]) -> Reply {
    if request.header("if-none-match") == Some(etag) {
        return Reply::Bytes(with_status("304 Not Modified", "", b""));
    }
    ok(&format!("ETag: {etag}\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n"), body)
}

#[tokio::test]
async fn known_source_gets_conditional_request() {
    let version = Arc::new(AtomicUsize::new(1));
    let current = version.clone();
    let server = LoopbackServer::start(move |request| {
        let version = current.load(Ordering::SeqCst);
        conditional(request, &format!("\"{version}\""), format!("{{\"v\":{version}}}\n").as_bytes())
    });
    let client = loopback_client(FetchLimits::default());
    let url = server.url("/a.jsonl");

    let first = document(&client, &url, None).await.expect("failed to open document");
    let known = first.validators.clone();
    let modified = "Thu, 01 Jan 2026 00:00:00 GMT";
    assert_eq!((known.etag.as_deref(), known.last_modified.as_deref()), (Some("\"1\""), Some(modified)));
    assert_eq!(known.url, url);
    assert_eq!(text_of(first).await.expect("failed to decode"), format!("{{\"v\":1,\"_source\":\"{url}\"}}\n"));

    match client.open(&url, Some(&known)).await.expect("failed to fetch") {
        FetchOutcome::NotModified(validators) => assert_eq!(validators, known, "a 304 keeps the known validators"),
        FetchOutcome::Document(_) => panic!("the document has not changed"),
    }
    version.store(2, Ordering::SeqCst);
    let second = document(&client, &url, Some(&known)).await.expect("failed to open document");
    assert_eq!(second.validators.etag.as_deref(), Some("\"2\""));
    let sent: Vec<_> = server
        .received()
        .iter()
        .map(|request| (request.header("if-none-match").is_some(), request.header("if-modified-since").is_some()))
        .collect();
    assert_eq!(sent, [(false, false), (true, true), (true, true)]);
}

/// A document that changed twice within the second of the fetch was later considered unchanged. The `ETag` of nginx
/// does not help, because it consists of the second and the size.
#[tokio::test]
async fn same_second_validators_are_ignored() {
    const MODIFIED: &str = "Thu, 01 Jan 2026 00:00:07 GMT";
    const LATER: &str = "Date: Thu, 01 Jan 2026 00:00:08 GMT\r\n";
    let modified = format!("Last-Modified: {MODIFIED}\r\n");
    let cases = [
        (format!("Date: {MODIFIED}\r\n{modified}ETag: \"1\"\r\n"), None, None),
        (format!("{LATER}{modified}ETag: \"1\"\r\n"), Some("\"1\""), Some(MODIFIED)),
        // The obsolete date formats of RFC 9110.
        (
            "Date: Thursday, 01-Jan-26 00:00:07 GMT\r\nLast-Modified: Thu Jan  1 00:00:07 2026\r\n".to_owned(),
            None,
            None,
        ),
        // Without a `Date` header, the time of receipt counts.
        (format!("{modified}ETag: W/\"1\"\r\n"), Some("W/\"1\""), Some(MODIFIED)),
        ("Last-Modified: Fri, 01 Jan 2100 00:00:00 GMT\r\nETag: \"1\"\r\n".to_owned(), None, None),
        (format!("{LATER}Last-Modified: 2026-01-01T00:00:07Z\r\n"), None, None),
        (format!("{LATER}ETag: *\r\n"), None, None),
        (format!("{LATER}ETag: \"1\"\r\nETag: \"2\"\r\n"), None, None),
    ];
    for (headers, etag, last_modified) in cases {
        let sent = headers.clone();
        let server = LoopbackServer::start(move |_| ok(&sent, b"{}\n"));
        let client = loopback_client(FetchLimits::default());
        let document = document(&client, &server.url("/a.jsonl"), None).await.expect("failed to open document");
        let validators = document.validators;
        assert_eq!(
            (validators.etag.as_deref(), validators.last_modified.as_deref()),
            (etag, last_modified),
            "{headers}"
        );
    }
}

/// A 304 with other validators than the request's hid all later changes.
#[tokio::test]
async fn response_304_for_other_document_is_ignored() {
    let known_tag = "\"1\"";
    let known_time = "Thu, 01 Jan 2026 00:00:07 GMT";
    for (headers, is_accepted) in [
        ("".to_owned(), true),
        (format!("ETag: W/{known_tag}\r\nLast-Modified: {known_time}\r\n"), true),
        ("ETag: \"2\"\r\n".to_owned(), false),
        ("Last-Modified: Wed, 31 Dec 2025 00:00:00 GMT\r\n".to_owned(), false),
    ] {
        let sent = headers.clone();
        let server = LoopbackServer::start(move |request| match request.header("if-none-match") {
            Some(_) => Reply::Bytes(with_status("304 Not Modified", &sent, b"")),
            None => ok("", b"{\"new\":true}\n"),
        });
        let known = SourceValidators {
            url: server.url("/a.jsonl"),
            etag: Some(known_tag.to_owned()),
            last_modified: Some(known_time.to_owned()),
        };
        let opened = loopback_client(FetchLimits::default()).open(&server.url("/a.jsonl"), Some(&known)).await;
        match opened.expect("failed to fetch") {
            FetchOutcome::NotModified(validators) => assert!(is_accepted && validators == known, "{headers}"),
            FetchOutcome::Document(_) => assert!(!is_accepted, "{headers}"),
        }
    }
}

#[tokio::test]
async fn response_304_from_other_server_is_ignored() {
    let phase = Arc::new(AtomicUsize::new(0));
    let current_phase = phase.clone();
    let server = LoopbackServer::start(move |request| match request.target.as_str() {
        "/a.json" if current_phase.load(Ordering::SeqCst) == 0 => redirect("/old.json"),
        "/a.json" => redirect("/new.json"),
        // Both documents have the same `ETag`.
        path => conditional(request, "\"1\"", format!("[{{\"path\":\"{path}\"}}]").as_bytes()),
    });
    let client = loopback_client(FetchLimits::default());
    let first = document(&client, &server.url("/a.json"), None).await.expect("failed to open document");
    assert_eq!(first.validators.url, server.url("/old.json"));
    let known = first.validators;
    assert!(matches!(client.open(&server.url("/a.json"), Some(&known)).await, Ok(FetchOutcome::NotModified(_))));
    phase.store(1, Ordering::SeqCst);
    let second = document(&client, &server.url("/a.json"), Some(&known)).await.expect("failed to open document");
    let expected = format!("{{\"path\":\"/new.json\",\"_source\":\"{}\"}}\n", server.url("/new.json"));
    assert_eq!(text_of(second).await.expect("failed to decode"), expected);
}

#[tokio::test]
async fn unconditional_304_is_an_error() {
    let server = LoopbackServer::start(|_| Reply::Bytes(with_status("304 Not Modified", "", b"")));
    let client = loopback_client(FetchLimits::default());
    check_error(client.open(&server.url("/a"), None).await, 502, "304");
    let without_validators = SourceValidators { url: server.url("/a"), ..SourceValidators::default() };
    check_error(client.open(&server.url("/a"), Some(&without_validators)).await, 502, "304");
}

#[tokio::test]
async fn long_validators_are_ignored() {
    let server = LoopbackServer::start(|_| ok(&format!("ETag: \"{}\"\r\n", "x".repeat(2000)), b"[]"));
    let client = loopback_client(FetchLimits::default());
    let fetched = document(&client, &server.url("/a"), None).await.expect("failed to open document");
    assert!(fetched.validators.is_empty());
}

// -------------------------------------------------------------------------------------------- limits

#[tokio::test]
async fn fetch_stages_time_out() {
    let server = LoopbackServer::start(|request| match request.target.as_str() {
        "/silent" => Reply::Stall(Vec::new()),
        _ => Reply::Stall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}\n".to_vec()),
    });
    let short = Duration::from_millis(200);
    let client = loopback_client(FetchLimits { response_timeout: short, ..FetchLimits::default() });
    check_error(client.open(&server.url("/silent"), None).await, 502, "timed out: the server did not respond");
    let client = loopback_client(FetchLimits { idle_timeout: short, ..FetchLimits::default() });
    let fetched = document(&client, &server.url("/a.jsonl"), None).await.expect("failed to fetch");
    check_error(text_of(fetched).await, 502, "timed out: no data arrived for");
    let client = loopback_client(FetchLimits { total_timeout: short, ..FetchLimits::default() });
    // On a busy machine, the timeout might expire before the response head arrives.
    let decoded = match document(&client, &server.url("/a.jsonl"), None).await {
        Ok(fetched) => text_of(fetched).await,
        Err(error) => Err(error),
    };
    check_error(decoded, 502, "timed out: ");
}

#[tokio::test]
async fn redirects_are_limited() {
    let server = LoopbackServer::start(|request| match request.target.trim_start_matches("/r") {
        "0" => ok("", b"[]"),
        count => redirect(&format!("/r{}", count.parse::<u32>().expect("failed to parse number") - 1)),
    });
    let client = loopback_client(FetchLimits { max_redirects: 2, ..FetchLimits::default() });
    assert!(client.open(&server.url("/r2"), None).await.is_ok());
    check_error(client.open(&server.url("/r3"), None).await, 502, "more than 2 redirects");
    let client = loopback_client(FetchLimits { max_redirects: 0, ..FetchLimits::default() });
    check_error(client.open(&server.url("/r1"), None).await, 502, "more than 0 redirects");
}

#[tokio::test]
async fn source_size_is_limited_compressed_and_expanded() {
    let line = format!("{{\"a\":\"{}\"}}\n", "0".repeat(1000));
    let bomb = gzip(line.repeat(2000).as_bytes());
    let limit = 100_000;
    assert!((bomb.len() as u64) < limit);
    let large = b"{}\n".repeat(50_000);
    for (name, body) in [("bomb.jsonl.gz", bomb), ("large.jsonl", large)] {
        let options = DecodeOptions { max_source_bytes: limit, ..DecodeOptions::default() };
        let input = SourceInput::from_reader(io::Cursor::new(body)).with_name(name);
        check_error(decode(input, options).await, 413, "the source is larger than sources.max_bytes (100000)");
    }
    let options = DecodeOptions { max_entity_bytes: 20, ..DecodeOptions::default() };
    let input = SourceInput::from_reader(io::Cursor::new(format!("[{{}},{{\"a\":\"{}\"}}]", "x".repeat(40))));
    check_error(
        decode(input, options).await,
        413,
        "item 2 (line 1, column 5): the entity is larger than limits.entity_bytes (20)",
    );
}

// ------------------------------------------------------------------------------------------- objects

fn object_client(store: Arc<dyn ObjectStore>, store_url: &str, prefix: Option<&str>) -> SourceClient {
    let objects = ObjectSourceStore { store, store_url: store_url.to_owned(), prefix: prefix.map(str::to_owned) };
    SourceClient::new(loopback(), FetchLimits::default(), Some(objects))
}

/// Checks that objects below the prefix are sources, and no other objects.
async fn check_objects(store: Arc<dyn ObjectStore>, store_url: &str, url_root: &str) {
    for (key, text) in [
        ("in/a.json", "[{\"a\":1}]"),
        ("in/deep/er/b%3F c.csv", "a\n2\n"),
        ("inner/a.json", "[{\"secret\":1}]"),
        ("versions/v.json", "[{\"secret\":2}]"),
    ] {
        let path = ObjectPath::parse(key).expect("failed to parse path");
        store.put(&path, Bytes::from_static(text.as_bytes()).into()).await.expect("failed to write");
    }
    let client = object_client(store.clone(), store_url, Some("in"));
    for root in ["store:///", url_root] {
        let url = format!("{root}in/a.json");
        client.check_url(&url).await.expect("failed to check URL");
        let fetched = document(&client, &url, None).await.expect("failed to open object");
        let known = fetched.validators.clone();
        assert_eq!(fetched.input.progress().total_bytes(), Some(9));
        assert_eq!(text_of(fetched).await.expect("failed to decode"), format!("{{\"a\":1,\"_source\":\"{url}\"}}\n"));
        assert!(known.etag.is_some(), "{known:?}");
        assert!(matches!(client.open(&url, Some(&known)).await, Ok(FetchOutcome::NotModified(same)) if same == known));

        // A percent sign in a name is encoded as %25.
        let url = format!("{root}in/deep/er/b%253F%20c.csv");
        let fetched = document(&client, &url, None).await.expect("failed to open object");
        assert_eq!(
            text_of(fetched).await.expect("failed to decode"),
            format!("{{\"a\":\"2\",\"_source\":\"{url}\"}}\n")
        );

        check_error(client.open(&format!("{root}in/none.json"), None).await, 502, "the store has no such object");
        for key in [
            "inner/a.json",
            "versions/v.json",
            "in/../versions/v.json",
            "in/%2e%2e/versions/v.json",
            "in/..%2fversions/v.json",
            "in%2f..%2fversions%2fv.json",
            "in//../versions/v.json",
            "./versions/v.json",
            "../store/versions/v.json",
            "in",
            "in/",
            "",
            "in/a.json?x",
            "in/a.json#x",
        ] {
            let url = format!("{root}{key}");
            assert!(client.check_url(&url).await.is_err(), "{url}");
            let opened = client.open(&url, None).await;
            assert!(matches!(opened, Err(SourceError::UnusableUrl { .. })), "{url}: {:?}", opened.err());
        }
        let closed = object_client(store.clone(), store_url, None);
        check_error(closed.open(&format!("{root}in/a.json"), None).await, 400, "sources.prefix");
    }
    check_error(client.open("s3://another-bucket/root/in/a.json", None).await, 400, "not in the configured store");
    check_error(client.open("file:///etc/passwd", None).await, 400, "command line");
    // After a change, the new object is returned.
    let url = "store:///in/a.json";
    let known = document(&client, url, None).await.expect("failed to open object").validators;
    store
        .put(&ObjectPath::from("in/a.json"), Bytes::from_static(b"[{\"a\":22}]").into())
        .await
        .expect("failed to write");
    let fetched = document(&client, url, Some(&known)).await.expect("failed to open object");
    assert_ne!(fetched.validators, known);
}

#[tokio::test]
async fn memory_objects_below_prefix_are_sources() {
    check_objects(Arc::new(InMemory::new()), "memory://", "store:///").await;
}

#[tokio::test]
async fn directory_objects_below_prefix_are_sources() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let url = directory.path().join("store").display().to_string();
    let store = store::open_store(&url, &S3Options::default()).expect("failed to open store");
    check_objects(store.object_store().clone(), &url, "store:///").await;
}

#[tokio::test]
async fn bucket_objects_below_prefix_are_sources() {
    // The prefix store behaves like `s3://bucket/root`. The tests of the store cover S3 itself.
    let bucket: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let store = object_store::prefix::PrefixStore::new(bucket.clone(), "root");
    let outside = ObjectPath::from("in/a.json");
    bucket.put(&outside, Bytes::from_static(b"[{\"secret\":3}]").into()).await.expect("failed to write");
    check_objects(Arc::new(store), "s3://bucket/root", "s3://bucket/root/").await;
}

/// Opens a URL in a store with only the expected object. `! ` starts the beginning of an expected error.
async fn check_object(url: &str, store_url: &str, prefix: Option<&str>, expected: &str) {
    let store = Arc::new(InMemory::new());
    let reason_start = expected.strip_prefix("! ");
    if reason_start.is_none() {
        let path = ObjectPath::parse(expected).expect("failed to parse path");
        store.put(&path, Bytes::from_static(b"[]").into()).await.expect("failed to write");
    }
    match (object_client(store, store_url, prefix).open(url, None).await, reason_start) {
        (Ok(_), None) => {}
        (Err(SourceError::UnusableUrl { reason }), Some(start)) => assert!(reason.starts_with(start), "{reason}"),
        (opened, _) => panic!("{url} in {store_url} below {prefix:?}: {:?}", opened.err()),
    }
}

#[tokio::test]
async fn object_outside_prefix_is_rejected() {
    let data = "./strata-data/store";
    let bucket = "s3://bucket/root/";
    let disabled = "! objects in the store cannot be sources";
    let outside = "! only objects in the store's folder a (sources.prefix) can be sources";
    let elsewhere = "! the object is not in the configured store";
    for (url, store_url, prefix, expected) in [
        ("store:///a/x.json", data, None, disabled),
        ("s3://bucket/root/a/x.json", bucket, None, disabled),
        ("store:///a/x.json", data, Some("a"), "a/x.json"),
        ("store:///a/b/x.json", data, Some("a/b"), "a/b/x.json"),
        ("store:///a/b%20c/x.json", data, Some("a/b c"), "a/b c/x.json"),
        ("store:///a/versions/x.json", data, Some("a"), "a/versions/x.json"),
        ("store:///ab/x.json", data, Some("a"), outside),
        ("store:///a", data, Some("a"), outside),
        ("store:///x.json", data, Some("a"), outside),
        ("store:///A/x.json", data, Some("a"), outside),
        ("store:///versions/x.parquet", data, Some("a"), outside),
        ("store:///shared-exports/x.parquet", data, Some("a"), outside),
        // The check is independent of the validation of the configuration.
        (
            "store:///Shared-Exports/x",
            data,
            Some("shared-exports"),
            "! only objects in the store's folder shared-exports",
        ),
        ("store:///versions/x.parquet", data, Some("versions"), "! only objects in the store's folder versions"),
        ("store:///VERSIONS/x.parquet", data, Some("VERSIONS"), "! only objects in the store's folder VERSIONS"),
        ("s3://bucket/root/a/x.json", bucket, Some("a"), "a/x.json"),
        ("store:///a/x.json", bucket, Some("a"), "a/x.json"),
        ("s3://bucket/root/versions/x.parquet", bucket, Some("a"), outside),
        ("s3://bucket/rooted/a/x.json", bucket, Some("a"), elsewhere),
        ("s3://bucket/a/x.json", bucket, Some("a"), elsewhere),
        ("s3://other/root/a/x.json", bucket, Some("a"), elsewhere),
        ("s3://bucket/a/x.json", "s3://bucket", Some("a"), "a/x.json"),
        ("s3://bucket/a/x.json", data, Some("a"), elsewhere),
    ] {
        check_object(url, store_url, prefix, expected).await;
    }
}

// ------------------------------------------------------------------------------------------- pushes

type Chunk = Result<Bytes, Box<dyn Error + Send + Sync>>;

fn body(chunks: Vec<Chunk>) -> SourceInput {
    SourceInput::from_request_body(stream::iter(chunks), LONG_TIMEOUT)
}

fn chunked_body(text: &[u8], chunk_bytes: usize) -> SourceInput {
    body(text.chunks(chunk_bytes).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect())
}

/// Decodes a pushed JSON body. Returns the entities and the other fields.
async fn push(input: SourceInput) -> Result<(String, EnvelopeFields), SourceError> {
    let work = move || {
        let (decoder, fields) = open_push_decoder(input, &DecodeOptions::default(), &["dataset_id", "etag", "alt"])?;
        Ok((entities(decoder)?, fields))
    };
    tokio::task::spawn_blocking(work).await.expect("failed to join decoder")
}

#[tokio::test]
async fn push_body_in_any_format_is_decoded() {
    let lines = b"{\"a\":1}\n{\"a\":\"\xc3\xa9\"}\n";
    let compressed = gzip(lines);
    for chunk_bytes in [1, 3, 1000] {
        let text = decode(chunked_body(lines, chunk_bytes), DecodeOptions::default()).await.expect("failed to decode");
        assert_eq!(text.as_bytes(), lines, "no _source is added");
        let text =
            decode(chunked_body(&compressed, chunk_bytes), DecodeOptions::default()).await.expect("failed to decode");
        assert_eq!(text.as_bytes(), lines);
        let table = chunked_body(b"a\tb\n1\t2\n", chunk_bytes).with_content_type("text/tab-separated-values");
        let text = decode(table, DecodeOptions::default()).await.expect("failed to decode");
        assert_eq!(text, "{\"a\":\"1\",\"b\":\"2\"}\n");
    }
    let reader = SourceInput::from_request_body(ReaderStream::new(io::Cursor::new(lines.to_vec())), LONG_TIMEOUT);
    assert_eq!(decode(reader, DecodeOptions::default()).await.expect("failed to decode").as_bytes(), lines);
    let options = DecodeOptions { format: Some(SourceFormat::Csv), ..DecodeOptions::default() };
    check_error(decode(chunked_body(b"a,b\n1\n", 2), options).await, 422, "item 1 (line 2): the row has 1 cell");
}

#[tokio::test]
async fn push_body_has_back_pressure() {
    let pulled = Arc::new(AtomicUsize::new(0));
    let count = pulled.clone();
    let chunk = Bytes::from("{\"a\":1}\n".repeat(8 * 1024));
    let chunks = stream::repeat(chunk).take(10_000).map(move |chunk| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok::<_, io::Error>(chunk)
    });
    let input = SourceInput::from_request_body(chunks, LONG_TIMEOUT);
    let options = DecodeOptions { window_bytes: 64 * 1024, ..DecodeOptions::default() };
    let first = tokio::task::spawn_blocking(move || {
        let (mut decoder, _) = open_decoder(input, &options)?;
        let mut entity = Vec::new();
        decoder.next_entity(&mut entity)?;
        Ok::<_, SourceError>(entity)
    });
    assert_eq!(first.await.expect("failed to join decoder").expect("failed to decode entity"), b"{\"a\":1}");
    let pulled = pulled.load(Ordering::SeqCst);
    assert!(pulled < 20, "{pulled} of 10,000 chunks were read for one entity");
}

#[tokio::test]
async fn interrupted_body_is_an_error() {
    let interrupted = || {
        let chunks: Vec<Chunk> = vec![Ok(Bytes::from_static(b"{\"a\":1}\n")), Err("connection reset".into())];
        body(chunks)
    };
    check_error(decode(interrupted(), DecodeOptions::default()).await, 400, "the body is incomplete: connection reset");
    // Errors of the caller's own limits pass unchanged.
    let limit = SourceError::TooLarge { position: None, reason: "larger than limits.body_bytes".to_owned() };
    let chunks: Vec<Chunk> = vec![Ok(Bytes::from_static(b"{\"a\":1}\n")), Err(Box::new(limit))];
    check_error(decode(body(chunks), DecodeOptions::default()).await, 413, "limits.body_bytes");
    let stalled = stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"{}\n"))]).chain(stream::pending());
    let stalled = SourceInput::from_request_body(stalled, Duration::from_millis(100));
    check_error(decode(stalled, DecodeOptions::default()).await, 400, "the body is incomplete: timed out");
}

#[tokio::test]
async fn envelope_fields_come_before_or_after_entities() {
    for text in [
        r#"{"dataset_id":7,"entities":[{"a":1},{"b":[{}]}],"etag":"x"}"#,
        r#" { "entities" : [ {"a" : 1} , {"b":[{}]} ] , "dataset_id" : 7 , "etag":"\u0078" } "#,
        r#"{"alt":{"dataset_id":1,"entities":[3]},"etag":"x","entities":[{"a":1},{"b":[{}]}],"dataset_id":7,"alt":null}"#,
        r#"{"dataset_id":"no","entities":[{"a":1},{"b":[{}]}],"dataset_id":7,"etag":"x","alt":null}"#,
        r#"{"dataset\u005fid":7,"entitie\u0073":[{"a":1},{"b":[{}]}],"etag":"x"}"#,
    ] {
        for chunk_bytes in [1, 7, 1000] {
            let (text, fields) = push(chunked_body(text.as_bytes(), chunk_bytes)).await.expect(text);
            assert_eq!(text, "{\"a\":1}\n{\"b\":[{}]}\n");
            assert_eq!(fields.integer("dataset_id").expect("failed to parse number"), Some(7));
            assert_eq!(fields.string("etag").expect("failed to read field").as_deref(), Some("x"));
            assert_eq!(fields.boolean("alt").expect("failed to read field"), None);
        }
    }
    let (text, fields) = push(chunked_body(br#"{"entities":[],"alt":true}"#, 5)).await.expect("failed to decode");
    assert_eq!((text.as_str(), fields.boolean("alt").expect("failed to read field")), ("", Some(true)));
    assert_eq!(fields.integer("dataset_id").expect("failed to read field"), None);
}

#[tokio::test]
async fn leading_fields_are_known_with_first_entity() {
    let start = br#"{"dataset_id":7,"entities":[{"a":1},"#;
    let chunks = stream::iter([Ok::<_, io::Error>(Bytes::from_static(start))]).chain(stream::pending());
    let input = SourceInput::from_request_body(chunks, LONG_TIMEOUT);
    let options = DecodeOptions { window_bytes: start.len(), ..DecodeOptions::default() };
    let dataset_id = tokio::task::spawn_blocking(move || {
        let (mut decoder, fields) = open_push_decoder(input, &options, &["dataset_id"])?;
        decoder.next_entity(&mut Vec::new())?;
        fields.integer("dataset_id")
    });
    assert_eq!(dataset_id.await.expect("failed to join decoder").expect("failed to parse number"), Some(7));
}

#[tokio::test]
async fn invalid_body_reports_field_or_item() {
    for (text, expected_status, expected) in [
        ("", 400, "expected an object, but the document ends"),
        ("[]", 400, "the body must be an object, but is an array"),
        ("7", 400, "the body must be an object, but is a number"),
        ("{}", 400, "the array entities is missing"),
        (r#"{"dataset_id":7}"#, 400, "the array entities is missing"),
        (r#"{"entities":{}}"#, 400, "entities must be an array, but is an object"),
        (r#"{"entities":"x"}"#, 400, "entities must be an array, but is a string"),
        (r#"{"entities":null}"#, 400, "entities must be an array, but is null"),
        (r#"{"entities":-12.5e10}"#, 400, "entities must be an array, but is a number"),
        (r#"{"entities":[],"entities":[]}"#, 400, "the member entities occurs twice"),
        (r#"{"entities":[]"#, 400, "the document ends"),
        (r#"{"entities":[]} x"#, 400, "the end of the document"),
        (r#"{"entities":[{}],}"#, 400, "a key in quotes"),
        (r#"{dataset_id:7}"#, 400, "a key in quotes"),
        (r#"{"x":{},"entities":[]}"#, 400, "unknown field \"x\"; valid: dataset_id, etag, alt, entities"),
        (r#"{"entities":[{}],"dataset_di":7}"#, 400, "did you mean dataset_id?"),
        (
            r#"{"entities":[{"a":1},[3]]}"#,
            422,
            "item 2 (line 1, column 22): an entity must be a JSON object, but this is an array",
        ),
        (r#"{"entities":[{"a":1},{"a":01}]}"#, 422, "item 2 (line 1, column 28): invalid JSON number"),
        (r#"{"entities":[{"a":1},{"a""#, 422, "item 2 (line 1, column 22): the document ends in the middle of a value"),
    ] {
        check_error(push(chunked_body(text.as_bytes(), 4)).await, expected_status, expected);
    }
    for (member, expected) in [
        (r#""7""#, "dataset_id must be a dataset ID, such as 7, but is a string"),
        ("-7", "dataset_id must be a dataset ID, such as 7, but is -7"),
        ("7.5", "dataset_id must be a dataset ID, such as 7, but is 7.5"),
        ("1e-3", "but is 1e-3"),
        ("99999999999999999999", "but is 99999999999999999999"),
        ("true", "but is a boolean"),
        ("[7]", "but is an array"),
        ("{}", "but is an object"),
    ] {
        let text = format!("{{\"dataset_id\":{member},\"entities\":[]}}");
        let (_, fields) = push(chunked_body(text.as_bytes(), 9)).await.expect("failed to decode");
        check_error(fields.integer("dataset_id"), 400, expected);
    }
    for (member, value) in [("7", 7), ("7.0", 7), ("70e-1", 7), ("1E3", 1_000)] {
        let text = format!("{{\"dataset_id\":{member},\"entities\":[]}}");
        let (_, fields) = push(chunked_body(text.as_bytes(), 9)).await.expect("failed to decode");
        assert_eq!(fields.integer("dataset_id").expect("failed to read field"), Some(value), "{member}");
    }
}

#[tokio::test]
async fn large_body_is_streamed() {
    // The body has 15 MB, but the window of the decoder contains only a few chunks.
    let mut chunk = String::new();
    for number in 0..1000 {
        write!(chunk, "{{\"number\":{number},\"text\":\"{:050}\"}},", number).expect("failed to write");
    }
    let chunk = Bytes::from(chunk);
    let start = stream::iter([Bytes::from_static(b"{\"entities\":[")]);
    let end = stream::iter([Bytes::from_static(b"{}],\"dataset_id\":12}")]);
    let chunks = start.chain(stream::repeat(chunk).take(200)).chain(end).map(Ok::<_, io::Error>);
    let input = SourceInput::from_request_body(chunks, LONG_TIMEOUT);
    let work = move || {
        let options = DecodeOptions { window_bytes: 64 * 1024, ..DecodeOptions::default() };
        let (mut decoder, fields) = open_push_decoder(input, &options, &["dataset_id"])?;
        let mut entity = Vec::new();
        let mut count = 0;
        while decoder.next_entity(&mut entity)? {
            entity.clear();
            count += 1;
        }
        Ok::<_, SourceError>((count, fields.integer("dataset_id")?))
    };
    let counted = tokio::task::spawn_blocking(work).await.expect("failed to join decoder").expect("failed to decode");
    assert_eq!(counted, (200_001, Some(12)));
}

// -------------------------------------------------------------------------------------- command line

/// Runs `strata` in a directory with the given environment variables.
fn strata(directory: &std::path::Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(strata_testing::binary::path());
    command.args(arguments).current_dir(directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    without_configuration(&mut command);
    let mut child = command.envs(environment.iter().copied()).spawn().expect("failed to start strata");
    // A command that reads no password might already have ended.
    let _ = child.stdin.take().expect("failed to open standard input").write_all(b"correct horse\n");
    child.wait_with_output().expect("failed to wait for strata")
}

#[test]
fn url_import_respects_net_allow_without_proxy() {
    let server = LoopbackServer::start(|_| ok("", b"[{\"a\":1}]"));
    let proxy = LoopbackServer::start(|_| ok("", b"[{\"from\":\"proxy\"}]"));
    let directory = tempfile::tempdir().expect("failed to create directory");
    let run = |arguments: &[&str], environment: &[(&str, &str)]| strata(directory.path(), arguments, environment);
    assert!(run(&["user", "add", "ada@example.test", "--plan", "free"], &[]).status.success());

    let url = server.url("/a.json");
    let import = |source: &str, environment: &[(&str, &str)]| {
        run(&["import", source, "--name", "Things", "--owner", "ada@example.test"], environment)
    };
    let rejected = import(&url, &[]);
    let message = String::from_utf8_lossy(&rejected.stderr).into_owned();
    assert_eq!(rejected.status.code(), Some(1), "{message}");
    assert!(message.contains("127.0.0.1 is a loopback address") && message.contains("net.allow"), "{message}");
    assert_eq!(server.received().len(), 0, "strata has sent a request");

    let proxy_url = proxy.url("");
    let environment =
        [("STRATA_NET__ALLOW", "10.0.0.0/8, 127.0.0.0/8"), ("HTTP_PROXY", &*proxy_url), ("http_proxy", &*proxy_url)];
    let imported = import(&url, &environment);
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    assert_eq!((server.received().len(), proxy.received().len()), (1, 0), "strata has used the proxy");

    // A local file by its URL, and an object of the store.
    let file = directory.path().join("a b.json");
    std::fs::write(&file, "[{\"a\":2}]").expect("failed to write");
    let file_url = url::Url::from_file_path(&file).expect("failed to build URL").to_string();
    assert!(import(&file_url, &[]).status.success());
    let folder = directory.path().join("strata-data/store/incoming");
    std::fs::create_dir_all(&folder).expect("failed to create directory");
    std::fs::copy(&file, folder.join("a.json")).expect("failed to copy file");
    let rejected = import("store:///incoming/a.json", &[]);
    assert!(String::from_utf8_lossy(&rejected.stderr).contains("sources.prefix"));
    let imported = import("store:///incoming/a.json", &[("STRATA_SOURCES__PREFIX", "incoming")]);
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
}

#[test]
fn fetch_configuration_has_limits_and_defaults() {
    let limits = FetchLimits::from(&Config::default().sources);
    assert_eq!((limits.max_redirects, limits.total_timeout), (5, Duration::from_secs(3600)));
    assert_eq!(Config::default().webhook.timeout_s, 10);
    assert!(Config::default().net.allow.as_slice().is_empty());
}
