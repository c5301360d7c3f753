//! Where sources come from: servers that say whether anything has changed, objects of the store, bodies of requests;
//! and the kind of error that each failure is.

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
    Decode, DecodeOptions, EnvelopeFields, FetchLimits, Fetched, ObjectSources, Opened, SourceClient, SourceError,
    SourceInput, open, open_push,
};
use strata_store::store::{self, S3Options};
use strata_testing::loopback_server::{LoopbackServer, Received, Reply, ok, redirect, with_status};
use strata_testing::machine::without_configuration;
use strata_testing::packed::gzip;
use strata_testing::{loopback, loopback_client};
use strata_types::source::{SourceFormat, Validators};
use tokio_util::io::ReaderStream;

const PATIENT: Duration = Duration::from_secs(60);

/// All entities, one per line.
fn entities(mut decoder: Box<dyn Decode>) -> Result<String, SourceError> {
    let mut text = Vec::new();
    while decoder.next(&mut text)? {
        text.push(b'\n');
    }
    Ok(String::from_utf8(text).expect("entities are UTF-8"))
}

/// Decodes on a thread that may block.
async fn decode(input: SourceInput, options: DecodeOptions) -> Result<String, SourceError> {
    let work = move || open(input, &options).and_then(|(decoder, _)| entities(decoder));
    tokio::task::spawn_blocking(work).await.expect("the decoder runs")
}

async fn document(client: &SourceClient, url: &str, known: Option<&Validators>) -> Result<Fetched, SourceError> {
    match client.open(url, known).await? {
        Opened::Document(fetched) => Ok(fetched),
        Opened::NotModified(known) => panic!("not modified: {known:?}"),
    }
}

async fn text_of(fetched: Fetched) -> Result<String, SourceError> {
    let options = DecodeOptions { fetched_from: Some(fetched.validators.url), ..DecodeOptions::default() };
    decode(fetched.input, options).await
}

/// What kind of failure it is, by the status that the service answers with.
fn status(error: &SourceError) -> u16 {
    match error {
        SourceError::BadAddress { .. } | SourceError::BadBody { .. } | SourceError::Interrupted { .. } => 400,
        SourceError::TooSlow { .. } => 408,
        SourceError::TooLarge { .. } => 413,
        SourceError::BadDocument { .. } => 422,
        SourceError::Unreachable { .. } => 502,
        SourceError::Full(_) => 503,
        SourceError::Io(_) => 500,
    }
}

#[track_caller]
fn check_error<T>(result: Result<T, SourceError>, expected_status: u16, expected: &str) {
    let error = result.err().expect("an error");
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(status(&error), expected_status, "{error:?}");
}

// ------------------------------------------------------------------------------------ has it changed?

/// Answers with the document unless the request says that the client has it.
fn conditional(request: &Received, etag: &str, body: &[u8]) -> Reply {
    if request.header("if-none-match") == Some(etag) {
        return Reply::Bytes(with_status("304 Not Modified", "", b""));
    }
    ok(&format!("ETag: {etag}\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n"), body)
}

#[tokio::test]
async fn a_source_is_asked_whether_it_has_changed() {
    let version = Arc::new(AtomicUsize::new(1));
    let current = version.clone();
    let server = LoopbackServer::start(move |request| {
        let version = current.load(Ordering::SeqCst);
        conditional(request, &format!("\"{version}\""), format!("{{\"v\":{version}}}\n").as_bytes())
    });
    let client = loopback_client(FetchLimits::default());
    let url = server.url("/a.jsonl");

    let first = document(&client, &url, None).await.expect("a document");
    let known = first.validators.clone();
    let modified = "Thu, 01 Jan 2026 00:00:00 GMT";
    assert_eq!((known.etag.as_deref(), known.last_modified.as_deref()), (Some("\"1\""), Some(modified)));
    assert_eq!(known.url, url);
    assert_eq!(text_of(first).await.expect("entities"), format!("{{\"v\":1,\"_source\":\"{url}\"}}\n"));

    match client.open(&url, Some(&known)).await.expect("an answer") {
        Opened::NotModified(still) => assert_eq!(still, known, "what the 304 does not say stays"),
        Opened::Document(_) => panic!("it has not changed"),
    }
    version.store(2, Ordering::SeqCst);
    let second = document(&client, &url, Some(&known)).await.expect("a document");
    assert_eq!(second.validators.etag.as_deref(), Some("\"2\""));
    let sent: Vec<_> = server
        .received()
        .iter()
        .map(|request| (request.header("if-none-match").is_some(), request.header("if-modified-since").is_some()))
        .collect();
    assert_eq!(sent, [(false, false), (true, true), (true, true)]);
}

