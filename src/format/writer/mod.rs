//! Writes spooled entities to a Parquet object: the second pass of a write.
//!
//! 1. Worker threads split the spooled documents into row groups, shred them, and encode them.
//! 2. The encoded row groups are written in order.
//! 3. The indexer thread collects the tokens of their full texts. In the end, the keyword index is written.
//! 4. The bytes are uploaded to the object store as they are written.
//!
//! The memory does not depend on the size of the version: a few row groups with their full texts, a run of the keyword
//! index ([`KeywordSegmentLimits::max_run_memory_bytes`](super::keywords::indexer::KeywordSegmentLimits)), and
//! upload parts.

mod buffer_pool;
mod options;
mod properties;
mod row_group;
mod sink;

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::ScopedJoinHandle;

use object_store::path::Path as ObjectPath;
use parking_lot::Mutex;
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory};
use parquet::file::metadata::KeyValue;
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::writer::SerializedFileWriter;
use tokio::runtime::Handle;

use self::buffer_pool::BufferPool;
pub use self::options::{
    DOCUMENT_PAGE_TARGET_BYTES, MAX_ROW_GROUP_ROWS, MIN_FOOTER_INDEX_CHUNKS, ROW_GROUP_TARGET_BYTES, WriteOptions,
};
use self::properties::writer_properties;
pub(super) use self::row_group::is_full_row_group;
use strata_store::checksums::{CHECKSUMS_KEY, FOOTER_CHECKSUM_KEY, FooterChecksum};
use strata_store::store::Store;
use strata_store::{Result, StorageError};

use self::row_group::{EncodedRowGroup, encode_row_group, read_row_group, run_encode_worker};
use self::sink::{SinkState, UploadSink};
use super::footer_index::builder::FooterIndexBuilder;
use super::footer_index::{FooterIndexLocation, FooterKeyValues};
use super::keywords::field_set::FieldTable;
use super::keywords::indexer::{KeywordIndexer, KeywordSegmentLimits, RowGroupText, UnwrittenSegment};
use super::keywords::segment_directory::{KEYWORDS_KEY, KeywordIndex};
use super::layout::{FORMAT_VERSION, FileLayout, LAYOUT_KEY, to_json_string};
use super::overlay::{BaseFile, Extent, Overlay};
use super::profile::{PROFILE_KEY, ProfileLocation};
use super::shredder::EntityShredder;
use super::spool::{FinishedSpool, SpoolReader};

/// A durable version file that is not yet recorded in the metadata database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenVersionFile {
    pub size_bytes: u64,
    pub entity_count: u64,
    pub content_sha256: String,
    /// The paths of the bases of a delta file.
    pub bases: Vec<String>,
}

/// Writes a spooled version to `path`. Blocks the thread. `progress` is called with the number of encoded entities.
pub fn write_version(
    store: &Store,
    path: &ObjectPath,
    spooled: FinishedSpool,
    options: &WriteOptions,
    runtime: &Handle,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<WrittenVersionFile> {
    let profile = &spooled.profile;
    let choice = profile.choose_shredded(&options.shredding_limits, &options.index_settings);
    let encoded_profile = profile.to_stored(&choice, &options.index_settings).encode(profile.columns().as_ref())?;
    let layout = FileLayout {
        format_version: FORMAT_VERSION,
        entity_count: profile.entities,
        document_bytes: profile.document_bytes,
        content_sha256: spooled.content_sha256.clone(),
        index: options.index_settings.clone(),
        shredded_columns: choice.shredded_columns,
        overlay: None,
    };
    let content = VersionFileContent { layout: &layout, profile: &encoded_profile, spooled };
    write_file(store, path, content, options, runtime, progress)
}

/// A delta version, without its new entities.
#[derive(Clone, Debug)]
pub struct DeltaFileSpec {
    pub bases: Vec<BaseFile>,
    pub extents: Vec<Extent>,
    /// The layout of the version, with the indexed columns of the bases.
    pub layout: FileLayout,
    pub document_bytes: u64,
    /// The digest of all documents; `None` for an edited list, whose documents are not read.
    pub content_sha256: Option<String>,
}

/// Writes the delta file of a version to `path`: the spooled new entities, in the order of their extents. Blocks the
/// thread.
pub fn write_delta(
    store: &Store,
    path: &ObjectPath,
    spooled: FinishedSpool,
    list: DeltaFileSpec,
    profile: &[u8],
    options: &WriteOptions,
    runtime: &Handle,
) -> Result<WrittenVersionFile> {
    let overlay = Overlay { bases: list.bases, own_sha256: spooled.content_sha256.clone(), extents: list.extents };
    let layout = FileLayout {
        format_version: FORMAT_VERSION,
        entity_count: overlay.entity_count(),
        document_bytes: list.document_bytes,
        content_sha256: list.content_sha256.unwrap_or_else(|| overlay.content_sha256()),
        overlay: Some(overlay),
        ..list.layout
    };
    // Without an index, each search would read all entities of the delta file.
    let keyword_limits =
        KeywordSegmentLimits { min_text_bytes: 0, max_text_percent: u64::MAX, ..options.keyword_limits };
    let options = WriteOptions { keyword_limits, ..options.clone() };
    write_file(store, path, VersionFileContent { layout: &layout, profile, spooled }, &options, runtime, &|_| {})
}

struct VersionFileContent<'a> {
    layout: &'a FileLayout,
    profile: &'a [u8],
    spooled: FinishedSpool,
}

