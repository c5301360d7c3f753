//! `format=parquet`: flattened entities as nullable columns of text, or of types (docs/reference/formats.md, parquet).
//!
//! Encoding has three parts, so that all threads can work on a response, and its bytes are in order:
//!
//! 1. [`BatchBuilder`], one for each part, collects the cells of entities by column. Missing cells need no memory.
//!    [`Batches`], one for each response, creates the builders.
//! 2. [`RowGroup`] contains the cells of some parts. Any [`ColumnEncoder`] can encode any of its columns.
//! 3. [`ParquetStream`], one for each response, collects batches and writes encoded columns.
//!
//! The memory is limited: see [`ParquetStream::held_bytes`]. The bytes of a file depend on its rows and the sizes of
//! the parts, but not on the number of threads.
//!
//! Null and a missing key are null. An empty string is an empty string. Compression is Zstandard. Columns are optional,
//! and of UTF-8 unless they are typed. The file contains no Arrow schema, so every reader uses its own type for text.
//!
//! Measured by the row `export everything, parquet` of `benches/reads`; `encode::other_readers` opens the files.

mod batch;
mod bounds;
mod chunk;
mod page;
mod types;

pub use batch::{Batch, BatchBuilder, Batches};
pub use chunk::{ColumnChunk, ColumnEncoder, RowGroup};
use strata_json::Columns;
pub use types::{ColumnType, TypesBuilder, Typing};

use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type};

use super::EncodeError;

/// Memory for the cells of a row group. [`COLUMN_BYTES`] prevent short row groups if there are many columns.
const ROW_GROUP_BYTES: usize = 18 << 20;
const COLUMN_BYTES: usize = 8 << 10;

/// Copies of a row group's bytes at once: cells and encoded columns, then encoded columns and bytes of the file.
const COPIES: usize = 2;

/// Memory of a [`ColumnEncoder`]: two pages, a dictionary with its table, codes, and the compressor.
const ENCODER_BYTES: usize = 6 << 20;

/// Memory for the metadata of a column of a row group, without its name.
const CHUNK_METADATA_BYTES: usize = 768;

/// Memory for a page in the page index: its offset and two bounds.
const INDEXED_PAGE_BYTES: usize = 512;

/// Rows of a row group. Row numbers have 32 bits, and every null costs a little.
const MAX_ROWS: usize = 1 << 19;

/// Copies of the columns' names in the schemas and in the paths of columns.
const NAME_COPIES: usize = 6;

/// Writes the batches of a response as a Parquet file, from front to back, a row group at a time:
///
/// 1. [`push`](ParquetStream::push) batches until the row group [`is_full`](ParquetStream::is_full), or there are no
///    more;
/// 2. encode all columns of the [`row_group`](ParquetStream::row_group), and [`write`](ParquetStream::write) them;
/// 3. [`take`](ParquetStream::take) the bytes.
pub struct ParquetStream {
    writer: SerializedFileWriter<Vec<u8>>,
    schema: SchemaDescPtr,
    /// `None` if all columns are text.
    types: Option<Arc<[ColumnType]>>,
    row_group_rows: usize,
    batches: Vec<Batch>,
    rows: usize,
    cell_bytes: usize,
    row_group_bytes: usize,
}

impl ParquetStream {
    /// The recommended size of a row group's cells, in bytes.
    pub fn row_group_bytes(columns: usize) -> usize {
        ROW_GROUP_BYTES + columns * COLUMN_BYTES
    }

    /// A file whose row groups contain about this many bytes of cells, and at most this many rows. A file without rows
    /// is valid. With types, pages have an index, for readers that search for values.
    pub fn try_new(
        columns: &Columns,
        types: Option<Arc<[ColumnType]>>,
        row_group_bytes: usize,
        row_group_rows: usize,
    ) -> Result<ParquetStream, EncodeError> {
        let compression = Compression::ZSTD(ZstdLevel::try_new(chunk::LEVEL)?);
        let properties =
            WriterProperties::builder().set_compression(compression).set_offset_index_disabled(types.is_none()).build();
        let schema = Arc::new(SchemaDescriptor::new(Arc::new(schema(columns.names(), types.as_deref())?)));
        let writer = SerializedFileWriter::new(Vec::new(), schema.root_schema_ptr(), Arc::new(properties))?;
        Ok(ParquetStream {
            writer,
            schema,
            types,
            row_group_rows: row_group_rows.clamp(1, MAX_ROWS),
            batches: Vec::new(),
            rows: 0,
            cell_bytes: 0,
            row_group_bytes,
        })
    }

