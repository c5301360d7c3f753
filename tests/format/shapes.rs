//! Shapes in version files: those of the entities however they are written, and never wrong when they are damaged.

use std::sync::Arc;

use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_format::cache::PartCache;
use strata_format::reader::{Unbounded, VersionReader};
use strata_format::shapes::ScalarKind;
use strata_format::shapes::builder::ShapeLimits;
use strata_format::shapes::decoded::Shapes;
use strata_format::shapes::stored::{ShapeIndex, StoredShapes};
use strata_format::verify::verify;
use strata_format::writer::{ROW_GROUP_ROWS, WriteOptions};
use strata_reference::{Value, hostile};
use strata_store::StorageError;
use strata_store::store::Store;
use strata_testing::reads::{cases, no_failure};
use strata_testing::versions::{Bench, Files, all_shredded, nothing_shredded, shapes};

use super::files::opened;

/// The scalars of an entity: path and kind.
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

/// What the shapes say of a row.
fn told(shapes: &Shapes, row: usize, paths: &[Vec<String>]) -> Vec<(Vec<String>, ScalarKind)> {
    let places: Vec<Vec<bool>> = paths.iter().map(|keys| shapes.places_of(keys)).collect();
    let mut out = Vec::new();
    for run in shapes.runs(shapes.shape_of(row)) {
        let of: Vec<&Vec<String>> =
            paths.iter().zip(&places).filter(|(_, counts)| counts[run.place as usize]).map(|(keys, _)| keys).collect();
        let [keys] = of.as_slice() else { panic!("place {} has the paths {of:?}", run.place) };
        out.extend((0..run.length).map(|_| ((*keys).clone(), run.kind)));
    }
    out
}

