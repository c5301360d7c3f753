//! Entities in, one Parquet object out: the second pass of a write.
//!
//! Steps: cut the spooled documents into row groups; shred and encode each on one of `threads` workers; put the
//! encoded row groups into the file in order, each with its shapes; add their search texts to the keyword index on a
//! thread of its own, and put each segment of it behind a row group; send the bytes to the object store as they come.
//! Memory is a few row groups with their shapes, a segment ([`SegmentLimits::memory_bytes`]) and upload parts, whatever
//! the size of the version.

mod options;
mod properties;
mod row_group;
mod sink;

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use arrow::array::BinaryArray;
use object_store::path::Path as ObjectPath;
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory};
use parquet::file::metadata::KeyValue;
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::writer::SerializedFileWriter;
use tokio::runtime::Handle;

pub use self::options::{DOCUMENT_PAGE_BYTES, OUTLINE_CHUNKS, ROW_GROUP_BYTES, ROW_GROUP_ROWS, WriteOptions};
use self::properties::properties;
pub(super) use self::row_group::is_full_row_group;
use strata_store::checksums::{CHECKSUMS_KEY, SEAL_KEY, Seal, checksum};
use strata_store::store::Store;
use strata_store::{Result, StorageError};

use self::row_group::{Collects, RowGroup, encode_row_group, encode_row_groups, next_row_group};
use self::sink::{Passing, Sink, lock};
use super::keywords::indexing::{IndexedRowGroups, Indexer};
use super::keywords::segment::SegmentLimits;
use super::keywords::stored::{KEYWORDS_KEY, KeywordIndex};
use super::layout::{FORMAT_VERSION, Layout, METADATA_KEY, json_text};
use super::outline::builder::OutlineBuilder;
use super::outline::{OutlinePlace, Texts};
use super::overlay::{BaseFile, Edit, Extent};
use super::profile::{PROFILE_KEY, ProfileLocation};
use super::shapes::stored::{SHAPES_KEY, ShapeIndex, StoredShapes};
use super::shred::Shredder;
use super::spool::{Lines, Spooled};

/// The segment that ends with a row group is put into the file behind this many more, so that its making overlaps with
/// their encoding. Where a segment lies does not depend on how fast threads are.
const INDEX_LAG: usize = 2;

/// A version file that is written, durable, and not yet in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub size_bytes: u64,
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
) -> Result<Written> {
    let profile = &spooled.profile;
    let choice = profile.choose_shredded(&options.shredding, &options.index);
    let told = profile.describe(&choice, &options.index).encode(profile.columns().as_ref())?;
    let layout = Layout {
        format_version: FORMAT_VERSION,
        entity_count: profile.entities,
        document_bytes: profile.document_bytes,
        content_sha256: spooled.content_sha256.clone(),
        index: options.index.clone(),
        shredded_columns: choice.shredded_columns,
        edit: None,
    };
    write_file(store, path, FileContent { layout: &layout, profile: &told, spooled }, options, runtime, progress)
}

#[derive(Clone, Debug)]
pub struct EditedList {
    pub base: BaseFile,
    pub extents: Vec<Extent>,
    /// What the base says of its columns, some of which may be retired.
    pub layout: Layout,
    pub document_bytes: u64,
}

/// Writes the file of an edited list, whose own entities are spooled, to `path`. Blocks, as [`write_version`].
pub fn write_edited(
    store: &Store,
    path: &ObjectPath,
    spooled: Spooled,
    list: &EditedList,
    told: &[u8],
    options: &WriteOptions,
    runtime: &Handle,
) -> Result<Written> {
    let own_sha256 = spooled.content_sha256.clone();
    let edit = Edit { base: list.base.clone(), own_sha256, extents: list.extents.clone() };
    let layout = Layout {
        format_version: FORMAT_VERSION,
        entity_count: edit.entity_count(),
        document_bytes: list.document_bytes,
        content_sha256: edit.content_sha256(),
        edit: Some(edit),
        ..list.layout.clone()
    };
    write_file(store, path, FileContent { layout: &layout, profile: told, spooled }, options, runtime, &|_| {})
}

struct FileContent<'a> {
    layout: &'a Layout,
    profile: &'a [u8],
    spooled: Spooled,
}

fn write_file(
    store: &Store,
    path: &ObjectPath,
    content: FileContent<'_>,
    options: &WriteOptions,
    runtime: &Handle,
    progress: &dyn Fn(u64),
) -> Result<Written> {
    let entity_count = content.layout.entity_count;
    let content_sha256 = content.layout.content_sha256.clone();
    let (sink, upload) = Sink::start(store.clone(), path.clone(), runtime);
    let encoded = encode(content, options, sink, progress).and_then(Sink::finish);
    // A sink that was dropped unfinished has ended the upload without making the object. Where the upload ended
    // first, its error is the cause of the other.
    let uploaded = runtime.block_on(upload).map_err(StorageError::of_task)?;
    let size_bytes = match (encoded, uploaded) {
        (Ok(size_bytes), Ok(())) => size_bytes,
        (Err(error), Ok(()) | Err(StorageError::Worker)) => return Err(error),
        (_, Err(cause)) => return Err(cause),
    };
    // In a task: work on the disk is done by threads of the runtime, which must not be begun by this one, that gives
    // way.
    let store = store.clone();
    let path = path.clone();
    let persisting = runtime.spawn(async move { store.persist(&path).await });
    runtime.block_on(persisting).map_err(StorageError::of_task)??;
    Ok(Written { size_bytes, entity_count, content_sha256 })
}