    /// The memory for a file while its row groups are encoded, without the footer
    /// ([`footer_bytes`](ParquetStream::footer_bytes)).
    pub fn held_bytes(columns: &Columns, row_group_bytes: usize, encoders: usize) -> usize {
        COPIES * row_group_bytes + NAME_COPIES * columns.name_bytes() + ENCODER_BYTES * encoders
    }

    /// The memory of a row group in the footer.
    pub fn footer_bytes(columns: &Columns) -> usize {
        columns.len() * CHUNK_METADATA_BYTES + columns.name_bytes()
    }

    /// The memory of the current row group in the page index.
    pub fn index_bytes(&self, columns: &Columns) -> usize {
        self.index_bytes_of(self.rows, self.cell_bytes / chunk::PAGE_BYTES, columns)
    }

    /// The memory of a full row group in the page index.
    pub fn most_index_bytes(&self, columns: &Columns) -> usize {
        self.index_bytes_of(self.row_group_rows, self.row_group_bytes / chunk::PAGE_BYTES + 1, columns)
    }

    fn index_bytes_of(&self, rows: usize, full_pages: usize, columns: &Columns) -> usize {
        let pages = rows.div_ceil(chunk::INDEXED_ROWS) * columns.len() + full_pages;
        if self.types.is_some() { pages * INDEXED_PAGE_BYTES } else { 0 }
    }

    /// The estimated number of row groups.
    pub fn row_groups(&self, rows: u64, bytes: u64) -> usize {
        let by_rows = rows / self.row_group_rows as u64;
        let by_bytes = bytes / self.row_group_bytes as u64;
        usize::try_from(by_rows.max(by_bytes)).unwrap_or(usize::MAX).saturating_add(1)
    }

    /// Adds the rows of a batch of the same columns to the row group.
    pub fn push(&mut self, batch: Batch) {
        self.rows += batch.rows;
        self.cell_bytes += batch.size_bytes();
        self.batches.push(batch);
    }

    pub fn is_full(&self) -> bool {
        self.cell_bytes >= self.row_group_bytes || self.rows >= self.row_group_rows
    }

    /// Rows until the row group [`is_full`](ParquetStream::is_full), unless it has too many bytes earlier.
    pub fn missing_rows(&self) -> usize {
        self.row_group_rows.saturating_sub(self.rows)
    }

    /// Bytes of cells until the row group [`is_full`](ParquetStream::is_full), unless it has too many rows earlier.
    pub fn missing_bytes(&self) -> usize {
        self.row_group_bytes.saturating_sub(self.cell_bytes)
    }

    /// The current row group, for encoding. `None` without rows.
    pub fn row_group(&mut self) -> Option<RowGroup> {
        let batches = mem::take(&mut self.batches);
        let rows = mem::take(&mut self.rows);
        self.cell_bytes = 0;
        (rows > 0).then(|| RowGroup { schema: self.schema.clone(), types: self.types.clone(), batches, rows })
    }

    /// Writes all columns of a row group, in order. Drop the row group before.
    ///
    /// # Errors
    /// [`EncodeError`]. The file is then unusable.
    pub fn write(&mut self, columns: Vec<ColumnChunk>) -> Result<(), EncodeError> {
        self.writer.inner_mut().reserve(columns.iter().map(ColumnChunk::size_bytes).sum());
        let mut row_group = self.writer.next_row_group()?;
        for column in columns {
            row_group.append_column(&column.bytes, column.close)?;
        }
        row_group.close()?;
        Ok(())
    }

    /// The bytes of the file since the last call.
    pub fn take(&mut self) -> Result<Bytes, EncodeError> {
        self.writer.flush().map_err(ParquetError::from)?;
        Ok(mem::take(self.writer.inner_mut()).into())
    }

    /// Reuses the memory of bytes that were taken before.
    pub fn reuse(&mut self, taken: Bytes) {
        let bytes = self.writer.inner_mut();
        if bytes.capacity() == 0 && taken.is_unique() {
            *bytes = taken.into();
            bytes.clear();
        }
    }

    /// The rest of the file. All pushed rows must be written before.
    pub fn finish(mut self) -> Result<Bytes, EncodeError> {
        self.writer.finish()?;
        self.take()
    }
}

fn schema(names: &[String], types: Option<&[ColumnType]>) -> Result<Type, EncodeError> {
    let column_type = |column: usize| types.map_or(ColumnType::Text, |types| types[column]);
    let columns = names.iter().enumerate().map(|(column, name)| column_type(column).field(name).map(Arc::new));
    let columns = columns.collect::<Result<_, _>>()?;
    Ok(Type::group_type_builder("arrow_schema").with_fields(columns).build()?)
}
