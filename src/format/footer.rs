//! The footer of a version file, decoded once for all its readers.

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
use super::keywords::stored::{KEYWORDS_KEY, KeywordIndex};
use super::layout::{Layout, METADATA_KEY, ShreddedColumn, ShreddedPart};
use super::outline::builder::{OutlineBuilder, wrong_checksums};
use super::outline::{Outline, Texts};
use super::overlay::{Edit, Extent};
use super::page_table::{PageTable, SLOT_BYTES};
use super::profile::{PROFILE_KEY, ProfileLocation};
use super::shapes::stored::{SHAPES_KEY, ShapeIndex};

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

pub(super) type DocumentPages = Vec<Vec<PageLocation>>;

/// The keys of the footer's metadata whose values an outline has, too.
pub(super) const OUTLINE_KEYS: [&str; 4] = [METADATA_KEY, PROFILE_KEY, KEYWORDS_KEY, SHAPES_KEY];

pub struct Footer {
    /// A number that no other file opened by this process has.
    pub id: u64,
    pub(super) size_bytes: u64,
    /// Where row groups, columns, pages and bloom filters lie, with their checksums and statistics.
    pub(super) outline: Outline,
    /// Whether that came from the file, and the Parquet footer has not been looked at.
    pub(super) has_outline: bool,
    pub(super) schema: Arc<Schema>,
    stored_schema: Arc<SchemaDescriptor>,
    pub(super) layout: Layout,
    pub(super) profile: ProfileLocation,
    pub(super) sealed_from: u64,
    /// The row groups of the file itself, without those of a base. Its keyword index has no segments in files that have
    /// none, and its shapes are of no row group.
    pub(super) list: Arc<ExtentList>,
    /// What is wrong with the outline, or the places of the keyword index or the shapes. They are passed over then.
    pub(super) misplaced: Option<String>,
    pub(super) page_table: PageTable,
    pub(super) indented_table: PageTable,
    /// The profile, where it came with the end of the file and is small.
    pub(super) profile_bytes: Option<Bytes>,
    pub(super) memory_bytes: usize,
}

/// Bytes of a profile that is kept with its footer: reads that name fields ask for it, and would wait for it.
const SMALL_PROFILE_BYTES: u64 = 64 << 10;

impl Footer {
    /// What the metadata of a file says, which has these pages of documents and whose end is sealed from an offset on.
    pub(super) fn parse(
        metadata: &ParquetMetaData,
        pages: Result<DocumentPages>,
        sealed_from: Option<u64>,
        size_bytes: u64,
    ) -> Result<Footer> {
        let text = metadata_of(metadata, METADATA_KEY)
            .ok_or_else(|| StorageError::Layout("it was not written by strata".to_owned()))?;
        let layout = Layout::parse(text)?;
        let sealed_from = sealed_from
            .ok_or_else(|| StorageError::Layout("its end is damaged: the footer checksum is missing".to_owned()))?;
        let pages = pages?;
        let checksums = metadata_of(metadata, CHECKSUMS_KEY)
            .ok_or_else(|| StorageError::Layout("its footer contains no checksums".to_owned()))?;
        let mut checksums = parse_checksums(checksums)?.into_iter();
        let stored_schema = metadata.file_metadata().schema_descr_ptr();
        let mut outline = OutlineBuilder::new(stored_schema.num_columns());
        for (number, row_group) in metadata.row_groups().iter().enumerate() {
            outline.push(row_group, pages.get(number).map_or(&[], Vec::as_slice), &mut checksums)?;
        }
        if checksums.next().is_some() {
            return Err(wrong_checksums());
        }
        let texts = OUTLINE_KEYS.iter().filter_map(|key| Some((key, metadata_of(metadata, key)?)));
        let texts: Texts = texts.map(|(key, text)| ((*key).to_owned(), text.to_owned())).collect();
        let outline = Outline::read(outline.finish(&texts)?.into(), size_bytes)?;
        let outline = outline.ok_or_else(|| StorageError::Layout("its footer is too large".to_owned()))?;
        Footer::new(outline, &texts, layout, stored_schema, sealed_from, size_bytes)
    }

    /// What the outline of a file says, whose end is sealed from an offset on. `None` when it has another format.
    pub(super) fn from_outline(bytes: Bytes, sealed_from: u64, size_bytes: u64) -> Result<Option<Footer>> {
        let Some(outline) = Outline::read(bytes, size_bytes)? else { return Ok(None) };
        let texts = outline.texts()?;
        let text = texts.get(METADATA_KEY);
        let layout =
            Layout::parse(text.ok_or_else(|| StorageError::Layout("its footer index has no layout".to_owned()))?)?;
        let stored_schema = Arc::new(ArrowSchemaConverter::new().convert(&layout.schema())?);
        let footer = Footer::new(outline, &texts, layout, stored_schema, sealed_from, size_bytes)?;
        Ok(Some(Footer { has_outline: true, ..footer }))
    }