fn encode(content: FileContent<'_>, options: &WriteOptions, sink: Sink, progress: &dyn Fn(u64)) -> Result<Sink> {
    let FileContent { layout, profile, spooled } = content;
    let own_bytes = spooled.profile.document_bytes;
    let mut lines = spooled.into_lines();
    let schema = layout.schema();
    let parquet_schema = ArrowSchemaConverter::new().convert(&schema)?;
    let passing = sink.passing.clone();
    let file = SerializedFileWriter::new(sink, parquet_schema.root_schema_ptr(), Arc::new(properties(layout)?))?;
    let factory = ArrowRowGroupWriterFactory::new(&file, schema);
    let outline = Some(OutlineBuilder::new(file.schema_descr().num_columns()));
    let index = KeywordIndex::default();
    let shapes = ShapeIndex::default();
    let mut writer = FileWriter { file, passing, index, shapes, outline, entities: 0, progress };
    let collects = Collects {
        texts: own_bytes >= options.keywords.text_bytes,
        shapes: (layout.document_bytes >= options.shapes.document_bytes).then_some(options.shapes),
    };
    if own_bytes >= ROW_GROUP_BYTES as u64 || layout.own_entities() > options.row_group_rows as u64 {
        encode_on_threads(layout, &factory, &mut lines, options, collects, &mut writer)?;
    } else if let Some(documents) = next_row_group(&mut lines, options.row_group_rows)? {
        // A small version is not worth a thread.
        let mut shredder = Shredder::new(layout, collects.shapes);
        if let Some(texts) = writer.append(encode_row_group(&mut shredder, &factory, 0, &documents, collects.texts)?)? {
            let mut indexer = Indexer::new(options.keywords);
            writer.append_segment(indexer.add(&texts).or_else(|| indexer.end()))?;
        }
    }
    writer.finish(profile, layout, options.outline_chunks)
}

fn encode_on_threads(
    layout: &Layout,
    factory: &ArrowRowGroupWriterFactory,
    lines: &mut Lines,
    options: &WriteOptions,
    collects: Collects,
    writer: &mut FileWriter<'_>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for _ in 0..options.threads.max(1) {
            let (to_worker, jobs) = sync_channel(1);
            let (to_file, results) = sync_channel(1);
            let work = move || encode_row_groups(layout, factory, &jobs, &to_file, collects);
            match std::thread::Builder::new().spawn_scoped(scope, work) {
                Ok(_) => workers.push((to_worker, results)),
                Err(error) if workers.is_empty() => return Err(StorageError::Io(error)),
                // Those that there are do it, if more slowly.
                Err(_) => break,
            }
        }
        let indexing = if collects.texts { Indexing::start(scope, options.keywords) } else { None };
        let count = workers.len();
        let mut receive = |number: usize| -> Result<()> {
            let texts = writer.append(workers[number % count].1.recv().map_err(|_| StorageError::Worker)??)?;
            let Some(indexing) = &indexing else { return Ok(()) };
            indexing.texts.send(texts.ok_or(StorageError::Worker)?).map_err(|_| StorageError::Worker)?;
            if number >= INDEX_LAG {
                writer.append_segment(indexing.segments.recv().map_err(|_| StorageError::Worker)?)?;
            }
            Ok(())
        };
        let mut sent = 0;
        while let Some(documents) = next_row_group(lines, options.row_group_rows)? {
            if sent >= count {
                receive(sent - count)?;
            }
            workers[sent % count].0.send(documents).map_err(|_| StorageError::Worker)?;
            sent += 1;
        }
        (sent.saturating_sub(count)..sent).try_for_each(receive)?;
        let Some(Indexing { texts, segments }) = indexing else { return Ok(()) };
        drop(texts);
        // Those that lag behind, and the one that ends with the file.
        for _ in 0..sent.min(INDEX_LAG) + 1 {
            writer.append_segment(segments.recv().map_err(|_| StorageError::Worker)?)?;
        }
        Ok(())
    })
}

struct Indexing {
    texts: SyncSender<BinaryArray>,
    /// For each row group the segment that ends with it, if one does; then the one that ends with the file.
    segments: Receiver<Option<IndexedRowGroups>>,
}

