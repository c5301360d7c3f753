//! The contract of all stores, failing stores, and store URLs.

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
use strata_testing::versions::FileWorkbench;
use strata_testing::watched_store::{StoreRequest, Watch, WatchedStore};
use strata_testing::{FIXTURE_FILES, fixture_entities};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::files::{check_round_trip, hostile_entities, noise, opened, read_all, some_entities};

#[test]
fn directory_store_fulfills_contract() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    contract(&opened(&directory.path().join("made/when/missing").to_string_lossy()));
    let url = url::Url::from_directory_path(directory.path().join("by url")).expect("failed to create URL");
    check_round_trip(&opened(url.as_str()), &some_entities(), &WriteOptions::default());
}

#[test]
fn memory_store_fulfills_contract() {
    contract(&opened("memory://"));
}

#[test]
fn s3_store_fulfills_contract() {
    let bench = FileWorkbench::new();
    let (_server, store) = s3(&bench.runtime, "/some/prefix");
    contract(&store);
    let (_server, store) = s3(&bench.runtime, "");
    check_round_trip(&store, &some_entities(), &WriteOptions::default());
}

/// Checks that entities survive writing and reading, regardless of row groups, pages, and upload parts.
fn contract(store: &Store) {
    let bench = FileWorkbench::new();
    bench.runtime.block_on(store.probe_write()).expect("failed to write to store");

    let small = |row_group_rows, threads| WriteOptions {
        worker_threads: threads,
        max_row_group_rows: row_group_rows,
        ..WriteOptions::default()
    };
    check_round_trip(store, &[], &WriteOptions::default());
    check_round_trip(store, &["{}".to_owned()], &WriteOptions::default());
    check_round_trip(store, &some_entities(), &WriteOptions::default());
    for threads in [1, 3] {
        // Many row groups, of which the last one is not full.
        check_round_trip(store, &some_entities(), &small(7, threads));
    }
    for (_, file, records) in FIXTURE_FILES {
        let entities = fixture_entities(file, records);
        assert!(entities.len() > 100, "{file}");
        check_round_trip(store, &entities, &small(499, 2));
    }
    check_round_trip(store, &hostile_entities(200), &small(32, 2));

    // Entities larger than a page, next to small ones and to each other.
    let large = |length: usize| format!(r#"{{"text":"{}","n":{length}}}"#, "Long text. ".repeat(length / 11));
    let mut entities: Vec<String> = (0..300).map(|number| format!(r#"{{"n":{number}}}"#)).collect();
    for (index, length) in [(0, 300_000), (100, 140_000), (101, 300_000), (250, 1_000_000), (299, 300_000)] {
        entities[index] = large(length);
    }
    check_round_trip(store, &entities, &WriteOptions::default());
    check_round_trip(store, &entities, &small(101, 2));

    // Incompressible text that takes several upload parts.
    let noise = noise(12 << 20);
    let written = check_round_trip(store, &noise, &WriteOptions { worker_threads: 2, ..WriteOptions::default() });
    assert!(written.size_bytes > 9 << 20, "{} bytes do not take several parts", written.size_bytes);

    // A missing object is an error, and the store remains usable.
    let missing = ObjectPath::from("versions/missing.parquet");
    let cache = PartCache::new(1 << 20);
    let opened = bench.runtime.block_on(VersionReader::open(store, &missing, 1_000, &cache));
    let error = opened.expect_err("opened a missing object");
    assert!(!error.to_string().is_empty());
    bench.runtime.block_on(store.probe_write()).expect("failed to write to store");
}

#[test]
fn failed_write_leaves_nothing() {
    let bench = FileWorkbench::new();
    let path = ObjectPath::from("versions/some.parquet");
    let small = some_entities();
    let large = noise(26 << 20);
    let options = WriteOptions { worker_threads: 2, ..WriteOptions::default() };
    // One request for a small file. Initiation, at least three parts, and completion for a large file.
    let mut failed = 0;
    for (entities, min_calls) in [(&small, 1), (&large, 5)] {
        for fail_at in 0.. {
            let watch = FailingWatch::new(fail_at);
            let (inner, store) = watch.store();
            let spooled = bench.spool(entities);
            let result = write_version(&store, &path, spooled, &options, bench.runtime.handle(), &|_| {});
            let listed =
                bench.runtime.block_on(inner.list(None).try_collect::<Vec<_>>()).expect("failed to list objects");
            match result {
                Err(error) => {
                    assert!(error.to_string().contains("call number"), "{error}");
                    assert!(listed.is_empty(), "call {fail_at} left {listed:?}");
                    let open_uploads = watch.open_uploads.load(Ordering::SeqCst);
                    assert_eq!(open_uploads, 0, "call {fail_at} left parts of an upload");
                    failed += 1;
                }
                Ok(_) => {
                    assert_eq!(listed.len(), 1);
                    assert!(fail_at >= min_calls, "{fail_at} calls wrote {} entities", entities.len());
                    break;
                }
            }
        }
    }
    assert!(failed >= 6, "{failed}");
}

#[test]
fn failed_read_is_an_error_and_is_retried() {
    let bench = FileWorkbench::new();
    let watch = FailingWatch::new(usize::MAX);
    let (_, store) = watch.store();
    let entities = some_entities();
    let (path, written) = bench.write(&store, &entities, &WriteOptions::default()).expect("failed to write file");
    let cache = PartCache::new(1 << 30);
    for fail_at in 0..40 {
        watch.calls.store(0, Ordering::SeqCst);
        watch.fail_at.store(fail_at, Ordering::SeqCst);
        let read = || bench.runtime.block_on(read_all(&store, &path, written.size_bytes, &cache));
        let Err(error) = read() else {
            assert!(fail_at > 0);
            break;
        };
        assert!(error.to_string().contains("call number"), "{error}");
        // Failures are not cached, so the next read succeeds.
        assert_eq!(read().expect("failed to read again"), entities);
    }
}

#[test]
fn invalid_store_urls_are_named() {
    let file = tempfile::NamedTempFile::new().expect("failed to create file");
    let file = file.path().to_str().expect("failed to decode path");
    for url in ["ftp://x/y", "memory://x", "s3://", "s3:///prefix", "file://host/x y/%", file] {
        match store::open_store(url, &S3Options::default()) {
            Err(StorageError::InvalidUrl { url: named, reason }) => {
                assert_eq!(named, url);
                assert!(!reason.is_empty());
            }
            other => panic!("{url} gives {other:?}"),
        }
    }
}

/// Starts an S3 server on the loopback interface. The server ends with the runtime.
fn s3(runtime: &Runtime, prefix: &str) -> (TempDir, Store) {
    let directory = tempfile::tempdir().expect("failed to create directory");
    std::fs::create_dir(directory.path().join("bucket")).expect("failed to create bucket");
    let files = s3s_fs::FileSystem::new(directory.path()).expect("failed to create file system");
    let mut service = s3s::service::S3ServiceBuilder::new(files);
    service.set_auth(s3s::auth::SimpleAuth::from_single("key", "secret"));
    let service = service.build();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("failed to bind port");
    listener.set_nonblocking(true).expect("failed to set non-blocking mode");
    let address = listener.local_addr().expect("failed to find address");
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).expect("failed to create listener");
        while let Ok((connection, _)) = listener.accept().await {
            connection.set_nodelay(true).expect("failed to set no-delay mode");
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
        secret_access_key: Some(strata_types::secret::Secret::from_stored("secret".to_owned())),
        allow_http: true,
        retry_timeout: None,
    };
    (directory, store::open_store(&format!("s3://bucket{prefix}"), &options).expect("failed to open store"))
}

/// Makes one call of a store fail. Counts writes, reads, and the steps of uploads. Clones share the counts.
#[derive(Clone, Debug)]
struct FailingWatch {
    calls: Arc<AtomicUsize>,
    fail_at: Arc<AtomicUsize>,
    open_uploads: Arc<AtomicUsize>,
}

impl FailingWatch {
    fn new(fail_at: usize) -> FailingWatch {
        FailingWatch {
            calls: Arc::default(),
            fail_at: Arc::new(AtomicUsize::new(fail_at)),
            open_uploads: Arc::default(),
        }
    }

    /// Returns a store in memory, and a failing store with the same objects.
    fn store(&self) -> (Arc<InMemory>, Store) {
        let inner = Arc::new(InMemory::new());
        let watched = WatchedStore { inner: inner.clone(), watch: self.clone() };
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
impl Watch for FailingWatch {
    async fn before(&self, _: StoreRequest<'_>) -> object_store::Result<()> {
        self.count()
    }

    fn upload(&self, inner: Box<dyn MultipartUpload>) -> Box<dyn MultipartUpload> {
        self.open_uploads.fetch_add(1, Ordering::SeqCst);
        Box::new(FailingUpload { inner, watch: self.clone() })
    }
}

#[derive(Debug)]
struct FailingUpload {
    inner: Box<dyn MultipartUpload>,
    watch: FailingWatch,
}

#[async_trait]
impl MultipartUpload for FailingUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        match self.watch.count() {
            Ok(()) => self.inner.put_part(data),
            Err(error) => async { Err(error) }.boxed(),
        }
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        self.watch.count()?;
        self.watch.open_uploads.fetch_sub(1, Ordering::SeqCst);
        self.inner.complete().await
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        self.watch.open_uploads.fetch_sub(1, Ordering::SeqCst);
        self.inner.abort().await
    }
}
