//! Reads of a version that is not cached, from a slow store: requests are sent together.

use std::ops::ControlFlow;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use strata_format::cache::PartCache;
use strata_format::profile::ShreddingLimits;
use strata_format::reader::{PrefetchPlan, VersionReader};
use strata_format::reader_metrics::ReaderMetrics;
use strata_format::writer::{WriteOptions, WrittenVersionFile};
use strata_http::params;
use strata_query::fetch::selected_documents::{SelectionChunk, for_each_document};
use strata_query::{QueryEngine, QueryOutcome};
use strata_store::StorageError;
use strata_store::store::Store;
use strata_testing::engines::EngineLab;
use strata_testing::versions::segments;
use strata_testing::watched_store::WatchedStore;
use strata_testing::waves::{RangeRequest, Waves, waves};
use strata_types::read_request::ReadRequest;

const ROW_GROUPS: usize = 50;
const ROWS: usize = 20;

/// A version with many small row groups. Each has more bytes of documents than readahead skips over.
struct Cold {
    lab: EngineLab,
    store: Store,
    waves: Waves,
    entities: Vec<String>,
    path: ObjectPath,
    written: WrittenVersionFile,
}

/// The requests and the result of a read.
struct Done {
    asked: Vec<RangeRequest>,
    documents: Vec<String>,
    count: Option<u64>,
}

impl Done {
    fn bytes(&self) -> u64 {
        self.asked.iter().map(|asked| asked.range.end - asked.range.start).sum()
    }
}

