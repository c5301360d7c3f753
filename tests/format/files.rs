//! Version files: what is written comes back, damage is an error, and the columns beside the documents say what the
//! naive reference says.

use std::fmt::Debug;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt8Type};
use bytes::Bytes;
use futures::FutureExt;
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_format::cache::PartCache;
use strata_format::layout::{ShreddedKind, ShreddedPart};
use strata_format::profile::ShreddingBounds;
use strata_format::reader::VersionReader;
use strata_format::writer::{ROW_GROUP_ROWS, WriteOptions, Written};
use strata_reference::{Value, hostile, number, rules};
use strata_store::StorageError;
use strata_store::store::{self, S3Options, Store};
use strata_testing::versions::{Bench, all_shredded, nothing_shredded, segments, shapes, some_segments, some_shapes};

/// Hostile entities, others in every run.
pub(crate) fn hostile_entities(count: usize) -> Vec<String> {
    let mut runner = TestRunner::default();
    let mut one = || hostile::entity().new_tree(&mut runner).expect("an entity").current().write();
    (0..count).map(|_| one()).collect()
}

#[test]
fn the_content_hash_is_that_of_the_entities_alone() {
    let entities = some_entities();
    let one = check_round_trip(&opened("memory://"), &entities, &WriteOptions::default());
    let options =
        WriteOptions { threads: 3, row_group_rows: 2, shredding: nothing_shredded(), ..WriteOptions::default() };
    let other = check_round_trip(&opened("memory://"), &entities, &options);
    assert_eq!(one.content_sha256, other.content_sha256);

    let fewer = check_round_trip(&opened("memory://"), &entities[1..], &WriteOptions::default());
    assert_ne!(one.content_sha256, fewer.content_sha256);
    // An independent sum: of every document and a line feed.
    let lines: String = entities.iter().map(|entity| format!("{entity}\n")).collect();
    assert_eq!(one.content_sha256, sha256_hex(lines.as_bytes()));
    // Known to `sha256sum` of nothing.
    let empty = check_round_trip(&opened("memory://"), &[], &WriteOptions::default());
    assert_eq!(empty.content_sha256, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

#[test]
fn entities_and_columns_match_the_reference() {
    let bench = Bench::new();
    let entities = proptest::collection::vec(hostile::entity(), 0..14);
    let row_group_rows = prop_oneof![Just(1_usize), Just(3), Just(7), Just(ROW_GROUP_ROWS), 1..16_usize];
    let bounds = prop_oneof![
        Just(ShreddingBounds::default()),
        Just(all_shredded()),
        Just(all_shredded()),
        Just(nothing_shredded())
    ];
    let cases = (entities, row_group_rows, 1..=3_usize, bounds);
    let mut runner = TestRunner::new(PropertyConfig { cases: 32, ..PropertyConfig::default() });
    let result = runner.run(&cases, |(entities, row_group_rows, threads, shredding)| {
        let keywords = some_segments(row_group_rows + threads);
        let shapes = some_shapes(row_group_rows + threads);
        let outline_chunks = if threads == 2 { WriteOptions::default().outline_chunks } else { 0 };
        let bounds = WriteOptions { shredding, keywords, shapes, outline_chunks, ..WriteOptions::default() };
        let options = WriteOptions { threads, row_group_rows, ..bounds };
        let texts: Vec<String> = entities.iter().map(Value::write).collect();
        let store = opened("memory://");
        let (path, written) = bench.write(&store, &texts, &options).expect("written");
        check_documents(&bench, &store, &path, &written, &texts, &options);
        check_columns(&bench, &store, &path, &written, &entities);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn damaged_files_are_errors() {
    let bench = Bench::new();
    let store = opened("memory://");
    let options = WriteOptions {
        row_group_rows: 16,
        shredding: all_shredded(),
        keywords: segments(20),
        shapes: shapes(),
        ..WriteOptions::default()
    };
    let entities: Vec<String> = (0..40)
        .map(|number| format!(r#"{{"n":{number},"Name":"Entity {number}","tags":["A","b",{number}],"x":null}}"#))
        .collect();
    let (path, written) = bench.write(&store, &entities, &options).expect("written");
    let whole = object_bytes(&bench, &store, &path);
    assert_eq!(read_version(&bench, &store, &path, written.size_bytes).expect("undamaged"), entities);

    // Cut anywhere, with the size that the catalog knows or the size that is left.
    for cut in (0..whole.len()).step_by(whole.len() / 40 + 1).chain(whole.len() - 12..whole.len()) {
        for size in [cut as u64, written.size_bytes] {
            let result = read_damaged(&bench, whole.slice(..cut), size);
            assert!(result.is_err(), "cut at {cut} of {}, read as {size} bytes", whole.len());
        }
    }

    // A byte may change: an error or, where nothing checks it, other entities, but no panic.
    // The magic at the start alone is not looked at.
    let mut found = 0;
    let end = whole.len() - 8;
    let footer = u32::from_le_bytes(whole[end..end + 4].try_into().expect("four bytes")) as usize;
    let data = (4..end - footer).step_by(211);
    for (number, at) in data.chain((end - footer..whole.len()).step_by(5)).enumerate() {
        let mut bytes = whole.to_vec();
        bytes[at] ^= [0x01, 0x80, 0xFF][number % 3];
        found += usize::from(read_damaged(&bench, bytes.into(), written.size_bytes).is_err());
    }
    assert!(found > 50, "{found} damages were noticed");
}

/// A length that leaves no room for a block once made the library index an empty list. Found by tests/fuzz.
#[test]
fn a_bloom_filter_without_blocks_is_an_error() {
    let bench = Bench::new();
    let store = opened("memory://");
    let options = WriteOptions { shredding: all_shredded(), ..WriteOptions::default() };
    let (path, written) = bench.write(&store, &[r#"{"a":"x"}"#.to_owned()], &options).expect("written");
    let whole = object_bytes(&bench, &store, &path);
    let builder = ParquetRecordBatchReaderBuilder::try_new(whole.clone()).expect("Parquet");
    let mut columns = builder.metadata().row_group(0).columns().iter();
    let length = columns.find_map(|column| column.bloom_filter_length()).expect("a bloom filter");
    assert!((40..64).contains(&length), "one block and its header take {length} bytes");

    // Thrift writes the length in one byte, as twice its value; other bytes of the footer may be the same.
    let end = whole.len() - 8;
    let footer = u32::from_le_bytes(whole[end..end + 4].try_into().expect("four bytes")) as usize;
    let mut refused = 0;
    for at in (end - footer..end).filter(|at| i32::from(whole[*at]) == length * 2) {
        let mut bytes = whole.to_vec();
        bytes[at] = (length - 8) as u8 * 2;
        refused += usize::from(read_damaged(&bench, bytes.into(), written.size_bytes).is_err());
    }
    assert!(refused > 0, "the length is nowhere");
}

/// Each request to a directory takes a thread, and the allocator kept some MiB for each of hundreds of threads.
#[test]
fn many_requests_to_a_directory_take_few_threads() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (bench, store) = (Bench::new(), opened(&directory.path().to_string_lossy()));
    let options = WriteOptions { row_group_rows: 2, ..WriteOptions::default() };
    let entities: Vec<String> = (0..800).map(|number| format!(r#"{{"n":{number}}}"#)).collect();
    let (path, written) = bench.write(&store, &entities, &options).expect("written");
    let threads = Arc::new(AtomicUsize::new(0));
    let counted = threads.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_start(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        })
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let reader = VersionReader::open(&store, &path, written.size_bytes, &PartCache::new(0)).await.expect("opened");
        let pages = (0..reader.row_groups().len()).map(|row_group| reader.documents(row_group, 0));
        let pages = futures::future::try_join_all(pages).await.expect("read");
        assert_eq!(pages.iter().map(|page| page.len()).sum::<usize>(), entities.len());
    });
    // A thread that has just answered may not be free yet when the next request comes, on a loaded machine often.
    let requests = entities.len() / options.row_group_rows;
    assert!(threads.load(Ordering::SeqCst) <= requests / 4, "{} threads", threads.load(Ordering::SeqCst));
}

#[test]
fn foreign_files_are_errors() {
    let bench = Bench::new();
    let refused = |bytes: Vec<u8>| {
        let size = bytes.len() as u64;
        read_damaged(&bench, bytes.into(), size).expect_err("a foreign file").to_string()
    };
    refused(Vec::new());
    refused(b"PAR1".to_vec());
    refused(b"PAR1PAR1".to_vec());
    refused(b"[{\"this\":\"is JSON\"}]".to_vec());
    refused(vec![0xFF; 100_000]);
    refused([b"PAR1".as_slice(), &[0; 1_000], &[0xFF, 0xFF, 0xFF, 0x7F], b"PAR1"].concat());

    let text = Arc::new(StringArray::from(vec!["{}", "[]"])) as ArrayRef;
    let number = Arc::new(arrow::array::Int64Array::from(vec![1, 2])) as ArrayRef;
    let layout = |count| {
        format!(r#"{{"format_version":1,"entity_count":{count},"document_bytes":4,"content_sha256":"","leaves":[]}}"#)
    };
    let foreign = |columns: Vec<(&str, ArrayRef)>, metadata: Option<String>| {
        refused(parquet_file(&RecordBatch::try_from_iter(columns).expect("a batch"), metadata))
    };
    let error = foreign(vec![("document", text.clone())], None);
    assert!(error.contains("not written by strata"), "{error}");
    foreign(vec![("document", text.clone())], Some("{".to_owned()));
    foreign(vec![("document", text.clone())], Some(layout(2)));
    foreign(vec![("document", number.clone()), ("search", text.clone()), ("hash", number)], Some(layout(2)));
    foreign(vec![("document", text.clone())], Some(layout(3)));
    let error = foreign(vec![("document", text.clone())], Some(layout(2).replace("n\":1", "n\":3")));
    assert!(error.contains("format 3"), "{error}");
    let error = foreign(vec![("document", text.clone())], Some(layout(2).replace("n\":1", "n\":2")));
    assert!(error.contains("format 2, but this build supports only format 1"), "{error}");
    // An edited file without the entities that its layout counts.
    let edit = r#""edit":{"base":{"path":"","size_bytes":0,"content_sha256":""},"own_sha256":"","pieces":[]},"leaves""#;
    let error = foreign(vec![("document", text)], Some(layout(2).replace("\"leaves\"", edit)));
    assert!(error.contains("metadata is inconsistent"), "{error}");
}

/// A store on its own.
pub(crate) fn opened(url: &str) -> Store {
    store::open(url, &S3Options::default()).expect(url)
}

/// Entities of many shapes.
pub(crate) fn some_entities() -> Vec<String> {
    let fixed = r#"{"_source":"https://shop.test/1","name":"Äpfel","price":1.50,"tags":["Fruit","rot"]}
{"price":9007199254740993,"name":"a,b: \"c\"","a.b":1,"a":{"b":2,"c":{}}}
{"price":1e400,"tags":"fruit","stock":"none","empty":[{"x":null},[""],[]]}
{"":{"":[]},"null":null,"\u0000":"\u001f\\","😀":"𐐀"}
{}"#;
    let fixed = fixed.lines().map(str::to_owned);
    let numbered =
        (0..40).map(|number| format!(r#"{{"i":{number},"name":"Name {}","t":{}}}"#, number % 3, number > 20));
    fixed.chain(numbered).collect()
}

/// About this many bytes of entities in which nothing repeats; the same in every run.
pub(crate) fn noise(bytes: usize) -> Vec<String> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut text = |length: usize| -> String {
        let letters = (0..length).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            char::from(LETTERS[(state >> 32) as usize % LETTERS.len()])
        });
        letters.collect()
    };
    (0..bytes / 40_000).map(|number| format!(r#"{{"n":{number},"noise":"{}"}}"#, text(40_000))).collect()
}

fn sha256_hex(bytes: &[u8]) -> String {
    use sha2::Digest;
    hex::encode(sha2::Sha256::digest(bytes))
}

/// Writes and reads, with a memory of its own for nothing but the test.
pub(crate) fn check_round_trip(store: &Store, entities: &[String], options: &WriteOptions) -> Written {
    let bench = Bench::new();
    let (path, written) = bench.write(store, entities, options).expect("written");
    check_documents(&bench, store, &path, &written, entities, options);
    written
}

fn object_bytes(bench: &Bench, store: &Store, path: &ObjectPath) -> Bytes {
    let get = async { store.objects().get(path).await?.bytes().await };
    bench.runtime.block_on(get).expect("an object")
}

pub(crate) fn read_version(
    bench: &Bench,
    store: &Store,
    path: &ObjectPath,
    size: u64,
) -> Result<Vec<String>, StorageError> {
    bench.runtime.block_on(read_all(store, path, size, &PartCache::new(1 << 30)))
}

/// Reads everything of a file of these bytes. Panics with the place when reading panics.
fn read_damaged(bench: &Bench, bytes: Bytes, size: u64) -> Result<Vec<String>, StorageError> {
    let store = opened("memory://");
    let path = ObjectPath::from("versions/damaged.parquet");
    let work = async {
        store.objects().put(&path, bytes.into()).await?;
        read_all(&store, &path, size, &PartCache::new(1 << 30)).await
    };
    let caught = bench.runtime.block_on(AssertUnwindSafe(work).catch_unwind());
    caught.unwrap_or_else(|_| panic!("reading a damaged file panicked"))
}

/// The file holds these documents, each byte for byte, and says so.
fn check_documents(
    bench: &Bench,
    store: &Store,
    path: &ObjectPath,
    written: &Written,
    entities: &[String],
    options: &WriteOptions,
) {
    let meta = bench.runtime.block_on(store.objects().head(path)).expect("an object");
    assert_eq!((meta.size, written.entity_count), (written.size_bytes, entities.len() as u64));
    let open = |cache: &PartCache| {
        bench.runtime.block_on(VersionReader::open(store, path, written.size_bytes, cache)).expect("opened")
    };
    let reader = open(&PartCache::new(1 << 30));
    let layout = reader.layout();
    assert_eq!(layout.entity_count, entities.len() as u64);
    assert_eq!(layout.content_sha256, written.content_sha256);
    assert_eq!(layout.document_bytes, entities.iter().map(|entity| entity.len() as u64).sum::<u64>());
    let mut first = 0;
    for row_group in reader.row_groups() {
        assert_eq!(row_group.first, first);
        assert!((1..=options.row_group_rows).contains(&row_group.rows));
        first += row_group.rows as u64;
    }

    // All at once and page by page, with room for everything and for nothing.
    for memory in [1 << 30, 1] {
        let cache = PartCache::new(memory);
        let all = bench.runtime.block_on(read_all(store, path, written.size_bytes, &cache)).expect("read");
        assert!(all == entities, "{} documents differ from {}", all.len(), entities.len());
        let ahead = bench.runtime.block_on(read_ahead(&open(&cache))).expect("read");
        assert!(ahead == entities, "{} documents differ from {}", ahead.len(), entities.len());
    }
}

/// The search text, the hashes and the shredded columns agree with the reference.
fn check_columns(bench: &Bench, store: &Store, path: &ObjectPath, written: &Written, entities: &[Value]) {
    let cache = PartCache::new(1 << 30);
    let reader = bench.runtime.block_on(VersionReader::open(store, path, written.size_bytes, &cache));
    let reader = reader.expect("opened");
    for (row_group, place) in reader.row_groups().iter().enumerate() {
        let first = place.first as usize;
        let entities = &entities[first..first + place.rows];
        let search = bench.runtime.block_on(reader.search(row_group)).expect("search text");
        let found: Vec<&[u8]> = search.as_binary::<i32>().iter().flatten().collect();
        let expected: Vec<Vec<u8>> = entities.iter().map(rules::search_text).collect();
        assert_eq!(found, expected);

        for (number, shredded) in reader.layout().shredded_columns.iter().enumerate() {
            let column = |column| {
                let array = bench.runtime.block_on(reader.shredded(row_group, number, column)).expect("a column");
                assert_eq!(array.is_some(), shredded.has(column), "{column:?} of {shredded:?}");
                array.map(|array| rows_of(&array, shredded.fans_out))
            };
            let (text, kind) = (column(ShreddedPart::Text).expect("text"), column(ShreddedPart::Kind).expect("kind"));
            let exact = column(ShreddedPart::Exact);
            let numbers = column(ShreddedPart::Number).zip(column(ShreddedPart::Remainder));
            for (row, entity) in entities.iter().enumerate() {
                let mut expected: Vec<ShreddedValue> =
                    rules::reach(entity, &shredded.keys).into_iter().map(ShreddedValue::of).collect();
                if !shredded.fans_out && expected.is_empty() {
                    expected.push(ShreddedValue { kind: ShreddedKind::Nothing as u8, ..ShreddedValue::default() });
                }
                let found: Vec<ShreddedValue> = (0..text[row].len())
                    .map(|element| ShreddedValue {
                        text: bytes_at(&text[row], element),
                        exact: exact.as_ref().and_then(|exact| bytes_at(&exact[row], element)),
                        kind: kind[row].as_primitive::<UInt8Type>().value(element),
                        number: numbers.as_ref().and_then(|(numbers, _)| {
                            let numbers = numbers[row].as_primitive::<Float64Type>();
                            numbers.is_valid(element).then(|| numbers.value(element))
                        }),
                        remainder: numbers.as_ref().and_then(|(_, remainders)| {
                            let remainders = remainders[row].as_primitive::<Int64Type>();
                            remainders.is_valid(element).then(|| remainders.value(element))
                        }),
                    })
                    .collect();
                assert_eq!(found, expected, "{shredded:?} of {}", entity.write());
            }
            check_pruning(bench, &reader, row_group, number, entities);
        }
    }
    check_hashes(bench, store, path, entities);
}

/// What row groups are skipped by never denies what is there.
fn check_pruning(bench: &Bench, reader: &VersionReader, row_group: usize, shredded: usize, entities: &[Value]) {
    let keys = &reader.layout().shredded_columns[shredded].keys;
    let scalars: Vec<&Value> = entities.iter().flat_map(|entity| rules::reach(entity, keys)).collect();
    for scalar in &scalars {
        if let Some(text) = scalar.text() {
            let folded = rules::fold(&text);
            let may = bench.runtime.block_on(reader.may_hold_text(row_group, shredded, folded.as_bytes()));
            assert!(may.expect("a bloom filter"), "{text:?} is denied");
        }
        if let Value::Number(text) = scalar
            && ShreddedValue::of(scalar).number.is_some()
        {
            let (least, greatest) = reader.number_range(row_group, shredded).expect("there is a number");
            let double: f64 = text.parse().expect("a number");
            assert!((least..=greatest).contains(&double), "{text} is outside {least}..={greatest}");
        }
    }
    let null = scalars.iter().any(|scalar| matches!(scalar, Value::Null));
    assert!(!null || reader.holds_null(row_group, shredded));
}

/// Two entities have the same hash exactly when they are equal without `_source`.
fn check_hashes(bench: &Bench, store: &Store, path: &ObjectPath, entities: &[Value]) {
    let builder = ParquetRecordBatchReaderBuilder::try_new(object_bytes(bench, store, path)).expect("Parquet");
    let mut hashes: Vec<Vec<u8>> = Vec::new();
    for batch in builder.build().expect("a reader") {
        let batch = batch.expect("a batch");
        let column = batch.column_by_name("hash").expect("hashes").clone();
        hashes.extend(column.as_fixed_size_binary().iter().flatten().map(<[u8]>::to_vec));
    }
    assert_eq!(hashes.len(), entities.len());
    let stripped: Vec<Value> = entities.iter().map(rules::strip_source).collect();
    for one in 0..entities.len() {
        for other in 0..one {
            let equal = rules::equal(&stripped[one], &stripped[other]);
            assert_eq!(
                hashes[one] == hashes[other],
                equal,
                "{} and {}",
                entities[one].write(),
                entities[other].write()
            );
        }
    }
}

/// Every document, page by page, after everything beside them has been read too.
pub(crate) async fn read_all(
    store: &Store,
    path: &ObjectPath,
    size: u64,
    cache: &PartCache,
) -> Result<Vec<String>, StorageError> {
    let reader = VersionReader::open(store, path, size, cache).await?;
    let mut documents = Vec::new();
    for (row_group, place) in reader.row_groups().iter().enumerate() {
        assert_eq!(reader.search(row_group).await?.len(), place.rows);
        for shredded in 0..reader.layout().shredded_columns.len() {
            for column in ShreddedPart::ALL {
                if let Some(array) = reader.shredded(row_group, shredded, column).await? {
                    assert_eq!(array.len(), place.rows);
                }
            }
            reader.may_hold_text(row_group, shredded, b"x").await?;
            reader.number_range(row_group, shredded);
            reader.holds_null(row_group, shredded);
        }
        for page in 0..reader.page_count(row_group) {
            let page = reader.documents(row_group, page).await?;
            for row in page.rows() {
                documents.push(String::from_utf8_lossy(page.document(row)).into_owned());
            }
        }
    }
    Ok(documents)
}

/// Every document, as many pages at a time as one request yields.
pub(crate) async fn read_ahead(reader: &VersionReader) -> Result<Vec<String>, StorageError> {
    let mut documents = Vec::new();
    for row_group in 0..reader.row_groups().len() {
        let count = reader.page_count(row_group);
        let mut next = 0;
        while next < count {
            let pages = reader.documents_ahead(row_group, next..count).await?;
            assert!(!pages.is_empty());
            for page in pages {
                assert!(!page.is_empty() && reader.page_of(row_group, page.rows().start) == next);
                documents.extend(page.rows().map(|row| String::from_utf8_lossy(page.document(row)).into_owned()));
                next += 1;
            }
        }
    }
    Ok(documents)
}

#[test]
fn decoding_ahead_is_limited_by_decompressed_bytes() {
    const DOCUMENTS: usize = 40;
    let bench = Bench::new();
    let store = opened("memory://");
    let text = "x".repeat(1 << 20);
    let entities: Vec<String> =
        (0..DOCUMENTS).map(|number| format!("{{\"n\":{number},\"text\":\"{text}\"}}")).collect();
    let (path, written) = bench.write(&store, &entities, &WriteOptions::default()).expect("written");
    // From the file, then as far as the cache has them.
    for cache in [PartCache::new(0), PartCache::new(1 << 30)] {
        bench.runtime.block_on(async {
            let reader = VersionReader::open(&store, &path, written.size_bytes, &cache).await.expect("opened");
            let at_hand = async |most_bytes| {
                let all = std::iter::once(0..DOCUMENTS as u64);
                let held = reader.documents_at_hand(all, most_bytes, false).await;
                held.map(|parts| parts.iter().map(|part| part.stored.len()).sum())
            };
            assert_eq!(at_hand(usize::MAX).await, None::<usize>);
            assert!(read_ahead(&reader).await.expect("read") == entities);
            let is_kept = cache.capacity_bytes() > 0;
            assert_eq!(at_hand(usize::MAX).await, is_kept.then_some(DOCUMENTS));
            assert_eq!(at_hand(DOCUMENTS << 20).await, None);
            let pages = reader.documents_ahead(0, 0..reader.page_count(0)).await.expect("pages");
            let bytes: usize = pages.iter().flat_map(|page| page.rows().map(|row| page.document(row).len())).sum();
            assert!((1 << 20..20 << 20).contains(&bytes), "{bytes}");
        });
    }
}

/// What a shredded column's columns should hold of one scalar.
#[derive(Debug, Default, PartialEq)]
struct ShreddedValue {
    text: Option<String>,
    exact: Option<String>,
    kind: u8,
    number: Option<f64>,
    remainder: Option<i64>,
}

impl ShreddedValue {
    fn of(scalar: &Value) -> ShreddedValue {
        let exact = scalar.text();
        let text = exact.as_deref().map(rules::fold);
        let mut value = ShreddedValue {
            exact: exact.filter(|exact| Some(exact) != text.as_ref()),
            text,
            kind: match scalar {
                Value::Null => ShreddedKind::Null,
                Value::Bool(_) => ShreddedKind::Boolean,
                Value::String(_) => ShreddedKind::String,
                _ => ShreddedKind::Number,
            } as u8,
            ..ShreddedValue::default()
        };
        if let Value::Number(text) = scalar {
            let double: f64 = text.parse().expect("a number");
            value.number = Some(double);
            let integer = !text.contains(['.', 'e', 'E']);
            // The remainder, by its definition: the integer less its double, where that fits.
            if integer {
                match double.is_finite().then(|| remainder(text, double)).flatten() {
                    Some(0) => {}
                    Some(rest) => value.remainder = Some(rest),
                    None => {
                        value.kind = ShreddedKind::LongInteger as u8;
                        value.number = None;
                    }
                }
            }
        }
        value
    }
}

/// An integer less a double that is whole, by digits; `None` when it does not fit.
fn remainder(integer: &str, double: f64) -> Option<i64> {
    let digits = |text: &str| -> Vec<i8> {
        let (sign, text) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
        text.bytes().rev().map(|digit| sign * (digit - b'0') as i8).collect()
    };
    let (left, right) = (digits(integer), digits(&format!("{double:.0}")));
    let mut sum: Option<i128> = Some(0);
    for place in (0..left.len().max(right.len())).rev() {
        let digit = |digits: &[i8]| i128::from(digits.get(place).copied().unwrap_or(0));
        sum = sum.and_then(|sum| sum.checked_mul(10)?.checked_add(digit(&left) - digit(&right)));
    }
    assert!(number::is_number(integer));
    sum.and_then(|sum| i64::try_from(sum).ok())
}

/// Each row's elements, plain arrays; a row of a shredded column that does not fan out is one element.
fn rows_of(array: &ArrayRef, fans_out: bool) -> Vec<ArrayRef> {
    let plain = |array: ArrayRef| match array.data_type() {
        DataType::Dictionary(_, values) => arrow::compute::cast(&array, values).expect("a plain array"),
        _ => array,
    };
    match fans_out {
        true => array.as_list::<i32>().iter().map(|row| plain(row.expect("no null lists"))).collect(),
        false => (0..array.len()).map(|row| plain(array.slice(row, 1))).collect(),
    }
}

fn bytes_at(array: &ArrayRef, element: usize) -> Option<String> {
    let array: &BinaryArray = array.as_binary();
    array.is_valid(element).then(|| String::from_utf8(array.value(element).to_vec()).expect("UTF-8"))
}

fn parquet_file(batch: &RecordBatch, metadata: Option<String>) -> Vec<u8> {
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::KeyValue;
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).expect("a writer");
    writer.write(batch).expect("written");
    if let Some(metadata) = metadata {
        writer.append_key_value_metadata(KeyValue::new("strata".to_owned(), metadata));
    }
    writer.close().expect("closed");
    bytes
}
