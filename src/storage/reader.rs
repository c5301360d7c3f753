//! An opened version file: its footer, and its parts by row group and page, each fetched with one request, verified and
//! kept in the cache.
//!
//! What is fetched is compared with its checksum before it is decoded, and nothing that failed is kept: a file that is
//! restored is read again without more ado. Every failure names the file, and is reported ([`PartCache::reporting`]).

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, new_empty_array};
use arrow::datatypes::{DataType, Field, Schema};
use futures::FutureExt;
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::bloom_filter::Sbbf;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::statistics::Statistics;

use super::StorageError;
use super::cache::{PartCache, PartKey};
use super::checksums::{CHECKSUMS_KEY, PartChecksums, Seal, checksum};
use super::counts::ReaderCounts;
use super::layout::{DOCUMENT, HASH, Layout, METADATA_KEY, SEARCH, ShreddedPart};
use super::parts::{DocumentPage, OFFSET_INDEX, Part, Run};
use super::profile::{PROFILE_KEY, PathIndex, ProfileLocation, StoredProfile};
use super::shortage::Shortage;
use super::store::Store;
use crate::metrics::metrics;
use crate::model::version::VersionFile;

/// Most bytes of documents that one request fetches ahead.
const READ_AHEAD_BYTES: u64 = 4 << 20;

/// Most bytes of documents that are decoded ahead, besides the last page.
const DECODED_AHEAD_BYTES: u64 = 16 << 20;

/// How much of a file's end is fetched first, in the hope that it holds the footer.
const FOOTER_GUESS_BYTES: u64 = 64 << 10;

/// Most bytes of a file's end that are read: footer, page indexes. A damaged length must not take all memory.
const FOOTER_BYTES: u64 = 512 << 20;

/// How long a store that has just failed is asked for an object's size.
const SIZE_WAIT: Duration = Duration::from_secs(5);

/// What stands at both ends of a Parquet file.
const MAGIC: &[u8] = b"PAR1";

/// What the end of a version file says. Shared by all readers of the file.
pub struct Footer {
    id: u64,
    size_bytes: u64,
    metadata: ArrowReaderMetadata,
    layout: Layout,
    profile: Option<ProfileLocation>,
    /// None in files from before there were checksums.
    checksums: Option<PartChecksums>,
    /// Where the end begins that the seal covers.
    sealed_from: Option<u64>,
    row_groups: Vec<RowGroup>,
    schema_columns: SchemaColumns,
}

/// Places of the fixed columns in the Parquet schema.
struct SchemaColumns {
    document: usize,
    search: usize,
    hash: usize,
}

/// Where a row group lies in the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowGroup {
    /// Position of its first entity.
    pub first: u64,
    /// Entities in it.
    pub rows: usize,
}

impl RowGroup {
    /// Whether an entity of this position lies in it.
    pub fn holds(&self, position: u64) -> bool {
        position >= self.first && position - self.first < self.rows as u64
    }
}

impl Footer {
    /// A number that no other file opened by this process has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// About how much memory it takes.
    pub fn memory_bytes(&self) -> usize {
        let checksums = self.checksums.as_ref().map_or(0, PartChecksums::memory_bytes);
        self.metadata.metadata().memory_size() + checksums + 512
    }
}

/// A version file, ready to be read. Cheap to make and to clone.
#[derive(Clone)]
pub struct VersionReader {
    file: ObjectFile,
    footer: Arc<Footer>,
}

/// Where a file lies, and who keeps parts of it.
#[derive(Clone)]
struct ObjectFile {
    store: Store,
    path: ObjectPath,
    /// As the catalog says.
    size_bytes: u64,
    cache: PartCache,
}

impl std::fmt::Debug for VersionReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("VersionReader").field("path", &self.file.path).finish_non_exhaustive()
    }
}

impl VersionReader {
    /// Opens the file at `path`, `size_bytes` long. Costs one or two requests, none when its footer is cached.
    ///
    /// # Errors
    /// When the file is not there, is damaged, or has another format version.
    pub async fn open(
        store: &Store,
        path: &ObjectPath,
        size_bytes: u64,
        cache: &PartCache,
    ) -> Result<VersionReader, StorageError> {
        let file = ObjectFile { store: store.clone(), path: path.clone(), size_bytes, cache: cache.clone() };
        let load = async { load_footer(&file, size_bytes).await.map_err(|error| file.blame("the footer", error)) };
        let key = PartKey::Footer(path.as_ref().into());
        match cache.get_or_load(key, load).await? {
            Part::Footer(footer) => Ok(VersionReader { file, footer }),
            _ => Err(StorageError::Layout("the cache holds another part under its footer's key".to_owned())),
        }
    }

