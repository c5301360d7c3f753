//! The disk cache: cached ranges are not fetched again, and a failing disk fails no read.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use object_store::ObjectStoreExt;
use strata_format::cache::PartCache;
use strata_format::reader::{NoReadThrottle, VersionReader};
use strata_format::writer::WriteOptions;
use strata_store::StorageError;
use strata_store::disk_cache::{DiskCache, VersionFileId};
use strata_store::free_space::DiskReserve;
use strata_store::store::Store;
use strata_testing::metrics::growth;
use strata_testing::versions::FileWorkbench;
use strata_testing::watched_store::{StoreRequest, Watch, WatchedStore};
use strata_testing::{eventually, files};

/// More bytes than any disk has.
const EVERYTHING: u64 = 1 << 50;

/// A remote version file that counts requests.
#[derive(Default)]
struct RemoteFile {
    requests: AtomicUsize,
}

/// Content of the file.
fn content(range: Range<u64>) -> Vec<u8> {
    range.map(|offset| (offset * 31 + (offset >> 8) * 7) as u8).collect()
}

fn id() -> VersionFileId {
    VersionFileId::new("versions/some.parquet", 1 << 30)
}

impl RemoteFile {
    async fn read(&self, cache: &DiskCache, range: Range<u64>) {
        let fetch = async {
            self.requests.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            Ok::<_, StorageError>(Bytes::from(content(range.clone())))
        };
        let bytes = cache.get_or_fetch(id(), range.clone(), std::future::ready(()), fetch).await;
        let bytes = bytes.expect("failed to read range");
        assert!(bytes == content(range.clone()), "{range:?}");
    }

    /// Returns the number of requests since the last call.
    fn take_requests(&self) -> usize {
        self.requests.swap(0, Ordering::SeqCst)
    }
}

fn open(directory: &Path, capacity_bytes: u64) -> DiskCache {
    DiskCache::open(directory.join("cache"), capacity_bytes, DiskReserve::new(directory, 0))
}

/// Opens a cache, and waits until it has loaded the cached ranges.
async fn reopened(directory: &Path, capacity_bytes: u64) -> DiskCache {
    let on_disk = segment_bytes(&directory.join("cache/0"));
    let cache = open(directory, capacity_bytes);
    eventually("the cache loads the ranges on disk", async || cache.used_bytes() == on_disk).await;
    cache
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    files(folder).into_iter().filter(|path| path.extension() == Some("ranges".as_ref())).collect()
}

fn segment_bytes(folder: &Path) -> u64 {
    segments(folder).iter().filter_map(|path| fs::metadata(path).ok()).map(|metadata| metadata.len()).sum()
}

#[tokio::test]
async fn cached_ranges_are_not_fetched_again() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let remote_file = RemoteFile::default();
    let cache = open(directory.path(), 64 << 20);
    let ranges = || (0..50).map(|number| number * 10_000..number * 10_000 + 9_000);
    for range in ranges() {
        remote_file.read(&cache, range).await;
    }
    assert_eq!(remote_file.take_requests(), 50);
    cache.close().await;
    // A closed cache can still be read.
    for range in ranges() {
        remote_file.read(&cache, range).await;
    }
    assert_eq!(remote_file.take_requests(), 0);
    drop(cache);

    let cache = reopened(directory.path(), 64 << 20).await;
    for range in ranges() {
        remote_file.read(&cache, range.clone()).await;
        remote_file.read(&cache, range.start + 100..range.end - 100).await;
    }
    assert_eq!(remote_file.take_requests(), 0);
    remote_file.read(&cache, 8_000..9_500).await;
    assert_eq!(remote_file.take_requests(), 1, "no single range contains the bytes");
    let other = VersionFileId::new("versions/some.parquet", 1);
    let fetch = async { Ok(Bytes::from_static(b"other")) };
    let bytes = cache.get_or_fetch(other, 0..5, std::future::ready(()), fetch).await.expect("failed to read range");
    assert_eq!(&bytes[..], b"other");
}

#[tokio::test]
async fn damaged_range_is_detected_and_fetched_again() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let remote_file = RemoteFile::default();
    let cache = open(directory.path(), 64 << 20);
    for number in 0..10 {
        remote_file.read(&cache, number * 1_000..number * 1_000 + 1_000).await;
    }
    cache.close().await;
    remote_file.take_requests();
    let paths = segments(directory.path());
    let [path] = &paths[..] else { panic!("{paths:?}") };
    let whole = fs::read(path).expect("failed to read segment");
    // Damage in the content of the fourth record, in the header of the last one, and at the end of a truncated file.
    let mut damaged = whole.clone();
    damaged[3 * 1_040 + 500] ^= 1;
    damaged[9 * 1_040 + 5] ^= 1;
    for (bytes, expected_requests) in [(&damaged[..], 2), (&whole[..9_900], 1)] {
        fs::write(path, bytes).expect("failed to write segment");
        let damage_count = growth("strata_disk_cache_damaged_total", async {
            let cache = reopened(directory.path(), 64 << 20).await;
            for number in 0..10 {
                remote_file.read(&cache, number * 1_000..number * 1_000 + 1_000).await;
            }
            assert_eq!(remote_file.take_requests(), expected_requests);
            cache.close().await;
            for number in 0..10 {
                remote_file.read(&cache, number * 1_000..number * 1_000 + 1_000).await;
            }
            assert_eq!(remote_file.take_requests(), 0, "fetched ranges are not cached again");
        });
        assert!(damage_count.await >= expected_requests as f64);
        for path in segments(directory.path()) {
            fs::remove_file(path).expect("failed to remove segment");
        }
    }
}