    fn new(
        outline: Outline,
        texts: &Texts,
        layout: Layout,
        stored_schema: Arc<SchemaDescriptor>,
        sealed_from: u64,
        size_bytes: u64,
    ) -> Result<Footer> {
        let profile = texts.get(PROFILE_KEY).and_then(|text| serde_json::from_str::<ProfileLocation>(text).ok());
        let profile = profile
            .filter(|location| location.is_within(size_bytes))
            .ok_or_else(|| StorageError::Layout("its footer is damaged: its profile is misplaced".to_owned()))?;
        let rows: Vec<usize> = (0..outline.row_groups).map(|row_group| outline.rows(row_group) as usize).collect();
        let entities: u64 = rows.iter().map(|rows| *rows as u64).sum();
        let expected = layout.own_entities();
        if entities != expected {
            return Err(StorageError::Layout(format!("it contains {entities} entities instead of {expected}")));
        }
        if let Some(edit) = &layout.edit {
            edit.check(Extent::DELTA, &rows)?;
        }
        let keywords = texts.get(KEYWORDS_KEY).map(|text| KeywordIndex::parse(text, &rows, size_bytes));
        let shapes = texts.get(SHAPES_KEY).map(|text| ShapeIndex::parse(text, rows.len(), size_bytes));
        let mut misplaced = None;
        let mut tell = |cause: StorageError| misplaced = Some(cause.to_string());
        let keywords = keywords.transpose().map_err(&mut tell).unwrap_or_default().unwrap_or_default();
        let shapes = shapes.transpose().map_err(&mut tell).unwrap_or_default().unwrap_or_default();
        let schema = reading_schema(&layout);
        let columns = [stored_schema.root_schema().get_fields().len(), stored_schema.num_columns(), outline.columns];
        if columns != [schema.fields().len(); 3] {
            return Err(StorageError::Layout("its footer is damaged: its columns do not match its layout".to_owned()));
        }
        // The types of the file are those that readers want, as far as both can say it.
        let metadata = ParquetMetaData::new(file_metadata(stored_schema.clone(), 0), Vec::new());
        let pages: usize = (0..rows.len()).map(|row_group| outline.page_count(row_group)).sum();
        let memory_bytes = metadata.memory_size()
            + outline.bytes.len()
            + keywords.memory_bytes()
            + shapes.memory_bytes()
            + 2 * pages * SLOT_BYTES
            + 1_024;
        ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new().with_schema(schema.clone()))?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Ok(Footer {
            id,
            size_bytes,
            outline,
            has_outline: false,
            schema,
            stored_schema,
            layout,
            profile,
            sealed_from,
            list: Arc::new(ExtentList::of_file(id, &rows, keywords, shapes)),
            misplaced,
            page_table: PageTable::new(rows.len()),
            indented_table: PageTable::new(rows.len()),
            profile_bytes: None,
            memory_bytes,
        })
    }

    /// The list of this edited file.
    ///
    /// # Errors
    /// [`StorageError::Layout`] if `base` is not the file that `edit` refers to, or its extents are not within it.
    pub(super) fn edited_list(&self, edit: &Edit, base: &Footer) -> Result<ExtentList> {
        let damaged = |what: &str| Err(StorageError::Layout(what.to_owned()));
        if base.layout.edit.is_some() {
            return damaged("its base is also an edited file");
        }
        if base.layout.content_sha256 != edit.base.content_sha256 {
            return damaged("its base is not the file that this edited file was created from");
        }
        // They may have been retired since.
        let mut columns = self.layout.shredded_columns.iter().zip(&base.layout.shredded_columns);
        let are_equal = columns.all(|(own, base)| *own == ShreddedColumn { retired: own.retired, ..base.clone() });
        if !are_equal || self.layout.shredded_columns.len() != base.layout.shredded_columns.len() {
            return damaged("its base has different columns");
        }
        let rows: Vec<usize> = base.list.row_groups.iter().map(|row_group| row_group.rows).collect();
        edit.check(Extent::BASE, &rows)?;
        let files = [&base.list, &self.list];
        let segments = files.map(|list| &list.keywords.segments[..]);
        let mut keywords = KeywordIndex { segments: segments.concat(), ..KeywordIndex::default() };
        let mut shapes = ShapeIndex::default();
        for extent in &edit.extents {
            let file = usize::from(extent.file);
            let row_group = extent.row_group as usize;
            let before: usize = segments[..file].iter().map(|segments| segments.len()).sum();
            let place = files[file].keywords.place_of(row_group);
            keywords.rows += place.map_or(0, |_| u64::from(extent.rows));
            keywords.places.push(place.map(|(segment, start)| (before + segment, start + extent.start as usize)));
            shapes.row_groups.push(files[file].shapes.get(row_group).cloned());
        }
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Ok(ExtentList::new(id, edit.extents.clone(), keywords, shapes))
    }

    /// A column of a row group as Parquet's decoders want it: the one column of a file of this row group alone, and the
    /// types that readers want.
    pub(super) fn column_metadata(&self, row_group: usize, column: usize) -> Result<ArrowReaderMetadata> {
        let rows = self.outline.rows(row_group).into();
        let field = self.stored_schema.root_schema().get_fields()[column].clone();
        let stored = Type::group_type_builder("column").with_fields(vec![field]).build()?;
        let stored = Arc::new(SchemaDescriptor::new(Arc::new(stored)));
        let chunk = self.chunk_metadata_of(row_group, column, stored.column(0))?;
        let metadata = RowGroupMetaData::builder(stored.clone()).set_num_rows(rows).set_column_metadata(vec![chunk]);
        let metadata = ParquetMetaData::new(file_metadata(stored, rows), vec![metadata.build()?]);
        let schema = Arc::new(Schema::new(vec![self.schema.fields()[column].clone()]));
        let options = ArrowReaderOptions::new().with_schema(schema);
        Ok(ArrowReaderMetadata::try_new(Arc::new(metadata), options)?)
    }

    pub(super) fn chunk_metadata(&self, row_group: usize, column: usize) -> Result<ColumnChunkMetaData> {
        self.chunk_metadata_of(row_group, column, self.stored_schema.column(column))
    }

    fn chunk_metadata_of(
        &self,
        row_group: usize,
        column: usize,
        descriptor: ColumnDescPtr,
    ) -> Result<ColumnChunkMetaData> {
        let chunk = self.outline.chunk(row_group, column);
        // They lie in the file, whose size is such a number.
        let start = chunk.start.cast_signed();
        let dictionary = i64::from(chunk.dictionary_bytes);
        let compression = match self.outline.details(row_group, column).is_compressed {
            true => Compression::ZSTD(ZstdLevel::default()),
            false => Compression::UNCOMPRESSED,
        };
        let mut builder = ColumnChunkMetaData::builder(descriptor)
            .set_compression(compression)
            .set_num_values(chunk.values.into())
            .set_total_compressed_size(chunk.stored_bytes.into())
            .set_total_uncompressed_size(chunk.decompressed_bytes.into())
            .set_data_page_offset(start + dictionary)
            .set_dictionary_page_offset((dictionary > 0).then_some(start));
        if let Some((range, _)) = self.outline.bloom(row_group, column) {
            let length = i32::try_from(range.end - range.start).map_err(|_| StorageError::undecodable())?;
            builder = builder.set_bloom_filter_offset(Some(range.start.cast_signed()));
            builder = builder.set_bloom_filter_length(Some(length));
        }
        Ok(builder.build()?)
    }

    /// Keeps the profile, if it is small and among these bytes. Others are read again, and the reader is told.
    pub(super) fn keep_profile(&mut self, run: &FetchedRange) {
        let ProfileLocation { offset, length, .. } = self.profile;
        if length <= SMALL_PROFILE_BYTES
            && let Ok(bytes) = run.slice(offset..offset + length)
            && self.profile.is_of(&bytes)
        {
            self.memory_bytes += bytes.len();
            self.profile_bytes = Some(Bytes::copy_from_slice(&bytes));
        }
    }
}

fn metadata_of<'a>(metadata: &'a ParquetMetaData, key: &str) -> Option<&'a str> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
}

fn file_metadata(schema: Arc<SchemaDescriptor>, rows: i64) -> FileMetaData {
    FileMetaData::new(1, rows, None, None, schema, None)
}

/// The file's schema with the types that readers want: texts of few distinct values as dictionaries.
fn reading_schema(layout: &Layout) -> Arc<Schema> {
    layout.schema_with(|shredded, part| match part {
        ShreddedPart::Text | ShreddedPart::Exact if shredded.dictionary => {
            DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Binary))
        }
        part => part.data_type(),
    })
}