#[test]
fn shapes_are_the_paths_of_scalars_in_order() {
    let files = Files::new();
    let lists = vec(prop_oneof![2 => hostile::entity().boxed(), 1 => strata_testing::reads::alike().boxed()], 1..30);
    let ways = (0..3_usize, any::<bool>(), 1..3_usize);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(30), ..PropertyConfig::default() });
    let result = runner.run(&(lists, ways), |(entities, (rows, all, threads))| {
        let options = WriteOptions {
            threads,
            row_group_rows: [2, 7, ROW_GROUP_ROWS][rows],
            shredding: if all { all_shredded() } else { nothing_shredded() },
            shapes: shapes(),
            ..WriteOptions::default()
        };
        let texts: Vec<String> = entities.iter().map(Value::write).collect();
        let reader = files.open(&files.write(&texts, &options));
        files.bench.runtime.block_on(verify(&reader, &mut Unbounded)).expect("verified");
        let mut position = 0;
        for row_group in 0..reader.row_groups().len() {
            let shapes = files.bench.runtime.block_on(reader.shapes(row_group)).expect("read").expect("shapes");
            let of_group = &entities[position..position + shapes.rows()];
            let expected: Vec<Vec<_>> = of_group
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
                prop_assert_eq!(&told(&shapes, row, &paths), expected);
            }
            // The same path by path, and all at once.
            let by_keys = shapes.places_by(Some(0), |depth: Option<usize>, _| depth.map(|depth| depth + 1));
            for keys in &paths {
                for (place, counts) in shapes.places_of(keys).iter().enumerate() {
                    prop_assert!(!counts || by_keys[place] == Some(keys.len()));
                }
            }
            position += shapes.rows();
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

async fn read(store: &Store, path: &ObjectPath, size: u64) -> Result<Vec<Option<Arc<Shapes>>>, StorageError> {
    let reader = VersionReader::open(store, path, size, &PartCache::new(0)).await?;
    let mut all = Vec::new();
    for row_group in 0..reader.row_groups().len() {
        all.push(reader.shapes(row_group).await?);
    }
    Ok(all)
}

#[test]
fn a_file_is_the_same_however_many_threads_write_it() {
    let bench = Bench::new();
    let store = opened("memory://");
    // Some row groups have too many paths.
    for limits in [shapes(), ShapeLimits { paths: 12, ..shapes() }, ShapeLimits { key_bytes: 30, ..shapes() }] {
        let files = [1, 2, 3].map(|threads| {
            let options = WriteOptions { threads, row_group_rows: 4, shapes: limits, ..WriteOptions::default() };
            let (path, _) = bench.write(&store, &entities(), &options).expect("written");
            let get = async { store.objects().get(&path).await?.bytes().await };
            bench.runtime.block_on(get).expect("an object")
        });
        assert!(files[0] == files[1] && files[0] == files[2]);
    }
}

#[test]
fn every_changed_byte_of_shapes_is_found() {
    let bench = Bench::new();
    let store = opened("memory://");
    let options = WriteOptions { row_group_rows: 40, shapes: shapes(), ..WriteOptions::default() };
    let (path, written) = bench.write(&store, &entities(), &options).expect("written");
    let size = written.size_bytes;
    let work = async {
        let cache = PartCache::new(1 << 30);
        let reader = VersionReader::open(&store, &path, size, &cache).await.expect("opened");
        assert_eq!(reader.shape_index().row_groups().collect::<Vec<_>>(), [0, 1, 2]);
        verify(&reader, &mut Unbounded).await.expect("verified");
        assert!(read(&store, &path, size).await.expect("read").iter().all(Option::is_some));
        let whole = store.objects().get(&path).await.expect("an object").bytes().await.expect("bytes");
        let damaged = ObjectPath::from("versions/damaged.parquet");
        for row_group in 0..3 {
            let stored = reader.shape_index().get(row_group).expect("shapes");
            for at in stored.range.clone() {
                let mut bytes = whole.to_vec();
                bytes[at as usize] ^= 1 << (at % 8);
                store.objects().put(&damaged, bytes.into()).await.expect("put");
                let reader = VersionReader::open(&store, &damaged, size, &PartCache::new(0)).await.expect("opened");
                assert!(reader.verify_checksums(&mut Unbounded).await.is_err(), "byte {at}");
                let error = reader.shapes(row_group).await.expect_err("damaged").to_string();
                assert!(error.contains(&format!("the path index of row group {row_group}")), "{error}");
            }
        }
    };
    bench.runtime.block_on(work);
}

#[test]
fn shapes_that_take_too_much_are_left_out() {
    let files = Files::new();
    let check = |entities: &[String], shapes: ShapeLimits, expected: &[usize]| {
        let options = WriteOptions { row_group_rows: 30, shapes, ..WriteOptions::default() };
        let reader = files.open(&files.write(entities, &options));
        assert_eq!(reader.shape_index().row_groups().collect::<Vec<_>>(), expected, "{shapes:?}");
        files.bench.runtime.block_on(verify(&reader, &mut Unbounded)).expect("verified");
    };
    let mut some = entities();
    check(&some, shapes(), &[0, 1, 2]);
    // Few documents.
    check(&some, ShapeLimits::default(), &[]);
    // One row group has more paths, longer keys, more scalars, and others afterwards.
    some[40] = format!("{{{}}}", (0..100).map(|number| format!(r#""q{number}":1"#)).collect::<Vec<_>>().join(","));
    check(&some, ShapeLimits { paths: 40, ..shapes() }, &[0, 2]);
    check(&some, ShapeLimits { key_bytes: 100, ..shapes() }, &[0, 2]);
    check(&some, ShapeLimits { raw_bytes: 500, ..shapes() }, &[0, 2]);
    // Entities that are nothing but keys.
    let keys: Vec<String> = (0..30).map(|number| format!(r#"{{"{:x}":1}}"#, number * 0x9E37_79B9_u64)).collect();
    check(&keys, ShapeLimits { share_percent: 6, ..shapes() }, &[]);
}

#[test]
fn shape_index_written_is_read() {
    let text = r#"{"format":1,"row_groups":[[4,36,4294967295],null,[100,20,7]]}"#;
    let index = ShapeIndex::parse(text, 3, 120).expect("an index");
    assert_eq!(index.encode().expect("a text"), text);
    let shapes = |range, checksum| Some(StoredShapes { range, checksum });
    let expected = [shapes(4..40, u32::MAX), None, shapes(100..120, 7), None];
    assert_eq!([0, 1, 2, 3].map(|row_group| index.get(row_group).cloned()), expected);
    assert_eq!(index.row_groups().collect::<Vec<_>>(), [0, 2]);
    assert!(!index.is_empty());

    assert!(ShapeIndex::parse(text, 3, 119).is_err());
    assert!(ShapeIndex::parse(text, 2, 120).is_err());
    assert!(ShapeIndex::parse(&text.replace("[4,", "[18446744073709551615,"), 3, 120).is_err());
    assert!(ShapeIndex::parse("{", 3, 120).is_err());
    // Another format is not for this reader.
    assert!(ShapeIndex::parse(r#"{"format":2,"row_groups":"?"}"#, 3, 120).expect("none").is_empty());
}
