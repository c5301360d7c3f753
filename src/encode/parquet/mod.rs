//! `format=parquet`: flattened entities as nullable text or typed columns (docs/reference/formats.md, parquet).
//!
//! Encoding has three steps, so that all threads can work on a response, and its bytes are in order:
//!
//! 1. [`CellBatchBuilder`], one for each part of a response, collects the cells of entities by column. Missing cells
//!    need no memory. [`CellBatchFactory`], one for each response, creates the builders.
//! 2. [`PendingRowGroup`] contains the cells of some parts. Any [`ColumnEncoder`] can encode any of its columns.
//! 3. [`ParquetFileStream`], one for each response, collects batches and writes encoded columns.
//!
//! The memory is limited: see [`ParquetFileStream::peak_memory_bytes`]. The bytes of a file depend on its rows and the
//! sizes of the parts, but not on the number of threads.
//!
//! Null and missing keys are null. Compression is Zstandard. Columns are optional, and have the type UTF-8 unless they
//! are typed. The file contains no Arrow schema, so every reader uses its own type for text.
//!
//! Measured by the row `export everything, parquet` of `benches/reads`.

mod cell_batch;
mod column_chunk;
mod column_types;
mod page_encoding;
mod value_bounds;

pub(crate) use cell_batch::EncodedValues;
pub use cell_batch::{CellBatch, CellBatchBuilder, CellBatchFactory};
pub use column_chunk::{ColumnChunk, ColumnEncoder, PendingRowGroup};
pub use column_types::{ColumnType, ColumnTypeInference, ColumnTypesBuilder};
use strata_json::TableColumnNames;

use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type};

use super::EncodeError;

/// Memory for the cells of a row group. Each column adds some, so that row groups with many columns have enough rows.
const ROW_GROUP_BYTES: usize = 18 << 20;
const ROW_GROUP_BYTES_PER_COLUMN: usize = 8 << 10;

/// A row group is in memory twice: first as cells and encoded columns, then as encoded columns and file bytes.
const ROW_GROUP_COPIES: usize = 2;

/// Memory of a [`ColumnEncoder`]: two pages, a dictionary with its table, codes, and the compressor.
const COLUMN_ENCODER_BYTES: usize = 6 << 20;

const CHUNK_METADATA_BYTES: usize = 768;

/// Memory for the entry of a page in the page index of a Parquet file: an offset and two bounds.
const INDEXED_PAGE_BYTES: usize = 512;

/// Limit of the rows of a row group, because row numbers have 32 bits, and every null costs a little.
const MAX_ROW_GROUP_ROWS: usize = 1 << 19;

/// How often each column name is in memory at the same time: in schemas and in column paths.
const NAME_COPIES: usize = 6;

/// Writes the batches of a response as a Parquet file, one row group at a time:
///
/// 1. [`push`](ParquetFileStream::push) batches until the row group [is full](ParquetFileStream::is_row_group_full);
/// 2. encode all columns of [`take_row_group`](ParquetFileStream::take_row_group), and
///    [write](ParquetFileStream::write_row_group) them;
/// 3. [`take_written_bytes`](ParquetFileStream::take_written_bytes).
pub struct ParquetFileStream {
    writer: SerializedFileWriter<Vec<u8>>,
    schema: SchemaDescPtr,
    column_types: Option<Arc<[ColumnType]>>,
    max_row_group_rows: usize,
    batches: Vec<CellBatch>,
    rows: usize,
    cell_bytes: usize,
    max_row_group_bytes: usize,
}

impl ParquetFileStream {
    /// The recommended size of a row group's cells, in bytes.
    pub fn recommended_row_group_bytes(columns: usize) -> usize {
        ROW_GROUP_BYTES + columns * ROW_GROUP_BYTES_PER_COLUMN
    }

    /// Creates a file. Its row groups contain about `row_group_bytes` of cells, and at most `row_group_rows` rows. A
    /// file without rows is valid. With types, pages have an index, for readers that search for values.
    pub fn try_new(
        columns: &TableColumnNames,
        column_types: Option<Arc<[ColumnType]>>,
        row_group_bytes: usize,
        row_group_rows: usize,
    ) -> Result<ParquetFileStream, EncodeError> {
        let compression = Compression::ZSTD(ZstdLevel::try_new(column_chunk::PAGE_ZSTD_LEVEL)?);
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_offset_index_disabled(column_types.is_none())
            .build();
        let schema = Arc::new(SchemaDescriptor::new(Arc::new(build_schema(columns.names(), column_types.as_deref())?)));
        let writer = SerializedFileWriter::new(Vec::new(), schema.root_schema_ptr(), Arc::new(properties))?;
        Ok(ParquetFileStream {
            writer,
            schema,
            column_types,
            max_row_group_rows: row_group_rows.clamp(1, MAX_ROW_GROUP_ROWS),
            batches: Vec::new(),
            rows: 0,
            cell_bytes: 0,
            max_row_group_bytes: row_group_bytes,
        })
    }