fn write_file(
    store: &Store,
    path: &ObjectPath,
    content: VersionFileContent<'_>,
    options: &WriteOptions,
    runtime: &Handle,
    progress: &dyn Fn(u64),
) -> Result<WrittenVersionFile> {
    let entity_count = content.layout.entity_count;
    let content_sha256 = content.layout.content_sha256.clone();
    let bases =
        content.layout.overlay.iter().flat_map(|overlay| &overlay.bases).map(|base| base.path.clone()).collect();
    let (sink, upload) = UploadSink::start_upload(store.clone(), path.clone(), runtime);
    let encoded = encode_file(content, options, sink, progress).and_then(UploadSink::finish);
    // If encoding fails, dropping the sink ends the upload without an object. An upload error can be the cause.
    let uploaded = runtime.block_on(upload).map_err(StorageError::from_join_error)?;
    let size_bytes = match (encoded, uploaded) {
        (Ok(size_bytes), Ok(())) => size_bytes,
        (Err(error), Ok(()) | Err(StorageError::WorkerStopped)) => return Err(error),
        (_, Err(cause)) => return Err(cause),
    };
    // Syncs in a task, because a thread that the runtime starts from this thread would inherit its low priority.
    let store = store.clone();
    let path = path.clone();
    let syncing = runtime.spawn(async move { store.sync_object(&path).await });
    runtime.block_on(syncing).map_err(StorageError::from_join_error)??;
    Ok(WrittenVersionFile { size_bytes, entity_count, content_sha256, bases })
}

fn encode_file(
    content: VersionFileContent<'_>,
    options: &WriteOptions,
    sink: UploadSink,
    progress: &dyn Fn(u64),
) -> Result<UploadSink> {
    let VersionFileContent { layout, profile, spooled } = content;
    let document_bytes = spooled.profile.document_bytes;
    let mut fields = spooled.profile.choose_fields();
    let with_column = fields.select(|keys| layout.find_shredded(keys).is_some());
    let mut indexer = KeywordIndexer::new(options.keyword_limits, spooled.run_space(), with_column);
    let mut lines = spooled.into_reader();
    let schema = layout.schema();
    let parquet_schema = ArrowSchemaConverter::new().convert(&schema)?;
    let sink_state = sink.state.clone();
    let file = SerializedFileWriter::new(sink, parquet_schema.root_schema_ptr(), Arc::new(writer_properties(layout)?))?;
    let factory = ArrowRowGroupWriterFactory::new(&file, schema);
    let mut writer = VersionFileWriter {
        sink_state,
        keyword_index: KeywordIndex::default(),
        footer_index: Some(FooterIndexBuilder::new(file.schema_descr().num_columns())),
        file,
        entities: 0,
        progress,
    };
    let buffers = BufferPool::default();
    let indexed_fields = (document_bytes >= options.keyword_limits.min_text_bytes).then_some(&fields);
    if document_bytes >= ROW_GROUP_TARGET_BYTES as u64 || layout.stored_row_count() > options.max_row_group_rows as u64
    {
        let input = EncodeInput { layout, fields: indexed_fields, factory: &factory, buffers: &buffers };
        indexer = encode_on_threads(input, &mut lines, options, indexer, &mut writer)?;
    } else if let Some(documents) = read_row_group(&mut lines, options.max_row_group_rows, &buffers)? {
        let mut shredder = EntityShredder::new(layout, indexed_fields);
        let encoded = encode_row_group(&mut shredder, &factory, 0, &documents, &buffers)?;
        if let Some(text) = writer.append_row_group(encoded)? {
            indexer.add_row_group(&text)?;
        }
    }
    if indexed_fields.is_some() {
        fields.hashes_in_columns = indexer.hashes_in_columns();
        let fields = Arc::new(fields);
        indexer.finish().into_iter().try_for_each(|segment| writer.append_keyword_segment(segment, &fields))?;
    }
    writer.finish(profile, layout, options.min_footer_index_chunks)
}