#[tokio::test]
async fn capacity_is_respected_and_used_ranges_stay() {
    const CAPACITY: u64 = 2 << 20;
    let directory = tempfile::tempdir().expect("failed to create directory");
    let remote_file = RemoteFile::default();
    let cache = open(directory.path(), CAPACITY);
    remote_file.read(&cache, 0..5_000).await;
    let mut used_again = 0;
    for number in 1..600 {
        remote_file.take_requests();
        remote_file.read(&cache, 0..5_000).await;
        used_again += remote_file.take_requests();
        remote_file.read(&cache, number * 20_000..number * 20_000 + 18_000).await;
        let on_disk = segment_bytes(directory.path());
        // The sizes of the segments are read one after the other while the writer deletes and appends.
        let max_bytes = CAPACITY + 2 * 20_000;
        assert!(on_disk <= max_bytes && cache.used_bytes() <= CAPACITY, "{on_disk} and {} bytes", cache.used_bytes());
    }
    assert!(used_again < 10, "the used range was fetched {used_again} times");
    // A range that is too large is not cached.
    remote_file.read(&cache, 0..CAPACITY / 2).await;
    cache.close().await;
    assert!(segment_bytes(directory.path()) > CAPACITY / 2);
    remote_file.take_requests();
    remote_file.read(&cache, 0..CAPACITY / 2).await;
    remote_file.read(&cache, 599 * 20_000..599 * 20_000 + 18_000).await;
    assert_eq!(remote_file.take_requests(), 1);
    drop(cache);
    // A smaller capacity than before.
    let cache = open(directory.path(), CAPACITY / 2);
    let is_evicted = async || (1..=CAPACITY / 2).contains(&segment_bytes(directory.path()));
    eventually("the cache shrinks", is_evicted).await;
    cache.close().await;
}

#[tokio::test]
async fn short_disk_fails_no_read() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let remote_file = RemoteFile::default();
    let disk = DiskReserve::new(directory.path(), EVERYTHING);
    let cache = DiskCache::open(directory.path().join("cache"), 64 << 20, disk.clone());
    for number in 0..20 {
        remote_file.read(&cache, number * 1_000..number * 1_000 + 1_000).await;
    }
    cache.close().await;
    assert_eq!((remote_file.take_requests(), segment_bytes(directory.path())), (20, 0));
    drop(cache);

    // The cache frees space for others.
    let cache = open(directory.path(), 64 << 20);
    remote_file.read(&cache, 0..1_000).await;
    cache.close().await;
    drop(cache);
    let short = DiskReserve::new(directory.path(), EVERYTHING);
    let cache = DiskCache::open(directory.path().join("cache"), 64 << 20, short.clone());
    eventually("the cache loads the ranges on disk", async || cache.used_bytes() > 0).await;
    assert!(!short.ensure_free());
    assert_eq!((cache.used_bytes(), segment_bytes(directory.path())), (0, 0));
    remote_file.read(&cache, 0..1_000).await;
}

#[tokio::test]
async fn removed_directory_fails_no_read() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let data = directory.path().join("data");
    fs::create_dir(&data).expect("failed to create data directory");
    let remote_file = RemoteFile::default();
    let cache = open(&data, 64 << 20);
    remote_file.read(&cache, 0..1_000).await;
    eventually("the range is cached", async || cache.used_bytes() > 0).await;
    fs::remove_dir_all(data.join("cache")).expect("failed to remove cache directory");
    remote_file.read(&cache, 0..1_000).await;
    remote_file.read(&cache, 1_000..2_000).await;
    eventually("the directory is created again", async || segment_bytes(&data) > 0).await;
    // The data directory is not created again, because a disk may have to be mounted there.
    fs::remove_dir_all(&data).expect("failed to remove data directory");
    for start in [0, 1_000, 2_000, 3_000] {
        remote_file.read(&cache, start..start + 1_000).await;
    }
    cache.close().await;
    assert!(!data.exists());
    remote_file.read(&cache, 4_000..5_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_reads_of_a_range_fetch_it_once() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let remote_file = Arc::new(RemoteFile::default());
    let cache = open(directory.path(), 64 << 20);
    let reads = (0..100).map(|number| {
        let remote_file = remote_file.clone();
        let cache = cache.clone();
        tokio::spawn(async move { remote_file.read(&cache, number % 5 * 1_000..number % 5 * 1_000 + 1_000).await })
    });
    for read in reads.collect::<Vec<_>>() {
        read.await.expect("failed to join read");
    }
    assert_eq!(remote_file.take_requests(), 5);
    // After a failed fetch, the next reader fetches again.
    let failing = || async { Err(StorageError::InvalidFile("it fails".to_owned())) };
    let failed = cache.get_or_fetch(id(), 9_000..9_500, std::future::ready(()), failing()).await;
    assert!(failed.is_err());
    remote_file.read(&cache, 9_000..9_500).await;
    assert_eq!(remote_file.take_requests(), 1);
}