    /// Opens a file that the catalog records, and compares what its footer says with the record.
    ///
    /// # Errors
    /// As [`VersionReader::open`]; [`StorageError::Damaged`] when it is another file than the recorded one.
    pub async fn open_recorded(
        store: &Store,
        file: &VersionFile,
        cache: &PartCache,
    ) -> Result<VersionReader, StorageError> {
        let path = ObjectPath::from(file.path.as_str());
        let reader = VersionReader::open(store, &path, file.size_bytes, cache).await?;
        let layout = reader.layout();
        let other = |what: &str| Err(reader.file.blame("the footer", StorageError::Layout(what.to_owned())));
        if layout.entity_count != file.entity_count {
            return other(&format!(
                "it holds {} entities, and the catalog says {}",
                layout.entity_count, file.entity_count
            ));
        }
        if layout.content_sha256 != file.content_hash {
            return other("it tells another content than the catalog");
        }
        Ok(reader)
    }

    /// The same reader; what it asks the cache and the store for is counted there, too.
    pub fn observed(&self, counts: Arc<ReaderCounts>) -> VersionReader {
        let file = ObjectFile { cache: self.file.cache.observed(counts), ..self.file.clone() };
        VersionReader { file, footer: self.footer.clone() }
    }

    /// What the file's metadata says.
    pub fn layout(&self) -> &Layout {
        &self.footer.layout
    }

    /// Whether the file holds a profile: none does that was written before there were profiles.
    pub fn has_profile(&self) -> bool {
        self.footer.profile.is_some()
    }

    /// The profile of the version, if the file holds one. One request, and some milliseconds for thousands of paths;
    /// not kept in the cache.
    ///
    /// # Errors
    /// When the store fails or the profile is damaged.
    pub async fn profile(&self) -> Result<Option<StoredProfile>, StorageError> {
        match self.footer.profile.clone() {
            Some(location) => self.load_profile(location, StoredProfile::decode).await.map(Some),
            None => Ok(None),
        }
    }

    /// The paths of the profile, if they are in the cache.
    pub async fn cached_paths(&self) -> Option<Arc<PathIndex>> {
        match self.file.cache.get(&PartKey::Paths { file: self.footer.id }).await? {
            Part::Paths(paths) => Some(paths),
            _ => None,
        }
    }

    /// The paths of the profile, if the file holds one. Costs as much as [`VersionReader::profile`] the first time;
    /// kept in the cache then.
    ///
    /// # Errors
    /// When the store fails or the profile is damaged.
    pub async fn paths(&self) -> Result<Option<Arc<PathIndex>>, StorageError> {
        let Some(location) = self.footer.profile.clone() else { return Ok(None) };
        let load =
            async { self.load_profile(location, PathIndex::decode).await.map(|paths| Part::Paths(Arc::new(paths))) };
        match self.file.cache.get_or_load(PartKey::Paths { file: self.footer.id }, load).await? {
            Part::Paths(paths) => Ok(Some(paths)),
            _ => Err(StorageError::Layout("the cache holds another part under the key of its paths".to_owned())),
        }
    }

