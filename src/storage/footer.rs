//! The footer of a version file, decoded once for all its readers.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::{DataType, Field, Schema};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::page_index::offset_index::PageLocation;

use super::StorageError;
use super::checksums::{CHECKSUMS_KEY, PartChecksums};
use super::keywords::stored::{KEYWORDS_KEY, KeywordIndex};
use super::layout::{DOCUMENT, HASH, Layout, METADATA_KEY, SEARCH, ShreddedPart};
use super::profile::{PROFILE_KEY, ProfileLocation};
use super::shapes::stored::{SHAPES_KEY, ShapeIndex};

/// The pages of documents of each row group.
pub(super) type DocumentPages = Vec<Vec<PageLocation>>;

/// The footer of a version file. All readers of the file share it.
pub struct Footer {
    pub(super) id: u64,
    pub(super) size_bytes: u64,
    /// Without page indexes.
    pub(super) metadata: ArrowReaderMetadata,
    pub(super) pages: DocumentPages,
    pub(super) layout: Layout,
    pub(super) profile: Option<ProfileLocation>,
    /// None in files from before there were checksums.
    pub(super) checksums: Option<PartChecksums>,
    /// Where the end begins that the seal covers.
    pub(super) sealed_from: Option<u64>,
    /// Without segments in files that have no keyword index.
    pub(super) keywords: KeywordIndex,
    /// Of no row group in files that have no shapes.
    pub(super) shapes: ShapeIndex,
    /// What is wrong with the places of the keyword index or the shapes. They are passed over then.
    pub(super) misplaced: Option<String>,
    pub(super) row_groups: Vec<RowGroup>,
    pub(super) schema_columns: SchemaColumns,
    /// The profile, where it came with the end of the file and is small.
    profile_bytes: Option<Bytes>,
    memory_bytes: usize,
}

/// Bytes of a profile that is kept with its footer: reads that name fields ask for it, and would wait for it.
const SMALL_PROFILE_BYTES: u64 = 64 << 10;

/// Places of the fixed columns in the Parquet schema.
pub(super) struct SchemaColumns {
    pub(super) document: usize,
    pub(super) search: usize,
    pub(super) hash: usize,
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
    /// What the metadata of a file says, which has these pages of documents and whose end is sealed from an offset on.
    ///
    /// # Errors
    /// [`StorageError::Layout`] when it is not that of a version file, or points out of the file.
    pub(super) fn parse(
        metadata: ParquetMetaData,
        pages: Result<DocumentPages, StorageError>,
        sealed_from: Option<u64>,
        size_bytes: u64,
    ) -> Result<Footer, StorageError> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let text = metadata_of(&metadata, METADATA_KEY)
            .ok_or_else(|| StorageError::Layout("it was not written by strata".to_owned()))?;
        let layout = Layout::parse(text)?;
        if layout.checksums != sealed_from.is_some() {
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
        let rows: Vec<usize> = row_groups.iter().map(|row_group| row_group.rows).collect();
        let keywords = metadata_of(&metadata, KEYWORDS_KEY).map(|text| KeywordIndex::parse(text, &rows, size_bytes));
        let shapes = metadata_of(&metadata, SHAPES_KEY).map(|text| ShapeIndex::parse(text, rows.len(), size_bytes));
        let mut misplaced = None;
        let mut tell = |cause: StorageError| misplaced = Some(cause.to_string());
        let keywords = keywords.transpose().map_err(&mut tell).unwrap_or_default().unwrap_or_default();
        let shapes = shapes.transpose().map_err(&mut tell).unwrap_or_default().unwrap_or_default();
        let schema = reading_schema(&layout);
        let pages = pages?;
        check_extent(&metadata, &pages, schema.fields().len(), size_bytes)?;
        let checksums = match layout.checksums {
            true => {
                let text = metadata_of(&metadata, CHECKSUMS_KEY)
                    .ok_or_else(|| StorageError::Layout("its footer holds no checksums".to_owned()))?;
                Some(PartChecksums::parse(text, &metadata, &pages)?)
            }
            false => None,
        };
        let columns = SchemaColumns {
            document: schema.index_of(DOCUMENT)?,
            search: schema.index_of(SEARCH)?,
            hash: schema.index_of(HASH)?,
        };
        let page_count: usize = pages.iter().map(Vec::len).sum();
        let memory_bytes = metadata.memory_size()
            + page_count * size_of::<PageLocation>()
            + checksums.as_ref().map_or(0, PartChecksums::memory_bytes)
            + keywords.memory_bytes()
            + shapes.memory_bytes()
            + 512;
        let options = ArrowReaderOptions::new().with_schema(schema);
        let metadata = ArrowReaderMetadata::try_new(Arc::new(metadata), options)?;
        Ok(Footer {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            size_bytes,
            metadata,
            pages,
            layout,
            profile,
            checksums,
            sealed_from,
            keywords,
            shapes,
            misplaced,
            row_groups,
            schema_columns: columns,
            profile_bytes: None,
            memory_bytes,
        })
    }

    /// Where the profile lies, if it is small enough to be kept.
    pub(super) fn small_profile(&self) -> Option<Range<u64>> {
        let location = self.profile.as_ref().filter(|location| location.length <= SMALL_PROFILE_BYTES)?;
        Some(location.offset..location.offset + location.length)
    }

    /// Keeps these bytes if they are the profile. Others are read again, and the reader is told.
    pub(super) fn keep_profile(&mut self, bytes: &[u8]) {
        if self.profile.as_ref().is_some_and(|location| location.is_of(bytes)) {
            self.memory_bytes += bytes.len();
            self.profile_bytes = Some(Bytes::copy_from_slice(bytes));
        }
    }

    /// The profile, if it was kept.
    pub(super) fn kept_profile(&self) -> Option<&Bytes> {
        self.profile_bytes.as_ref()
    }

    /// A number that no other file opened by this process has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// About how much memory it takes.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}

fn metadata_of<'a>(metadata: &'a ParquetMetaData, key: &str) -> Option<&'a str> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
}

/// Checks that everything the footer points to lies in the file, and that pages of documents cut their row group, so
/// that what follows may trust it.
fn check_extent(
    metadata: &ParquetMetaData,
    pages: &DocumentPages,
    fields: usize,
    size_bytes: u64,
) -> Result<(), StorageError> {
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
        let pages = pages.get(number).map_or(&[] as &[PageLocation], Vec::as_slice);
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