impl Cold {
    fn new() -> Cold {
        let lab = EngineLab::new();
        let waves = Waves::default();
        let watched = WatchedStore { inner: Arc::new(InMemory::new()), watch: waves.clone() };
        let store = Store::from(Arc::new(watched) as Arc<dyn ObjectStore>);
        let random = &mut StdRng::seed_from_u64(11);
        let entity = |number: usize| {
            let noise: String = (0..6_000).map(|_| char::from(random.random_range(b'g'..=b'z'))).collect();
            let word = if number % 97 == 5 { "sound" } else { "silence" };
            let kind = number % 3;
            let n = (number * 7_919) % 1_000;
            format!(r#"{{"id":"entity-{number}","n":{n},"kind":"k{kind}","text":"one {word}","noise":"{noise}"}}"#)
        };
        let entities: Vec<String> = (0..ROW_GROUPS * ROWS).map(entity).collect();
        let options = WriteOptions {
            max_row_group_rows: ROWS,
            keyword_limits: segments(2 * ROWS),
            shredding_limits: ShreddingLimits::default(),
            ..WriteOptions::default()
        };
        let (path, written) = lab.bench.write(&store, &entities, &options).expect("written");
        waves.take_requests();
        Cold { lab, store, waves, entities, path, written }
    }

    fn open(&self, cache_bytes: u64) -> VersionReader {
        let cache = PartCache::new(cache_bytes);
        let open = VersionReader::open(&self.store, &self.path, self.written.size_bytes, &cache);
        self.lab.bench.runtime.block_on(open).expect("opened")
    }

    /// Reads with a reader that has just been opened, including the requests for opening it.
    fn read(&self, query: &str) -> Done {
        self.read_with(&self.lab.engines[1], 1 << 30, query).expect("read")
    }

    fn read_with(&self, engine: &QueryEngine, cache_bytes: u64, query: &str) -> Result<Done, StorageError> {
        self.waves.take_requests();
        let reader = self.open(cache_bytes);
        let done = self.read_of(engine, &reader, query);
        let asked = self.waves.take_requests();
        done.map(|done| Done { asked, ..done })
    }

    fn read_of(&self, engine: &QueryEngine, reader: &VersionReader, query: &str) -> Result<Done, StorageError> {
        let request: ReadRequest = params::parse_query(Some(query)).expect("a query").0;
        let read = async {
            let selection = match engine.select(reader.clone(), Arc::new(request)).await {
                Ok(QueryOutcome::Count(count)) => return Ok((Some(count), Vec::new())),
                Ok(QueryOutcome::Selection(selection)) => selection,
                Err(strata_query::QueryError::Storage(error)) => return Err(error),
                Err(error) => panic!("{error}"),
            };
            let mut documents = Vec::new();
            let chunk = SelectionChunk { ordinals: 0..selection.len() };
            let each = |document: &[u8]| {
                documents.push(String::from_utf8(document.to_vec()).expect("text"));
                ControlFlow::Continue(())
            };
            for_each_document(reader, selection.positions(), &chunk, each).await?;
            Ok((None, documents))
        };
        let (count, documents) = self.lab.bench.runtime.block_on(read)?;
        Ok(Done { asked: Vec::new(), documents, count })
    }

    fn number(&self, entity: &str) -> usize {
        self.entities.iter().position(|other| other == entity).expect("an entity of the version")
    }
}

/// Returns the first of up to six reads with at most this many round trips, or the last. Requests that depend on
/// responses are in different waves in every read. Requests that are only late, because the machine is busy, are not.
fn within(max_waves: usize, read: impl Fn() -> Done) -> Done {
    let mut done = read();
    for _ in 0..5 {
        if waves(&done.asked) <= max_waves {
            break;
        }
        done = read();
    }
    assert!(waves(&done.asked) <= max_waves, "{:?}", done.asked);
    done
}

#[test]
fn first_requests_take_few_round_trips() {
    let cold = Cold::new();
    let size = cold.written.size_bytes;

    let page = within(2, || cold.read("limit=5"));
    assert_eq!(page.documents, cold.entities[..5]);
    // Across the end of a row group.
    let page = within(2, || cold.read(&format!("offset={}&limit=4", ROWS - 2)));
    assert_eq!(page.documents, cold.entities[ROWS - 2..ROWS + 2]);

    let filter = within(4, || cold.read("filter=id:entity-777&limit=100"));
    assert_eq!(filter.documents, cold.entities[777..778]);
    assert!(filter.asked.len() <= ROW_GROUPS + 8, "{} requests", filter.asked.len());
    assert!(filter.bytes() < size / 2, "{} of {size} bytes", filter.bytes());

    let count = within(4, || cold.read("keywords=sound&count=true"));
    assert_eq!(count.count, Some((0..ROW_GROUPS * ROWS).filter(|number| number % 97 == 5).count() as u64));

    let sorted = within(4, || cold.read("sort=n:desc&limit=100"));
    assert_eq!(sorted.documents.len(), 100);
    assert!(sorted.documents.iter().all(|entity| (cold.number(entity) * 7_919) % 1_000 >= 900));
    // The parts of a row group's column are adjacent in the file.
    let pages = 100;
    assert!(sorted.asked.len() <= ROW_GROUPS + pages + 4, "{} requests", sorted.asked.len());

    // By several columns, and with an engine of one thread.
    for engine in &cold.lab.engines {
        let query = "filter=kind:k1&filter=n:21&sort=id&count=false&limit=50";
        let both = within(4, || cold.read_with(engine, 1 << 30, query).expect("read"));
        let matching = (0..ROW_GROUPS * ROWS).filter(|number| number % 3 == 1 && (number * 7_919) % 1_000 == 21);
        assert_eq!(both.documents.len(), matching.count());
    }
}

#[test]
fn limit_reached_early_reads_few_bytes() {
    let cold = Cold::new();
    let met = cold.read("filter=kind:k1&limit=3");
    assert_eq!(met.documents.len(), 3);
    let all = cold.read("filter=kind:k1");
    assert_eq!(all.documents.len(), ROW_GROUPS * ROWS / 3);
    assert!(met.bytes() * 4 < all.bytes(), "{} and {} bytes", met.bytes(), all.bytes());
}

#[test]
fn readahead_skips_cached_parts() {
    let cold = Cold::new();
    let reader = cold.open(1 << 30);
    for query in ["limit=30", "filter=id:entity-777", "filter=kind:k1&limit=50", "keywords=sound", "sort=n&limit=40"] {
        let engine = &cold.lab.engines[1];
        let first = cold.read_of(engine, &reader, query).expect("read");
        // The number of row groups that begin before the limit is reached is random: a later read may need another one.
        // Background builds of indexes are counted for no read.
        let without_requests = (0..20).any(|_| {
            let metrics = Arc::new(ReaderMetrics::default());
            let again = cold.read_of(engine, &reader.with_metrics(metrics.clone()), query).expect("read");
            assert_eq!(again.documents, first.documents);
            metrics.fetch_count() == 0
        });
        assert!(without_requests, "{query}: each of 20 reads sent requests");
    }
}

#[test]
fn requests_are_counted_once() {
    let cold = Cold::new();
    for query in ["limit=30", "filter=id:entity-777", "filter=kind:k1&limit=50", "keywords=sound", "sort=n&limit=40"] {
        let metrics = Arc::new(ReaderMetrics::default());
        let reader = cold.open(1 << 30).with_metrics(metrics.clone());
        cold.waves.take_requests();
        cold.read_of(&cold.lab.engines[1], &reader, query).expect("read");
        let asked = cold.waves.take_requests();
        let bytes: u64 = asked.iter().map(|asked| asked.range.end - asked.range.start).sum();
        assert_eq!((metrics.fetch_count(), metrics.fetched_bytes()), (asked.len() as u64, bytes), "{query}");
    }
}

#[test]
fn read_without_cache_fetches_few_bytes_twice() {
    let cold = Cold::new();
    for query in ["limit=30", "filter=id:entity-777", "keywords=sound&count=true", "sort=n&limit=40"] {
        let cached = cold.read(query);
        let uncached = cold.read_with(&cold.lab.engines[1], 0, query).expect("read");
        assert_eq!((&uncached.documents, uncached.count), (&cached.documents, cached.count), "{query}");
        assert!(uncached.bytes() <= 3 * cached.bytes(), "{query}: {} and {} bytes", uncached.bytes(), cached.bytes());
    }
}

#[test]
fn readahead_failure_fails_only_dependent_reads() {
    let cold = Cold::new();
    let engine = &cold.lab.engines[1];
    let last = (ROW_GROUPS - 1) * ROWS;
    let reader = cold.open(1 << 30);
    // The last row groups cannot be read. The keyword index follows them.
    let broken = cold.written.size_bytes / 4..cold.written.size_bytes * 3 / 4;
    cold.waves.break_bytes(Some(broken));
    let found =
        cold.read_of(engine, &reader, "filter=kind:k1&limit=3").expect("the unreadable row groups are not needed");
    assert_eq!(found.documents.len(), 3);
    let page = cold.read_of(engine, &reader, "limit=5").expect("the unreadable row groups are not needed");
    assert_eq!(page.documents, cold.entities[..5]);
    for query in ["filter=kind:k1&count=true", "sort=n&limit=900", &format!("offset={last}&limit=2")] {
        assert!(cold.read_of(engine, &reader, query).is_err(), "{query}");
    }
    // When they can be read again, the read succeeds.
    cold.waves.break_bytes(None);
    let page = cold.read_of(engine, &reader, &format!("offset={last}&limit=2")).expect("read");
    assert_eq!(page.documents, cold.entities[last..last + 2]);
}

#[test]
fn readahead_requests_end_with_the_reader() {
    let cold = Cold::new();
    let reader = cold.open(1 << 30);
    cold.waves.take_requests();
    cold.lab.bench.runtime.block_on(async {
        let ahead = reader.with_readahead(PrefetchPlan::default());
        let pages: Vec<(usize, usize)> = (0..ROW_GROUPS).map(|row_group| (row_group, 0)).collect();
        ahead.prefetch_pages(&pages);
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        drop(ahead);
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    });
    let asked = cold.waves.take_requests();
    // Sent requests were dropped, so their wave was never answered.
    assert!(waves(&asked) <= 1 && asked.len() <= ROW_GROUPS, "{asked:?}");
    let metrics = Arc::new(ReaderMetrics::default());
    let page = cold.read_of(&cold.lab.engines[1], &reader.with_metrics(metrics.clone()), "limit=5").expect("read");
    assert_eq!((page.documents.len(), metrics.fetch_count()), (5, 1));
}