    async fn load_profile<T: Send + 'static>(
        &self,
        location: ProfileLocation,
        decode: fn(&[u8]) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let load = async {
            let bytes = self.file.fetch(location.offset..location.offset + location.length).await?;
            let decode = move || match location.is_of(&bytes) {
                true => decode(&bytes),
                false => Err(unverified()),
            };
            tokio::task::spawn_blocking(decode).await.map_err(|_| StorageError::Worker)?
        };
        load.await.map_err(|error| self.file.blame("the profile", error))
    }

    /// Entities in the file.
    pub fn entity_count(&self) -> u64 {
        self.footer.layout.entity_count
    }

    /// The row groups, in order.
    pub fn row_groups(&self) -> &[RowGroup] {
        &self.footer.row_groups
    }

    /// The row group that holds a position, which must be below [`VersionReader::entity_count`].
    pub fn row_group_of(&self, position: u64) -> usize {
        self.footer.row_groups.partition_point(|row_group| row_group.first <= position) - 1
    }

    /// Bytes of a row group as stored.
    pub fn stored_bytes(&self, row_group: usize) -> u64 {
        u64::try_from(self.footer.metadata.metadata().row_group(row_group).compressed_size()).unwrap_or_default()
    }

    fn pages(&self, row_group: usize) -> &[PageLocation] {
        let index = self.footer.metadata.metadata().offset_index();
        index
            .and_then(|index| index.get(row_group))
            .and_then(|columns| columns.get(self.footer.schema_columns.document))
            .map_or(&[], |column| column.page_locations())
    }

    /// How many pages of documents a row group has.
    pub fn page_count(&self, row_group: usize) -> usize {
        self.pages(row_group).len()
    }

    /// The page that holds a row of a row group.
    pub fn page_of(&self, row_group: usize, row: usize) -> usize {
        self.pages(row_group).partition_point(|page| page.first_row_index as usize <= row) - 1
    }

    fn page_rows(&self, row_group: usize, page: usize) -> usize {
        let pages = self.pages(row_group);
        let end =
            pages.get(page + 1).map_or(self.footer.row_groups[row_group].rows, |next| next.first_row_index as usize);
        end - pages[page].first_row_index as usize
    }

    fn page_key(&self, row_group: usize, page: usize) -> PartKey {
        PartKey::Documents { file: self.footer.id, row_group: row_group as u32, page: page as u32 }
    }

    /// Whether the cache has room for all documents, and as much besides.
    pub fn caches_documents(&self) -> bool {
        self.layout().document_bytes <= self.file.cache.capacity_bytes() / 2
    }

    /// One page of documents.
    ///
    /// # Errors
    /// When the store fails or the page is damaged.
    pub async fn documents(&self, row_group: usize, page: usize) -> Result<DocumentPage, StorageError> {
        let load = async {
            let location = &self.pages(row_group)[page];
            let start = location.offset as u64;
            let fetch = self.file.fetch(start..start + location.compressed_page_size as u64);
            let bytes = fetch.await.map_err(|error| self.blame_page(row_group, page, error))?;
            self.decode_page(row_group, page, &Run { start, bytes }).map(Part::Documents)
        };
        match self.file.cache.get_or_load(self.page_key(row_group, page), load).await? {
            Part::Documents(page) => Ok(page),
            _ => Err(StorageError::Layout("the cache holds another part under a page's key".to_owned())),
        }
    }

    /// The pages `pages` of a row group, from the first on, as many as one bounded request yields.
    /// At least one, when `pages` is not empty.
    ///
    /// # Errors
    /// When the store fails or a page is damaged.
    pub async fn documents_ahead(
        &self,
        row_group: usize,
        pages: Range<usize>,
    ) -> Result<Vec<DocumentPage>, StorageError> {
        let (mut found, mut decoded_bytes) = (Vec::new(), 0);
        for page in pages.clone() {
            match self.file.cache.get(&self.page_key(row_group, page)).await {
                Some(Part::Documents(page)) if decoded_bytes < DECODED_AHEAD_BYTES => {
                    decoded_bytes += page.memory_bytes() as u64;
                    found.push(page);
                }
                _ => break,
            }
        }
        if !found.is_empty() || pages.is_empty() {
            return Ok(found);
        }
        let locations = &self.pages(row_group)[pages.clone()];
        let start = locations[0].offset as u64;
        let end_of = |location: &PageLocation| location.offset as u64 + location.compressed_page_size as u64;
        let column = self.footer.metadata.metadata().row_group(row_group).column(self.footer.schema_columns.document);
        // What compresses well becomes much more than is fetched.
        let expansion = column.uncompressed_size().max(1) as u64 / column.compressed_size().max(1) as u64;
        let most = READ_AHEAD_BYTES.min(DECODED_AHEAD_BYTES / expansion.max(1));
        let fitting = locations.partition_point(|location| end_of(location) <= start + most).max(1);
        let fetch = self.file.fetch(start..end_of(&locations[fitting - 1]));
        let bytes = fetch.await.map_err(|error| self.blame_page(row_group, pages.start, error))?;
        let run = Run { start, bytes };
        for page in pages.start..pages.start + fitting {
            let decoded = self.decode_page(row_group, page, &run)?;
            self.file.cache.insert(self.page_key(row_group, page), Part::Documents(decoded.clone())).await;
            decoded_bytes += decoded.memory_bytes() as u64;
            found.push(decoded);
            if decoded_bytes >= DECODED_AHEAD_BYTES {
                break;
            }
        }
        Ok(found)
    }

    fn decode_page(&self, row_group: usize, page: usize, run: &Run) -> Result<DocumentPage, StorageError> {
        let column = self.footer.metadata.metadata().row_group(row_group).column(self.footer.schema_columns.document);
        let location = &self.pages(row_group)[page];
        let rows = self.page_rows(row_group, page);
        let decode = || {
            if let Some(checksums) = &self.footer.checksums {
                let start = location.offset as u64;
                let bytes = run.slice(start..start + location.compressed_page_size as u64)?;
                verify(&bytes, checksums.page(row_group, page))?;
            }
            // Parquet's decoders trust some lengths inside of pages.
            let decode = AssertUnwindSafe(|| DocumentPage::decode(column, location, rows, run));
            catch_unwind(decode).unwrap_or_else(|_| Err(undecodable()))
        };
        decode().map_err(|error| self.blame_page(row_group, page, error))
    }

    fn blame_page(&self, row_group: usize, page: usize, error: StorageError) -> StorageError {
        self.file.blame(&format!("page {page} of the documents of row group {row_group}"), error)
    }

    /// The search text of a row group: a binary array, one value per row.
    ///
    /// # Errors
    /// When the store fails or the column is damaged.
    pub async fn search(&self, row_group: usize) -> Result<ArrayRef, StorageError> {
        self.column(row_group, self.footer.schema_columns.search).await
    }

    /// The canonical hashes of a row group: a binary array of 32 bytes a row.
    ///
    /// # Errors
    /// When the store fails or the column is damaged.
    pub async fn hashes(&self, row_group: usize) -> Result<ArrayRef, StorageError> {
        self.column(row_group, self.footer.schema_columns.hash).await
    }

    /// A part of a shredded column in a row group, or `None` when it has no such part. A list array where it
    /// fans out; texts are dictionary arrays where it says so.
    ///
    /// # Errors
    /// When the store fails or the column is damaged.
    pub async fn shredded(
        &self,
        row_group: usize,
        shredded: usize,
        column: ShreddedPart,
    ) -> Result<Option<ArrayRef>, StorageError> {
        match self.footer.layout.column_index(shredded, column) {
            Some(index) => self.column(row_group, index).await.map(Some),
            None => Ok(None),
        }
    }

    /// Whether the texts of a shredded column in a row group may include one of `texts`: false only when none is there.
    ///
    /// # Errors
    /// When the store fails or the filter is damaged.
    pub async fn may_hold_text(&self, row_group: usize, shredded: usize, text: &[u8]) -> Result<bool, StorageError> {
        let Some(index) = self.footer.layout.column_index(shredded, ShreddedPart::Text) else { return Ok(true) };
        let key = PartKey::Bloom { file: self.footer.id, row_group: row_group as u32, column: index as u32 };
        let load = async {
            let column = self.footer.metadata.metadata().row_group(row_group).column(index);
            let (Some(offset), Some(length)) = (column.bloom_filter_offset(), column.bloom_filter_length()) else {
                return Ok(Part::Bloom(None));
            };
            let start = offset as u64;
            let bytes = self.file.fetch(start..start + length as u64).await?;
            if let Some(checksums) = &self.footer.checksums {
                let row_group_metadata = self.footer.metadata.metadata().row_group(row_group);
                verify(&bytes, checksums.bloom(row_group, index, row_group_metadata))?;
            }
            let read = AssertUnwindSafe(|| Sbbf::read_from_column_chunk(column, &Run { start, bytes }));
            let bloom = catch_unwind(read).map_err(|_| undecodable())??;
            // A filter without blocks cannot be asked.
            match bloom {
                Some(bloom) if bloom.num_blocks() == 0 => Err(undecodable()),
                bloom => Ok(Part::Bloom(bloom.map(Arc::new))),
            }
        };
        let load = load.map(|loaded| {
            let part = || format!("the bloom filter of column {index} of row group {row_group}");
            loaded.map_err(|error| self.file.blame(&part(), error))
        });
        match self.file.cache.get_or_load(key, load).await? {
            Part::Bloom(Some(bloom)) => Ok(bloom.check(text)),
            _ => Ok(true),
        }
    }

    /// The least and greatest double among a shredded column's numbers in a row group: `None` where there is no number.
    /// Costs nothing: the footer holds them.
    pub fn number_range(&self, row_group: usize, shredded: usize) -> Option<(f64, f64)> {
        let index = self.footer.layout.column_index(shredded, ShreddedPart::Number)?;
        match self.footer.metadata.metadata().row_group(row_group).column(index).statistics() {
            Some(Statistics::Double(numbers)) => Some((*numbers.min_opt()?, *numbers.max_opt()?)),
            _ => None,
        }
    }

    /// Whether a shredded column reaches a null in a row group. Costs nothing: the footer knows.
    pub fn holds_null(&self, row_group: usize, shredded: usize) -> bool {
        let Some(index) = self.footer.layout.column_index(shredded, ShreddedPart::Kind) else { return true };
        match self.footer.metadata.metadata().row_group(row_group).column(index).statistics() {
            Some(Statistics::Int32(kinds)) => kinds.min_opt().is_none_or(|least| *least == 0),
            _ => true,
        }
    }

    async fn column(&self, row_group: usize, index: usize) -> Result<ArrayRef, StorageError> {
        let key = PartKey::Column { file: self.footer.id, row_group: row_group as u32, column: index as u32 };
        let load = async {
            let column = self.footer.metadata.metadata().row_group(row_group).column(index);
            let (start, length) = column.byte_range();
            let bytes = self.file.fetch(start..start + length).await?;
            if let Some(checksums) = &self.footer.checksums {
                verify(&bytes, checksums.column(row_group, index))?;
            }
            let run = Run { start, bytes };
            // Parquet's decoders trust some lengths inside of pages.
            let decode = AssertUnwindSafe(|| decode_column(&self.footer, row_group, index, run));
            catch_unwind(decode).unwrap_or_else(|_| Err(undecodable())).map(Part::Column)
        };
        let load = load.map(|loaded| {
            let part = || format!("column {index} of row group {row_group}");
            loaded.map_err(|error| self.file.blame(&part(), error))
        });
        match self.file.cache.get_or_load(key, load).await? {
            Part::Column(array) => Ok(array),
            _ => Err(StorageError::Layout("the cache holds another part under a column's key".to_owned())),
        }
    }

    /// Whether the file holds checksums of its parts: none does that was written before there were checksums.
    pub fn has_checksums(&self) -> bool {
        self.footer.checksums.is_some()
    }

    /// Fetches every byte of the file that a read may use, and compares it with its checksum; `pace` is told of the
    /// bytes after each request, and may wait. Nothing is decoded, and the cache is not asked. Files without checksums
    /// pass.
    ///
    /// # Errors
    /// When the store fails, or a part is damaged.
    pub async fn verify_checksums(&self, pace: &mut dyn Pace) -> Result<(), StorageError> {
        let (Some(checksums), Some(sealed_from)) = (&self.footer.checksums, self.footer.sealed_from) else {
            return Ok(());
        };
        // The end has been verified when the file was opened, perhaps long ago.
        let size_bytes = self.footer.size_bytes;
        let opened = load_footer(&self.file, size_bytes).await;
        opened.map_err(|error| self.file.blame("the footer", error))?;
        pace.spent(size_bytes - sealed_from).await;
        let mut parts = checksums.parts(self.footer.metadata.metadata()).into_iter().peekable();
        // One part, or as many whole ones as a request may yield.
        while let Some(first) = parts.next() {
            let mut together = vec![first];
            let start = together[0].0.start;
            let fits = |part: &(Range<u64>, u32)| part.0.end <= start + READ_AHEAD_BYTES;
            while let Some(part) = parts.next_if(fits) {
                together.push(part);
            }
            let end = together.last().map_or(start, |part| part.0.end);
            let bytes = self.file.fetch(start..end).await.map_err(|error| self.file.blame("a part", error))?;
            let run = Run { start, bytes };
            for (range, expected) in together {
                let verified = run.slice(range.clone()).map_err(StorageError::from);
                let verified = verified.and_then(|bytes| verify(&bytes, Some(expected)));
                verified.map_err(|error| self.file.blame(&format!("bytes {} to {}", range.start, range.end), error))?;
            }
            pace.spent(end - start).await;
        }
        self.profile().await?;
        pace.spent(self.footer.profile.as_ref().map_or(0, |location| location.length)).await;
        Ok(())
    }
}

