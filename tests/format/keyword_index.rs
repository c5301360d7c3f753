//! The keyword index in version files: the same however they are written, and never wrong when it is damaged.

use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use strata_format::cache::PartCache;
use strata_format::keywords::cut::Plan;
use strata_format::keywords::segment::Candidates;
use strata_format::reader::{Unbounded, VersionReader};
use strata_format::verify::verify;
use strata_format::writer::WriteOptions;
use strata_store::StorageError;
use strata_store::store::Store;
use strata_testing::versions::{Bench, segments};

use super::files::opened;

const NEEDLES: [&str; 8] = ["entity", "entity 1", "7", "a1b", "none", "(x", "wor", "-"];

fn entities() -> Vec<String> {
    let entity = |number: usize| {
        format!(
            r#"{{"n":{number},"name":"Entity {number}","word":"word{} a1b{:x}","long":"{}","m":"(x-{})"}}"#,
            number % 7,
            number * 7919,
            "ab0".repeat(number % 30),
            number % 3,
        )
    };
    (0..90).map(entity).collect()
}

/// What every segment says of the needles.
async fn ask(store: &Store, path: &ObjectPath, size: u64, cache: &PartCache) -> Result<Vec<Candidates>, StorageError> {
    let reader = VersionReader::open(store, path, size, cache).await?;
    let mut all = Vec::new();
    for segment in 0..reader.keyword_index().segments.len() {
        for needle in NEEDLES {
            all.push(reader.keyword_candidates(segment, &Plan::of(needle.as_bytes())).await?);
        }
    }
    Ok(all)
}

#[test]
fn a_file_is_the_same_however_many_threads_write_it() {
    let bench = Bench::new();
    let store = opened("memory://");
    let bytes = [1, 2, 3].map(|threads| {
        let options = WriteOptions { threads, row_group_rows: 4, keywords: segments(10), ..WriteOptions::default() };
        let (path, _) = bench.write(&store, &entities(), &options).expect("written");
        let get = async { store.objects().get(&path).await?.bytes().await };
        bench.runtime.block_on(get).expect("an object")
    });
    assert!(bytes[0] == bytes[1] && bytes[0] == bytes[2]);
}

#[test]
fn every_changed_byte_of_the_index_is_found() {
    let bench = Bench::new();
    let store = opened("memory://");
    let options = WriteOptions { row_group_rows: 20, keywords: segments(40), ..WriteOptions::default() };
    let (path, written) = bench.write(&store, &entities(), &options).expect("written");
    let size = written.size_bytes;
    let work = async {
        let cache = PartCache::new(1 << 30);
        let reader = VersionReader::open(&store, &path, size, &cache).await.expect("opened");
        let index = reader.keyword_index();
        assert_eq!((index.segments.len(), index.rows), (3, 90));
        verify(&reader, &mut Unbounded).await.expect("verified");
        let right = ask(&store, &path, size, &cache).await.expect("asked");
        assert_eq!(right, ask(&store, &path, size, &cache).await.expect("asked again"));
        assert!(right.iter().any(|rows| matches!(rows, Candidates::Candidates(_))), "{right:?}");
        let whole = store.objects().get(&path).await.expect("an object").bytes().await.expect("bytes");
        let damaged = ObjectPath::from("versions/damaged.parquet");
        let mut failed = 0;
        for segment in &index.segments {
            for at in (segment.offset..segment.offset + segment.header.bytes()).step_by(3) {
                let mut bytes = whole.to_vec();
                bytes[at as usize] ^= 1 << (at % 8);
                store.objects().put(&damaged, bytes.into()).await.expect("put");
                let cache = PartCache::new(1 << 30);
                let reader = VersionReader::open(&store, &damaged, size, &cache).await.expect("opened");
                assert!(reader.verify_checksums(&mut Unbounded).await.is_err(), "byte {at}");
                match ask(&store, &damaged, size, &cache).await {
                    Ok(found) => assert_eq!(found, right, "byte {at}"),
                    Err(_) => failed += 1,
                }
            }
        }
        assert!(failed > 100, "{failed}");
    };
    bench.runtime.block_on(work);
}

#[test]
fn short_or_unique_search_text_has_no_index() {
    let bench = Bench::new();
    let store = opened("memory://");
    let check = |entities: &[String], segments| {
        let options = WriteOptions { threads: 2, row_group_rows: 1_000, ..WriteOptions::default() };
        let (path, written) = bench.write(&store, entities, &options).expect("written");
        let cache = PartCache::new(0);
        let reader = VersionReader::open(&store, &path, written.size_bytes, &cache);
        let reader = bench.runtime.block_on(reader).expect("opened");
        assert_eq!(reader.keyword_index().segments.len(), segments);
    };
    check(&entities(), 0);
    let many: Vec<String> = (0..12_000)
        .map(|number| format!(r#"{{"a":"{}"}}"#, "common words of many entities ".repeat(4 + number % 3)))
        .collect();
    check(&many, 1);
    check(&super::files::noise(2 << 20), 0);
}
