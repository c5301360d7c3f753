//! Outlines of version files: with one and without, a reader says the same and fetches what it needs; and damage of
//! either costs no answer.

use std::sync::Arc;

use arrow::array::Array;
use bytes::Bytes;
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::ParquetMetaDataReader;
use strata_format::cache::PartCache;
use strata_format::layout::ShreddedPart;
use strata_format::reader::{Unbounded, VersionReader};
use strata_format::reader_metrics::ReaderMetrics;
use strata_format::verify::verify;
use strata_format::writer::WriteOptions;
use strata_store::StorageError;
use strata_testing::files::seal;
use strata_testing::versions::{Bench, all_shredded, nothing_shredded, segments, shapes};

use super::files::{hostile_entities, opened, read_all};

/// Without an outline, whatever the file.
const NONE: usize = usize::MAX;

/// What a reader of a file says of it, but for what it holds.
fn said(bench: &Bench, reader: &VersionReader) -> Vec<String> {
    let mut said = vec![
        format!("{:?} {:?}", reader.layout(), reader.row_groups()),
        format!("{:?} {:?}", reader.keyword_index(), reader.shape_index()),
    ];
    let shredded = 0..reader.layout().shredded_columns.len();
    said.push(format!("{:?}", shredded.clone().map(|column| reader.shredded_bytes(column)).collect::<Vec<_>>()));
    for (row_group, place) in reader.row_groups().iter().enumerate() {
        let pages = (0..place.rows).map(|row| reader.page_of(row_group, row)).collect::<Vec<_>>();
        let bytes = (reader.stored_bytes(row_group), reader.search_and_document_bytes(row_group));
        said.push(format!("{row_group}: {pages:?} of {}, {bytes:?}", reader.page_count(row_group)));
        for column in shredded.clone() {
            let columns = reader.columns_of(column, &ShreddedPart::ALL);
            let may = |text: &str| {
                bench.runtime.block_on(reader.may_hold_text(row_group, column, text.as_bytes())).expect("a filter")
            };
            said.push(format!(
                "{columns:?} {:?} {:?} {:?} {:?} {} {:?}",
                reader.column_bytes(row_group, &columns),
                reader.number_range(row_group, column),
                reader.string_bounds(row_group, column),
                reader.kind_range(row_group, column),
                reader.holds_null(row_group, column),
                ["", "a", "x", "1", "true"].map(may).map(u8::from).iter().sum::<u8>(),
            ));
        }
    }
    said
}

/// The columns of a file beside the documents.
fn columns(bench: &Bench, reader: &VersionReader) -> Vec<arrow::array::ArrayData> {
    let mut columns = Vec::new();
    for row_group in 0..reader.row_groups().len() {
        bench.runtime.block_on(async {
            columns.push(reader.search(row_group).await.expect("search texts").to_data());
            columns.push(reader.hashes(row_group).await.expect("hashes").to_data());
            for shredded in 0..reader.layout().shredded_columns.len() {
                for part in ShreddedPart::ALL {
                    let column = reader.shredded(row_group, shredded, part).await.expect("a column");
                    columns.extend(column.map(|column| column.to_data()));
                }
            }
        });
    }
    columns
}

/// A file of its own in memory.
struct File {
    bench: Bench,
    path: ObjectPath,
    bytes: Bytes,
}

impl File {
    fn written(entities: &[String], options: &WriteOptions) -> File {
        let (bench, store) = (Bench::new(), opened("memory://"));
        let (path, _) = bench.write(&store, entities, options).expect("written");
        let get = async { store.objects().get(&path).await?.bytes().await };
        let bytes = bench.runtime.block_on(get).expect("an object");
        File { bench, path, bytes }
    }

    /// A reader of these bytes instead, and all documents that it reads.
    fn read(&self, bytes: &[u8]) -> Result<(VersionReader, Vec<String>), StorageError> {
        let (store, cache, size) = (opened("memory://"), PartCache::new(1 << 30), bytes.len() as u64);
        self.bench.runtime.block_on(async {
            store.objects().put(&self.path, Bytes::copy_from_slice(bytes).into()).await?;
            let documents = read_all(&store, &self.path, size, &cache).await?;
            Ok((VersionReader::open(&store, &self.path, size, &cache).await?, documents))
        })
    }