#[tokio::test]
async fn processes_use_separate_cache_directories() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let remote_file = RemoteFile::default();
    let caches = [open(directory.path(), 64 << 20), open(directory.path(), 64 << 20)];
    // Otherwise, a late cache would acquire the directory of the other cache.
    let second = directory.path().join("cache/1/lock");
    eventually("each cache has a directory", async || second.exists()).await;
    for cache in &caches {
        remote_file.read(cache, 0..1_000).await;
        cache.close().await;
    }
    assert_eq!(remote_file.take_requests(), 2);
    assert_eq!(segments(&directory.path().join("cache")).len(), 2);
    // The next process acquires one directory and clears the other.
    let next = reopened(directory.path(), 64 << 20).await;
    remote_file.read(&next, 0..1_000).await;
    assert_eq!((remote_file.take_requests(), segments(&directory.path().join("cache")).len()), (0, 1));
}

#[tokio::test]
async fn invalidated_range_is_fetched_again() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let remote_file = RemoteFile::default();
    let cache = open(directory.path(), 64 << 20);
    remote_file.read(&cache, 0..1_000).await;
    cache.invalidate(id());
    remote_file.read(&cache, 0..1_000).await;
    assert_eq!(remote_file.take_requests(), 2);
}

/// Counts requests for ranges.
#[derive(Clone, Debug, Default)]
struct GetCounter(Arc<AtomicUsize>);

#[async_trait::async_trait]
impl Watch for GetCounter {
    async fn before(&self, request: StoreRequest<'_>) -> object_store::Result<()> {
        if let StoreRequest::Get(_) = request {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

#[test]
fn reader_prefers_disk_and_rereads_restored_files() {
    let bench = FileWorkbench::new();
    let memory = Arc::new(object_store::memory::InMemory::new());
    let counter = GetCounter::default();
    let watched = WatchedStore { inner: memory.clone(), watch: counter.clone() };
    let store = Store::from(Arc::new(watched) as Arc<dyn object_store::ObjectStore>);
    let entities: Vec<String> = (0..2_000).map(|number| format!(r#"{{"n":{number}}}"#)).collect();
    let (path, written) = bench.write(&store, &entities, &WriteOptions::default()).expect("failed to write file");
    let directory = tempfile::tempdir().expect("failed to create directory");
    bench.runtime.block_on(async {
        let read = async |disk: Option<&DiskCache>| {
            counter.0.store(0, Ordering::SeqCst);
            let cache = PartCache::new(0).with_disk_cache(disk.cloned());
            let reader = VersionReader::open(&store, &path, written.size_bytes, &cache).await?;
            reader.verify_checksums(&mut NoReadThrottle).await?;
            Ok::<_, StorageError>(counter.0.load(Ordering::SeqCst))
        };
        let without = read(None).await.expect("failed to read without cache");
        let cache = open(directory.path(), 64 << 20);
        let first = read(Some(&cache)).await.expect("failed to read with empty cache");
        assert!((1..=without).contains(&first), "{first} and {without} requests");
        cache.close().await;
        assert_eq!(read(Some(&cache)).await.expect("failed to read with full cache"), 0);
        drop(cache);
        let cache = reopened(directory.path(), 64 << 20).await;
        assert_eq!(read(Some(&cache)).await.expect("failed to read with reopened cache"), 0);

        // Damaged bytes from the store are not cached.
        let sound = memory.get(&path).await.expect("failed to get object").bytes().await.expect("failed to get bytes");
        let mut damaged = sound.to_vec();
        damaged[100] ^= 1;
        cache.invalidate(VersionFileId::new(path.as_ref(), written.size_bytes));
        memory.put(&path, damaged.into()).await.expect("failed to damage object");
        assert!(read(Some(&cache)).await.is_err());
        memory.put(&path, sound.into()).await.expect("failed to restore object");
        assert!(read(Some(&cache)).await.expect("failed to read restored object") > 0);
    });
}
