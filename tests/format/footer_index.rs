//! Footer indexes: readers return the same results with and without one, fetch less with one, and damage fails no read.

use std::sync::Arc;

use arrow::array::Array;
use bytes::Bytes;
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::ParquetMetaDataReader;
use strata_format::cache::PartCache;
use strata_format::layout::ShreddedPart;
use strata_format::reader::{NoReadThrottle, VersionReader};
use strata_format::reader_metrics::ReaderMetrics;
use strata_format::verify::verify_and_hash;
use strata_format::writer::WriteOptions;
use strata_store::StorageError;
use strata_testing::files::seal;
use strata_testing::versions::{FileWorkbench, all_shredded, nothing_shredded, segments};

use super::files::{hostile_entities, opened, read_all};

/// Value of `min_footer_index_chunks` for files without a footer index.
const NONE: usize = usize::MAX;

/// Describes everything that a reader knows from the footer.
fn describe(reader: &VersionReader) -> Vec<String> {
    let mut description =
        vec![format!("{:?} {:?}", reader.layout(), reader.row_groups()), format!("{:?}", reader.keyword_index())];
    let shredded = 0..reader.layout().shredded_columns.len();
    description.push(format!(
        "{:?}",
        shredded.clone().map(|column| reader.shredded_uncompressed_bytes(column)).collect::<Vec<_>>()
    ));
    for (row_group, span) in reader.row_groups().iter().enumerate() {
        let pages = (0..span.rows).map(|row| reader.page_for_row(row_group, row)).collect::<Vec<_>>();
        let bytes = (reader.stored_bytes(row_group), reader.document_column_bytes(row_group));
        description.push(format!("{row_group}: {pages:?} of {}, {bytes:?}", reader.page_count(row_group)));
        for column in shredded.clone() {
            let columns = reader.column_indices(column, &ShreddedPart::ALL);
            description.push(format!(
                "{columns:?} {:?} {:?} {:?} {:?} {}",
                reader.total_column_sizes(row_group, &columns),
                reader.number_range(row_group, column),
                reader.text_bounds(row_group, column),
                reader.kind_range(row_group, column),
                reader.may_have_null(row_group, column),
            ));
        }
    }
    description
}

/// Returns the columns except the documents.
fn columns(bench: &FileWorkbench, reader: &VersionReader) -> Vec<arrow::array::ArrayData> {
    let mut columns = Vec::new();
    for row_group in 0..reader.row_groups().len() {
        bench.runtime.block_on(async {
            columns.push(reader.read_entity_hashes(row_group).await.expect("failed to read hashes").to_data());
            for shredded in 0..reader.layout().shredded_columns.len() {
                for part in ShreddedPart::ALL {
                    let column = reader.read_shredded(row_group, shredded, part).await;
                    let column = column.expect("failed to read indexed column");
                    columns.extend(column.map(|column| column.to_data()));
                }
            }
        });
    }
    columns
}

/// A file that was written to an in-memory store.
struct TestFile {
    bench: FileWorkbench,
    path: ObjectPath,
    bytes: Bytes,
}

impl TestFile {
    fn written(entities: &[String], options: &WriteOptions) -> TestFile {
        let bench = FileWorkbench::new();
        let store = opened("memory://");
        let (path, _) = bench.write(&store, entities, options).expect("failed to write file");
        let get = async { store.object_store().get(&path).await?.bytes().await };
        let bytes = bench.runtime.block_on(get).expect("failed to read object");
        TestFile { bench, path, bytes }
    }

    /// Opens a file with other bytes, and reads all documents.
    fn read(&self, bytes: &[u8]) -> Result<(VersionReader, Vec<String>), StorageError> {
        let store = opened("memory://");
        let cache = PartCache::new(1 << 30);
        let size = bytes.len() as u64;
        self.bench.runtime.block_on(async {
            store.object_store().put(&self.path, Bytes::copy_from_slice(bytes).into()).await?;
            let documents = read_all(&store, &self.path, size, &cache).await?;
            Ok((VersionReader::open(&store, &self.path, size, &cache).await?, documents))
        })
    }

    /// Returns the range of the footer index.
    fn footer_index(&self) -> Option<std::ops::Range<usize>> {
        locate_footer_index(&self.bytes).map(|(_, range)| range)
    }
}

/// Returns the offset of the encoded location of the footer index, and the range of the footer index.
fn locate_footer_index(file: &[u8]) -> Option<(usize, std::ops::Range<usize>)> {
    let checksum = file.windows(12).rposition(|window| window == b"strata.seal:");
    let location = checksum.expect("failed to find footer checksum") + 37;
    let text = std::str::from_utf8(file.get(location..location + 44)?).ok().filter(|text| text.starts_with(':'))?;
    let number = |digits| usize::from_str_radix(digits, 16).expect("failed to parse location");
    let mut numbers = text.split(':').skip(1).map(number);
    let offset = numbers.next()?;
    let length = numbers.next()?;
    Some((location, offset..offset + length))
}