    /// Where the outline lies, by the text behind the seal.
    fn outline(&self) -> Option<std::ops::Range<usize>> {
        place(&self.bytes).map(|(_, range)| range)
    }
}

/// Where the text stands that tells where the outline of a file lies, and what it tells.
fn place(file: &[u8]) -> Option<(usize, std::ops::Range<usize>)> {
    let seal = file.windows(12).rposition(|window| window == b"strata.seal:").expect("a seal") + 37;
    let text = std::str::from_utf8(file.get(seal..seal + 44)?).ok().filter(|text| text.starts_with(':'))?;
    let mut numbers = text.split(':').skip(1).map(|digits| usize::from_str_radix(digits, 16).expect("digits"));
    let (offset, length) = (numbers.next()?, numbers.next()?);
    Some((seal, offset..offset + length))
}

/// Says that another outline is that of a file, as if it had been written so.
fn tell_outline(file: &mut [u8]) {
    let (at, range) = place(file).expect("an outline");
    let (offset, length) = (range.start, range.len());
    let text = format!(":{offset:016x}:{length:08x}:{:08x}", crc32fast::hash(&file[range]));
    let text = format!("{text}:{:08x}", crc32fast::hash(text.as_bytes()));
    file[at..at + text.len()].copy_from_slice(text.as_bytes());
    seal(file);
}

