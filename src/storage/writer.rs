//! Entities in, one Parquet object out: the second pass of a write.
//!
//! Steps: cut the spooled documents into row groups; shred and encode each on one of `threads` workers; put the
//! encoded row groups into the file in order, each with its shapes; add their search texts to the keyword index on a
//! thread of its own, and put each segment of it behind a row group; send the bytes to the object store as they come.
//! Memory is a few row groups with their shapes, a segment ([`SegmentLimits::memory_bytes`]) and upload parts, whatever
//! the size of the version.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{Array, AsArray, StringArray};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use bytes::Bytes;
use futures::stream::{FuturesUnordered, TryStreamExt};
use object_store::path::Path as ObjectPath;
use object_store::{MultipartUpload, ObjectStoreExt};
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::StorageError;
use super::checksums::{self, CHECKSUMS_KEY, SEAL_KEY, Seal, Tally};
use super::edit::{BaseFile, EDITED_FORMAT_VERSION, Edit, Piece};
use super::keywords::indexing::{IndexedRowGroups, Indexer, SearchTexts};
use super::keywords::segment::SegmentLimits;
use super::keywords::stored::{KEYWORDS_KEY, KeywordIndex};
use super::layout::{DOCUMENT, FORMAT_VERSION, HASH, Layout, METADATA_KEY, SEARCH, ShreddedPart};
use super::outline::builder::OutlineBuilder;
use super::outline::{OutlinePlace, Texts};
use super::profile::{DISTINCT, PROFILE_KEY, ProfileLocation, ShreddingBounds};
use super::shapes::builder::ShapeLimits;
use super::shapes::stored::{SHAPES_KEY, ShapeIndex, StoredShapes};
use super::shred::Shredder;
use super::spool::{Lines, Spooled};
use super::store::Store;
use crate::model::index::IndexSettings;

/// Most entities of a row group: what one unit of work of a query covers.
pub const ROW_GROUP_ROWS: usize = 32_768;

/// A row group ends with the entity that takes its documents to this many bytes.
pub const ROW_GROUP_BYTES: usize = 32 << 20;

/// A page of documents ends with the entity that takes it to this many bytes, so any offset costs the same.
pub const DOCUMENT_PAGE_BYTES: usize = 128 << 10;

/// A page of another column ends at so many bytes. What is compressed at once then stays in the cache of a processor,
/// in memory that is used again: search texts take a quarter less time to write than in pages of 1 MiB, and 2 % more
/// bytes.
const PAGE_BYTES: usize = 128 << 10;

/// Rows shredded and encoded at a time.
const BATCH_ROWS: usize = 2_048;

/// Bytes of a text's minimum and maximum in the statistics of a column. Longer ones are cut to bounds of them.
const STATISTICS_BYTES: usize = 32;

const UPLOAD_PART_BYTES: usize = 8 << 20;

/// Upload parts in flight at once.
const UPLOADS: usize = 3;

/// Fewest column chunks of a file with an outline: what a reader decodes of fewer is no more than it fetches anyway.
pub const OUTLINE_CHUNKS: usize = 1_024;

/// The segment that ends with a row group is put into the file behind this many more, so that its making overlaps with
/// their encoding. Where a segment lies does not depend on how fast threads are.
const INDEX_LAG: usize = 2;

/// How a version is written.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// Workers that shred and encode.
    pub threads: usize,
    /// Which paths get a shredded column by themselves.
    pub shredding: ShreddingBounds,
    /// Which paths do and do not get one whatever these are.
    pub index: IndexSettings,
    /// Most entities of a row group, [`ROW_GROUP_ROWS`] but in tests.
    pub row_group_rows: usize,
    /// Bounds of the keyword index, the default but in tests.
    pub keywords: SegmentLimits,
    /// Bounds of shapes, the default but in tests.
    pub shapes: ShapeLimits,
    /// Fewest column chunks of a file with an outline, [`OUTLINE_CHUNKS`] but in tests.
    pub outline_chunks: usize,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions {
            threads: 1,
            shredding: ShreddingBounds::default(),
            index: IndexSettings::default(),
            row_group_rows: ROW_GROUP_ROWS,
            keywords: SegmentLimits::default(),
            shapes: ShapeLimits::default(),
            outline_chunks: OUTLINE_CHUNKS,
        }
    }
}