/// Updates the checksums of a file after its footer index was changed.
fn update_checksums(file: &mut [u8]) {
    let (location, range) = locate_footer_index(file).expect("failed to find footer index");
    let offset = range.start;
    let length = range.len();
    let text = format!(":{offset:016x}:{length:08x}:{:08x}", crc32fast::hash(&file[range]));
    let text = format!("{text}:{:08x}", crc32fast::hash(text.as_bytes()));
    file[location..location + text.len()].copy_from_slice(text.as_bytes());
    seal(file);
}

fn options(min_footer_index_chunks: usize, row_group_rows: usize) -> WriteOptions {
    WriteOptions {
        max_row_group_rows: row_group_rows,
        shredding_limits: all_shredded(),
        keyword_limits: segments(20),
        min_footer_index_chunks,
        ..WriteOptions::default()
    }
}

fn some_entities(count: usize) -> Vec<String> {
    let entity = |number: usize| {
        format!(r#"{{"n":{number},"Name":"Entity {number}","tags":["A","b",{number}],"x":null,"y":{number}.5}}"#)
    };
    (0..count).map(entity).collect()
}

#[test]
fn footer_index_equals_parquet_footer() {
    for (number, row_group_rows) in [1, 3, 16, 1_000].into_iter().enumerate() {
        let entities = [hostile_entities(30), some_entities(10)].concat();
        for shredding_limits in [all_shredded(), nothing_shredded()] {
            let options = |chunks| WriteOptions {
                shredding_limits,
                worker_threads: 1 + number,
                ..options(chunks, row_group_rows)
            };
            let with = TestFile::written(&entities, &options(0));
            let without = TestFile::written(&entities, &options(NONE));
            assert!(with.footer_index().is_some() && without.footer_index().is_none());
            let (reader, documents) = with.read(&with.bytes).expect("failed to read with footer index");
            let (other, others) = without.read(&without.bytes).expect("failed to read without footer index");
            assert!(documents == entities && others == entities, "{row_group_rows} rows");
            // The locations do not depend on the timing of the threads.
            assert_eq!(describe(&reader), describe(&other));
            assert_eq!(columns(&with.bench, &reader), columns(&without.bench, &other));
            for (file, reader) in [(&with, &reader), (&without, &other)] {
                let verified = async {
                    reader.verify_footer_index().await?;
                    verify_and_hash(reader, &mut NoReadThrottle).await
                };
                file.bench.runtime.block_on(verified).expect("failed to verify file");
            }
            // Other programs read the same rows.
            let [rows, rows_without] = [&with, &without].map(|file| {
                let reader = ParquetRecordBatchReaderBuilder::try_new(file.bytes.clone());
                let reader = reader.expect("failed to open Parquet file").build().expect("failed to build reader");
                reader.collect::<Result<Vec<_>, _>>().expect("failed to read batches")
            });
            assert_eq!(rows, rows_without);
        }
    }
}

#[test]
fn empty_version_has_a_valid_footer_index() {
    let file = TestFile::written(&[], &options(0, 16));
    let (reader, documents) = file.read(&file.bytes).expect("failed to read empty version");
    assert!(documents.is_empty() && reader.row_groups().is_empty());
    file.bench.runtime.block_on(reader.verify_footer_index()).expect("failed to verify footer index");
}

#[test]
fn damaged_footer_index_or_footer_fails_no_read() {
    let entities = some_entities(60);
    let file = TestFile::written(&entities, &options(0, 7));
    let index = file.footer_index().expect("failed to find footer index");
    let trailer = file.bytes.len() - 8;
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&file.bytes).expect("failed to parse footer");
    let documents = metadata.row_groups()[0].column(0).data_page_offset();
    let check_detected = |bytes: &[u8], what: &str| {
        let (reader, documents) = file.read(bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(documents == entities, "{what}");
        let results = [
            file.bench.runtime.block_on(reader.verify_footer_index()),
            file.bench.runtime.block_on(reader.verify_checksums(&mut NoReadThrottle)),
        ];
        assert!(
            results.iter().all(|result| result.as_ref().is_err_and(StorageError::is_file_damage)),
            "{what}: {results:?}"
        );
    };
    for offset in index.clone().step_by(101).chain([index.start, index.end - 1]) {
        let mut bytes = file.bytes.to_vec();
        bytes[offset] ^= 1 << (offset % 8);
        check_detected(&bytes, &format!("byte {offset} of the footer index {index:?}"));
    }
    // The page indexes, and the footer up to the footer checksum.
    let (location, _) = locate_footer_index(&file.bytes).expect("failed to locate footer index");
    for offset in (index.end..location - 48).step_by(307) {
        let mut bytes = file.bytes.to_vec();
        bytes[offset] ^= 1 << (offset % 8);
        check_detected(&bytes, &format!("byte {offset} of the footer"));
    }
    // The footer checksum covers the location of the footer index and the following bytes.
    for offset in (location - 37..trailer).step_by(5).chain(trailer..file.bytes.len()) {
        let mut bytes = file.bytes.to_vec();
        bytes[offset] ^= 1 << (offset % 8);
        let read = file.read(&bytes);
        // A file with a footer index is readable even if the digits of the footer checksum are damaged.
        let is_readable = offset < location && read.is_ok();
        let is_detected = read.is_err_and(|error| error.is_file_damage());
        assert!(is_readable || is_detected || offset >= location + 44, "{offset}");
    }
    // Damage of documents is always an error.
    let mut bytes = file.bytes.to_vec();
    bytes[documents as usize + 30] ^= 1;
    assert!(file.read(&bytes).is_err_and(|error| error.is_file_damage()));
}

#[test]
fn changed_footer_index_is_rejected_or_detected() {
    let entities = some_entities(40);
    let file = TestFile::written(&entities, &options(0, 7));
    let index = file.footer_index().expect("failed to find footer index");
    let read_changed = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = file.bytes.to_vec();
        change(&mut bytes[index.clone()]);
        update_checksums(&mut bytes);
        file.read(&bytes)
    };
    // Unchanged.
    let (reader, documents) = read_changed(&|_| {}).expect("failed to read unchanged file");
    assert!(documents == entities);
    file.bench.runtime.block_on(reader.verify_footer_index()).expect("failed to verify footer index");
    // With an unknown format, the reader decodes the Parquet footer.
    let (reader, documents) = read_changed(&|index| index[0] = 2).expect("failed to read unknown format");
    assert!(documents == entities);
    file.bench.runtime.block_on(reader.verify_checksums(&mut NoReadThrottle)).expect("failed to verify checksums");
    // Any changed byte causes an error or does not affect the documents, and never causes a panic.
    let mut rejected = 0;
    for offset in (0..index.len()).step_by(29).chain(0..200) {
        match read_changed(&|index| index[offset] = index[offset].wrapping_add([1, 0x80, 0xFF][offset % 3])) {
            Ok((reader, documents)) => {
                assert!(documents == entities, "byte {offset}");
                let is_detected = file.bench.runtime.block_on(reader.verify_footer_index()).is_err();
                assert!(is_detected || offset < 4, "byte {offset}");
            }
            Err(error) => {
                assert!(error.is_file_damage(), "byte {offset}: {error}");
                rejected += 1;
            }
        }
    }
    assert!(rejected > 0);
}