#[derive(Clone, Copy)]
struct EncodeInput<'a> {
    layout: &'a FileLayout,
    /// The fields of the keyword index. `None` if the file gets no index.
    fields: Option<&'a FieldTable>,
    factory: &'a ArrowRowGroupWriterFactory,
    buffers: &'a BufferPool,
}

fn encode_on_threads(
    input: EncodeInput<'_>,
    lines: &mut SpoolReader,
    options: &WriteOptions,
    indexer: KeywordIndexer,
    writer: &mut VersionFileWriter<'_>,
) -> Result<KeywordIndexer> {
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for _ in 0..options.worker_threads.max(1) {
            let (to_worker, write_queue) = sync_channel(1);
            let (to_file, results) = sync_channel(1);
            let work = move || run_encode_worker(input, &write_queue, &to_file);
            match std::thread::Builder::new().spawn_scoped(scope, work) {
                Ok(_) => workers.push((to_worker, results)),
                Err(error) if workers.is_empty() => return Err(StorageError::Io(error)),
                Err(_) => break,
            }
        }
        let mut indexer = KeywordIndexThread::spawn(scope, indexer, input.buffers)?;
        let count = workers.len();
        let mut receive = |number: usize| -> Result<()> {
            let encoded = workers[number % count].1.recv().map_err(|_| StorageError::WorkerStopped)??;
            writer.append_row_group(encoded)?.map_or(Ok(()), |text| indexer.send(text))
        };
        let mut sent = 0;
        while let Some(documents) = read_row_group(lines, options.max_row_group_rows, input.buffers)? {
            if sent >= count {
                receive(sent - count)?;
            }
            workers[sent % count].0.send(documents).map_err(|_| StorageError::WorkerStopped)?;
            sent += 1;
        }
        (sent.saturating_sub(count)..sent).try_for_each(receive)?;
        indexer.finish()
    })
}

struct KeywordIndexThread<'scope> {
    /// `None` after the thread has ended.
    texts: Option<SyncSender<RowGroupText>>,
    thread: Option<ScopedJoinHandle<'scope, Result<KeywordIndexer>>>,
}

impl<'scope> KeywordIndexThread<'scope> {
    fn spawn(
        scope: &'scope std::thread::Scope<'scope, '_>,
        mut indexer: KeywordIndexer,
        buffers: &'scope BufferPool,
    ) -> Result<KeywordIndexThread<'scope>> {
        let (sender, texts) = sync_channel::<RowGroupText>(1);
        let work = move || {
            for text in &texts {
                indexer.add_row_group(&text)?;
                buffers.recycle(text.texts);
            }
            Ok(indexer)
        };
        let thread = std::thread::Builder::new().spawn_scoped(scope, work)?;
        Ok(KeywordIndexThread { texts: Some(sender), thread: Some(thread) })
    }

    /// Sends the full text of the next row group. Fails with the error of the thread if it has ended.
    fn send(&mut self, text: RowGroupText) -> Result<()> {
        match &self.texts {
            Some(texts) if texts.send(text).is_ok() => Ok(()),
            _ => self.finish().and(Err(StorageError::WorkerStopped)),
        }
    }

    fn finish(&mut self) -> Result<KeywordIndexer> {
        self.texts = None;
        let thread = self.thread.take().ok_or(StorageError::WorkerStopped)?;
        thread.join().map_err(|_| StorageError::WorkerStopped)?
    }
}

struct VersionFileWriter<'a> {
    file: SerializedFileWriter<UploadSink>,
    sink_state: Arc<Mutex<SinkState>>,
    keyword_index: KeywordIndex,
    footer_index: Option<FooterIndexBuilder>,
    entities: u64,
    progress: &'a dyn Fn(u64),
}