fn options(outline_chunks: usize, row_group_rows: usize) -> WriteOptions {
    WriteOptions {
        row_group_rows,
        shredding: all_shredded(),
        keywords: segments(20),
        shapes: shapes(),
        outline_chunks,
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
fn an_outline_says_what_the_footer_says() {
    for (number, row_group_rows) in [1, 3, 16, 1_000].into_iter().enumerate() {
        let entities = [hostile_entities(30), some_entities(10)].concat();
        for shredding in [all_shredded(), nothing_shredded()] {
            let options = |chunks| WriteOptions { shredding, threads: 1 + number, ..options(chunks, row_group_rows) };
            let (with, without) = (File::written(&entities, &options(0)), File::written(&entities, &options(NONE)));
            assert!(with.outline().is_some() && without.outline().is_none());
            let (one, documents) = with.read(&with.bytes).expect("read");
            let (other, others) = without.read(&without.bytes).expect("read");
            assert!(documents == entities && others == entities, "{row_group_rows} rows");
            // The order in which threads write says nothing of where things lie.
            assert_eq!(said(&with.bench, &one), said(&without.bench, &other));
            assert_eq!(columns(&with.bench, &one), columns(&without.bench, &other));
            for (file, reader) in [(&with, &one), (&without, &other)] {
                let verified = async {
                    reader.verify_end().await?;
                    verify(reader, &mut Unbounded).await
                };
                file.bench.runtime.block_on(verified).expect("the outline is that of the footer");
            }
            // Other programs see no difference.
            let [rows, rows_without] = [&with, &without].map(|file| {
                let reader = ParquetRecordBatchReaderBuilder::try_new(file.bytes.clone()).expect("Parquet").build();
                reader.expect("a reader").collect::<Result<Vec<_>, _>>().expect("batches")
            });
            assert_eq!(rows, rows_without);
        }
    }
}

#[test]
fn an_empty_version_needs_none() {
    let file = File::written(&[], &options(0, 16));
    let (reader, documents) = file.read(&file.bytes).expect("read");
    assert!(documents.is_empty() && reader.row_groups().is_empty());
    file.bench.runtime.block_on(reader.verify_end()).expect("sound");
}

#[test]
fn damaged_outline_or_footer_costs_no_answer() {
    let entities = some_entities(60);
    let file = File::written(&entities, &options(0, 7));
    let outline = file.outline().expect("an outline");
    let trailer = file.bytes.len() - 8;
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&file.bytes).expect("a footer");
    let documents = metadata.row_groups()[0].column(0).data_page_offset();
    let noticed = |bytes: &[u8], what: &str| {
        let (reader, documents) = file.read(bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(documents == entities, "{what}");
        let found = [
            file.bench.runtime.block_on(reader.verify_end()),
            file.bench.runtime.block_on(reader.verify_checksums(&mut Unbounded)),
        ];
        assert!(found.iter().all(|found| found.as_ref().is_err_and(StorageError::is_damage)), "{what}: {found:?}");
    };
    for at in outline.clone().step_by(101).chain([outline.start, outline.end - 1]) {
        let mut bytes = file.bytes.to_vec();
        bytes[at] ^= 1 << (at % 8);
        noticed(&bytes, &format!("byte {at} of the outline {outline:?}"));
    }
    // The page indexes, and the footer up to the seal.
    let (place, _) = place(&file.bytes).expect("a place");
    for at in (outline.end..place - 48).step_by(307) {
        let mut bytes = file.bytes.to_vec();
        bytes[at] ^= 1 << (at % 8);
        noticed(&bytes, &format!("byte {at} of the footer"));
    }
    // What tells where the outline lies, and what follows, is compared with the seal.
    for at in (place - 37..trailer).step_by(5).chain(trailer..file.bytes.len()) {
        let mut bytes = file.bytes.to_vec();
        bytes[at] ^= 1 << (at % 8);
        let read = file.read(&bytes);
        // The seal itself is not needed then.
        assert!((at < place && read.is_ok()) || read.is_err_and(|error| error.is_damage()) || at >= place + 44, "{at}");
    }
    // Documents are something else.
    let mut bytes = file.bytes.to_vec();
    bytes[documents as usize + 30] ^= 1;
    assert!(file.read(&bytes).is_err_and(|error| error.is_damage()));
}

#[test]
fn outline_of_another_file_is_refused_or_found() {
    let entities = some_entities(40);
    let file = File::written(&entities, &options(0, 7));
    let outline = file.outline().expect("an outline");
    let told = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = file.bytes.to_vec();
        change(&mut bytes[outline.clone()]);
        tell_outline(&mut bytes);
        file.read(&bytes)
    };
    // As it is.
    let (reader, documents) = told(&|_| {}).expect("read");
    assert!(documents == entities);
    file.bench.runtime.block_on(reader.verify_end()).expect("sound");
    // Of another format: this reader decodes the footer.
    let (reader, documents) = told(&|outline| outline[0] = 2).expect("read");
    assert!(documents == entities);
    file.bench.runtime.block_on(reader.verify_checksums(&mut Unbounded)).expect("sound");
    // Any byte of it: an error, or the right documents, and no panic.
    let mut refused = 0;
    for at in (0..outline.len()).step_by(29).chain(0..200) {
        match told(&|outline| outline[at] = outline[at].wrapping_add([1, 0x80, 0xFF][at % 3])) {
            Ok((reader, documents)) => {
                assert!(documents == entities, "byte {at}");
                let is_found = file.bench.runtime.block_on(reader.verify_end()).is_err();
                assert!(is_found || at < 4, "byte {at}");
            }
            Err(error) => {
                assert!(error.is_damage(), "byte {at}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
}

#[test]
fn opening_fetches_the_outline_and_not_the_footer() {
    let directory = tempfile::tempdir().expect("a directory");
    let (bench, store) = (Bench::new(), opened(&directory.path().to_string_lossy()));
    let entities = some_entities(2_400);
    let written = [0, NONE].map(|chunks| bench.write(&store, &entities, &options(chunks, 4)).expect("written"));
    let costs = written.map(|(path, written)| {
        let metrics = Arc::new(ReaderMetrics::default());
        let cache = PartCache::new(1 << 30).observed(metrics.clone());
        bench.runtime.block_on(async {
            let reader = VersionReader::open(&store, &path, written.size_bytes, &cache).await.expect("opened");
            let opened = (metrics.requests(), metrics.bytes());
            let last = reader.row_groups().len() - 1;
            assert_eq!(reader.documents(last, 0).await.expect("a page").len(), 4);
            assert_eq!(metrics.requests(), opened.0 + 1);
            let footer = cache.get(&strata_format::parts::PartKey::Footer(path.as_ref().into())).await;
            (opened, footer.expect("the footer is cached").memory_bytes() as u64)
        })
    });
    let [((requests, bytes), held), ((requests_without, bytes_without), held_without)] = costs;
    assert_eq!((requests, requests_without), (2, 2));
    assert!(bytes * 2 < bytes_without, "{bytes} and {bytes_without} bytes");
    // The tables are held, and nothing else of what was fetched.
    assert!(held.abs_diff(held_without) * 50 < held, "{held} and {held_without} bytes held");
    assert!(held < bytes, "{held} bytes held of {bytes}");
}