    /// The memory in bytes for a Parquet file while its row groups are encoded, without the footer.
    pub fn peak_memory_bytes(columns: &TableColumnNames, row_group_bytes: usize, encoders: usize) -> usize {
        ROW_GROUP_COPIES * row_group_bytes + NAME_COPIES * columns.name_bytes() + COLUMN_ENCODER_BYTES * encoders
    }

    pub fn footer_bytes_per_row_group(columns: &TableColumnNames) -> usize {
        columns.len() * CHUNK_METADATA_BYTES + columns.name_bytes()
    }

    /// The memory that the page index needs for the current row group.
    pub fn current_page_index_bytes(&self, columns: &TableColumnNames) -> usize {
        self.estimate_page_index_bytes(self.rows, self.cell_bytes / column_chunk::MAX_PAGE_BYTES, columns)
    }

    pub fn max_page_index_bytes(&self, columns: &TableColumnNames) -> usize {
        let full_pages = self.max_row_group_bytes / column_chunk::MAX_PAGE_BYTES + 1;
        self.estimate_page_index_bytes(self.max_row_group_rows, full_pages, columns)
    }

    fn estimate_page_index_bytes(&self, rows: usize, full_pages: usize, columns: &TableColumnNames) -> usize {
        let pages = rows.div_ceil(column_chunk::MAX_INDEXED_PAGE_ROWS) * columns.len() + full_pages;
        if self.column_types.is_some() { pages * INDEXED_PAGE_BYTES } else { 0 }
    }

    pub fn estimate_row_groups(&self, rows: u64, bytes: u64) -> usize {
        let by_rows = rows / self.max_row_group_rows as u64;
        let by_bytes = bytes / self.max_row_group_bytes as u64;
        usize::try_from(by_rows.max(by_bytes)).unwrap_or(usize::MAX).saturating_add(1)
    }

    /// Adds the rows of a batch to the current row group. The batch must have the columns of the file.
    pub fn push(&mut self, batch: CellBatch) {
        self.rows += batch.rows;
        self.cell_bytes += batch.size_bytes();
        self.batches.push(batch);
    }

    pub fn is_row_group_full(&self) -> bool {
        self.cell_bytes >= self.max_row_group_bytes || self.rows >= self.max_row_group_rows
    }

    /// The number of rows that fit in the current row group, unless it reaches its limit of bytes earlier.
    pub fn row_group_rows_left(&self) -> usize {
        self.max_row_group_rows.saturating_sub(self.rows)
    }

    /// The bytes of cells that fit in the current row group, unless it reaches its limit of rows earlier.
    pub fn row_group_bytes_left(&self) -> usize {
        self.max_row_group_bytes.saturating_sub(self.cell_bytes)
    }

    /// Takes the current row group for encoding. `None` if it has no rows.
    pub fn take_row_group(&mut self) -> Option<PendingRowGroup> {
        let batches = mem::take(&mut self.batches);
        let rows = mem::take(&mut self.rows);
        self.cell_bytes = 0;
        let schema = self.schema.clone();
        let column_types = self.column_types.clone();
        (rows > 0).then_some(PendingRowGroup { schema, column_types, batches, rows })
    }

    /// Writes all columns of a row group, in order. To save memory, drop the row group first. After an error, the file
    /// is unusable.
    pub fn write_row_group(&mut self, columns: Vec<ColumnChunk>) -> Result<(), EncodeError> {
        self.writer.inner_mut().reserve(columns.iter().map(ColumnChunk::size_bytes).sum());
        let mut row_group = self.writer.next_row_group()?;
        for column in columns {
            row_group.append_column(&column.bytes, column.close)?;
        }
        row_group.close()?;
        Ok(())
    }

    pub fn take_written_bytes(&mut self) -> Result<Bytes, EncodeError> {
        self.writer.flush().map_err(ParquetError::from)?;
        Ok(mem::take(self.writer.inner_mut()).into())
    }

    pub fn reuse_buffer(&mut self, taken: Bytes) {
        let bytes = self.writer.inner_mut();
        if bytes.capacity() == 0 && taken.is_unique() {
            *bytes = taken.into();
            bytes.clear();
        }
    }

    /// Finishes the Parquet file and returns its remaining bytes. All pushed rows must have been written.
    pub fn finish_file(mut self) -> Result<Bytes, EncodeError> {
        self.writer.finish()?;
        self.take_written_bytes()
    }
}

fn build_schema(names: &[String], types: Option<&[ColumnType]>) -> Result<Type, EncodeError> {
    let column_type = |column: usize| types.map_or(ColumnType::Text, |types| types[column]);
    let columns = names.iter().enumerate().map(|(index, name)| column_type(index).to_parquet_field(name).map(Arc::new));
    let columns = columns.collect::<Result<_, _>>()?;
    Ok(Type::group_type_builder("arrow_schema").with_fields(columns).build()?)
}