impl VersionFileWriter<'_> {
    fn append_row_group(&mut self, row_group: EncodedRowGroup) -> Result<Option<RowGroupText>> {
        let pages = self.announce_checksummed_parts(&row_group.columns);
        let mut writer = self.file.next_row_group()?;
        for chunk in row_group.columns {
            chunk.append_to_row_group(&mut writer)?;
        }
        writer.close()?;
        self.file.flush()?;
        let checksums = self.sink_state.lock().checksums.finish_row_group();
        if let (Some(builder), Some(written)) = (&mut self.footer_index, self.file.flushed_row_groups().last())
            && let Err(error) = builder.push_row_group(written, &pages, &mut checksums.into_iter())
        {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to build footer index; readers will use the Parquet footer"
            );
            self.footer_index = None;
        }
        self.entities += row_group.rows as u64;
        (self.progress)(self.entities);
        Ok(row_group.full_text)
    }

    /// Returns the locations of a row group's document pages.
    fn announce_checksummed_parts(&self, columns: &[ArrowColumnChunk]) -> Vec<PageLocation> {
        let mut offset = self.file.bytes_written() as u64;
        let mut state = self.sink_state.lock();
        let mut expect = |length: i64| {
            let start = offset;
            offset += u64::try_from(length).unwrap_or_default();
            state.checksums.expect_range(start..offset);
            start
        };
        let mut pages = Vec::new();
        for (number, column) in columns.iter().enumerate() {
            let close = column.close();
            match (&close.offset_index, number) {
                (Some(index), 0) => {
                    for page in index.page_locations() {
                        let offset = expect(page.compressed_page_size.into());
                        pages.push(PageLocation { offset: offset.cast_signed(), ..page.clone() });
                    }
                }
                _ => _ = expect(close.metadata.compressed_size()),
            }
        }
        pages
    }

    fn append_keyword_segment(&mut self, segment: UnwrittenSegment, fields: &Arc<FieldTable>) -> Result<()> {
        let segment = segment.write(fields, &mut |bytes| self.append_bytes(bytes))?;
        self.keyword_index.segments.push(segment);
        Ok(())
    }

    /// Writes bytes that no column refers to, so that other Parquet readers ignore them. Returns their offset.
    fn append_bytes(&mut self, bytes: &[u8]) -> Result<u64> {
        let offset = self.file.bytes_written() as u64;
        self.file.write_all(bytes)?;
        Ok(offset)
    }

    fn finish(mut self, profile: &[u8], layout: &FileLayout, min_footer_index_chunks: usize) -> Result<UploadSink> {
        let location = ProfileLocation::new(self.append_bytes(profile)?, profile);
        let mut key_values = FooterKeyValues::from([(PROFILE_KEY.to_owned(), to_json_string(&location)?)]);
        if let Some(segment) = self.keyword_index.segments.first() {
            key_values.insert(KEYWORDS_KEY.to_owned(), self.keyword_index.encode(&segment.fields)?);
        }
        for (key, text) in &key_values {
            self.file.append_key_value_metadata(KeyValue::new(key.clone(), text.clone()));
        }
        key_values.insert(LAYOUT_KEY.to_owned(), to_json_string(layout)?);
        let mut location = String::new();
        let footer_index = self.footer_index.take();
        if let Some(footer_index) = footer_index.filter(|index| index.chunk_count() >= min_footer_index_chunks) {
            let bytes = footer_index.finish(&key_values)?;
            let offset = self.append_bytes(&bytes)?;
            location = FooterIndexLocation::new(offset, &bytes).map_or(location, |location| location.encode());
        }
        let checksums = self.sink_state.lock().checksums.take_encoded();
        self.file.append_key_value_metadata(KeyValue::new(CHECKSUMS_KEY.to_owned(), checksums));
        // The sink retains all bytes after this flush, because they contain a checksum that is not known yet.
        self.file.flush()?;
        let checksum = FooterChecksum::placeholder(self.file.bytes_written() as u64) + &location;
        self.sink_state.lock().is_holding_tail = true;
        self.file.append_key_value_metadata(KeyValue::new(FOOTER_CHECKSUM_KEY.to_owned(), checksum));
        Ok(self.file.into_inner()?)
    }
}