/// A document that changed again in the second in which it was fetched was taken for unchanged from then on. So was one
/// of nginx, whose `ETag` is made of the second and the size.
#[tokio::test]
async fn validators_that_outlast_a_change_are_ignored() {
    const MODIFIED: &str = "Thu, 01 Jan 2026 00:00:07 GMT";
    const LATER: &str = "Date: Thu, 01 Jan 2026 00:00:08 GMT\r\n";
    let modified = format!("Last-Modified: {MODIFIED}\r\n");
    let cases = [
        (format!("Date: {MODIFIED}\r\n{modified}ETag: \"1\"\r\n"), None, None),
        (format!("{LATER}{modified}ETag: \"1\"\r\n"), Some("\"1\""), Some(MODIFIED)),
        // Obsolete forms of dates.
        (
            "Date: Thursday, 01-Jan-26 00:00:07 GMT\r\nLast-Modified: Thu Jan  1 00:00:07 2026\r\n".to_owned(),
            None,
            None,
        ),
        // Without a date, the time of receipt counts.
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
        let found = document(&client, &server.url("/a.jsonl"), None).await.expect("a document").validators;
        assert_eq!((found.etag.as_deref(), found.last_modified.as_deref()), (etag, last_modified), "{headers}");
    }
}

/// A 304 for other validators than those of the request hid each later change.
#[tokio::test]
async fn a_304_about_another_document_is_not_believed() {
    let known_tag = "\"1\"";
    let known_time = "Thu, 01 Jan 2026 00:00:07 GMT";
    for (headers, is_believed) in [
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
        let known = Validators {
            url: server.url("/a.jsonl"),
            etag: Some(known_tag.to_owned()),
            last_modified: Some(known_time.to_owned()),
        };
        let opened = loopback_client(FetchLimits::default()).open(&server.url("/a.jsonl"), Some(&known)).await;
        match opened.expect("a response") {
            Opened::NotModified(still) => assert!(is_believed && still == known, "{headers}"),
            Opened::Document(_) => assert!(!is_believed, "{headers}"),
        }
    }
}

#[tokio::test]
async fn another_server_cannot_say_that_nothing_has_changed() {
    let turn = Arc::new(AtomicUsize::new(0));
    let turns = turn.clone();
    let server = LoopbackServer::start(move |request| match request.target.as_str() {
        "/a.json" if turns.load(Ordering::SeqCst) == 0 => redirect("/old.json"),
        "/a.json" => redirect("/new.json"),
        // Both count their documents from 1.
        path => conditional(request, "\"1\"", format!("[{{\"path\":\"{path}\"}}]").as_bytes()),
    });
    let client = loopback_client(FetchLimits::default());
    let first = document(&client, &server.url("/a.json"), None).await.expect("a document");
    assert_eq!(first.validators.url, server.url("/old.json"));
    let known = first.validators;
    assert!(matches!(client.open(&server.url("/a.json"), Some(&known)).await, Ok(Opened::NotModified(_))));
    turn.store(1, Ordering::SeqCst);
    let second = document(&client, &server.url("/a.json"), Some(&known)).await.expect("the new document");
    let expected = format!("{{\"path\":\"/new.json\",\"_source\":\"{}\"}}\n", server.url("/new.json"));
    assert_eq!(text_of(second).await.expect("entities"), expected);
}

#[tokio::test]
async fn a_304_that_nobody_asked_for_is_no_document() {
    let server = LoopbackServer::start(|_| Reply::Bytes(with_status("304 Not Modified", "", b"")));
    let client = loopback_client(FetchLimits::default());
    check_error(client.open(&server.url("/a"), None).await, 502, "304");
    let nothing = Validators { url: server.url("/a"), ..Validators::default() };
    check_error(client.open(&server.url("/a"), Some(&nothing)).await, 502, "304");
}

