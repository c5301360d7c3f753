//! The decoded footer of a version file, shared by all readers of the file.
//!
//! A footer comes from the Parquet footer ([`FileFooter::parse`]), or from the footer index in the file, which is
//! smaller ([`FileFooter::from_footer_index`]). Both lead to the same tables, so readers do not depend on the source.
//!
//! - The number of rows and the columns agree with the layout, and the profile is inside the file. Otherwise, the file
//!   cannot be opened.
//! - A damaged keyword index is ignored and reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::{DataType, Schema};
use bytes::Bytes;
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::{ColumnChunkMetaData, FileMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::page_index::offset_index::PageLocation;
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor, Type};
use strata_store::checksums::{CHECKSUMS_KEY, parse_checksums};
use strata_store::{Result, StorageError};

use super::extent_list::ExtentList;
use super::fetched_range::FetchedRange;
use super::footer_index::builder::{FooterIndexBuilder, checksum_count_error};
use super::footer_index::{FooterIndex, FooterKeyValues, footer_damaged};
use super::keywords::segment_directory::{KEYWORDS_KEY, KeywordIndex};
use super::layout::{FileLayout, LAYOUT_KEY, ShreddedColumn, ShreddedPart};
use super::overlay::{Extent, Overlay};
use super::page_table::{PAGE_SLOT_BYTES, PageTable};
use super::profile::{PROFILE_KEY, ProfileLocation};

/// Max size of a profile that stays in memory with its footer. Reads that name fields need the profile.
const MAX_RETAINED_PROFILE_BYTES: u64 = 64 << 10;

static NEXT_FILE_ID: AtomicU64 = AtomicU64::new(0);
pub(super) type DocumentPageLocations = Vec<Vec<PageLocation>>;
pub(super) const FOOTER_INDEX_KEYS: [&str; 3] = [LAYOUT_KEY, PROFILE_KEY, KEYWORDS_KEY];

pub struct FileFooter {
    pub id: u64,
    pub(super) size_bytes: u64,
    pub(super) footer_index: FooterIndex,
    /// Whether the footer index was read from the file, so that the Parquet footer was not read.
    pub(super) has_footer_index: bool,
    pub(super) schema: Arc<Schema>,
    stored_schema: Arc<SchemaDescriptor>,
    pub(super) layout: FileLayout,
    pub(super) profile_location: ProfileLocation,
    pub(super) checksummed_from: u64,
    /// Row groups of the file itself, without the rows of bases to which a delta file refers.
    pub(super) extent_list: Arc<ExtentList>,
    /// Damage of the footer index or of other parts that readers can do without. Readers ignore the damaged parts.
    pub(super) index_damage: Option<String>,
    pub(super) page_table: PageTable,
    pub(super) indented_table: PageTable,
    pub(super) profile_bytes: Option<Bytes>,
    pub(super) memory_bytes: usize,
}

impl FileFooter {
    pub(super) fn parse(
        metadata: &ParquetMetaData,
        pages: Result<DocumentPageLocations>,
        checksummed_from: Option<u64>,
        size_bytes: u64,
    ) -> Result<FileFooter> {
        let text = find_metadata_value(metadata, LAYOUT_KEY)
            .ok_or_else(|| StorageError::InvalidFile("it was not written by strata".to_owned()))?;
        let layout = FileLayout::parse(text)?;
        let unchecked = || StorageError::InvalidFile("its end is damaged: the footer checksum is missing".to_owned());
        let checksummed_from = checksummed_from.ok_or_else(unchecked)?;
        let pages = pages?;
        let checksums = find_metadata_value(metadata, CHECKSUMS_KEY)
            .ok_or_else(|| StorageError::InvalidFile("its footer contains no checksums".to_owned()))?;
        let mut checksums = parse_checksums(checksums)?.into_iter();
        let stored_schema = metadata.file_metadata().schema_descr_ptr();
        let mut index = FooterIndexBuilder::new(stored_schema.num_columns());
        for (number, row_group) in metadata.row_groups().iter().enumerate() {
            index.push_row_group(row_group, pages.get(number).map_or(&[], Vec::as_slice), &mut checksums)?;
        }
        if checksums.next().is_some() {
            return Err(checksum_count_error());
        }
        let key_values = FOOTER_INDEX_KEYS.iter().filter_map(|key| Some((key, find_metadata_value(metadata, key)?)));
        let key_values: FooterKeyValues = key_values.map(|(key, text)| ((*key).to_owned(), text.to_owned())).collect();
        let index = FooterIndex::decode(index.finish(&key_values)?.into(), size_bytes)?;
        let index = index.ok_or_else(|| StorageError::InvalidFile("its footer is too large".to_owned()))?;
        FileFooter::new(index, &key_values, layout, stored_schema, checksummed_from, size_bytes)
    }

