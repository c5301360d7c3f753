//! Path indexes in version files: equal to the structures of the entities, and never wrong after damage.

use std::sync::Arc;

use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_format::cache::PartCache;
use strata_format::path_index::ScalarKind;
use strata_format::path_index::builder::PathIndexLimits;
use strata_format::path_index::directory::{PathIndexBlock, PathIndexDirectory};
use strata_format::path_index::structure_dictionary::StructureDictionary;
use strata_format::reader::{NoReadThrottle, VersionReader};
use strata_format::verify::verify_and_hash;
use strata_format::writer::{MAX_ROW_GROUP_ROWS, WriteOptions};
use strata_reference::{Value, hostile};
use strata_store::StorageError;
use strata_store::store::Store;
use strata_testing::reads::{cases, no_failure};
use strata_testing::versions::{FileWorkbench, Files, all_shredded, nothing_shredded, shapes};

use super::files::opened;

/// Collects the path and kind of each scalar of an entity.
fn scalars(value: &Value, keys: &mut Vec<String>, out: &mut Vec<(Vec<String>, ScalarKind)>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                keys.push(key.clone());
                scalars(value, keys, out);
                keys.pop();
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| scalars(element, keys, out)),
        Value::Null => out.push((keys.clone(), ScalarKind::Null)),
        Value::Number(_) => out.push((keys.clone(), ScalarKind::Number)),
        Value::Bool(_) | Value::String(_) => out.push((keys.clone(), ScalarKind::Text)),
    }
}

/// Returns the path and kind of each scalar of a row, according to the path index.
fn scalars_of_row(
    dictionary: &StructureDictionary,
    row: usize,
    paths: &[Vec<String>],
) -> Vec<(Vec<String>, ScalarKind)> {
    let matches: Vec<Vec<bool>> = paths.iter().map(|keys| dictionary.match_typed_paths(keys)).collect();
    let mut out = Vec::new();
    for run in dictionary.scalar_runs(dictionary.structure_of_row(row)) {
        let matching = paths.iter().zip(&matches).filter(|(_, matches)| matches[run.typed_path as usize]);
        let matching: Vec<&Vec<String>> = matching.map(|(keys, _)| keys).collect();
        let [keys] = matching.as_slice() else { panic!("typed path {} has the paths {matching:?}", run.typed_path) };
        out.extend((0..run.length).map(|_| ((*keys).clone(), run.kind)));
    }
    out
}

#[test]
fn path_index_lists_scalars_in_document_order() {
    let files = Files::new();
    let lists = vec(prop_oneof![2 => hostile::entity().boxed(), 1 => strata_testing::reads::alike().boxed()], 1..30);
    let ways = (0..3_usize, any::<bool>(), 1..3_usize);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(30), ..PropertyConfig::default() });
    let result = runner.run(&(lists, ways), |(entities, (rows, all, threads))| {
        let options = WriteOptions {
            worker_threads: threads,
            max_row_group_rows: [2, 7, MAX_ROW_GROUP_ROWS][rows],
            shredding_limits: if all { all_shredded() } else { nothing_shredded() },
            path_index_limits: shapes(),
            ..WriteOptions::default()
        };
        let texts: Vec<String> = entities.iter().map(Value::write).collect();
        let reader = files.open(&files.write(&texts, &options));
        files.bench.runtime.block_on(verify_and_hash(&reader, &mut NoReadThrottle)).expect("failed to verify file");
        let mut position = 0;
        for row_group in 0..reader.row_groups().len() {
            let structures = files.bench.runtime.block_on(reader.read_structures(row_group));
            let structures = structures.expect("failed to read path index").expect("failed to find path index");
            let group_entities = &entities[position..position + structures.rows()];
            let expected: Vec<Vec<_>> = group_entities
                .iter()
                .map(|entity| {
                    let mut all = Vec::new();
                    scalars(entity, &mut Vec::new(), &mut all);
                    all
                })
                .collect();
            let mut paths: Vec<Vec<String>> = expected.iter().flatten().map(|(keys, _)| keys.clone()).collect();
            paths.sort();
            paths.dedup();
            for (row, expected) in expected.iter().enumerate() {
                prop_assert_eq!(&scalars_of_row(&structures, row, &paths), expected);
            }
            // Matching one path and mapping all paths agree.
            let depths = structures.map_typed_paths(Some(0), |depth: Option<usize>, _| depth.map(|depth| depth + 1));
            for keys in &paths {
                for (typed_path, matches) in structures.match_typed_paths(keys).iter().enumerate() {
                    prop_assert!(!matches || depths[typed_path] == Some(keys.len()));
                }
            }
            position += structures.rows();
        }
        prop_assert_eq!(position, entities.len());
        Ok(())
    });
    no_failure(result);
}