#[tokio::test]
async fn validators_that_are_too_long_are_forgotten() {
    let server = LoopbackServer::start(|_| ok(&format!("ETag: \"{}\"\r\n", "x".repeat(2000)), b"[]"));
    let client = loopback_client(FetchLimits::default());
    let fetched = document(&client, &server.url("/a"), None).await.expect("a document");
    assert!(fetched.validators.is_empty());
}

// -------------------------------------------------------------------------------------------- limits

#[tokio::test]
async fn each_stage_of_a_fetch_has_its_time() {
    let server = LoopbackServer::start(|request| match request.target.as_str() {
        "/silent" => Reply::Stall(Vec::new()),
        _ => Reply::Stall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}\n".to_vec()),
    });
    let short = Duration::from_millis(200);
    let client = loopback_client(FetchLimits { answer_timeout: short, ..FetchLimits::default() });
    check_error(client.open(&server.url("/silent"), None).await, 502, "timed out: the server did not respond");
    let client = loopback_client(FetchLimits { idle_timeout: short, ..FetchLimits::default() });
    let fetched = document(&client, &server.url("/a.jsonl"), None).await.expect("the head");
    check_error(text_of(fetched).await, 502, "timed out: no data arrived for");
    let client = loopback_client(FetchLimits { total_timeout: short, ..FetchLimits::default() });
    // On a busy machine the time may be over before the head is there.
    let whole = match document(&client, &server.url("/a.jsonl"), None).await {
        Ok(fetched) => text_of(fetched).await,
        Err(error) => Err(error),
    };
    check_error(whole, 502, "timed out: ");
}

#[tokio::test]
async fn redirects_are_counted() {
    let server = LoopbackServer::start(|request| match request.target.trim_start_matches("/r") {
        "0" => ok("", b"[]"),
        left => redirect(&format!("/r{}", left.parse::<u32>().expect("a number") - 1)),
    });
    let client = loopback_client(FetchLimits { redirects_max: 2, ..FetchLimits::default() });
    assert!(client.open(&server.url("/r2"), None).await.is_ok());
    check_error(client.open(&server.url("/r3"), None).await, 502, "more than 2 redirects");
    let client = loopback_client(FetchLimits { redirects_max: 0, ..FetchLimits::default() });
    check_error(client.open(&server.url("/r1"), None).await, 502, "more than 0 redirects");
}

#[tokio::test]
async fn a_source_is_bounded_before_and_after_decompression() {
    let line = format!("{{\"a\":\"{}\"}}\n", "0".repeat(1000));
    let bomb = gzip(line.repeat(2000).as_bytes());
    let limit = 100_000;
    assert!((bomb.len() as u64) < limit);
    let large = b"{}\n".repeat(50_000);
    for (name, body) in [("bomb.jsonl.gz", bomb), ("large.jsonl", large)] {
        let options = DecodeOptions { source_limit_bytes: limit, ..DecodeOptions::default() };
        let input = SourceInput::stream(io::Cursor::new(body)).with_name(name);
        check_error(decode(input, options).await, 413, "the source is larger than sources.max_bytes (100000)");
    }
    let options = DecodeOptions { entity_limit_bytes: 20, ..DecodeOptions::default() };
    let input = SourceInput::stream(io::Cursor::new(format!("[{{}},{{\"a\":\"{}\"}}]", "x".repeat(40))));
    check_error(
        decode(input, options).await,
        413,
        "item 2 (line 1, column 5): the entity is larger than limits.entity_bytes (20)",
    );
}

// ------------------------------------------------------------------------------------------- objects

fn object_client(store: Arc<dyn ObjectStore>, store_url: &str, prefix: Option<&str>) -> SourceClient {
    let objects = ObjectSources { store, store_url: store_url.to_owned(), prefix: prefix.map(str::to_owned) };
    SourceClient::new(loopback(), FetchLimits::default(), Some(objects))
}

