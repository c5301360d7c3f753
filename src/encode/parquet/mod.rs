//! `format=parquet`: flattened entities as nullable columns of text, or of types (docs/reference/formats.md, parquet).
//!
//! It has three parts, so that all threads can work on an answer, and its bytes come in order:
//!
//! 1. [`BatchBuilder`], one per part, finds the cells of entities, and puts those of a column together. Missing cells
//!    take no memory. [`Batches`], one per answer, begins them.
//! 2. [`RowGroup`] is the cells of some parts. Its columns are encoded apart, each by any [`ColumnEncoder`].
//! 3. [`ParquetStream`], one per answer, collects batches and writes what is encoded.
//!
//! The memory held is known and bounded: see [`ParquetStream::held_bytes`]. The bytes of a file depend on its rows and
//! on the parts that they come in, not on how many threads work.
//!
//! Null and a missing key are null. An empty string stays one. Compression is Zstandard. The writer uses dictionaries
//! where they save bytes. Readers see plain optional columns, of UTF-8 unless they are typed. No Arrow schema is
//! stored, so every reader takes its own type for text.
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

use std::io::{self, Write};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type};

use super::EncodeError;

/// Memory of the cells of a row group, besides [`COLUMN_BYTES`] for each column: enough that a table of many columns is
/// not cut into row groups of a few rows.
const ROW_GROUP_BYTES: usize = 18 << 20;
const COLUMN_BYTES: usize = 8 << 10;

/// How many copies of a row group's bytes may exist at once: as cells and encoded, then encoded and as bytes of the
/// file.
const COPIES: usize = 2;

/// Bytes that a [`ColumnEncoder`] takes, besides a value that is larger than a page: two pages, a dictionary with its
/// table, codes, and what the compressor keeps.
const ENCODER_BYTES: usize = 6 << 20;

/// Bytes of the footer for a column of a row group, without its name: its metadata, in memory and as written.
const CHUNK_METADATA_BYTES: usize = 768;

/// Bytes of the index of pages for each of them: its place, and two bounds, in memory and as written.
const INDEXED_PAGE_BYTES: usize = 512;

/// Rows of a row group. They are numbered with 32 bits, and every null costs a little.
const MOST_ROWS: usize = 1 << 19;

/// How many copies of the columns' names exist: in the schemas, and in the paths of columns.
const NAME_COPIES: usize = 6;

#[derive(Clone, Debug, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the batches of one answer as a Parquet file, from front to back, a row group at a time:
///
/// 1. [`push`](ParquetStream::push) batches until the row group [`is_full`](ParquetStream::is_full), or there are no
///    more;
/// 2. encode all columns of the [`row_group`](ParquetStream::row_group), and [`write`](ParquetStream::write) them;
/// 3. [`take`](ParquetStream::take) the bytes.
pub struct ParquetStream {
    writer: SerializedFileWriter<Sink>,
    sink: Sink,
    schema: SchemaDescPtr,
    /// The types of the columns; none where all are text.
    types: Option<Arc<[ColumnType]>>,
    /// Rows of a row group, if its cells are not too many bytes before.
    row_group_rows: usize,
    batches: Vec<Batch>,
    rows: usize,
    cell_bytes: usize,
    row_group_bytes: usize,
}

impl ParquetStream {
    /// A good size of a row group's cells for readers, in bytes, for this many columns.
    pub fn row_group_bytes(columns: usize) -> usize {
        ROW_GROUP_BYTES + columns * COLUMN_BYTES
    }

    /// A file without rows, whose row groups will hold about this many bytes of cells. Without any batch it is still a
    /// valid file with the columns.
    pub fn try_new(columns: &Columns, row_group_bytes: usize) -> Result<ParquetStream, EncodeError> {
        ParquetStream::of(columns, None, row_group_bytes, MOST_ROWS)
    }

    /// As [`ParquetStream::try_new`], with typed columns, for readers that look for values: row groups have this many
    /// rows, unless that is too many bytes, and their pages have an index.
    pub fn typed(
        columns: &Columns,
        types: Arc<[ColumnType]>,
        row_group_bytes: usize,
        row_group_rows: usize,
    ) -> Result<ParquetStream, EncodeError> {
        ParquetStream::of(columns, Some(types), row_group_bytes, row_group_rows.clamp(1, MOST_ROWS))
    }