fn entities() -> Vec<String> {
    let entity = |number: usize| {
        let tags = vec![r#"{"t":"x","u":null}"#; number % 5].join(",");
        format!(r#"{{"n":{number},"name":"Entity {number}","k{}":[1,2,"{number}"],"tags":[{tags}]}}"#, number % 11)
    };
    (0..90).map(entity).collect()
}

async fn read(
    store: &Store,
    path: &ObjectPath,
    size: u64,
) -> Result<Vec<Option<Arc<StructureDictionary>>>, StorageError> {
    let reader = VersionReader::open(store, path, size, &PartCache::new(0)).await?;
    let mut all = Vec::new();
    for row_group in 0..reader.row_groups().len() {
        all.push(reader.read_structures(row_group).await?);
    }
    Ok(all)
}

#[test]
fn path_index_does_not_depend_on_thread_count() {
    let bench = FileWorkbench::new();
    let store = opened("memory://");
    // Some row groups have too many paths.
    for limits in
        [shapes(), PathIndexLimits { max_paths: 12, ..shapes() }, PathIndexLimits { max_key_bytes: 30, ..shapes() }]
    {
        let files = [1, 2, 3].map(|threads| {
            let options = WriteOptions {
                worker_threads: threads,
                max_row_group_rows: 4,
                path_index_limits: limits,
                ..WriteOptions::default()
            };
            let (path, _) = bench.write(&store, &entities(), &options).expect("failed to write file");
            let get = async { store.object_store().get(&path).await?.bytes().await };
            bench.runtime.block_on(get).expect("failed to read object")
        });
        assert!(files[0] == files[1] && files[0] == files[2]);
    }
}

#[test]
fn each_changed_path_index_byte_is_detected() {
    let bench = FileWorkbench::new();
    let store = opened("memory://");
    let options = WriteOptions { max_row_group_rows: 40, path_index_limits: shapes(), ..WriteOptions::default() };
    let (path, written) = bench.write(&store, &entities(), &options).expect("failed to write file");
    let size = written.size_bytes;
    let work = async {
        let cache = PartCache::new(1 << 30);
        let reader = VersionReader::open(&store, &path, size, &cache).await.expect("failed to open file");
        assert_eq!(reader.path_index_directory().indexed_row_groups().collect::<Vec<_>>(), [0, 1, 2]);
        verify_and_hash(&reader, &mut NoReadThrottle).await.expect("failed to verify file");
        assert!(read(&store, &path, size).await.expect("failed to read path index").iter().all(Option::is_some));
        let whole = store.object_store().get(&path).await.expect("failed to get object");
        let whole = whole.bytes().await.expect("failed to get bytes");
        let damaged = ObjectPath::from("versions/damaged.parquet");
        for row_group in 0..3 {
            let stored = reader.path_index_directory().get(row_group).expect("failed to find path index");
            for offset in stored.range.clone() {
                let mut bytes = whole.to_vec();
                bytes[offset as usize] ^= 1 << (offset % 8);
                store.object_store().put(&damaged, bytes.into()).await.expect("failed to put object");
                let reader = VersionReader::open(&store, &damaged, size, &PartCache::new(0)).await;
                let reader = reader.expect("failed to open file");
                assert!(reader.verify_checksums(&mut NoReadThrottle).await.is_err(), "byte {offset}");
                let error = reader.read_structures(row_group).await.expect_err("accepted damage").to_string();
                assert!(error.contains(&format!("the path index of row group {row_group}")), "{error}");
            }
        }
    };
    bench.runtime.block_on(work);
}

#[test]
fn path_index_over_limits_is_discarded() {
    let files = Files::new();
    let check = |entities: &[String], limits: PathIndexLimits, expected: &[usize]| {
        let options = WriteOptions { max_row_group_rows: 30, path_index_limits: limits, ..WriteOptions::default() };
        let reader = files.open(&files.write(entities, &options));
        assert_eq!(reader.path_index_directory().indexed_row_groups().collect::<Vec<_>>(), expected, "{limits:?}");
        files.bench.runtime.block_on(verify_and_hash(&reader, &mut NoReadThrottle)).expect("failed to verify file");
    };
    let mut some = entities();
    check(&some, shapes(), &[0, 1, 2]);
    // The documents have fewer bytes than the default limit.
    check(&some, PathIndexLimits::default(), &[]);
    // One row group has too many paths, too long keys, or too many scalars; the next one has not.
    some[40] = format!("{{{}}}", (0..100).map(|number| format!(r#""q{number}":1"#)).collect::<Vec<_>>().join(","));
    check(&some, PathIndexLimits { max_paths: 40, ..shapes() }, &[0, 2]);
    check(&some, PathIndexLimits { max_key_bytes: 100, ..shapes() }, &[0, 2]);
    check(&some, PathIndexLimits { max_raw_bytes: 500, ..shapes() }, &[0, 2]);
    // The entities consist mainly of keys.
    let keys: Vec<String> = (0..30).map(|number| format!(r#"{{"{:x}":1}}"#, number * 0x9E37_79B9_u64)).collect();
    check(&keys, PathIndexLimits { max_document_percent: 6, ..shapes() }, &[]);
}

#[test]
fn path_index_directory_survives_encoding() {
    let text = r#"{"format":1,"row_groups":[[4,36,4294967295],null,[100,20,7]]}"#;
    let index = PathIndexDirectory::parse(text, 3, 120).expect("failed to parse directory");
    assert_eq!(index.encode().expect("failed to encode directory"), text);
    let block = |range, checksum| Some(PathIndexBlock { range, checksum });
    let expected = [block(4..40, u32::MAX), None, block(100..120, 7), None];
    assert_eq!([0, 1, 2, 3].map(|row_group| index.get(row_group).cloned()), expected);
    assert_eq!(index.indexed_row_groups().collect::<Vec<_>>(), [0, 2]);
    assert!(!index.is_empty());

    assert!(PathIndexDirectory::parse(text, 3, 119).is_err());
    assert!(PathIndexDirectory::parse(text, 2, 120).is_err());
    assert!(PathIndexDirectory::parse(&text.replace("[4,", "[18446744073709551615,"), 3, 120).is_err());
    assert!(PathIndexDirectory::parse("{", 3, 120).is_err());
    // An unknown format results in an empty directory.
    let other = PathIndexDirectory::parse(r#"{"format":2,"row_groups":"?"}"#, 3, 120);
    assert!(other.expect("failed to parse other format").is_empty());
}
