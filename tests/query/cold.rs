//! Reads of a version of which nothing is in the cache, from a store that takes its time: requests go out together.

use std::ops::ControlFlow;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use strata_format::cache::PartCache;
use strata_format::profile::ShreddingBounds;
use strata_format::reader::{VersionReader, Wanted};
use strata_format::reader_metrics::ReaderMetrics;
use strata_format::writer::{WriteOptions, Written};
use strata_http::params;
use strata_query::fetch::documents::{Unit, for_each};
use strata_query::{Engine, Outcome};
use strata_store::StorageError;
use strata_store::store::Store;
use strata_testing::engines::Lab;
use strata_testing::versions::segments;
use strata_testing::watched_store::Watched;
use strata_testing::waves::{Asked, Waves, waves};
use strata_types::request::ReadRequest;

const ROW_GROUPS: usize = 50;
const ROWS: usize = 20;

/// A version of many small row groups, each with more bytes of documents than one request skips.
struct Cold {
    lab: Lab,
    store: Store,
    waves: Waves,
    entities: Vec<String>,
    path: ObjectPath,
    written: Written,
}

/// What a read did.
struct Done {
    asked: Vec<Asked>,
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
        let lab = Lab::new();
        let waves = Waves::default();
        let watched = Watched { inner: Arc::new(InMemory::new()), watch: waves.clone() };
        let store = Store::from(Arc::new(watched) as Arc<dyn ObjectStore>);
        let random = &mut StdRng::seed_from_u64(11);
        let entity = |number: usize| {
            let noise: String = (0..6_000).map(|_| char::from(random.random_range(b'g'..=b'z'))).collect();
            let (word, kind) = (if number % 97 == 5 { "sound" } else { "silence" }, number % 3);
            let n = (number * 7_919) % 1_000;
            format!(r#"{{"id":"entity-{number}","n":{n},"kind":"k{kind}","text":"one {word}","noise":"{noise}"}}"#)
        };
        let entities: Vec<String> = (0..ROW_GROUPS * ROWS).map(entity).collect();
        let options = WriteOptions {
            row_group_rows: ROWS,
            keywords: segments(2 * ROWS),
            shredding: ShreddingBounds::default(),
            ..WriteOptions::default()
        };
        let (path, written) = lab.bench.write(&store, &entities, &options).expect("written");
        waves.asked();
        Cold { lab, store, waves, entities, path, written }
    }

    fn open(&self, cache_bytes: u64) -> VersionReader {
        let cache = PartCache::new(cache_bytes);
        let open = VersionReader::open(&self.store, &self.path, self.written.size_bytes, &cache);
        self.lab.bench.runtime.block_on(open).expect("opened")
    }

    /// A read of a reader that has just been opened, from its opening on.
    fn read(&self, query: &str) -> Done {
        self.read_with(&self.lab.engines[1], 1 << 30, query).expect("read")
    }

    fn read_with(&self, engine: &Engine, cache_bytes: u64, query: &str) -> Result<Done, StorageError> {
        self.waves.asked();
        let reader = self.open(cache_bytes);
        let done = self.read_of(engine, &reader, query);
        let asked = self.waves.asked();
        done.map(|done| Done { asked, ..done })
    }

    fn read_of(&self, engine: &Engine, reader: &VersionReader, query: &str) -> Result<Done, StorageError> {
        let request: ReadRequest = params::parse(Some(query)).expect("a query").0;
        let read = async {
            let selection = match engine.select(reader.clone(), Arc::new(request)).await {
                Ok(Outcome::Count(count)) => return Ok((Some(count), Vec::new())),
                Ok(Outcome::Selection(selection)) => selection,
                Err(strata_query::QueryError::Storage(error)) => return Err(error),
                Err(error) => panic!("{error}"),
            };
            let mut documents = Vec::new();
            let unit = Unit { places: 0..selection.len() };
            let each = |document: &[u8]| {
                documents.push(String::from_utf8(document.to_vec()).expect("text"));
                ControlFlow::Continue(())
            };
            for_each(reader, selection.positions(), &unit, each).await?;
            Ok((None, documents))
        };
        let (count, documents) = self.lab.bench.runtime.block_on(read)?;
        Ok(Done { asked: Vec::new(), documents, count })
    }

    fn number(&self, entity: &str) -> usize {
        self.entities.iter().position(|other| other == entity).expect("an entity of the version")
    }
}

/// The first of up to six reads that takes so many round trips at most, or the last. Requests that follow from answers
/// are in different waves in every read; those that merely come late, on a machine that does other things, are not.
fn within(most: usize, read: impl Fn() -> Done) -> Done {
    let mut done = read();
    for _ in 0..5 {
        if waves(&done.asked) <= most {
            break;
        }
        done = read();
    }
    assert!(waves(&done.asked) <= most, "{:?}", done.asked);
    done
}

