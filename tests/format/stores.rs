//! The contract that every store keeps, stores that fail, and addresses of stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures::{FutureExt, TryStreamExt};
use hyper_util::rt::{TokioExecutor, TokioIo};
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::{MultipartUpload, ObjectStore, PutPayload, PutResult, UploadPart};
use strata_format::cache::PartCache;
use strata_format::reader::VersionReader;
use strata_format::writer::{WriteOptions, write_version};
use strata_store::StorageError;
use strata_store::store::{self, S3Options, Store};
use strata_testing::versions::Bench;
use strata_testing::watched_store::{Request, Watch, Watched};
use strata_testing::{FIXTURE_FILES, fixture_entities};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::files::{check_round_trip, hostile_entities, noise, opened, read_all, some_entities};

#[test]
fn a_directory_keeps_the_contract() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    contract(&opened(&directory.path().join("made/when/missing").to_string_lossy()));
    let url = url::Url::from_directory_path(directory.path().join("by url")).expect("an absolute path");
    check_round_trip(&opened(url.as_str()), &some_entities(), &WriteOptions::default());
}

#[test]
fn memory_keeps_the_contract() {
    contract(&opened("memory://"));
}

#[test]
fn s3_keeps_the_contract() {
    let bench = Bench::new();
    let (_server, store) = s3(&bench.runtime, "/some/prefix");
    contract(&store);
    let (_server, store) = s3(&bench.runtime, "");
    check_round_trip(&store, &some_entities(), &WriteOptions::default());
}

/// Everything that is written comes back the same, whatever it is and however it is cut.
fn contract(store: &Store) {
    let bench = Bench::new();
    bench.runtime.block_on(store.probe()).expect("the store can be written");

    let small = |row_group_rows, threads| WriteOptions { threads, row_group_rows, ..WriteOptions::default() };
    check_round_trip(store, &[], &WriteOptions::default());
    check_round_trip(store, &["{}".to_owned()], &WriteOptions::default());
    check_round_trip(store, &some_entities(), &WriteOptions::default());
    for threads in [1, 3] {
        // Many row groups, the last one not full.
        check_round_trip(store, &some_entities(), &small(7, threads));
    }
    for (_, file, records) in FIXTURE_FILES {
        let entities = fixture_entities(file, records);
        assert!(entities.len() > 100, "{file}");
        check_round_trip(store, &entities, &small(499, 2));
    }
    check_round_trip(store, &hostile_entities(200), &small(32, 2));

    // Entities larger than a page among small ones, and a whole page of each.
    let large = |length: usize| format!(r#"{{"text":"{}","n":{length}}}"#, "Long text. ".repeat(length / 11));
    let mut entities: Vec<String> = (0..300).map(|number| format!(r#"{{"n":{number}}}"#)).collect();
    for (place, length) in [(0, 300_000), (100, 140_000), (101, 300_000), (250, 1_000_000), (299, 300_000)] {
        entities[place] = large(length);
    }
    check_round_trip(store, &entities, &WriteOptions::default());
    check_round_trip(store, &entities, &small(101, 2));

    // More than one part of an upload: text that no compression makes small.
    let noise = noise(12 << 20);
    let written = check_round_trip(store, &noise, &WriteOptions { threads: 2, ..WriteOptions::default() });
    assert!(written.size_bytes > 9 << 20, "{} bytes are hardly more than one part", written.size_bytes);

    // What is not there is an error, and the store still answers.
    let missing = ObjectPath::from("versions/missing.parquet");
    let cache = PartCache::new(1 << 20);
    let error = bench.runtime.block_on(VersionReader::open(store, &missing, 1_000, &cache)).expect_err("not there");
    assert!(!error.to_string().is_empty());
    bench.runtime.block_on(store.probe()).expect("the store can be written");
}

#[test]
fn a_write_that_fails_leaves_nothing() {
    let bench = Bench::new();
    let path = ObjectPath::from("versions/some.parquet");
    let (small, large) = (some_entities(), noise(26 << 20));
    let options = WriteOptions { threads: 2, ..WriteOptions::default() };
    // One request for a small file; a start, three or more parts and an end for a large one.
    let mut failed = 0;
    for (entities, least) in [(&small, 1), (&large, 5)] {
        for fail_at in 0.. {
            let objects = Failing::new(fail_at);
            let (inner, store) = objects.store();
            let spooled = bench.spool(entities);
            let result = write_version(&store, &path, spooled, &options, bench.runtime.handle(), &|_| {});
            let listed = bench.runtime.block_on(inner.list(None).try_collect::<Vec<_>>()).expect("a listing");
            match result {
                Err(error) => {
                    assert!(error.to_string().contains("call number"), "{error}");
                    assert!(listed.is_empty(), "call {fail_at} left {listed:?}");
                    assert_eq!(
                        objects.open_uploads.load(Ordering::SeqCst),
                        0,
                        "call {fail_at} left parts of an upload"
                    );
                    failed += 1;
                }
                Ok(_) => {
                    assert_eq!(listed.len(), 1);
                    assert!(fail_at >= least, "{fail_at} calls wrote {} entities", entities.len());
                    break;
                }
            }
        }
    }
    assert!(failed >= 6, "{failed}");
}

#[test]
fn a_read_that_fails_is_an_error_and_is_tried_again() {
    let bench = Bench::new();
    let objects = Failing::new(usize::MAX);
    let (_, store) = objects.store();
    let entities = some_entities();
    let (path, written) = bench.write(&store, &entities, &WriteOptions::default()).expect("written");
    let cache = PartCache::new(1 << 30);
    for fail_at in 0..40 {
        objects.calls.store(0, Ordering::SeqCst);
        objects.fail_at.store(fail_at, Ordering::SeqCst);
        let read = || bench.runtime.block_on(read_all(&store, &path, written.size_bytes, &cache));
        let Err(error) = read() else {
            assert!(fail_at > 0);
            break;
        };
        assert!(error.to_string().contains("call number"), "{error}");
        // The failure is not kept.
        assert_eq!(read().expect("the store answers again"), entities);
    }
}

#[test]
fn addresses_that_are_none_are_named() {
    let file = tempfile::NamedTempFile::new().expect("a file in place of a directory");
    let file = file.path().to_str().expect("UTF-8");
    for url in ["ftp://x/y", "memory://x", "s3://", "s3:///prefix", "file://host/x y/%", file] {
        match store::open(url, &S3Options::default()) {
            Err(StorageError::Url { url: named, reason }) => {
                assert_eq!(named, url);
                assert!(!reason.is_empty());
            }
            other => panic!("{url} gives {other:?}"),
        }
    }
}

/// An S3 server on loopback; it ends with the runtime that it was started on.
fn s3(runtime: &Runtime, prefix: &str) -> (TempDir, Store) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::create_dir(directory.path().join("bucket")).expect("a bucket");
    let files = s3s_fs::FileSystem::new(directory.path()).expect("a file system");
    let mut service = s3s::service::S3ServiceBuilder::new(files);
    service.set_auth(s3s::auth::SimpleAuth::from_single("key", "secret"));
    let service = service.build();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("not blocking");
    let address = listener.local_addr().expect("its address");
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        while let Ok((connection, _)) = listener.accept().await {
            connection.set_nodelay(true).expect("no delay");
            let service = service.clone();
            tokio::spawn(async move {
                let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(connection), service).await;
            });
        }
    });
    let options = S3Options {
        endpoint: Some(format!("http://{address}")),
        region: Some("us-east-1".to_owned()),
        access_key_id: Some("key".to_owned()),
        secret_access_key: Some("secret".to_owned()),
        allow_http: true,
        retry_within: None,
    };
    (directory, store::open(&format!("s3://bucket{prefix}"), &options).expect("a store"))
}