/// Who decides how fast a file is read for its own sake.
#[async_trait::async_trait]
pub trait Pace: Send {
    /// So many bytes were read; returns when more may be.
    async fn spent(&mut self, bytes: u64);
}

/// As fast as it goes.
#[derive(Clone, Copy, Debug)]
pub struct Unbounded;

#[async_trait::async_trait]
impl Pace for Unbounded {
    async fn spent(&mut self, _: u64) {}
}

impl ObjectFile {
    /// These bytes, all of them.
    async fn fetch(&self, range: Range<u64>) -> Result<bytes::Bytes, StorageError> {
        count_fetch(&range, self.cache.counts());
        let expected = range.end - range.start;
        let bytes = match self.store.objects().get_range(&self.path, range).await {
            Ok(bytes) => bytes,
            Err(error) => match self.is_cut(&error).await {
                Some(cut) => return Err(cut),
                None => return Err(self.store.meaning(error.into()).await),
            },
        };
        match bytes.len() as u64 == expected {
            true => Ok(bytes),
            false => Err(StorageError::Layout(format!("the file ends early: {} of {expected} bytes", bytes.len()))),
        }
    }

    /// Whether a range cannot be fetched because the object is shorter. An S3 server's answer to that looks like one
    /// that it cannot give at the moment, so the server is asked for the size.
    async fn is_cut(&self, error: &object_store::Error) -> Option<StorageError> {
        let object_store::Error::Generic { store: "S3", .. } = error else { return None };
        match tokio::time::timeout(SIZE_WAIT, self.store.objects().head(&self.path)).await {
            Ok(Ok(object)) if object.size != self.size_bytes => Some(StorageError::Layout(format!(
                "the file ends early: it has {} of {} bytes",
                object.size, self.size_bytes
            ))),
            _ => None,
        }
    }