#[test]
fn first_requests_take_few_round_trips() {
    let cold = Cold::new();
    let size = cold.written.size_bytes;

    let page = within(2, || cold.read("limit=5"));
    assert_eq!(page.documents, cold.entities[..5]);
    // Over the end of a row group.
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
    // The parts of a row group's column lie beside each other.
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
fn a_limit_that_is_met_reads_little() {
    let cold = Cold::new();
    let met = cold.read("filter=kind:k1&limit=3");
    assert_eq!(met.documents.len(), 3);
    let all = cold.read("filter=kind:k1");
    assert_eq!(all.documents.len(), ROW_GROUPS * ROWS / 3);
    assert!(met.bytes() * 4 < all.bytes(), "{} and {} bytes", met.bytes(), all.bytes());
}

#[test]
fn nothing_is_fetched_ahead_that_is_cached() {
    let cold = Cold::new();
    let reader = cold.open(1 << 30);
    for query in ["limit=30", "filter=id:entity-777", "filter=kind:k1&limit=50", "keywords=sound", "sort=n&limit=40"] {
        let engine = &cold.lab.engines[1];
        let first = cold.read_of(engine, &reader, query).expect("read");
        // How many row groups are begun before the limit is reached is chance: a later read may need what none had.
        // What an index of a column is made from in the background is counted for no read.
        let asked_nothing = (0..20).any(|_| {
            let metrics = Arc::new(ReaderMetrics::default());
            let again = cold.read_of(engine, &reader.observed(metrics.clone()), query).expect("read");
            assert_eq!(again.documents, first.documents);
            metrics.requests() == 0
        });
        assert!(asked_nothing, "{query}: read 20 times, it always fetches");
    }
}

#[test]
fn requests_are_counted_once() {
    let cold = Cold::new();
    for query in ["limit=30", "filter=id:entity-777", "filter=kind:k1&limit=50", "keywords=sound", "sort=n&limit=40"] {
        let metrics = Arc::new(ReaderMetrics::default());
        let reader = cold.open(1 << 30).observed(metrics.clone());
        cold.waves.asked();
        cold.read_of(&cold.lab.engines[1], &reader, query).expect("read");
        let asked = cold.waves.asked();
        let bytes: u64 = asked.iter().map(|asked| asked.range.end - asked.range.start).sum();
        assert_eq!((metrics.requests(), metrics.bytes()), (asked.len() as u64, bytes), "{query}");
    }
}

#[test]
fn a_cache_that_keeps_nothing_fetches_little_twice() {
    let cold = Cold::new();
    for query in ["limit=30", "filter=id:entity-777", "keywords=sound&count=true", "sort=n&limit=40"] {
        let kept = cold.read(query);
        let unkept = cold.read_with(&cold.lab.engines[1], 0, query).expect("read");
        assert_eq!((&unkept.documents, unkept.count), (&kept.documents, kept.count), "{query}");
        assert!(unkept.bytes() <= 3 * kept.bytes(), "{query}: {} and {} bytes", unkept.bytes(), kept.bytes());
    }
}

#[test]
fn a_failure_ahead_shows_only_where_the_part_is_needed() {
    let cold = Cold::new();
    let engine = &cold.lab.engines[1];
    let last = (ROW_GROUPS - 1) * ROWS;
    let reader = cold.open(1 << 30);
    // The last row groups cannot be read.
    let broken = cold.written.size_bytes / 2..cold.written.size_bytes;
    cold.waves.break_bytes(Some(broken));
    let found = cold.read_of(engine, &reader, "filter=kind:k1&limit=3").expect("they are not needed");
    assert_eq!(found.documents.len(), 3);
    let page = cold.read_of(engine, &reader, "limit=5").expect("they are not needed");
    assert_eq!(page.documents, cold.entities[..5]);
    for query in ["filter=kind:k1&count=true", "sort=n&limit=3", &format!("offset={last}&limit=2")] {
        assert!(cold.read_of(engine, &reader, query).is_err(), "{query}");
    }
    // Once they can be read, they are.
    cold.waves.break_bytes(None);
    let page = cold.read_of(engine, &reader, &format!("offset={last}&limit=2")).expect("read");
    assert_eq!(page.documents, cold.entities[last..last + 2]);
}

#[test]
fn what_was_begun_ends_with_the_reader() {
    let cold = Cold::new();
    let reader = cold.open(1 << 30);
    cold.waves.asked();
    cold.lab.bench.runtime.block_on(async {
        let ahead = reader.reading_ahead(Wanted::default());
        let pages: Vec<(usize, usize)> = (0..ROW_GROUPS).map(|row_group| (row_group, 0)).collect();
        ahead.pages_ahead(&pages);
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        drop(ahead);
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    });
    let asked = cold.waves.asked();
    // Those that were sent were dropped, so that their wave was never answered.
    assert!(waves(&asked) <= 1 && asked.len() <= ROW_GROUPS, "{asked:?}");
    let metrics = Arc::new(ReaderMetrics::default());
    let page = cold.read_of(&cold.lab.engines[1], &reader.observed(metrics.clone()), "limit=5").expect("read");
    assert_eq!((page.documents.len(), metrics.requests()), (5, 1));
}