    pub(super) fn from_footer_index(
        bytes: Bytes,
        checksummed_from: u64,
        size_bytes: u64,
    ) -> Result<Option<FileFooter>> {
        let Some(footer_index) = FooterIndex::decode(bytes, size_bytes)? else { return Ok(None) };
        let key_values = footer_index.key_values()?;
        let missing = || StorageError::InvalidFile("its footer index has no layout".to_owned());
        let layout = FileLayout::parse(key_values.get(LAYOUT_KEY).ok_or_else(missing)?)?;
        let stored_schema = Arc::new(ArrowSchemaConverter::new().convert(&layout.schema())?);
        let footer = FileFooter::new(footer_index, &key_values, layout, stored_schema, checksummed_from, size_bytes)?;
        Ok(Some(FileFooter { has_footer_index: true, ..footer }))
    }

    fn new(
        footer_index: FooterIndex,
        key_values: &FooterKeyValues,
        layout: FileLayout,
        stored_schema: Arc<SchemaDescriptor>,
        checksummed_from: u64,
        size_bytes: u64,
    ) -> Result<FileFooter> {
        let location: Option<ProfileLocation> =
            key_values.get(PROFILE_KEY).and_then(|text| serde_json::from_str(text).ok());
        let profile_location = location.filter(|location| location.is_within(size_bytes));
        let profile_location = profile_location.ok_or_else(|| footer_damaged("its profile is misplaced"))?;
        let rows: Vec<usize> =
            (0..footer_index.row_groups).map(|row_group| footer_index.rows(row_group) as usize).collect();
        let entities: u64 = rows.iter().map(|rows| *rows as u64).sum();
        let expected = layout.stored_row_count();
        if entities != expected {
            return Err(StorageError::InvalidFile(format!("it contains {entities} entities instead of {expected}")));
        }
        if let Some(overlay) = &layout.overlay {
            overlay.check_own_extents(&rows)?;
        }
        let keywords =
            key_values.get(KEYWORDS_KEY).map(|text| KeywordIndex::parse(text, &rows, size_bytes)).transpose();
        let index_damage = keywords.as_ref().err().map(ToString::to_string);
        let keywords = keywords.unwrap_or_default().unwrap_or_default();
        let schema = reader_schema(&layout);
        let columns =
            [stored_schema.root_schema().get_fields().len(), stored_schema.num_columns(), footer_index.columns];
        if columns != [schema.fields().len(); 3] {
            return Err(footer_damaged("its columns do not match its layout"));
        }
        // The file's column types must match the readers' types, as far as the schemas of Parquet and Arrow show them.
        let metadata = ParquetMetaData::new(file_metadata(stored_schema.clone(), 0), Vec::new());
        let pages: usize = (0..rows.len()).map(|row_group| footer_index.page_count(row_group)).sum();
        let extents = layout.overlay.as_ref().map_or(0, |overlay| overlay.extents.len());
        let memory_bytes = metadata.memory_size()
            + extents * size_of::<Extent>()
            + footer_index.bytes.len()
            + keywords.memory_bytes()
            + 2 * pages * PAGE_SLOT_BYTES
            + 1_024;
        ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new().with_schema(schema.clone()))?;
        let id = NEXT_FILE_ID.fetch_add(1, Ordering::Relaxed);
        let extent_list = Arc::new(ExtentList::from_row_groups(id, &footer_index, keywords));
        Ok(FileFooter {
            id,
            size_bytes,
            footer_index,
            has_footer_index: false,
            schema,
            stored_schema,
            layout,
            profile_location,
            checksummed_from,
            extent_list,
            index_damage,
            page_table: PageTable::new(rows.len()),
            indented_table: PageTable::new(rows.len()),
            profile_bytes: None,
            memory_bytes,
        })
    }

    /// Returns the row groups of this delta version. Fails if `bases` are other files, or do not contain the extents.
    pub(super) fn resolve_extents(&self, overlay: &Overlay, bases: &[Arc<FileFooter>]) -> Result<ExtentList> {
        let damaged = |what: &str| Err(StorageError::InvalidFile(what.to_owned()));
        if bases.len() != overlay.bases.len() {
            return damaged("a base is missing");
        }
        for (base, expected) in bases.iter().zip(&overlay.bases) {
            if base.layout.content_sha256 != expected.content_sha256 {
                return damaged("a base is not the file that this file was created from");
            }
            // Only the flag `retired` can differ: it is set if later values do not fit the column.
            let columns = self.layout.shredded_columns.iter().zip(&base.layout.shredded_columns);
            let mut are_equal = columns.map(|(column, base)| {
                *column == ShreddedColumn { retired: column.retired, ..base.clone() } && base.retired <= column.retired
            });
            if !are_equal.all(|is_equal| is_equal)
                || self.layout.shredded_columns.len() != base.layout.shredded_columns.len()
            {
                return damaged("a base has different columns");
            }
        }
        let files: Vec<&FileFooter> = std::iter::once(self).chain(bases.iter().map(AsRef::as_ref)).collect();
        let rows = |file: &&FileFooter| file.extent_list.row_groups.iter().map(|group| group.rows).collect();
        let rows: Vec<Vec<usize>> = files.iter().map(rows).collect();
        overlay.check_extents(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        let segments = files.iter().flat_map(|file| file.extent_list.keyword_index.segments.iter().cloned()).collect();
        let is_indexed = |file: u8, row_group: u32| {
            files[usize::from(file)].extent_list.keyword_index.segment_and_first_row(row_group as usize).is_some()
        };
        let indexed = overlay.extents.iter().filter(|extent| is_indexed(extent.file, extent.row_group));
        let indexed_rows = indexed.map(|extent| u64::from(extent.rows)).sum();
        let keywords = KeywordIndex { segments, indexed_rows, ..KeywordIndex::default() };
        let id = NEXT_FILE_ID.fetch_add(1, Ordering::Relaxed);
        let indexes: Vec<&FooterIndex> = files.iter().map(|file| &file.footer_index).collect();
        Ok(ExtentList::new(id, &overlay.extents, &indexes, keywords))
    }

    /// Returns metadata of only one column and row group of the file, with the column type that readers use.
    pub(super) fn column_metadata(&self, row_group: usize, column: usize) -> Result<ArrowReaderMetadata> {
        let rows = self.footer_index.rows(row_group).into();
        let field = self.stored_schema.root_schema().get_fields()[column].clone();
        let stored = Type::group_type_builder("column").with_fields(vec![field]).build()?;
        let stored = Arc::new(SchemaDescriptor::new(Arc::new(stored)));
        let chunk = self.build_chunk_metadata(row_group, column, stored.column(0))?;
        let metadata = RowGroupMetaData::builder(stored.clone()).set_num_rows(rows).set_column_metadata(vec![chunk]);
        let metadata = ParquetMetaData::new(file_metadata(stored, rows), vec![metadata.build()?]);
        let schema = Arc::new(Schema::new(vec![self.schema.fields()[column].clone()]));
        let options = ArrowReaderOptions::new().with_schema(schema);
        Ok(ArrowReaderMetadata::try_new(Arc::new(metadata), options)?)
    }

    pub(super) fn chunk_metadata(&self, row_group: usize, column: usize) -> Result<ColumnChunkMetaData> {
        self.build_chunk_metadata(row_group, column, self.stored_schema.column(column))
    }

    fn build_chunk_metadata(
        &self,
        row_group: usize,
        column: usize,
        descriptor: ColumnDescPtr,
    ) -> Result<ColumnChunkMetaData> {
        let chunk = self.footer_index.chunk(row_group, column);
        // The offset fits into an `i64`: the footer index was validated, so the chunk is in the file, whose size fits.
        let start = chunk.start.cast_signed();
        let dictionary = i64::from(chunk.dictionary_bytes);
        let is_zstd = self.footer_index.chunk_details(row_group, column).is_compressed;
        let compression = if is_zstd { Compression::ZSTD(ZstdLevel::default()) } else { Compression::UNCOMPRESSED };
        let builder = ColumnChunkMetaData::builder(descriptor)
            .set_compression(compression)
            .set_num_values(chunk.values.into())
            .set_total_compressed_size(chunk.stored_bytes.into())
            .set_total_uncompressed_size(chunk.decompressed_bytes.into())
            .set_data_page_offset(start + dictionary)
            .set_dictionary_page_offset((dictionary > 0).then_some(start));
        Ok(builder.build()?)
    }

    pub(super) fn retain_small_profile(&mut self, fetched: &FetchedRange) {
        let ProfileLocation { offset, length, .. } = self.profile_location;
        if length <= MAX_RETAINED_PROFILE_BYTES
            && let Ok(bytes) = fetched.slice(offset..offset + length)
            && self.profile_location.matches(&bytes)
        {
            self.memory_bytes += bytes.len();
            self.profile_bytes = Some(Bytes::copy_from_slice(&bytes));
        }
    }
}

fn find_metadata_value<'a>(metadata: &'a ParquetMetaData, key: &str) -> Option<&'a str> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
}

fn file_metadata(schema: Arc<SchemaDescriptor>, rows: i64) -> FileMetaData {
    FileMetaData::new(1, rows, None, None, schema, None)
}

/// Returns the schema with the types that readers use: strings with few distinct values are dictionaries.
fn reader_schema(layout: &FileLayout) -> Arc<Schema> {
    layout.schema_with_types(|shredded, part| match part {
        ShreddedPart::Text if shredded.dictionary => {
            DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Binary))
        }
        part => part.data_type(),
    })
}