    fn of(
        columns: &Columns,
        types: Option<Arc<[ColumnType]>>,
        row_group_bytes: usize,
        row_group_rows: usize,
    ) -> Result<ParquetStream, EncodeError> {
        let compression = Compression::ZSTD(ZstdLevel::try_new(chunk::LEVEL)?);
        // Without types, nobody looks for values: readers take the whole.
        let properties =
            WriterProperties::builder().set_compression(compression).set_offset_index_disabled(types.is_none()).build();
        let schema = Arc::new(SchemaDescriptor::new(Arc::new(schema(columns.names(), types.as_deref())?)));
        let sink = Sink::default();
        let writer = SerializedFileWriter::new(sink.clone(), schema.root_schema_ptr(), Arc::new(properties))?;
        let (batches, rows, cell_bytes) = (Vec::new(), 0, 0);
        Ok(ParquetStream { writer, sink, schema, types, row_group_rows, batches, rows, cell_bytes, row_group_bytes })
    }

    /// Bytes that a file of these columns takes while a row group of this size is made by so many encoders: twice the
    /// size, and its names. The footer comes on top ([`footer_bytes`](ParquetStream::footer_bytes)).
    pub fn held_bytes(columns: &Columns, row_group_bytes: usize, encoders: usize) -> usize {
        COPIES * row_group_bytes + NAME_COPIES * columns.name_bytes() + ENCODER_BYTES * encoders
    }

    /// Bytes that each row group holds until the end, for the footer.
    pub fn footer_bytes(columns: &Columns) -> usize {
        columns.len() * CHUNK_METADATA_BYTES + columns.name_bytes()
    }

    /// Bytes that the index of the current row group's pages holds until the end.
    pub fn index_bytes(&self, columns: &Columns) -> usize {
        self.index_bytes_of(self.rows, self.cell_bytes / chunk::PAGE_BYTES, columns)
    }

    /// As [`ParquetStream::index_bytes`], of a row group that is full, about.
    pub fn most_index_bytes(&self, columns: &Columns) -> usize {
        self.index_bytes_of(self.row_group_rows, self.row_group_bytes / chunk::PAGE_BYTES + 1, columns)
    }

    fn index_bytes_of(&self, rows: usize, full_pages: usize, columns: &Columns) -> usize {
        let pages = rows.div_ceil(chunk::INDEXED_ROWS) * columns.len() + full_pages;
        if self.types.is_some() { pages * INDEXED_PAGE_BYTES } else { 0 }
    }

    /// How many row groups so many rows of so many bytes become, about.
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

    /// Rows until the row group [`is_full`](ParquetStream::is_full), if their cells are not too many bytes before.
    pub fn missing_rows(&self) -> usize {
        self.row_group_rows.saturating_sub(self.rows)
    }

    /// Bytes of cells until the row group [`is_full`](ParquetStream::is_full), if its rows are not too many before.
    pub fn missing_bytes(&self) -> usize {
        self.row_group_bytes.saturating_sub(self.cell_bytes)
    }

    /// The row group so far, to be encoded; another one may begin when it is written. `None` without rows.
    pub fn row_group(&mut self) -> Option<RowGroup> {
        let (batches, rows) = (mem::take(&mut self.batches), mem::take(&mut self.rows));
        self.cell_bytes = 0;
        (rows > 0).then(|| RowGroup { schema: self.schema.clone(), types: self.types.clone(), batches, rows })
    }

    /// Writes a row group: all its columns in order. Its cells should be gone before.
    ///
    /// # Errors
    /// [`EncodeError`]. The file is then unusable.
    pub fn write(&mut self, columns: Vec<ColumnChunk>) -> Result<(), EncodeError> {
        self.sink.bytes().reserve(columns.iter().map(ColumnChunk::size_bytes).sum());
        let mut row_group = self.writer.next_row_group()?;
        for column in columns {
            row_group.append_column(&column.bytes, column.close)?;
        }
        row_group.close()?;
        Ok(())
    }

    /// The bytes of the file that have been written since the last time.
    pub fn take(&mut self) -> Result<Bytes, EncodeError> {
        self.writer.flush().map_err(ParquetError::from)?;
        Ok(mem::take(&mut *self.sink.bytes()).into())
    }

    /// Takes back bytes that are needed no more: their memory is used again, if nobody else has them.
    pub fn reuse(&self, taken: Bytes) {
        let mut bytes = self.sink.bytes();
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