    /// The error that names this file, where its part is at fault; reports it.
    fn blame(&self, part: &str, error: StorageError) -> StorageError {
        let path = self.path.to_string();
        let damaged = |cause: String| StorageError::Damaged { path: path.clone(), part: part.to_owned(), cause };
        let error = match error {
            StorageError::Store(object_store::Error::NotFound { .. }) => damaged("the file is missing".to_owned()),
            StorageError::Store(source) => StorageError::Unreadable { path: path.clone(), source },
            StorageError::Parquet(error) => damaged(error.to_string()),
            StorageError::Arrow(error) => damaged(error.to_string()),
            StorageError::Layout(cause) => damaged(cause),
            other => other,
        };
        // A shortage, as of descriptors, is not the file's fault, and passes.
        let at_fault = matches!(error, StorageError::Damaged { .. } | StorageError::Unreadable { .. });
        if at_fault && Shortage::of(&error).is_none() {
            self.cache.report(&path, error.to_string());
        }
        error
    }
}

fn count_fetch(range: &Range<u64>, counts: Option<&Arc<ReaderCounts>>) {
    let bytes = range.end - range.start;
    metrics().store_requests.increment(1);
    metrics().store_bytes.increment(bytes);
    if let Some(counts) = counts {
        counts.fetched(bytes);
    }
}