/// Reads what may be read, and nothing else, whatever the store is.
async fn check_objects(store: Arc<dyn ObjectStore>, store_url: &str, url_root: &str) {
    for (key, text) in [
        ("in/a.json", "[{\"a\":1}]"),
        ("in/deep/er/b%3F c.csv", "a\n2\n"),
        ("inner/a.json", "[{\"secret\":1}]"),
        ("versions/v.json", "[{\"secret\":2}]"),
    ] {
        let path = ObjectPath::parse(key).expect("a path");
        store.put(&path, Bytes::from_static(text.as_bytes()).into()).await.expect("written");
    }
    let client = object_client(store.clone(), store_url, Some("in"));
    for root in ["store:///", url_root] {
        let url = format!("{root}in/a.json");
        client.check(&url).await.expect("an object that may be a source");
        let fetched = document(&client, &url, None).await.expect("the object");
        let known = fetched.validators.clone();
        assert_eq!(fetched.input.progress().total_bytes(), Some(9));
        assert_eq!(text_of(fetched).await.expect("entities"), format!("{{\"a\":1,\"_source\":\"{url}\"}}\n"));
        assert!(known.etag.is_some(), "{known:?}");
        assert!(matches!(client.open(&url, Some(&known)).await, Ok(Opened::NotModified(same)) if same == known));

        // A name with a percent sign of its own is written with %25.
        let url = format!("{root}in/deep/er/b%253F%20c.csv");
        let fetched = document(&client, &url, None).await.expect("the object");
        assert_eq!(text_of(fetched).await.expect("entities"), format!("{{\"a\":\"2\",\"_source\":\"{url}\"}}\n"));

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
            assert!(client.check(&url).await.is_err(), "{url}");
            let answer = client.open(&url, None).await;
            assert!(matches!(answer, Err(SourceError::BadAddress { .. })), "{url}: {:?}", answer.err());
        }
        let closed = object_client(store.clone(), store_url, None);
        check_error(closed.open(&format!("{root}in/a.json"), None).await, 400, "sources.prefix");
    }
    check_error(client.open("s3://another-bucket/root/in/a.json", None).await, 400, "not in the configured store");
    check_error(client.open("file:///etc/passwd", None).await, 400, "command line");
    // A document that has changed is given as it is now.
    let url = "store:///in/a.json";
    let known = document(&client, url, None).await.expect("the object").validators;
    store.put(&ObjectPath::from("in/a.json"), Bytes::from_static(b"[{\"a\":22}]").into()).await.expect("written");
    let fetched = document(&client, url, Some(&known)).await.expect("the new object");
    assert_ne!(fetched.validators, known);
}

#[tokio::test]
async fn objects_of_a_store_in_memory_are_sources_below_the_prefix() {
    check_objects(Arc::new(InMemory::new()), "memory://", "store:///").await;
}

#[tokio::test]
async fn objects_of_a_directory_are_sources_below_the_prefix() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let url = directory.path().join("store").display().to_string();
    let store = store::open(&url, &S3Options::default()).expect("a store");
    check_objects(store.objects().clone(), &url, "store:///").await;
}

#[tokio::test]
async fn objects_of_a_bucket_are_sources_below_the_prefix() {
    // The store as `s3://bucket/root` gives it, without the server, whose part is the contract of storage.
    let bucket: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let store = object_store::prefix::PrefixStore::new(bucket.clone(), "root");
    let outside = ObjectPath::from("in/a.json");
    bucket.put(&outside, Bytes::from_static(b"[{\"secret\":3}]").into()).await.expect("written");
    check_objects(Arc::new(store), "s3://bucket/root", "s3://bucket/root/").await;
}

/// Opens a URL in a store that holds only the expected object. A text after `!` is the beginning of a refusal.
async fn check_object(url: &str, store_url: &str, prefix: Option<&str>, expected: &str) {
    let store = Arc::new(InMemory::new());
    let refusal = expected.strip_prefix("! ");
    if refusal.is_none() {
        let path = ObjectPath::parse(expected).expect("a path");
        store.put(&path, Bytes::from_static(b"[]").into()).await.expect("written");
    }
    match (object_client(store, store_url, prefix).open(url, None).await, refusal) {
        (Ok(_), None) => {}
        (Err(SourceError::BadAddress { reason }), Some(refusal)) => assert!(reason.starts_with(refusal), "{reason}"),
        (opened, _) => panic!("{url} in {store_url} below {prefix:?}: {:?}", opened.err()),
    }
}