#[test]
fn opening_fetches_footer_index_instead_of_footer() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let bench = FileWorkbench::new();
    let store = opened(&directory.path().to_string_lossy());
    let entities = some_entities(2_400);
    let write = |chunks| bench.write(&store, &entities, &options(chunks, 4)).expect("failed to write file");
    let written = [0, NONE].map(write);
    let costs = written.map(|(path, written)| {
        let metrics = Arc::new(ReaderMetrics::default());
        let cache = PartCache::new(1 << 30).with_reader_metrics(metrics.clone());
        bench.runtime.block_on(async {
            let reader = VersionReader::open(&store, &path, written.size_bytes, &cache).await;
            let reader = reader.expect("failed to open file");
            let opened = (metrics.fetch_count(), metrics.fetched_bytes());
            let last = reader.row_groups().len() - 1;
            assert_eq!(reader.read_document_page(last, 0).await.expect("failed to read page").len(), 4);
            assert_eq!(metrics.fetch_count(), opened.0 + 1);
            let footer = cache.get(&strata_format::cached_part::PartKey::Footer(path.as_ref().into())).await;
            (opened, footer.expect("failed to find cached footer").memory_bytes() as u64)
        })
    });
    let [((requests, bytes), memory), ((requests_without, bytes_without), memory_without)] = costs;
    assert_eq!((requests, requests_without), (2, 2));
    assert!(bytes * 2 < bytes_without, "{bytes} and {bytes_without} bytes");
    // Only the tables stay in memory.
    assert!(memory.abs_diff(memory_without) * 50 < memory, "{memory} and {memory_without} bytes of memory");
    assert!(memory < bytes, "{memory} of {bytes} bytes stay in memory");
}