/// Compares bytes with their checksum.
fn verify(bytes: &[u8], expected: Option<u32>) -> Result<(), StorageError> {
    match expected == Some(checksum(bytes)) {
        true => Ok(()),
        false => Err(unverified()),
    }
}

fn unverified() -> StorageError {
    StorageError::Layout("it does not have its checksum".to_owned())
}

fn undecodable() -> StorageError {
    StorageError::Layout("it cannot be decoded".to_owned())
}

fn decode_column(footer: &Footer, row_group: usize, index: usize, run: Run) -> Result<ArrayRef, StorageError> {
    let rows = footer.row_groups[row_group].rows;
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(run, footer.metadata.clone());
    let mask = ProjectionMask::roots(builder.parquet_schema(), [index]);
    let mut batches = builder.with_row_groups(vec![row_group]).with_projection(mask).with_batch_size(rows).build()?;
    match batches.next() {
        Some(batch) => {
            let array = batch?.column(0).clone();
            if array.len() != rows {
                return Err(StorageError::Layout(format!("column {index} holds {} of {rows} rows", array.len())));
            }
            Ok(array)
        }
        None => Ok(new_empty_array(footer.metadata.schema().field(index).data_type())),
    }
}

/// The end of a file, verified where it is sealed.
struct FileEnd {
    run: Run,
    sealed_from: Option<u64>,
    /// Where the footer's metadata begins.
    footer: u64,
}

