//! Ranges of version files on local disk: nothing is fetched twice that is there, and nothing there fails a read.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use object_store::ObjectStoreExt;
use strata_format::cache::PartCache;
use strata_format::reader::{Unbounded, VersionReader};
use strata_format::writer::WriteOptions;
use strata_store::StorageError;
use strata_store::disk_cache::{DiskCache, FileId};
use strata_store::free_space::DiskReserve;
use strata_store::store::Store;
use strata_testing::metrics::growth;
use strata_testing::versions::Bench;
use strata_testing::watched_store::{Request, Watch, Watched};
use strata_testing::{eventually, files};

/// More than any disk has.
const EVERYTHING: u64 = 1 << 50;

/// A version file that counts how often it is fetched from.
#[derive(Default)]
struct Source {
    fetched: AtomicUsize,
}

/// What is at an offset of it.
fn content(range: Range<u64>) -> Vec<u8> {
    range.map(|at| (at * 31 + (at >> 8) * 7) as u8).collect()
}

fn id() -> FileId {
    FileId::new("versions/some.parquet", 1 << 30)
}

impl Source {
    async fn read(&self, cache: &DiskCache, range: Range<u64>) {
        let fetch = async {
            self.fetched.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            Ok::<_, StorageError>(Bytes::from(content(range.clone())))
        };
        let bytes = cache.get_or_fetch(id(), range.clone(), std::future::ready(()), fetch).await.expect("read");
        assert!(bytes == content(range.clone()), "{range:?}");
    }

    /// How often it was fetched from since this was asked last.
    fn fetched(&self) -> usize {
        self.fetched.swap(0, Ordering::SeqCst)
    }
}

fn open(directory: &Path, capacity_bytes: u64) -> DiskCache {
    DiskCache::open(directory.join("cache"), capacity_bytes, DiskReserve::new(directory, 0))
}

/// One that has found what is there.
async fn reopened(directory: &Path, capacity_bytes: u64) -> DiskCache {
    let on_disk = bytes_of(&directory.join("cache/0"));
    let cache = open(directory, capacity_bytes);
    eventually("it finds what is there", async || cache.bytes() == on_disk).await;
    cache
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    files(folder).into_iter().filter(|path| path.extension() == Some("ranges".as_ref())).collect()
}

fn bytes_of(folder: &Path) -> u64 {
    segments(folder).iter().filter_map(|path| fs::metadata(path).ok()).map(|metadata| metadata.len()).sum()
}

#[tokio::test]
async fn what_is_on_the_disk_is_not_fetched_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = Source::default();
    let cache = open(directory.path(), 64 << 20);
    let ranges = || (0..50).map(|number| number * 10_000..number * 10_000 + 9_000);
    for range in ranges() {
        source.read(&cache, range).await;
    }
    assert_eq!(source.fetched(), 50);
    cache.close().await;
    // What is written no more is still read.
    for range in ranges() {
        source.read(&cache, range).await;
    }
    assert_eq!(source.fetched(), 0);
    drop(cache);

    let cache = reopened(directory.path(), 64 << 20).await;
    for range in ranges() {
        source.read(&cache, range.clone()).await;
        source.read(&cache, range.start + 100..range.end - 100).await;
    }
    assert_eq!(source.fetched(), 0);
    source.read(&cache, 8_000..9_500).await;
    assert_eq!(source.fetched(), 1, "no single range holds it");
    let other = FileId::new("versions/some.parquet", 1);
    let fetch = async { Ok(Bytes::from_static(b"other")) };
    let bytes = cache.get_or_fetch(other, 0..5, std::future::ready(()), fetch).await.expect("read");
    assert_eq!(&bytes[..], b"other");
}