/// A version file that is written, durable, and not yet in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the object.
    pub size_bytes: u64,
    /// Entities in it.
    pub entity_count: u64,
    /// Hex SHA-256 of the documents ([`Layout::content_sha256`]).
    pub content_sha256: String,
}

/// Writes a spooled version to `path`. Blocks; call it from a thread that may, with the runtime's handle.
/// `progress` is told the number of entities encoded so far.
///
/// # Errors
/// When a document column passes Arrow's bounds, or the disk or store fails; nothing is at `path` then.
pub fn write_version(
    store: &Store,
    path: &ObjectPath,
    spooled: Spooled,
    options: &WriteOptions,
    runtime: &Handle,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Written, StorageError> {
    let profile = spooled.profile();
    let choice = profile.choose_shredded(&options.shredding, &options.index);
    let told = profile.describe(&choice, &options.index).encode(profile.columns().as_ref())?;
    let layout = Arc::new(Layout {
        format_version: FORMAT_VERSION,
        entity_count: profile.entities(),
        document_bytes: profile.document_bytes(),
        content_sha256: spooled.content_sha256().to_owned(),
        index: options.index.clone(),
        checksums: true,
        shredded_columns: choice.shredded_columns,
        edit: None,
    });
    let own_bytes = layout.document_bytes;
    write_file(store, path, &layout, (&told, spooled.into_lines(), own_bytes), options, runtime, progress)
}

/// What makes an edited list, beside the own entities of its file.
#[derive(Clone, Debug)]
pub struct EditedList {
    /// The file that the other entities lie in.
    pub base: BaseFile,
    /// The list, in order.
    pub pieces: Vec<Piece>,
    /// What the base says of its columns, some of which may be retired.
    pub layout: Layout,
    /// Bytes of the documents of the list.
    pub document_bytes: u64,
}

/// Writes the file of an edited list, whose own entities are spooled, to `path`. Blocks, as [`write_version`].
///
/// # Errors
/// As [`write_version`].
pub fn write_edited(
    store: &Store,
    path: &ObjectPath,
    spooled: Spooled,
    list: &EditedList,
    told: &[u8],
    options: &WriteOptions,
    runtime: &Handle,
) -> Result<Written, StorageError> {
    let own_sha256 = spooled.content_sha256().to_owned();
    let edit = Edit { base: list.base.clone(), own_sha256, pieces: list.pieces.clone() };
    let layout = Arc::new(Layout {
        format_version: EDITED_FORMAT_VERSION,
        entity_count: edit.entity_count(),
        document_bytes: list.document_bytes,
        content_sha256: edit.content_sha256(),
        edit: Some(edit),
        ..list.layout.clone()
    });
    let own_bytes = spooled.profile().document_bytes();
    write_file(store, path, &layout, (told, spooled.into_lines(), own_bytes), options, runtime, &|_| {})
}

/// Writes entities of so many bytes, with their profile, to `path`.
fn write_file(
    store: &Store,
    path: &ObjectPath,
    layout: &Arc<Layout>,
    content: (&[u8], Lines, u64),
    options: &WriteOptions,
    runtime: &Handle,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Written, StorageError> {
    let (sink, upload) = Sink::start(store.clone(), path.clone(), runtime);
    let encoded = encode(layout, content, options, sink, progress).and_then(Sink::finish);
    // A sink that was dropped unfinished has ended the upload without making the object. Where the upload ended
    // first, its error is the cause of the other.
    let uploaded = runtime.block_on(upload).map_err(StorageError::of_task)?;
    let size_bytes = match (encoded, uploaded) {
        (Ok(size_bytes), Ok(())) => size_bytes,
        (Ok(_), Err(cause)) => return Err(cause),
        (Err(error), Ok(()) | Err(StorageError::Worker)) => return Err(error),
        (Err(_), Err(cause)) => return Err(cause),
    };
    // In a task: work on the disk is done by threads of the runtime, which must not be begun by this one, that gives
    // way.
    let (store, path) = (store.clone(), path.clone());
    let persisting = runtime.spawn(async move { store.persist(&path).await });
    runtime.block_on(persisting).map_err(StorageError::of_task)??;
    Ok(Written { size_bytes, entity_count: layout.entity_count, content_sha256: layout.content_sha256.clone() })
}

fn encode(
    layout: &Arc<Layout>,
    (told, mut lines, own_bytes): (&[u8], Lines, u64),
    options: &WriteOptions,
    sink: Sink,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Sink, StorageError> {
    let schema = layout.schema();
    let parquet_schema = ArrowSchemaConverter::new().convert(&schema)?;
    let properties = Arc::new(properties(layout)?);
    let passing = sink.passing.clone();
    let mut file = SerializedFileWriter::new(sink, parquet_schema.root_schema_ptr(), properties)?;
    let factory = ArrowRowGroupWriterFactory::new(&file, schema);
    let collects = Collects {
        texts: own_bytes >= options.keywords.text_bytes,
        shapes: (layout.document_bytes >= options.shapes.document_bytes).then_some(options.shapes),
    };
    let indexes = collects.texts;
    let mut index = KeywordIndex::default();
    let mut shapes = ShapeIndex::default();
    let mut outline = Some(OutlineBuilder::new(file.schema_descr().num_columns(), true));
    let mut entities = 0;
    let mut append = |row_group: RowGroup, file: &mut SerializedFileWriter<Sink>| -> Result<(), StorageError> {
        let (pages, blooms) = expect_parts(&mut lock(&passing).tally, file.bytes_written() as u64, &row_group.columns)?;
        let mut writer = file.next_row_group()?;
        for chunk in row_group.columns {
            chunk.append_to_row_group(&mut writer)?;
        }
        writer.close()?;
        // All parts have passed then.
        file.flush()?;
        let checksums = lock(&passing).tally.end_row_group(&blooms);
        if let (Some(builder), Some(written)) = (&mut outline, file.flushed_row_groups().last())
            && let Err(error) = builder.push(written, &pages, &mut checksums.into_iter())
        {
            // Readers do without it.
            tracing::warn!(error = &error as &dyn std::error::Error, "a version file gets no outline");
            outline = None;
        }
        shapes.add(match row_group.shapes {
            Some(bytes) => Some(append_shapes(&bytes, file)?),
            None => None,
        });
        entities += row_group.rows;
        progress(entities as u64);
        Ok(())
    };
    if own_bytes < ROW_GROUP_BYTES as u64 && layout.own_entities() <= options.row_group_rows as u64 {
        // A small version is not worth a thread.
        if let Some(documents) = next_row_group(&mut lines, options.row_group_rows)? {
            let mut shredder = Shredder::new(layout, collects.shapes);
            let mut row_group = encode_row_group(&mut shredder, &factory, 0, &documents, indexes)?;
            let texts = row_group.texts.take();
            append(row_group, &mut file)?;
            if let Some(texts) = texts {
                let mut indexer = Indexer::new(options.keywords);
                let segment = indexer.add(&texts).or_else(|| indexer.end());
                append_segment(segment, &mut file, &mut index)?;
            }
        }
        let outline = outline.filter(|outline| outline.chunk_count() >= options.outline_chunks);
        return finish(file, told, layout, &index, &shapes, outline, &passing);
    }
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for _ in 0..options.threads.max(1) {
            let (to_worker, jobs) = sync_channel(1);
            let (to_file, results) = sync_channel(1);
            let factory = &factory;
            let work = move || encode_row_groups(layout, factory, &jobs, &to_file, collects);
            match std::thread::Builder::new().spawn_scoped(scope, work) {
                Ok(_) => workers.push((to_worker, results)),
                Err(error) if workers.is_empty() => return Err(StorageError::Io(error)),
                // Those that there are do it, if more slowly.
                Err(_) => break,
            }
        }
        let indexing = if indexes { Indexing::start(scope, options.keywords) } else { None };
        let count = workers.len();
        let mut sent = 0;
        let mut received = 0;
        let mut receive = |number: usize, file: &mut SerializedFileWriter<Sink>| -> Result<(), StorageError> {
            let mut row_group = workers[number % count].1.recv().map_err(|_| StorageError::Worker)??;
            let texts = row_group.texts.take();
            append(row_group, file)?;
            let Some(indexing) = &indexing else { return Ok(()) };
            indexing.texts.send(texts.unwrap_or_default()).map_err(|_| StorageError::Worker)?;
            if number >= INDEX_LAG {
                append_segment(indexing.segments.recv().map_err(|_| StorageError::Worker)?, file, &mut index)?;
            }
            Ok(())
        };
        while let Some(documents) = next_row_group(&mut lines, options.row_group_rows)? {
            if sent >= count {
                receive(received, &mut file)?;
                received += 1;
            }
            workers[sent % count].0.send(documents).map_err(|_| StorageError::Worker)?;
            sent += 1;
        }
        while received < sent {
            receive(received, &mut file)?;
            received += 1;
        }
        let Some(Indexing { texts, segments }) = indexing else { return Ok(()) };
        drop(texts);
        // Those that lag behind, and the one that ends with the file.
        for _ in 0..sent.min(INDEX_LAG) + 1 {
            append_segment(segments.recv().map_err(|_| StorageError::Worker)?, &mut file, &mut index)?;
        }
        Ok::<(), StorageError>(())
    })?;
    let outline = outline.filter(|outline| outline.chunk_count() >= options.outline_chunks);
    finish(file, told, layout, &index, &shapes, outline, &passing)
}

/// What is collected beside the columns.
#[derive(Clone, Copy)]
struct Collects {
    /// Search texts, for the keyword index.
    texts: bool,
    /// Shapes, within these limits.
    shapes: Option<ShapeLimits>,
}

/// The thread that makes the keyword index.
struct Indexing {
    /// Takes the search texts of each row group.
    texts: SyncSender<SearchTexts>,
    /// For each row group the segment that ends with it, if one does; then the one that ends with the file.
    segments: Receiver<Option<IndexedRowGroups>>,
}

impl Indexing {
    /// Starts the thread. `None` when there is no room for one: the file has no index then.
    fn start<'scope>(scope: &'scope std::thread::Scope<'scope, '_>, limits: SegmentLimits) -> Option<Indexing> {
        let (to_index, texts) = sync_channel::<SearchTexts>(1);
        // It never waits for who takes them.
        let (to_file, segments) = sync_channel(INDEX_LAG + 1);
        let work = move || {
            let mut indexer = Indexer::new(limits);
            for texts in texts {
                if to_file.send(indexer.add(&texts)).is_err() {
                    return;
                }
            }
            // Whoever waits for it has gone when that fails.
            let _ = to_file.send(indexer.end());
        };
        std::thread::Builder::new().spawn_scoped(scope, work).ok()?;
        Some(Indexing { texts: to_index, segments })
    }
}