/// Fetches a file's end, as far as the footer and, where it is sealed, the seal reach.
async fn fetch_end(file: &ObjectFile, size_bytes: u64) -> Result<FileEnd, StorageError> {
    const TRAILER_BYTES: u64 = 8;
    let damaged = |what: &str| StorageError::Layout(format!("its end is damaged: {what}"));
    if size_bytes < MAGIC.len() as u64 + TRAILER_BYTES {
        return Err(damaged("the file is too short for one"));
    }
    let start = size_bytes - size_bytes.min(FOOTER_GUESS_BYTES);
    let mut run = Run { start, bytes: file.fetch(start..size_bytes).await? };
    let trailer = run.slice(size_bytes - TRAILER_BYTES..size_bytes)?;
    let (length, magic) = trailer.split_at(4);
    let length = <[u8; 4]>::try_from(length).map_or(0, u32::from_le_bytes);
    if magic != MAGIC {
        return Err(damaged("it is not that of a Parquet file"));
    }
    let footer = (size_bytes - TRAILER_BYTES).checked_sub(length.into()).filter(|at| size_bytes - at <= FOOTER_BYTES);
    let footer = footer.ok_or_else(|| damaged("its length is not that of a footer"))?;
    extend_to(file, &mut run, footer).await?;
    let Some(seal) = Seal::find(&run.slice(footer..size_bytes)?) else {
        return Ok(FileEnd { run, sealed_from: None, footer });
    };
    if seal.start > footer || size_bytes - seal.start > FOOTER_BYTES {
        return Err(damaged("its seal is not one"));
    }
    extend_to(file, &mut run, seal.start).await?;
    let sealed = run.slice(seal.start..size_bytes)?;
    match Seal::find(&sealed).is_some_and(|seal| seal.verifies(&sealed)) {
        true => Ok(FileEnd { run, sealed_from: Some(seal.start), footer }),
        false => Err(damaged("it does not have its checksum")),
    }
}

/// Fetches what lies between an offset and a run's start.
async fn extend_to(file: &ObjectFile, run: &mut Run, start: u64) -> Result<(), StorageError> {
    if start < run.start {
        let before = file.fetch(start..run.start).await?;
        *run = Run { start, bytes: [before, run.bytes.clone()].concat().into() };
    }
    Ok(())
}

/// The metadata and the page index that a file's end holds.
async fn parse_end(file: &ObjectFile, end: &mut FileEnd, size_bytes: u64) -> Result<ParquetMetaData, StorageError> {
    let footer = end.run.slice(end.footer..size_bytes - 8)?;
    // Parquet's decoders trust some lengths.
    let decode = AssertUnwindSafe(|| ParquetMetaDataReader::decode_metadata(&footer));
    let metadata = catch_unwind(decode).map_err(|_| undecodable())??;
    // The page indexes of a file without a seal.
    let indexes = metadata.row_groups().iter().flat_map(|row_group| row_group.columns());
    let indexes = indexes.filter_map(|column| u64::try_from(column.offset_index_offset()?).ok());
    let first = indexes.min().filter(|first| size_bytes.checked_sub(*first).is_some_and(|rest| rest <= FOOTER_BYTES));
    if let Some(first) = first {
        extend_to(file, &mut end.run, first).await?;
    }
    let mut reader = ParquetMetaDataReader::new_with_metadata(metadata)
        .with_column_index_policy(PageIndexPolicy::Skip)
        .with_offset_index_policy(OFFSET_INDEX);
    let decode = AssertUnwindSafe(|| reader.read_page_indexes(&end.run));
    catch_unwind(decode).map_err(|_| undecodable())??;
    Ok(reader.finish()?)
}