#[tokio::test]
async fn a_damaged_range_is_noticed_and_fetched_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = Source::default();
    let cache = open(directory.path(), 64 << 20);
    for number in 0..10 {
        source.read(&cache, number * 1_000..number * 1_000 + 1_000).await;
    }
    cache.close().await;
    source.fetched();
    let paths = segments(directory.path());
    let [path] = &paths[..] else { panic!("{paths:?}") };
    let whole = fs::read(path).expect("read");
    // In the content of the fourth, in the header of the last, and at the end of a file that is cut.
    let mut damaged = whole.clone();
    damaged[3 * 1_040 + 500] ^= 1;
    damaged[9 * 1_040 + 5] ^= 1;
    for (bytes, fetched) in [(&damaged[..], 2), (&whole[..9_900], 1)] {
        fs::write(path, bytes).expect("written");
        let counted = growth("strata_disk_cache_damaged_total", async {
            let cache = reopened(directory.path(), 64 << 20).await;
            for number in 0..10 {
                source.read(&cache, number * 1_000..number * 1_000 + 1_000).await;
            }
            assert_eq!(source.fetched(), fetched);
            cache.close().await;
            for number in 0..10 {
                source.read(&cache, number * 1_000..number * 1_000 + 1_000).await;
            }
            assert_eq!(source.fetched(), 0, "it is kept anew");
        });
        assert!(counted.await >= fetched as f64);
        for path in segments(directory.path()) {
            fs::remove_file(path).expect("removed");
        }
    }
}

#[tokio::test]
async fn the_bound_holds_and_what_is_used_stays() {
    const CAPACITY: u64 = 2 << 20;
    let directory = tempfile::tempdir().expect("a directory");
    let source = Source::default();
    let cache = open(directory.path(), CAPACITY);
    source.read(&cache, 0..5_000).await;
    let mut used_again = 0;
    for number in 1..600 {
        source.fetched();
        source.read(&cache, 0..5_000).await;
        used_again += source.fetched();
        source.read(&cache, number * 20_000..number * 20_000 + 18_000).await;
        let on_disk = bytes_of(directory.path());
        // Files are looked at one after another while some go and others grow by what was read.
        let most = CAPACITY + 2 * 20_000;
        assert!(on_disk <= most && cache.bytes() <= CAPACITY, "{on_disk} and {} bytes", cache.bytes());
    }
    assert!(used_again < 10, "what is always used was fetched {used_again} times");
    // One that is too large is not kept.
    source.read(&cache, 0..CAPACITY / 2).await;
    cache.close().await;
    assert!(bytes_of(directory.path()) > CAPACITY / 2);
    source.fetched();
    source.read(&cache, 0..CAPACITY / 2).await;
    source.read(&cache, 599 * 20_000..599 * 20_000 + 18_000).await;
    assert_eq!(source.fetched(), 1);
    drop(cache);
    // With less room than before.
    let cache = open(directory.path(), CAPACITY / 2);
    eventually("the rest goes", async || (1..=CAPACITY / 2).contains(&bytes_of(directory.path()))).await;
    cache.close().await;
}

#[tokio::test]
async fn a_disk_that_is_short_fails_no_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = Source::default();
    let disk = DiskReserve::new(directory.path(), EVERYTHING);
    let cache = DiskCache::open(directory.path().join("cache"), 64 << 20, disk.clone());
    for number in 0..20 {
        source.read(&cache, number * 1_000..number * 1_000 + 1_000).await;
    }
    cache.close().await;
    assert_eq!((source.fetched(), bytes_of(directory.path())), (20, 0));
    drop(cache);

    // Room is given back to who needs it.
    let cache = open(directory.path(), 64 << 20);
    source.read(&cache, 0..1_000).await;
    cache.close().await;
    drop(cache);
    let short = DiskReserve::new(directory.path(), EVERYTHING);
    let cache = DiskCache::open(directory.path().join("cache"), 64 << 20, short.clone());
    eventually("it finds what is there", async || cache.bytes() > 0).await;
    assert!(!short.keep());
    assert_eq!((cache.bytes(), bytes_of(directory.path())), (0, 0));
    source.read(&cache, 0..1_000).await;
}

#[tokio::test]
async fn a_directory_that_somebody_removes_fails_no_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    fs::create_dir(&data).expect("made");
    let source = Source::default();
    let cache = open(&data, 64 << 20);
    source.read(&cache, 0..1_000).await;
    eventually("it is kept", async || cache.bytes() > 0).await;
    fs::remove_dir_all(data.join("cache")).expect("removed");
    source.read(&cache, 0..1_000).await;
    source.read(&cache, 1_000..2_000).await;
    eventually("the folder is made again", async || bytes_of(&data) > 0).await;
    // Not where a disk may be mounted.
    fs::remove_dir_all(&data).expect("removed");
    for start in [0, 1_000, 2_000, 3_000] {
        source.read(&cache, start..start + 1_000).await;
    }
    cache.close().await;
    assert!(!data.exists());
    source.read(&cache, 4_000..5_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_reads_of_a_range_fetch_it_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let (source, cache) = (Arc::new(Source::default()), open(directory.path(), 64 << 20));
    let reads = (0..100).map(|number| {
        let (source, cache) = (source.clone(), cache.clone());
        tokio::spawn(async move { source.read(&cache, number % 5 * 1_000..number % 5 * 1_000 + 1_000).await })
    });
    for read in reads.collect::<Vec<_>>() {
        read.await.expect("no panic");
    }
    assert_eq!(source.fetched(), 5);
    // Of one that fails, the next who waits fetches.
    let failing = || async { Err(StorageError::Layout("it fails".to_owned())) };
    let failed = cache.get_or_fetch(id(), 9_000..9_500, std::future::ready(()), failing()).await;
    assert!(failed.is_err());
    source.read(&cache, 9_000..9_500).await;
    assert_eq!(source.fetched(), 1);
}