/// Puts a segment into the file, if there is one.
fn append_segment(
    segment: Option<IndexedRowGroups>,
    file: &mut SerializedFileWriter<Sink>,
    index: &mut KeywordIndex,
) -> Result<(), StorageError> {
    let Some(IndexedRowGroups { row_groups, mut segment }) = segment else { return Ok(()) };
    let offset = file.bytes_written() as u64;
    // Other readers pass over what no column points to.
    file.write_all(&std::mem::take(&mut segment.bytes))?;
    index.add(offset, row_groups, segment);
    Ok(())
}

/// Puts the shapes of a row group into the file.
fn append_shapes(bytes: &[u8], file: &mut SerializedFileWriter<Sink>) -> Result<StoredShapes, StorageError> {
    let start = file.bytes_written() as u64;
    // Other readers pass over what no column points to.
    file.write_all(bytes)?;
    Ok(StoredShapes { range: start..start + bytes.len() as u64, checksum: checksums::checksum(bytes) })
}

/// Writes what stands behind the row groups: the profile, the outline, and the footer with the checksums.
fn finish(
    mut file: SerializedFileWriter<Sink>,
    told: &[u8],
    layout: &Layout,
    index: &KeywordIndex,
    shapes: &ShapeIndex,
    outline: Option<OutlineBuilder>,
    passing: &Mutex<Passing>,
) -> Result<Sink, StorageError> {
    // Other readers pass over what no column points to.
    let location = ProfileLocation::of(file.bytes_written() as u64, told);
    file.write_all(told)?;
    let location = serde_json::to_string(&location).map_err(|error| StorageError::Layout(error.to_string()))?;
    let mut texts = Texts::from([(PROFILE_KEY.to_owned(), location)]);
    if !index.is_empty() {
        texts.insert(KEYWORDS_KEY.to_owned(), index.encode()?);
    }
    if !shapes.is_empty() {
        texts.insert(SHAPES_KEY.to_owned(), shapes.encode()?);
    }
    for (key, text) in &texts {
        file.append_key_value_metadata(KeyValue::new(key.clone(), text.clone()));
    }
    // It is among the properties of the file.
    texts.insert(METADATA_KEY.to_owned(), metadata_text(layout)?);
    let place = match outline {
        Some(outline) => append_outline(&outline.finish(&texts)?, &mut file)?,
        None => None,
    };
    file.append_key_value_metadata(KeyValue::new(CHECKSUMS_KEY.to_owned(), lock(passing).tally.text()));
    // What comes from here on is held until it is sealed.
    file.flush()?;
    let start = file.bytes_written() as u64;
    lock(passing).held = true;
    let place = place.map_or_else(String::new, |place| place.text());
    file.append_key_value_metadata(KeyValue::new(SEAL_KEY.to_owned(), Seal::unset(start) + &place));
    Ok(file.into_inner()?)
}