/// One call of a store fails: puts, starts, parts and ends of uploads, and reads are counted. Clones share everything.
#[derive(Clone, Debug)]
struct Failing {
    calls: Arc<AtomicUsize>,
    fail_at: Arc<AtomicUsize>,
    open_uploads: Arc<AtomicUsize>,
}

impl Failing {
    fn new(fail_at: usize) -> Failing {
        Failing { calls: Arc::default(), fail_at: Arc::new(AtomicUsize::new(fail_at)), open_uploads: Arc::default() }
    }

    /// A store in memory, and the same one failing.
    fn store(&self) -> (Arc<InMemory>, Store) {
        let inner = Arc::new(InMemory::new());
        let watched = Watched { inner: inner.clone(), watch: self.clone() };
        (inner, Store::from(Arc::new(watched) as Arc<dyn ObjectStore>))
    }

    fn count(&self) -> object_store::Result<()> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        if number == self.fail_at.load(Ordering::SeqCst) {
            let source = format!("call number {number}").into();
            return Err(object_store::Error::Generic { store: "failing", source });
        }
        Ok(())
    }
}

#[async_trait]
impl Watch for Failing {
    async fn before(&self, _: Request<'_>) -> object_store::Result<()> {
        self.count()
    }

    fn upload(&self, inner: Box<dyn MultipartUpload>) -> Box<dyn MultipartUpload> {
        self.open_uploads.fetch_add(1, Ordering::SeqCst);
        Box::new(FailingUpload { inner, failing: self.clone() })
    }
}

#[derive(Debug)]
struct FailingUpload {
    inner: Box<dyn MultipartUpload>,
    failing: Failing,
}

#[async_trait]
impl MultipartUpload for FailingUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        match self.failing.count() {
            Ok(()) => self.inner.put_part(data),
            Err(error) => async { Err(error) }.boxed(),
        }
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        self.failing.count()?;
        self.failing.open_uploads.fetch_sub(1, Ordering::SeqCst);
        self.inner.complete().await
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        self.failing.open_uploads.fetch_sub(1, Ordering::SeqCst);
        self.inner.abort().await
    }
}