#[tokio::test]
async fn processes_sharing_a_directory_have_own_folders() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = Source::default();
    let caches = [open(directory.path(), 64 << 20), open(directory.path(), 64 << 20)];
    // One that came late would take over what the other has left.
    let second = directory.path().join("cache/1/lock");
    eventually("each has a folder", async || second.exists()).await;
    for cache in &caches {
        source.read(cache, 0..1_000).await;
        cache.close().await;
    }
    assert_eq!(source.fetched(), 2);
    assert_eq!(segments(&directory.path().join("cache")).len(), 2);
    // The next one takes over what one of them has left, and removes the rest.
    let next = reopened(directory.path(), 64 << 20).await;
    source.read(&next, 0..1_000).await;
    assert_eq!((source.fetched(), segments(&directory.path().join("cache")).len()), (0, 1));
}

#[tokio::test]
async fn what_is_forgotten_is_fetched_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = Source::default();
    let cache = open(directory.path(), 64 << 20);
    source.read(&cache, 0..1_000).await;
    cache.forget(id());
    source.read(&cache, 0..1_000).await;
    assert_eq!(source.fetched(), 2);
}

/// Counts the ranges that are fetched.
#[derive(Clone, Debug, Default)]
struct Counted(Arc<AtomicUsize>);

#[async_trait::async_trait]
impl Watch for Counted {
    async fn before(&self, request: Request<'_>) -> object_store::Result<()> {
        if let Request::Get(_) = request {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

#[test]
fn reader_prefers_disk_and_rereads_restored_files() {
    let bench = Bench::new();
    let (memory, counted) = (Arc::new(object_store::memory::InMemory::new()), Counted::default());
    let watched = Watched { inner: memory.clone(), watch: counted.clone() };
    let store = Store::from(Arc::new(watched) as Arc<dyn object_store::ObjectStore>);
    let entities: Vec<String> = (0..2_000).map(|number| format!(r#"{{"n":{number}}}"#)).collect();
    let (path, written) = bench.write(&store, &entities, &WriteOptions::default()).expect("written");
    let directory = tempfile::tempdir().expect("a directory");
    bench.runtime.block_on(async {
        let read = async |disk: Option<&DiskCache>| {
            counted.0.store(0, Ordering::SeqCst);
            let cache = PartCache::new(0).with_disk(disk.cloned());
            let reader = VersionReader::open(&store, &path, written.size_bytes, &cache).await?;
            reader.verify_checksums(&mut Unbounded).await?;
            Ok::<_, StorageError>(counted.0.load(Ordering::SeqCst))
        };
        let without = read(None).await.expect("read");
        let cache = open(directory.path(), 64 << 20);
        let first = read(Some(&cache)).await.expect("read");
        assert!((1..=without).contains(&first), "{first} and {without} requests");
        cache.close().await;
        assert_eq!(read(Some(&cache)).await.expect("read"), 0);
        drop(cache);
        let cache = reopened(directory.path(), 64 << 20).await;
        assert_eq!(read(Some(&cache)).await.expect("read"), 0);

        // What the store gives damaged is not kept.
        let sound = memory.get(&path).await.expect("there").bytes().await.expect("read");
        let mut damaged = sound.to_vec();
        damaged[100] ^= 1;
        cache.forget(FileId::new(path.as_ref(), written.size_bytes));
        memory.put(&path, damaged.into()).await.expect("written");
        assert!(read(Some(&cache)).await.is_err());
        memory.put(&path, sound.into()).await.expect("written");
        assert!(read(Some(&cache)).await.expect("read") > 0);
    });
}