/// Puts the outline into the file.
fn append_outline(bytes: &[u8], file: &mut SerializedFileWriter<Sink>) -> Result<Option<OutlinePlace>, StorageError> {
    let place = OutlinePlace::of(file.bytes_written() as u64, bytes);
    // Other readers pass over what no column points to.
    file.write_all(bytes)?;
    Ok(place)
}

/// Announces the parts of a row group that begins at an offset. Gives its pages of documents, and the checksums of its
/// bloom filters, which come after its chunks.
fn expect_parts(
    tally: &mut Tally,
    start: u64,
    columns: &[ArrowColumnChunk],
) -> Result<(Vec<PageLocation>, Vec<u32>), StorageError> {
    let mut at = start;
    let mut expect = |length: i64| {
        let start = at;
        at += u64::try_from(length).unwrap_or_default();
        tally.expect(start..at);
        start
    };
    let (mut pages, mut blooms) = (Vec::new(), Vec::new());
    for (number, column) in columns.iter().enumerate() {
        let close = column.close();
        match (&close.offset_index, number) {
            // The documents come first, and are read by page.
            (Some(index), 0) => {
                for page in index.page_locations() {
                    let offset = expect(page.compressed_page_size.into());
                    pages.push(PageLocation { offset: offset.cast_signed(), ..page.clone() });
                }
            }
            _ => _ = expect(close.metadata.compressed_size()),
        }
        if let Some(bloom) = &close.bloom_filter {
            let mut bytes = Vec::new();
            bloom.write(&mut bytes)?;
            blooms.push(checksums::checksum(&bytes));
        }
    }
    Ok((pages, blooms))
}

