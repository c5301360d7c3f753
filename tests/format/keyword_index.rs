//! The keyword index in version files: independent of the number of threads, and never wrong after damage.

use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use strata_format::cache::PartCache;
use strata_format::keywords::field_set::FieldSet;
use strata_format::keywords::segment::KeywordCandidates;
use strata_format::keywords::tokenizer::TermQuery;
use strata_format::reader::{NoReadThrottle, VersionReader};
use strata_format::verify::verify_and_hash;
use strata_format::writer::WriteOptions;
use strata_store::StorageError;
use strata_store::store::Store;
use strata_testing::versions::{FileWorkbench, segments};

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

/// Returns the candidates of all needles in all segments.
async fn all_candidates(
    store: &Store,
    path: &ObjectPath,
    size: u64,
    cache: &PartCache,
) -> Result<Vec<KeywordCandidates>, StorageError> {
    let reader = VersionReader::open(store, path, size, cache).await?;
    let mut all = Vec::new();
    for segment in 0..reader.keyword_index().segments.len() {
        for needle in NEEDLES {
            let query = TermQuery::from_needle(needle.as_bytes());
            all.push(reader.keyword_candidates(segment, &query, FieldSet::ALL).await?);
            all.push(reader.keyword_candidates(segment, &query, FieldSet::single(1)).await?);
        }
    }
    Ok(all)
}

#[test]
fn file_does_not_depend_on_thread_count() {
    let bench = FileWorkbench::new();
    let store = opened("memory://");
    let bytes = [1, 2, 3].map(|threads| {
        let options = WriteOptions {
            worker_threads: threads,
            max_row_group_rows: 4,
            keyword_limits: segments(10),
            ..WriteOptions::default()
        };
        let (path, _) = bench.write(&store, &entities(), &options).expect("failed to write file");
        let get = async { store.object_store().get(&path).await?.bytes().await };
        bench.runtime.block_on(get).expect("failed to read object")
    });
    assert!(bytes[0] == bytes[1] && bytes[0] == bytes[2]);
}

#[test]
fn each_changed_index_byte_is_detected() {
    let bench = FileWorkbench::new();
    let store = opened("memory://");
    let options = WriteOptions { max_row_group_rows: 20, keyword_limits: segments(40), ..WriteOptions::default() };
    let (path, written) = bench.write(&store, &entities(), &options).expect("failed to write file");
    let size = written.size_bytes;
    let work = async {
        let cache = PartCache::new(1 << 30);
        let reader = VersionReader::open(&store, &path, size, &cache).await.expect("failed to open file");
        let index = reader.keyword_index();
        assert_eq!((index.segments.len(), index.indexed_rows), (3, 90));
        verify_and_hash(&reader, &mut NoReadThrottle).await.expect("failed to verify file");
        let expected = all_candidates(&store, &path, size, &cache).await.expect("failed to search");
        assert_eq!(expected, all_candidates(&store, &path, size, &cache).await.expect("failed to search again"));
        assert!(expected.iter().any(|rows| matches!(rows, KeywordCandidates::Recheck(_))), "{expected:?}");
        let whole = store.object_store().get(&path).await.expect("failed to get object");
        let whole = whole.bytes().await.expect("failed to get bytes");
        let damaged = ObjectPath::from("versions/damaged.parquet");
        let mut failed = 0;
        for segment in &index.segments {
            let ranges = segment.pages.iter().flat_map(|page| [page.range(), page.postings_range()]);
            for offset in ranges.flat_map(|range| range.step_by(3)) {
                let mut bytes = whole.to_vec();
                bytes[offset as usize] ^= 1 << (offset % 8);
                store.object_store().put(&damaged, bytes.into()).await.expect("failed to put object");
                let cache = PartCache::new(1 << 30);
                let reader = VersionReader::open(&store, &damaged, size, &cache).await.expect("failed to open file");
                assert!(reader.verify_checksums(&mut NoReadThrottle).await.is_err(), "byte {offset}");
                match all_candidates(&store, &damaged, size, &cache).await {
                    Ok(candidates) => assert_eq!(candidates, expected, "byte {offset}"),
                    Err(_) => failed += 1,
                }
            }
        }
        assert!(failed > 100, "{failed}");
    };
    bench.runtime.block_on(work);
}

#[test]
fn short_or_unique_full_text_has_no_index() {
    let bench = FileWorkbench::new();
    let store = opened("memory://");
    let check = |entities: &[String], segments| {
        let options = WriteOptions { worker_threads: 2, max_row_group_rows: 1_000, ..WriteOptions::default() };
        let (path, written) = bench.write(&store, entities, &options).expect("failed to write file");
        let cache = PartCache::new(0);
        let reader = VersionReader::open(&store, &path, written.size_bytes, &cache);
        let reader = bench.runtime.block_on(reader).expect("failed to open file");
        assert_eq!(reader.keyword_index().segments.len(), segments);
    };
    check(&entities(), 0);
    let many: Vec<String> = (0..12_000)
        .map(|number| format!(r#"{{"a":"{}"}}"#, "common words of many entities ".repeat(4 + number % 3)))
        .collect();
    check(&many, 1);
    check(&super::files::noise(2 << 20), 0);
    // Hexadecimal hashes compress to half of their text.
    let hashes: Vec<String> = (0..30_000_u64)
        .map(|number| {
            let hash = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            format!(
                r#"{{"name":"entity of hash","hash":"{hash:016x}{:016x}"}}"#,
                hash.rotate_left(17).wrapping_mul(hash)
            )
        })
        .collect();
    check(&hashes, 1);
}