async fn load_footer(file: &ObjectFile, size_bytes: u64) -> Result<Part, StorageError> {
    static NEXT_ID: AtomicU64 = AtomicU64::new(0);
    let mut end = fetch_end(file, size_bytes).await?;
    let metadata = parse_end(file, &mut end, size_bytes).await?;
    let text = metadata_of(&metadata, METADATA_KEY)
        .ok_or_else(|| StorageError::Layout("it was not written by strata".to_owned()))?;
    let layout = Layout::parse(text)?;
    if layout.checksums != end.sealed_from.is_some() {
        return Err(StorageError::Layout("its end is damaged: its seal is missing".to_owned()));
    }
    let profile = match metadata_of(&metadata, PROFILE_KEY).map(serde_json::from_str::<ProfileLocation>) {
        None => None,
        Some(Ok(location)) if location.is_within(size_bytes) => Some(location),
        Some(_) => return Err(StorageError::Layout("its footer is damaged: its profile has no place".to_owned())),
    };
    let mut row_groups = Vec::with_capacity(metadata.num_row_groups());
    let mut first = 0;
    for row_group in metadata.row_groups() {
        let rows = u32::try_from(row_group.num_rows())
            .map_err(|_| StorageError::Layout(format!("a row group has {} rows", row_group.num_rows())))?;
        row_groups.push(RowGroup { first, rows: rows as usize });
        first += u64::from(rows);
    }
    if first != layout.entity_count {
        return Err(StorageError::Layout(format!("it holds {first} of {} entities", layout.entity_count)));
    }
    let schema = reading_schema(&layout);
    check_extent(&metadata, schema.fields().len(), size_bytes)?;
    let checksums = match layout.checksums {
        true => {
            let text = metadata_of(&metadata, CHECKSUMS_KEY)
                .ok_or_else(|| StorageError::Layout("its footer holds no checksums".to_owned()))?;
            Some(PartChecksums::parse(text, &metadata)?)
        }
        false => None,
    };
    let columns = SchemaColumns {
        document: schema.index_of(DOCUMENT)?,
        search: schema.index_of(SEARCH)?,
        hash: schema.index_of(HASH)?,
    };
    let options = ArrowReaderOptions::new().with_schema(schema);
    let metadata = ArrowReaderMetadata::try_new(Arc::new(metadata), options)?;
    Ok(Part::Footer(Arc::new(Footer {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        size_bytes,
        metadata,
        layout,
        profile,
        checksums,
        sealed_from: end.sealed_from,
        row_groups,
        schema_columns: columns,
    })))
}

fn metadata_of<'a>(metadata: &'a ParquetMetaData, key: &str) -> Option<&'a str> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
}

/// Checks that everything the footer points to lies in the file, and that pages of documents cut their row group, so
/// that what follows may trust it.
fn check_extent(metadata: &ParquetMetaData, fields: usize, size_bytes: u64) -> Result<(), StorageError> {
    let damaged = |what: &str| StorageError::Layout(format!("its footer is damaged: {what}"));
    let inside = |offset: i64, length: i64| {
        let end = u64::try_from(offset)
            .ok()
            .zip(u64::try_from(length).ok())
            .and_then(|(offset, length)| offset.checked_add(length));
        end.is_some_and(|end| end <= size_bytes)
    };
    if metadata.file_metadata().schema_descr().root_schema().get_fields().len() != fields {
        return Err(damaged("its columns are not those of its layout"));
    }
    for (number, row_group) in metadata.row_groups().iter().enumerate() {
        for column in row_group.columns() {
            let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
            if !inside(start, column.compressed_size()) {
                return Err(damaged("a column lies outside of the file"));
            }
            if let Some(offset) = column.bloom_filter_offset()
                && !inside(offset, column.bloom_filter_length().unwrap_or(0).into())
            {
                return Err(damaged("a bloom filter lies outside of the file"));
            }
        }
        let pages = metadata.offset_index().and_then(|index| index.get(number)).and_then(|columns| columns.first());
        let pages = pages.map_or(&[] as &[PageLocation], |pages| pages.page_locations());
        let (mut rows, mut end) = (-1, 0);
        for page in pages {
            let is_inside = inside(page.offset, page.compressed_page_size.into());
            if page.first_row_index <= rows || page.offset < end || !is_inside {
                return Err(damaged("a page of documents has no place"));
            }
            (rows, end) = (page.first_row_index, page.offset + i64::from(page.compressed_page_size));
        }
        if pages.first().is_none_or(|page| page.first_row_index != 0) || rows >= row_group.num_rows() {
            return Err(damaged("pages of documents do not cut their row group"));
        }
    }
    Ok(())
}

/// The file's schema with the types that readers want: texts of few distinct values as dictionaries.
fn reading_schema(layout: &Layout) -> Arc<Schema> {
    let schema = layout.schema();
    let mut fields: Vec<Arc<Field>> = schema.fields().iter().cloned().collect();
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Binary));
    for (number, shredded) in layout.shredded_columns.iter().enumerate() {
        if !shredded.dictionary {
            continue;
        }
        for column in [ShreddedPart::Text, ShreddedPart::Exact] {
            let Some(index) = layout.column_index(number, column) else { continue };
            let field = fields[index].as_ref().clone();
            let data_type = match field.data_type() {
                DataType::List(element) => {
                    DataType::List(Arc::new(element.as_ref().clone().with_data_type(dictionary.clone())))
                }
                _ => dictionary.clone(),
            };
            fields[index] = Arc::new(field.with_data_type(data_type));
        }
    }
    Arc::new(Schema::new(fields))
}