/// Whether a row group of so many entities, and bytes of them, takes no more.
pub(super) fn is_full_row_group(rows: usize, bytes: usize, most_rows: usize) -> bool {
    rows >= most_rows || bytes >= ROW_GROUP_BYTES
}

/// The next documents, up to the bounds of a row group.
fn next_row_group(lines: &mut Lines, rows: usize) -> Result<Option<StringArray>, StorageError> {
    let mut text = Vec::with_capacity(ROW_GROUP_BYTES + (ROW_GROUP_BYTES >> 4));
    let mut offsets = vec![0];
    while !is_full_row_group(offsets.len() - 1, text.len(), rows) {
        if lines.next_into(&mut text)?.is_none() {
            break;
        }
        let end = i32::try_from(text.len()).map_err(|_| arrow::error::ArrowError::OffsetOverflowError(text.len()))?;
        offsets.push(end);
    }
    if offsets.len() == 1 {
        return Ok(None);
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(Some(StringArray::try_new(offsets, Buffer::from_vec(text), None)?))
}

/// One encoded row group.
struct RowGroup {
    rows: usize,
    columns: Vec<ArrowColumnChunk>,
    /// For the keyword index, where there is to be one.
    texts: Option<SearchTexts>,
    /// As they are stored, where there are any.
    shapes: Option<Vec<u8>>,
}

/// A worker: row groups of documents in, encoded row groups out, until either side is gone.
fn encode_row_groups(
    layout: &Layout,
    factory: &ArrowRowGroupWriterFactory,
    jobs: &Receiver<StringArray>,
    to_file: &SyncSender<Result<RowGroup, StorageError>>,
    collects: Collects,
) {
    let mut shredder = Shredder::new(layout, collects.shapes);
    for (number, documents) in jobs.iter().enumerate() {
        let row_group = encode_row_group(&mut shredder, factory, number, &documents, collects.texts);
        if to_file.send(row_group).is_err() {
            return;
        }
    }
}

fn encode_row_group(
    shredder: &mut Shredder,
    factory: &ArrowRowGroupWriterFactory,
    number: usize,
    documents: &StringArray,
    indexes: bool,
) -> Result<RowGroup, StorageError> {
    let offsets = documents.value_offsets();
    // The texts of a document take little more than it at most, and mostly less.
    let text_bytes = offsets.last().zip(offsets.first()).map_or(0, |(end, start)| (end - start) as usize);
    let mut texts = indexes.then(|| SearchTexts::with_capacity(documents.len(), text_bytes));
    let mut writers = factory.create_column_writers(number)?;
    let mut start = 0;
    while start < documents.len() {
        let length = batch_rows(documents, start);
        let batch = shredder.shred(&documents.slice(start, length))?;
        let mut columns = writers.iter_mut();
        for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
            for shredded in compute_leaves(field, array)? {
                columns.next().ok_or(StorageError::Worker)?.write(&shredded)?;
            }
        }
        if let (Some(texts), Some(search)) = (&mut texts, batch.column_by_name(SEARCH)) {
            texts.append(search.as_binary());
        }
        shredder.recycle(batch);
        start += length;
    }
    let columns = writers.into_iter().map(|writer| writer.close()).collect::<Result<_, _>>()?;
    Ok(RowGroup { rows: documents.len(), columns, texts, shapes: shredder.take_shapes() })
}