#[tokio::test]
async fn only_objects_below_the_prefix_are_found() {
    let data = "./strata-data/store";
    let bucket = "s3://bucket/root/";
    let closed = "! objects in the store cannot be sources";
    let outside = "! only objects in the store's folder a (sources.prefix) can be sources";
    let elsewhere = "! the object is not in the configured store";
    for (url, store_url, prefix, expected) in [
        ("store:///a/x.json", data, None, closed),
        ("s3://bucket/root/a/x.json", bucket, None, closed),
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
        // Even if the configuration let such a prefix pass.
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

/// A body of these chunks.
fn body(chunks: Vec<Chunk>) -> SourceInput {
    SourceInput::pushed(stream::iter(chunks), PATIENT)
}

fn pieces(text: &[u8], piece_bytes: usize) -> SourceInput {
    body(text.chunks(piece_bytes).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect())
}

/// Decodes a pushed JSON body and shows what is beside the entities.
async fn push(input: SourceInput) -> Result<(String, EnvelopeFields), SourceError> {
    let work = move || {
        let (decoder, fields) = open_push(input, &DecodeOptions::default(), &["dataset_id", "etag", "alt"])?;
        Ok((entities(decoder)?, fields))
    };
    tokio::task::spawn_blocking(work).await.expect("the decoder runs")
}

#[tokio::test]
async fn a_body_in_any_format_is_a_source() {
    let lines = b"{\"a\":1}\n{\"a\":\"\xc3\xa9\"}\n";
    let packed = gzip(lines);
    for piece_bytes in [1, 3, 1000] {
        let text = decode(pieces(lines, piece_bytes), DecodeOptions::default()).await.expect("entities");
        assert_eq!(text.as_bytes(), lines, "no _source is added");
        let text = decode(pieces(&packed, piece_bytes), DecodeOptions::default()).await.expect("entities");
        assert_eq!(text.as_bytes(), lines);
        let table = pieces(b"a\tb\n1\t2\n", piece_bytes).with_content_type("text/tab-separated-values");
        let text = decode(table, DecodeOptions::default()).await.expect("entities");
        assert_eq!(text, "{\"a\":\"1\",\"b\":\"2\"}\n");
    }
    let reader = SourceInput::pushed(ReaderStream::new(io::Cursor::new(lines.to_vec())), PATIENT);
    assert_eq!(decode(reader, DecodeOptions::default()).await.expect("entities").as_bytes(), lines);
    let options = DecodeOptions { format: Some(SourceFormat::Csv), ..DecodeOptions::default() };
    check_error(decode(pieces(b"a,b\n1\n", 2), options).await, 422, "item 1 (line 2): the row has 1 cell");
}

#[tokio::test]
async fn a_body_is_drawn_only_as_fast_as_it_is_decoded() {
    let drawn = Arc::new(AtomicUsize::new(0));
    let count = drawn.clone();
    let chunk = Bytes::from("{\"a\":1}\n".repeat(8 * 1024));
    let chunks = stream::repeat(chunk).take(10_000).map(move |chunk| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok::<_, io::Error>(chunk)
    });
    let input = SourceInput::pushed(chunks, PATIENT);
    let options = DecodeOptions { window_bytes: 64 * 1024, ..DecodeOptions::default() };
    let first = tokio::task::spawn_blocking(move || {
        let (mut decoder, _) = open(input, &options)?;
        let mut entity = Vec::new();
        decoder.next(&mut entity)?;
        Ok::<_, SourceError>(entity)
    });
    assert_eq!(first.await.expect("the decoder runs").expect("an entity"), b"{\"a\":1}");
    let drawn = drawn.load(Ordering::SeqCst);
    assert!(drawn < 20, "{drawn} of 10,000 chunks were drawn for one entity");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_no_shorter_one() {
    let cut = || {
        let chunks: Vec<Chunk> = vec![Ok(Bytes::from_static(b"{\"a\":1}\n")), Err("connection reset".into())];
        body(chunks)
    };
    check_error(decode(cut(), DecodeOptions::default()).await, 400, "the body is incomplete: connection reset");
    // The caller's own limits keep their meaning.
    let limit = SourceError::TooLarge { place: None, reason: "larger than limits.body_bytes".to_owned() };
    let chunks: Vec<Chunk> = vec![Ok(Bytes::from_static(b"{\"a\":1}\n")), Err(Box::new(limit))];
    check_error(decode(body(chunks), DecodeOptions::default()).await, 413, "limits.body_bytes");
    let silent = stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"{}\n"))]).chain(stream::pending());
    let silent = SourceInput::pushed(silent, Duration::from_millis(100));
    check_error(decode(silent, DecodeOptions::default()).await, 400, "the body is incomplete: timed out");
}