impl Indexing {
    /// Starts the thread. `None` when there is no room for one: the file has no index then.
    fn start<'scope>(scope: &'scope std::thread::Scope<'scope, '_>, limits: SegmentLimits) -> Option<Indexing> {
        let (to_index, texts) = sync_channel::<BinaryArray>(1);
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

struct FileWriter<'a> {
    file: SerializedFileWriter<Sink>,
    passing: Arc<Mutex<Passing>>,
    index: KeywordIndex,
    shapes: ShapeIndex,
    outline: Option<OutlineBuilder>,
    entities: u64,
    progress: &'a dyn Fn(u64),
}

impl FileWriter<'_> {
    /// Appends a row group and its shapes. Gives its search texts.
    fn append(&mut self, row_group: RowGroup) -> Result<Option<BinaryArray>> {
        let (pages, blooms) = self.expect_parts(&row_group.columns)?;
        let mut writer = self.file.next_row_group()?;
        for chunk in row_group.columns {
            chunk.append_to_row_group(&mut writer)?;
        }
        writer.close()?;
        // All parts have passed then.
        self.file.flush()?;
        let checksums = lock(&self.passing).tally.end_row_group(&blooms);
        if let (Some(builder), Some(written)) = (&mut self.outline, self.file.flushed_row_groups().last())
            && let Err(error) = builder.push(written, &pages, &mut checksums.into_iter())
        {
            // Readers do without it.
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to build footer index; readers will use the Parquet footer"
            );
            self.outline = None;
        }
        let shapes = match row_group.shapes {
            Some(bytes) => {
                let start = self.append_bytes(&bytes)?;
                Some(StoredShapes { range: start..start + bytes.len() as u64, checksum: checksum(&bytes) })
            }
            None => None,
        };
        self.shapes.row_groups.push(shapes);
        self.entities += row_group.rows as u64;
        (self.progress)(self.entities);
        Ok(row_group.texts)
    }

    /// Announces the parts of the next row group. Gives its pages of documents, and the checksums of its bloom filters,
    /// which come after its chunks.
    fn expect_parts(&self, columns: &[ArrowColumnChunk]) -> Result<(Vec<PageLocation>, Vec<u32>)> {
        let mut at = self.file.bytes_written() as u64;
        let mut passing = lock(&self.passing);
        let mut expect = |length: i64| {
            let start = at;
            at += u64::try_from(length).unwrap_or_default();
            passing.tally.expect(start..at);
            start
        };
        let mut pages = Vec::new();
        let mut blooms = Vec::new();
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
                blooms.push(checksum(&bytes));
            }
        }
        Ok((pages, blooms))
    }

    fn append_segment(&mut self, segment: Option<IndexedRowGroups>) -> Result<()> {
        let Some(IndexedRowGroups { row_groups, segment }) = segment else { return Ok(()) };
        let offset = self.append_bytes(&segment.bytes)?;
        self.index.add(offset, row_groups, segment);
        Ok(())
    }

    /// Writes bytes that no column points to, so that other readers pass over them. Gives their offset.
    fn append_bytes(&mut self, bytes: &[u8]) -> Result<u64> {
        let offset = self.file.bytes_written() as u64;
        self.file.write_all(bytes)?;
        Ok(offset)
    }

    /// Writes what stands behind the row groups: the profile, the outline, and the footer with the checksums.
    fn finish(mut self, profile: &[u8], layout: &Layout, outline_chunks: usize) -> Result<Sink> {
        let location = ProfileLocation::new(self.append_bytes(profile)?, profile);
        let mut texts = Texts::from([(PROFILE_KEY.to_owned(), json_text(&location)?)]);
        if !self.index.is_empty() {
            texts.insert(KEYWORDS_KEY.to_owned(), self.index.encode()?);
        }
        if !self.shapes.is_empty() {
            texts.insert(SHAPES_KEY.to_owned(), self.shapes.encode()?);
        }
        for (key, text) in &texts {
            self.file.append_key_value_metadata(KeyValue::new(key.clone(), text.clone()));
        }
        // It is among the properties of the file.
        texts.insert(METADATA_KEY.to_owned(), json_text(layout)?);
        let mut place = String::new();
        if let Some(outline) = self.outline.take().filter(|outline| outline.chunk_count() >= outline_chunks) {
            let bytes = outline.finish(&texts)?;
            let offset = self.append_bytes(&bytes)?;
            place = OutlinePlace::new(offset, &bytes).map_or(place, |place| place.text());
        }
        let checksums = lock(&self.passing).tally.text();
        self.file.append_key_value_metadata(KeyValue::new(CHECKSUMS_KEY.to_owned(), checksums));
        // What comes from here on is held until it is sealed.
        self.file.flush()?;
        let seal = Seal::unset(self.file.bytes_written() as u64) + &place;
        lock(&self.passing).held = true;
        self.file.append_key_value_metadata(KeyValue::new(SEAL_KEY.to_owned(), seal));
        Ok(self.file.into_inner()?)
    }
}
