//! Version files: entities survive writing and reading, damage is an error, and the other columns agree with the naive
//! reference.

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
use strata_format::document_page::DocumentForm;
use strata_format::keywords::field_set::FieldTable;
use strata_format::layout::{ShreddedKind, ShreddedPart};
use strata_format::profile::ShreddingLimits;
use strata_format::reader::VersionReader;
use strata_format::shredder::EntityShredder;
use strata_format::writer::{MAX_ROW_GROUP_ROWS, WriteOptions, WrittenVersionFile};
use strata_reference::{Value, hostile, number, rules};
use strata_store::StorageError;
use strata_store::store::{self, S3Options, Store};
use strata_testing::versions::{FileWorkbench, all_shredded, nothing_shredded, segments, some_segments};

/// Random hostile entities.
pub(crate) fn hostile_entities(count: usize) -> Vec<String> {
    let mut runner = TestRunner::default();
    let mut entity = || hostile::entity().new_tree(&mut runner).expect("failed to generate entity").current().write();
    (0..count).map(|_| entity()).collect()
}

#[test]
fn content_hash_depends_only_on_entities() {
    let entities = some_entities();
    let first = check_round_trip(&opened("memory://"), &entities, &WriteOptions::default());
    let options = WriteOptions {
        worker_threads: 3,
        max_row_group_rows: 2,
        shredding_limits: nothing_shredded(),
        ..WriteOptions::default()
    };
    let other = check_round_trip(&opened("memory://"), &entities, &options);
    assert_eq!(first.content_sha256, other.content_sha256);

    let fewer = check_round_trip(&opened("memory://"), &entities[1..], &WriteOptions::default());
    assert_ne!(first.content_sha256, fewer.content_sha256);
    // The hash covers each document and a line feed.
    let lines: String = entities.iter().map(|entity| format!("{entity}\n")).collect();
    assert_eq!(first.content_sha256, sha256_hex(lines.as_bytes()));
    // SHA-256 of empty input.
    let empty = check_round_trip(&opened("memory://"), &[], &WriteOptions::default());
    assert_eq!(empty.content_sha256, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

#[test]
fn entities_and_columns_match_the_reference() {
    let bench = FileWorkbench::new();
    let entities = proptest::collection::vec(hostile::entity(), 0..14);
    let row_group_rows = prop_oneof![Just(1_usize), Just(3), Just(7), Just(MAX_ROW_GROUP_ROWS), 1..16_usize];
    let limits = prop_oneof![
        Just(ShreddingLimits::default()),
        Just(all_shredded()),
        Just(all_shredded()),
        Just(nothing_shredded())
    ];
    let cases = (entities, row_group_rows, 1..=3_usize, limits);
    let mut runner = TestRunner::new(PropertyConfig { cases: 32, ..PropertyConfig::default() });
    let result = runner.run(&cases, |(entities, row_group_rows, threads, shredding_limits)| {
        let keywords = some_segments(row_group_rows + threads);
        let min_footer_index_chunks = if threads == 2 { WriteOptions::default().min_footer_index_chunks } else { 0 };
        let options = WriteOptions {
            shredding_limits,
            keyword_limits: keywords,
            min_footer_index_chunks,
            ..WriteOptions::default()
        };
        let options = WriteOptions { worker_threads: threads, max_row_group_rows: row_group_rows, ..options };
        let texts: Vec<String> = entities.iter().map(Value::write).collect();
        let store = opened("memory://");
        let (path, written) = bench.write(&store, &texts, &options).expect("failed to write file");
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
    let bench = FileWorkbench::new();
    let store = opened("memory://");
    let options = WriteOptions {
        max_row_group_rows: 16,
        shredding_limits: all_shredded(),
        keyword_limits: segments(20),
        ..WriteOptions::default()
    };
    let entities: Vec<String> = (0..40)
        .map(|number| format!(r#"{{"n":{number},"Name":"Entity {number}","tags":["A","b",{number}],"x":null}}"#))
        .collect();
    let (path, written) = bench.write(&store, &entities, &options).expect("failed to write file");
    let whole = object_bytes(&bench, &store, &path);
    let documents = read_version(&bench, &store, &path, written.size_bytes);
    assert_eq!(documents.expect("failed to read undamaged file"), entities);

    // Truncated files, with the recorded size or the actual size.
    for length in (0..whole.len()).step_by(whole.len() / 40 + 1).chain(whole.len() - 12..whole.len()) {
        for size in [length as u64, written.size_bytes] {
            let result = read_damaged(&bench, whole.slice(..length), size);
            assert!(result.is_err(), "truncated at {length} of {}, read as {size} bytes", whole.len());
        }
    }

    // A changed byte causes an error, or is in an unused part such as the magic at the start. It never causes a panic.
    let mut errors = 0;
    let end = whole.len() - 8;
    let footer = u32::from_le_bytes(whole[end..end + 4].try_into().expect("failed to read footer length")) as usize;
    let data = (4..end - footer).step_by(211);
    for (number, offset) in data.chain((end - footer..whole.len()).step_by(5)).enumerate() {
        let mut bytes = whole.to_vec();
        bytes[offset] ^= [0x01, 0x80, 0xFF][number % 3];
        errors += usize::from(read_damaged(&bench, bytes.into(), written.size_bytes).is_err());
    }
    assert!(errors > 50, "only {errors} damaged files were rejected");
}

/// Regression: hundreds of requests to a directory started hundreds of threads, and the allocator kept memory for each.
#[test]
fn many_local_requests_start_few_threads() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let bench = FileWorkbench::new();
    let store = opened(&directory.path().to_string_lossy());
    let options = WriteOptions { max_row_group_rows: 2, ..WriteOptions::default() };
    let entities: Vec<String> = (0..800).map(|number| format!(r#"{{"n":{number}}}"#)).collect();
    let (path, written) = bench.write(&store, &entities, &options).expect("failed to write file");
    let threads = Arc::new(AtomicUsize::new(0));
    let counter = threads.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_start(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        })
        .enable_all()
        .build()
        .expect("failed to build runtime");
    runtime.block_on(async {
        let cache = PartCache::new(0);
        let reader = VersionReader::open(&store, &path, written.size_bytes, &cache).await.expect("failed to open file");
        let pages = (0..reader.row_groups().len()).map(|row_group| reader.read_document_page(row_group, 0));
        let pages = futures::future::try_join_all(pages).await.expect("failed to read pages");
        assert_eq!(pages.iter().map(|page| page.len()).sum::<usize>(), entities.len());
    });
    // A thread may not be idle yet when the next request arrives, especially on a busy machine.
    let requests = entities.len() / options.max_row_group_rows;
    assert!(threads.load(Ordering::SeqCst) <= requests / 4, "{} threads", threads.load(Ordering::SeqCst));
}

#[test]
fn foreign_files_are_errors() {
    let bench = FileWorkbench::new();
    let rejection = |bytes: Vec<u8>| {
        let size = bytes.len() as u64;
        read_damaged(&bench, bytes.into(), size).expect_err("accepted a foreign file").to_string()
    };
    rejection(Vec::new());
    rejection(b"PAR1".to_vec());
    rejection(b"PAR1PAR1".to_vec());
    rejection(b"[{\"this\":\"is JSON\"}]".to_vec());
    rejection(vec![0xFF; 100_000]);
    rejection([b"PAR1".as_slice(), &[0; 1_000], &[0xFF, 0xFF, 0xFF, 0x7F], b"PAR1"].concat());

    let text = Arc::new(StringArray::from(vec!["{}", "[]"])) as ArrayRef;
    let number = Arc::new(arrow::array::Int64Array::from(vec![1, 2])) as ArrayRef;
    let layout = |count| {
        format!(r#"{{"format_version":1,"entity_count":{count},"document_bytes":4,"content_sha256":"","leaves":[]}}"#)
    };
    let foreign = |columns: Vec<(&str, ArrayRef)>, metadata: Option<String>| {
        rejection(parquet_file(&RecordBatch::try_from_iter(columns).expect("failed to build batch"), metadata))
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
    // A delta file without the entities in its layout.
    let overlay = r#""overlay":{"bases":[],"own_sha256":"","extents":""},"leaves""#;
    let error = foreign(vec![("document", text)], Some(layout(2).replace("\"leaves\"", overlay)));
    assert!(error.contains("metadata is inconsistent"), "{error}");
}

/// Opens a store.
pub(crate) fn opened(url: &str) -> Store {
    store::open_store(url, &S3Options::default()).expect(url)
}

/// Entities with various structures.
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

/// Deterministic entities without repetitions, with about this many bytes in total.
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

/// Writes entities and checks all documents.
pub(crate) fn check_round_trip(store: &Store, entities: &[String], options: &WriteOptions) -> WrittenVersionFile {
    let bench = FileWorkbench::new();
    let (path, written) = bench.write(store, entities, options).expect("failed to write file");
    check_documents(&bench, store, &path, &written, entities, options);
    written
}

fn object_bytes(bench: &FileWorkbench, store: &Store, path: &ObjectPath) -> Bytes {
    let get = async { store.object_store().get(path).await?.bytes().await };
    bench.runtime.block_on(get).expect("failed to read object")
}

pub(crate) fn read_version(
    bench: &FileWorkbench,
    store: &Store,
    path: &ObjectPath,
    size: u64,
) -> Result<Vec<String>, StorageError> {
    bench.runtime.block_on(read_all(store, path, size, &PartCache::new(1 << 30)))
}

/// Reads all parts of a file with these bytes. Fails the test if reading panics.
fn read_damaged(bench: &FileWorkbench, bytes: Bytes, size: u64) -> Result<Vec<String>, StorageError> {
    let store = opened("memory://");
    let path = ObjectPath::from("versions/damaged.parquet");
    let work = async {
        store.object_store().put(&path, bytes.into()).await?;
        read_all(&store, &path, size, &PartCache::new(1 << 30)).await
    };
    let caught = bench.runtime.block_on(AssertUnwindSafe(work).catch_unwind());
    caught.unwrap_or_else(|_| panic!("reading a damaged file panicked"))
}

/// Checks that the file contains exactly these documents, and that its metadata is right.
fn check_documents(
    bench: &FileWorkbench,
    store: &Store,
    path: &ObjectPath,
    written: &WrittenVersionFile,
    entities: &[String],
    options: &WriteOptions,
) {
    let meta = bench.runtime.block_on(store.object_store().head(path)).expect("failed to read object size");
    assert_eq!((meta.size, written.entity_count), (written.size_bytes, entities.len() as u64));
    let open = |cache: &PartCache| {
        let reader = VersionReader::open(store, path, written.size_bytes, cache);
        bench.runtime.block_on(reader).expect("failed to open file")
    };
    let reader = open(&PartCache::new(1 << 30));
    let layout = reader.layout();
    assert_eq!(layout.entity_count, entities.len() as u64);
    assert_eq!(layout.content_sha256, written.content_sha256);
    assert_eq!(layout.document_bytes, entities.iter().map(|entity| entity.len() as u64).sum::<u64>());
    let mut first = 0;
    for row_group in reader.row_groups() {
        assert_eq!(row_group.first_position, first);
        assert!((1..=options.max_row_group_rows).contains(&row_group.rows));
        first += row_group.rows as u64;
    }

    // Several pages at once and page by page, with an unlimited and an empty cache.
    for memory in [1 << 30, 1] {
        let cache = PartCache::new(memory);
        let all = bench.runtime.block_on(read_all(store, path, written.size_bytes, &cache)).expect("failed to read");
        assert!(all == entities, "{} documents differ from {}", all.len(), entities.len());
        let ahead = bench.runtime.block_on(read_ahead(&open(&cache))).expect("failed to read several pages");
        assert!(ahead == entities, "{} documents differ from {}", ahead.len(), entities.len());
    }
}

/// Checks that the full texts, the hashes, and the indexed columns agree with the reference.
fn check_columns(
    bench: &FileWorkbench,
    store: &Store,
    path: &ObjectPath,
    written: &WrittenVersionFile,
    entities: &[Value],
) {
    let cache = PartCache::new(1 << 30);
    let reader = bench.runtime.block_on(VersionReader::open(store, path, written.size_bytes, &cache));
    let reader = reader.expect("failed to open file");
    for (row_group, span) in reader.row_groups().iter().enumerate() {
        let first = span.first_position as usize;
        let entities = &entities[first..first + span.rows];
        let mut shredder = EntityShredder::new(reader.layout(), Some(&FieldTable::default()));
        shredder.shred(&entities.iter().map(|entity| Some(entity.write())).collect()).expect("failed to shred");
        let full_text =
            shredder.take_full_text(Vec::new()).expect("failed to collect full text").expect("no full text");
        let found: Vec<&[u8]> = full_text.texts.iter().flatten().collect();
        let expected: Vec<Vec<u8>> = entities.iter().map(rules::search_text).collect();
        assert_eq!(found, expected);

        for (number, shredded) in reader.layout().shredded_columns.iter().enumerate() {
            let column = |column| {
                let array = bench.runtime.block_on(reader.read_shredded(row_group, number, column));
                let array = array.expect("failed to read indexed column");
                assert_eq!(array.is_some(), shredded.has_part(column), "{column:?} of {shredded:?}");
                array.map(|array| rows_of(&array, shredded.fans_out))
            };
            let text = column(ShreddedPart::Text).expect("failed to find text");
            let kind = column(ShreddedPart::Kind).expect("failed to find kind");
            let folded = bench.runtime.block_on(reader.read_folded_texts(row_group, number));
            let folded = rows_of(&folded.expect("failed to read folded texts"), shredded.fans_out);
            let numbers = column(ShreddedPart::Number).zip(column(ShreddedPart::Remainder));
            for (row, entity) in entities.iter().enumerate() {
                let mut expected: Vec<ShreddedValue> =
                    rules::reach(entity, &shredded.keys).into_iter().map(ShreddedValue::from_scalar).collect();
                if !shredded.fans_out && expected.is_empty() {
                    expected.push(ShreddedValue { kind: ShreddedKind::Missing as u8, ..ShreddedValue::default() });
                }
                let found: Vec<ShreddedValue> = (0..text[row].len())
                    .map(|element| ShreddedValue {
                        text: bytes_at(&text[row], element),
                        folded: bytes_at(&folded[row], element),
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
            check_pruning(&reader, row_group, number, entities);
        }
    }
    check_hashes(bench, store, path, entities);
}

/// Checks that pruning never excludes a value that occurs.
fn check_pruning(reader: &VersionReader, row_group: usize, shredded: usize, entities: &[Value]) {
    let keys = &reader.layout().shredded_columns[shredded].keys;
    let scalars: Vec<&Value> = entities.iter().flat_map(|entity| rules::reach(entity, keys)).collect();
    for scalar in &scalars {
        if let Some(text) = scalar.text() {
            let (min, max) = reader.text_bounds(row_group, shredded).expect("failed to find text bounds");
            assert!((min..=max).contains(&text.as_bytes()), "{text:?} is outside {min:?}..={max:?}");
        }
        if let Value::Number(text) = scalar
            && ShreddedValue::from_scalar(scalar).number.is_some()
        {
            let (min, max) = reader.number_range(row_group, shredded).expect("failed to find number range");
            let double: f64 = text.parse().expect("failed to parse number");
            assert!((min..=max).contains(&double), "{text} is outside {min}..={max}");
        }
    }
    let null = scalars.iter().any(|scalar| matches!(scalar, Value::Null));
    assert!(!null || reader.may_have_null(row_group, shredded));
}

/// Checks that two hashes are equal if and only if the entities are equal without `_source`.
fn check_hashes(bench: &FileWorkbench, store: &Store, path: &ObjectPath, entities: &[Value]) {
    let bytes = object_bytes(bench, store, path);
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("failed to open Parquet file");
    let mut hashes: Vec<Vec<u8>> = Vec::new();
    for batch in builder.build().expect("failed to build Parquet reader") {
        let batch = batch.expect("failed to read batch");
        let column = batch.column_by_name("hash").expect("failed to find hashes").clone();
        hashes.extend(column.as_fixed_size_binary().iter().flatten().map(<[u8]>::to_vec));
    }
    assert_eq!(hashes.len(), entities.len());
    let stripped: Vec<Value> = entities.iter().map(rules::strip_source).collect();
    for left in 0..entities.len() {
        for right in 0..left {
            let equal = rules::equal(&stripped[left], &stripped[right]);
            assert_eq!(
                hashes[left] == hashes[right],
                equal,
                "{} and {}",
                entities[left].write(),
                entities[right].write()
            );
        }
    }
}

/// Reads all parts, and returns the documents page by page.
pub(crate) async fn read_all(
    store: &Store,
    path: &ObjectPath,
    size: u64,
    cache: &PartCache,
) -> Result<Vec<String>, StorageError> {
    let reader = VersionReader::open(store, path, size, cache).await?;
    let mut documents = Vec::new();
    for (row_group, span) in reader.row_groups().iter().enumerate() {
        for shredded in 0..reader.layout().shredded_columns.len() {
            for column in ShreddedPart::ALL {
                if let Some(array) = reader.read_shredded(row_group, shredded, column).await? {
                    assert_eq!(array.len(), span.rows);
                }
            }
            reader.number_range(row_group, shredded);
            reader.may_have_null(row_group, shredded);
        }
        for page in 0..reader.page_count(row_group) {
            let page = reader.read_document_page(row_group, page).await?;
            for row in page.rows() {
                documents.push(String::from_utf8_lossy(page.document(row)).into_owned());
            }
        }
    }
    Ok(documents)
}

/// Returns all documents, with several pages per request.
pub(crate) async fn read_ahead(reader: &VersionReader) -> Result<Vec<String>, StorageError> {
    let mut documents = Vec::new();
    for row_group in 0..reader.row_groups().len() {
        let count = reader.page_count(row_group);
        let mut next = 0;
        while next < count {
            let pages = reader.read_document_pages(row_group, next..count).await?;
            assert!(!pages.is_empty());
            for page in pages {
                assert!(!page.is_empty() && reader.page_for_row(row_group, page.rows().start) == next);
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
    let bench = FileWorkbench::new();
    let store = opened("memory://");
    let text = "x".repeat(1 << 20);
    let entities: Vec<String> =
        (0..DOCUMENTS).map(|number| format!("{{\"n\":{number},\"text\":\"{text}\"}}")).collect();
    let (path, written) = bench.write(&store, &entities, &WriteOptions::default()).expect("failed to write file");
    // First without a cache, and then with one.
    for cache in [PartCache::new(0), PartCache::new(1 << 30)] {
        bench.runtime.block_on(async {
            let reader = VersionReader::open(&store, &path, written.size_bytes, &cache).await;
            let reader = reader.expect("failed to open file");
            let resident_documents = async |max_bytes| {
                let all = std::iter::once(0..DOCUMENTS as u64);
                let pages = reader.try_resident_documents(all, max_bytes, DocumentForm::Stored).await;
                pages.map(|pages| pages.iter().map(|page| page.stored.len()).sum())
            };
            assert_eq!(resident_documents(usize::MAX).await, None::<usize>);
            assert!(read_ahead(&reader).await.expect("failed to read pages") == entities);
            let is_cached = cache.capacity_bytes() > 0;
            assert_eq!(resident_documents(usize::MAX).await, is_cached.then_some(DOCUMENTS));
            assert_eq!(resident_documents(DOCUMENTS << 20).await, None);
            let pages = reader.read_document_pages(0, 0..reader.page_count(0)).await.expect("failed to read pages");
            let bytes: usize = pages.iter().flat_map(|page| page.rows().map(|row| page.document(row).len())).sum();
            assert!((1 << 20..20 << 20).contains(&bytes), "{bytes}");
        });
    }
}

/// Expected elements of an indexed column's parts for one scalar.
#[derive(Debug, Default, PartialEq)]
struct ShreddedValue {
    text: Option<String>,
    folded: Option<String>,
    kind: u8,
    number: Option<f64>,
    remainder: Option<i64>,
}

impl ShreddedValue {
    fn from_scalar(scalar: &Value) -> ShreddedValue {
        let text = scalar.text();
        let mut value = ShreddedValue {
            folded: text.as_deref().map(rules::fold),
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
            let double: f64 = text.parse().expect("failed to parse number");
            value.number = Some(double);
            let is_integer = !text.contains(['.', 'e', 'E']);
            // The remainder by definition: the integer minus its double, if the difference fits.
            if is_integer {
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

/// Returns `integer` minus an integral double, digit by digit, or `None` if the difference does not fit.
fn remainder(integer: &str, double: f64) -> Option<i64> {
    let digits = |text: &str| -> Vec<i8> {
        let (sign, text) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
        text.bytes().rev().map(|digit| sign * (digit - b'0') as i8).collect()
    };
    let left = digits(integer);
    let right = digits(&format!("{double:.0}"));
    let mut sum: Option<i128> = Some(0);
    for index in (0..left.len().max(right.len())).rev() {
        let digit = |digits: &[i8]| i128::from(digits.get(index).copied().unwrap_or(0));
        sum = sum.and_then(|sum| sum.checked_mul(10)?.checked_add(digit(&left) - digit(&right)));
    }
    assert!(number::is_number(integer));
    sum.and_then(|sum| i64::try_from(sum).ok())
}

/// Returns the elements of each row without dictionaries. Without fan-out, each row has one element.
fn rows_of(array: &ArrayRef, fans_out: bool) -> Vec<ArrayRef> {
    let plain = |array: ArrayRef| match array.data_type() {
        DataType::Dictionary(_, values) => arrow::compute::cast(&array, values).expect("failed to cast dictionary"),
        _ => array,
    };
    match fans_out {
        true => array.as_list::<i32>().iter().map(|row| plain(row.expect("failed to find list"))).collect(),
        false => (0..array.len()).map(|row| plain(array.slice(row, 1))).collect(),
    }
}

fn bytes_at(array: &ArrayRef, element: usize) -> Option<String> {
    let array: &BinaryArray = array.as_binary();
    array.is_valid(element).then(|| String::from_utf8(array.value(element).to_vec()).expect("failed to decode UTF-8"))
}

fn parquet_file(batch: &RecordBatch, metadata: Option<String>) -> Vec<u8> {
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::KeyValue;
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).expect("failed to create writer");
    writer.write(batch).expect("failed to write batch");
    if let Some(metadata) = metadata {
        writer.append_key_value_metadata(KeyValue::new("strata".to_owned(), metadata));
    }
    writer.close().expect("failed to close writer");
    bytes
}