#[tokio::test]
async fn what_is_beside_the_entities_may_come_before_or_after() {
    for text in [
        r#"{"dataset_id":7,"entities":[{"a":1},{"b":[{}]}],"etag":"x"}"#,
        r#" { "entities" : [ {"a" : 1} , {"b":[{}]} ] , "dataset_id" : 7 , "etag":"\u0078" } "#,
        r#"{"alt":{"dataset_id":1,"entities":[3]},"etag":"x","entities":[{"a":1},{"b":[{}]}],"dataset_id":7,"alt":null}"#,
        r#"{"dataset_id":"no","entities":[{"a":1},{"b":[{}]}],"dataset_id":7,"etag":"x","alt":null}"#,
        r#"{"dataset\u005fid":7,"entitie\u0073":[{"a":1},{"b":[{}]}],"etag":"x"}"#,
    ] {
        for piece_bytes in [1, 7, 1000] {
            let (text, fields) = push(pieces(text.as_bytes(), piece_bytes)).await.expect(text);
            assert_eq!(text, "{\"a\":1}\n{\"b\":[{}]}\n");
            assert_eq!(fields.integer("dataset_id").expect("a number"), Some(7));
            assert_eq!(fields.text("etag").expect("a text").as_deref(), Some("x"));
            assert_eq!(fields.boolean("alt").expect("nothing"), None);
        }
    }
    let (text, fields) = push(pieces(br#"{"entities":[],"alt":true}"#, 5)).await.expect("an empty version");
    assert_eq!((text.as_str(), fields.boolean("alt").expect("a boolean")), ("", Some(true)));
    assert_eq!(fields.integer("dataset_id").expect("nothing"), None);
}

#[tokio::test]
async fn what_comes_before_the_entities_is_known_with_the_first() {
    let gate = br#"{"dataset_id":7,"entities":[{"a":1},"#;
    let chunks = stream::iter([Ok::<_, io::Error>(Bytes::from_static(gate))]).chain(stream::pending());
    let input = SourceInput::pushed(chunks, PATIENT);
    let options = DecodeOptions { window_bytes: gate.len(), ..DecodeOptions::default() };
    let early = tokio::task::spawn_blocking(move || {
        let (mut decoder, fields) = open_push(input, &options, &["dataset_id"])?;
        decoder.next(&mut Vec::new())?;
        fields.integer("dataset_id")
    });
    assert_eq!(early.await.expect("the decoder runs").expect("a number"), Some(7));
}

#[tokio::test]
async fn a_body_that_is_not_as_it_should_be_names_the_member_or_the_item() {
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
        check_error(push(pieces(text.as_bytes(), 4)).await, expected_status, expected);
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
        let (_, fields) = push(pieces(text.as_bytes(), 9)).await.expect("the entities are fine");
        check_error(fields.integer("dataset_id"), 400, expected);
    }
    for (member, value) in [("7", 7), ("7.0", 7), ("70e-1", 7), ("1E3", 1_000)] {
        let text = format!("{{\"dataset_id\":{member},\"entities\":[]}}");
        let (_, fields) = push(pieces(text.as_bytes(), 9)).await.expect("the entities are fine");
        assert_eq!(fields.integer("dataset_id").expect("an integer"), Some(value), "{member}");
    }
}

#[tokio::test]
async fn a_large_body_is_not_held() {
    // 64 MB in one body; the decoder's window stays at a few chunks.
    let mut chunk = String::new();
    for number in 0..1000 {
        write!(chunk, "{{\"number\":{number},\"text\":\"{:050}\"}},", number).expect("a string takes all");
    }
    let chunk = Bytes::from(chunk);
    let start = stream::iter([Bytes::from_static(b"{\"entities\":[")]);
    let end = stream::iter([Bytes::from_static(b"{}],\"dataset_id\":12}")]);
    let chunks = start.chain(stream::repeat(chunk).take(200)).chain(end).map(Ok::<_, io::Error>);
    let input = SourceInput::pushed(chunks, PATIENT);
    let work = move || {
        let options = DecodeOptions { window_bytes: 64 * 1024, ..DecodeOptions::default() };
        let (mut decoder, fields) = open_push(input, &options, &["dataset_id"])?;
        let (mut entity, mut count) = (Vec::new(), 0);
        while decoder.next(&mut entity)? {
            entity.clear();
            count += 1;
        }
        Ok::<_, SourceError>((count, fields.integer("dataset_id")?))
    };
    let counted = tokio::task::spawn_blocking(work).await.expect("the decoder runs").expect("entities");
    assert_eq!(counted, (200_001, Some(12)));
}

// -------------------------------------------------------------------------------------- command line

/// Runs `strata` in a directory, with these variables.
fn strata(directory: &std::path::Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(strata_testing::binary::path());
    command.args(arguments).current_dir(directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    without_configuration(&mut command);
    let mut child = command.envs(environment.iter().copied()).spawn().expect("the binary runs");
    // A command that reads no password may have ended already.
    let _ = child.stdin.take().expect("a pipe").write_all(b"correct horse\n");
    child.wait_with_output().expect("the binary ends")
}

#[test]
fn an_import_from_a_url_keeps_to_net_allow_and_uses_no_proxy() {
    let server = LoopbackServer::start(|_| ok("", b"[{\"a\":1}]"));
    let proxy = LoopbackServer::start(|_| ok("", b"[{\"from\":\"proxy\"}]"));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let run = |arguments: &[&str], environment: &[(&str, &str)]| strata(directory.path(), arguments, environment);
    assert!(run(&["user", "add", "ada@example.test", "--plan", "free"], &[]).status.success());

    let url = server.url("/a.json");
    let import = |source: &str, environment: &[(&str, &str)]| {
        run(&["import", source, "--name", "Things", "--owner", "ada@example.test"], environment)
    };
    let refused = import(&url, &[]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{message}");
    assert!(message.contains("127.0.0.1 is a loopback address") && message.contains("net.allow"), "{message}");
    assert_eq!(server.received().len(), 0, "nothing was sent");

    let proxy_url = proxy.url("");
    let environment =
        [("STRATA_NET__ALLOW", "10.0.0.0/8, 127.0.0.0/8"), ("HTTP_PROXY", &*proxy_url), ("http_proxy", &*proxy_url)];
    let imported = import(&url, &environment);
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    assert_eq!((server.received().len(), proxy.received().len()), (1, 0), "the proxy was not asked");

    // A file of this machine by its URL, and an object of the store.
    let file = directory.path().join("a b.json");
    std::fs::write(&file, "[{\"a\":2}]").expect("written");
    let file_url = url::Url::from_file_path(&file).expect("a URL").to_string();
    assert!(import(&file_url, &[]).status.success());
    let folder = directory.path().join("strata-data/store/incoming");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::copy(&file, folder.join("a.json")).expect("copied");
    let closed = import("store:///incoming/a.json", &[]);
    assert!(String::from_utf8_lossy(&closed.stderr).contains("sources.prefix"));
    let open = import("store:///incoming/a.json", &[("STRATA_SOURCES__PREFIX", "incoming")]);
    assert!(open.status.success(), "{}", String::from_utf8_lossy(&open.stderr));
}

#[test]
fn the_configuration_of_fetching_has_bounds_and_defaults() {
    let limits = FetchLimits::from(&Config::default().sources);
    assert_eq!((limits.redirects_max, limits.total_timeout), (5, Duration::from_secs(3600)));
    assert_eq!(Config::default().webhook.timeout_s, 10);
    assert!(Config::default().net.allow.as_slice().is_empty());
}