/// Rows from `start` that make the next batch: few enough that the page writer, which looks at sizes only
/// between batches of values, ends document pages in time.
fn batch_rows(documents: &StringArray, start: usize) -> usize {
    let offsets = documents.value_offsets();
    let limit = offsets[start] as usize + 4 * DOCUMENT_PAGE_BYTES;
    let rows = offsets[start + 1..].partition_point(|end| (*end as usize) < limit) + 1;
    rows.min(BATCH_ROWS).min(documents.len() - start)
}

/// The value under [`METADATA_KEY`].
fn metadata_text(layout: &Layout) -> Result<String, StorageError> {
    serde_json::to_string(layout).map_err(|error| StorageError::Layout(error.to_string()))
}

fn properties(layout: &Layout) -> Result<WriterProperties, StorageError> {
    let metadata = metadata_text(layout)?;
    let column = |name: &str| ColumnPath::new(vec![name.to_owned()]);
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("strata ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_key_value_metadata(Some(vec![KeyValue::new(METADATA_KEY.to_owned(), metadata)]))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_statistics_enabled(EnabledStatistics::None)
        // The minimum and the maximum of texts stand in the footer, which every reader holds.
        .set_statistics_truncate_length(Some(STATISTICS_BYTES))
        .set_dictionary_enabled(false)
        // Pages are cut by bytes; the default of 20,000 rows would cut narrow columns for nothing.
        .set_data_page_row_count_limit(ROW_GROUP_ROWS)
        .set_write_batch_size(32)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_column_data_page_size_limit(column(DOCUMENT), DOCUMENT_PAGE_BYTES)
        .set_column_encoding(column(DOCUMENT), Encoding::PLAIN)
        .set_column_compression(column(HASH), Compression::UNCOMPRESSED)
        .set_column_encoding(column(SEARCH), Encoding::PLAIN);
    for (number, shredded) in layout.shredded_columns.iter().enumerate() {
        for kind in ShreddedPart::ALL {
            let mut parts = vec![kind.name(number)];
            if shredded.fans_out {
                parts.extend(["list".to_owned(), "element".to_owned()]);
            }
            let path = ColumnPath::new(parts);
            match kind {
                ShreddedPart::Text => {
                    let distinct = if shredded.dictionary { DISTINCT } else { ROW_GROUP_ROWS };
                    builder = builder
                        .set_column_dictionary_enabled(path.clone(), shredded.dictionary)
                        .set_column_bloom_filter_enabled(path.clone(), true)
                        .set_column_bloom_filter_max_ndv(path.clone(), distinct as u64)
                        .set_column_statistics_enabled(path, EnabledStatistics::Chunk);
                }
                ShreddedPart::Kind => {
                    builder = builder
                        .set_column_dictionary_enabled(path.clone(), true)
                        .set_column_statistics_enabled(path, EnabledStatistics::Chunk);
                }
                ShreddedPart::Number => {
                    builder = builder
                        .set_column_dictionary_enabled(path.clone(), shredded.dictionary)
                        .set_column_statistics_enabled(path, EnabledStatistics::Chunk);
                }
                ShreddedPart::Exact => {
                    builder = builder
                        .set_column_dictionary_enabled(path.clone(), shredded.dictionary)
                        .set_column_statistics_enabled(path, EnabledStatistics::Chunk);
                }
                ShreddedPart::Remainder => {}
            }
        }
    }
    Ok(builder.build())
}

/// Where the file's bytes go: summed, collected into parts, sent to an upload task.
struct Sink {
    parts: mpsc::Sender<Part>,
    pending: Vec<u8>,
    size_bytes: u64,
    passing: Arc<Mutex<Passing>>,
}

/// What a sink and who writes to it share.
#[derive(Default)]
struct Passing {
    tally: Tally,
    /// Whether bytes are held, not sent: the file's end, until it is sealed.
    held: bool,
    end: Vec<u8>,
}

fn lock(passing: &Mutex<Passing>) -> MutexGuard<'_, Passing> {
    passing.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Part {
    More(Bytes),
    Last(Bytes),
}

impl Sink {
    /// Starts the upload on `runtime`. It makes the object only when the sink is finished.
    fn start(
        store: Store,
        path: ObjectPath,
        runtime: &Handle,
    ) -> (Sink, tokio::task::JoinHandle<Result<(), StorageError>>) {
        let (parts, receiver) = mpsc::channel(1);
        let upload = runtime.spawn(upload(store, path, receiver));
        (Sink { parts, pending: Vec::new(), size_bytes: 0, passing: Arc::default() }, upload)
    }

    fn send(&mut self, part: Part) -> std::io::Result<()> {
        // The receiver is gone only when the upload failed; its error is the one that is reported.
        self.parts.blocking_send(part).map_err(|_| std::io::Error::other("the upload ended early"))
    }

    fn finish(mut self) -> Result<u64, StorageError> {
        let mut end = std::mem::take(&mut lock(&self.passing).end);
        if !Seal::set(&mut end) {
            return Err(StorageError::Layout("its seal has no place".to_owned()));
        }
        self.pending.append(&mut end);
        let rest = std::mem::take(&mut self.pending);
        self.send(Part::Last(rest.into()))?;
        Ok(self.size_bytes)
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.size_bytes += bytes.len() as u64;
        {
            let mut passing = lock(&self.passing);
            if passing.held {
                passing.end.extend_from_slice(bytes);
                return Ok(bytes.len());
            }
            passing.tally.update(bytes);
        }
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= UPLOAD_PART_BYTES {
            let part = std::mem::take(&mut self.pending);
            self.send(Part::More(part.into()))?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn upload(store: Store, path: ObjectPath, mut parts: mpsc::Receiver<Part>) -> Result<(), StorageError> {
    // A directory that is not there is not made anew.
    store.verify().await?;
    let first = match parts.recv().await {
        // A small file is one request.
        Some(Part::Last(bytes)) => {
            store.objects().put(&path, bytes.into()).await?;
            return Ok(());
        }
        Some(Part::More(bytes)) => bytes,
        None => return Err(StorageError::Worker),
    };
    let mut multipart = store.objects().put_multipart(&path).await?;
    match upload_parts(&mut *multipart, first, parts).await {
        Ok(()) => Ok(()),
        Err(error) => {
            // What was sent so far would otherwise be kept, and paid for, without ever being an object.
            if let Err(error) = multipart.abort().await {
                tracing::warn!(%error, "the parts of a failed upload could not be removed");
            }
            Err(error)
        }
    }
}

/// Sends parts, a few at once, until the last one makes the object.
async fn upload_parts(
    multipart: &mut dyn MultipartUpload,
    first: Bytes,
    mut parts: mpsc::Receiver<Part>,
) -> Result<(), StorageError> {
    let mut sending = FuturesUnordered::new();
    sending.push(multipart.put_part(first.into()));
    loop {
        while sending.len() >= UPLOADS {
            sending.try_next().await?;
        }
        match parts.recv().await {
            Some(Part::More(bytes)) => sending.push(multipart.put_part(bytes.into())),
            Some(Part::Last(bytes)) => {
                sending.push(multipart.put_part(bytes.into()));
                while sending.try_next().await?.is_some() {}
                multipart.complete().await?;
                return Ok(());
            }
            None => return Err(StorageError::Worker),
        }
    }
}
