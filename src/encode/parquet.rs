//! `format=parquet`: flattened entities as nullable text columns (docs/semantics.md, parquet).
//!
//! It has two halves, so that parts of an answer are made in parallel and written in order:
//!
//! 1. [`BatchBuilder`], one per part, finds the cells of entities. Missing cells take no memory.
//! 2. [`ParquetStream`], one per answer, collects the cells of a row group column by column, and encodes one column
//!    after the other. So a table of thousands of columns needs only one writer, dictionary and compressor.
//!
//! The memory held is known and bounded: see [`ParquetStream::held_bytes`].
//!
//! Null and a missing key are null. An empty string stays one. Compression is Zstandard. The writer uses dictionaries
//! where they save bytes. Readers see plain optional UTF-8 columns. No Arrow schema is stored, so every reader takes
//! its own type for text.

use std::io::{self, Write};
use std::mem;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{ArrayRef, LargeStringArray, NullBufferBuilder};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescPtr, Type};

use super::columns::Columns;
use super::error::EncodeError;
use super::row::Row;
use crate::document::Text;

/// Memory of the cells of a row group, besides [`COLUMN_BYTES`] for each column: enough that a table of many columns is
/// not cut into row groups of a few rows.
const ROW_GROUP_BYTES: usize = 18 << 20;
const COLUMN_BYTES: usize = 8 << 10;

/// How many copies of a row group's bytes may exist at once: as cells and encoded, then encoded and as bytes of the
/// file.
const COPIES: usize = 2;

/// Bytes of the footer for a column of a row group, without its name: its metadata, in memory and as written.
const CHUNK_METADATA_BYTES: usize = 768;

/// How many copies of the columns' names exist: in the schemas, and in the paths of columns.
const NAME_COPIES: usize = 6;

/// Rows, and bytes of text, that a column's writer gets at once.
const WRITE_ROWS: usize = 8_192;
const WRITE_BYTES: u32 = 4 << 20;

/// Finds the cells of the entities of one part.
#[derive(Debug)]
pub struct BatchBuilder {
    columns: Arc<Columns>,
    row: Row,
    batch: Batch,
}

/// The cells of one part, row by row.
#[derive(Debug, Default)]
pub struct Batch {
    rows: usize,
    cells: Vec<Cell>,
    text: Vec<u8>,
}

/// A cell that is not null. Its text begins where that of the previous cell ends.
#[derive(Clone, Copy, Debug)]
struct Cell {
    column: u32,
    row: u32,
    end: usize,
}

impl Batch {
    /// Rows in it.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes that it holds.
    pub fn size_bytes(&self) -> usize {
        self.text.len() + self.cells.len() * size_of::<Cell>()
    }
}

impl BatchBuilder {
    /// A builder without rows.
    pub fn new(columns: Arc<Columns>) -> BatchBuilder {
        BatchBuilder { columns, row: Row::default(), batch: Batch::default() }
    }

    /// Adds a row: one entity, a canonical document. Costs its cells, not the columns.
    pub fn push(&mut self, document: &[u8]) {
        let placed = self.row.place(document, &self.columns);
        let Batch { rows, cells, text } = &mut self.batch;
        for &column in placed.filled {
            match &document[placed.by_column[column as usize].clone()] {
                b"null" => continue,
                [b'"', escaped @ .., b'"'] => Text::new(escaped).unescape_into(text),
                other => text.extend_from_slice(other),
            }
            cells.push(Cell { column, row: *rows as u32, end: text.len() });
        }
        *rows += 1;
    }

    /// The cells so far.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// The rows, for [`ParquetStream::push`].
    pub fn finish(self) -> Batch {
        self.batch
    }
}

/// The cells of one column of a row group, without nulls.
#[derive(Debug, Default)]
struct ColumnCells {
    rows: Vec<u32>,
    /// Where each cell ends. A row group is far from 4 GiB, and an entity has at most one.
    ends: Vec<u32>,
    text: Vec<u8>,
}

impl ColumnCells {
    /// Adds a cell in a later row than all before. Returns the bytes that this adds to the memory held.
    fn push(&mut self, row: u32, text: &[u8]) -> usize {
        let before = self.held_bytes();
        make_room(&mut self.text, text.len());
        make_room(&mut self.rows, 1);
        make_room(&mut self.ends, 1);
        self.text.extend_from_slice(text);
        self.rows.push(row);
        self.ends.push(self.text.len() as u32);
        self.held_bytes() - before
    }

    fn held_bytes(&self) -> usize {
        (self.rows.capacity() + self.ends.capacity()) * size_of::<u32>() + self.text.capacity()
    }

    /// The cells in pieces of a bounded number of rows and bytes of text.
    fn pieces(&self, rows: usize) -> impl Iterator<Item = Result<ArrayRef, EncodeError>> {
        let (mut row, mut cell) = (0, 0);
        std::iter::from_fn(move || {
            if row == rows {
                return None;
            }
            let start = self.start(cell);
            let end_row = rows.min(row + WRITE_ROWS);
            let mut end_cell = cell;
            // One cell at least.
            while self.rows.get(end_cell).is_some_and(|&row| (row as usize) < end_row)
                && (end_cell == cell || self.ends[end_cell] - start <= WRITE_BYTES)
            {
                end_cell += 1;
            }
            // Where texts end the piece, it ends before the row of the next one.
            let end_row = self.rows.get(end_cell).map_or(end_row, |&row| end_row.min(row as usize));
            let piece = self.array(row..end_row, cell..end_cell);
            (row, cell) = (end_row, end_cell);
            Some(piece)
        })
    }

    /// Where the text of a cell begins.
    fn start(&self, cell: usize) -> u32 {
        if cell == 0 { 0 } else { self.ends[cell - 1] }
    }

    /// These rows, in which these cells are.
    fn array(&self, rows: Range<usize>, cells: Range<usize>) -> Result<ArrayRef, EncodeError> {
        let start = self.start(cells.start);
        let mut offsets: Vec<i64> = Vec::with_capacity(rows.len() + 1);
        offsets.push(0);
        let mut valid = NullBufferBuilder::new(rows.len());
        let mut end = 0;
        for cell in cells {
            let row = self.rows[cell] as usize - rows.start;
            let nulls = row + 1 - offsets.len();
            valid.append_n_nulls(nulls);
            offsets.resize(row + 1, end);
            end = i64::from(self.ends[cell] - start);
            offsets.push(end);
            valid.append_non_null();
        }
        valid.append_n_nulls(rows.len() + 1 - offsets.len());
        offsets.resize(rows.len() + 1, end);
        let text = Buffer::from(&self.text[start as usize..start as usize + end as usize]);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        Ok(Arc::new(LargeStringArray::try_new(offsets, text, valid.finish())?))
    }
}

/// Makes room for more, by a quarter: unused room counts, too.
fn make_room<T>(items: &mut Vec<T>, more: usize) {
    if items.capacity() - items.len() < more {
        items.reserve_exact(more.max(items.capacity() / 4).max(4));
    }
}

/// The output of the file's bytes.
#[derive(Clone, Debug, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Bytes {
        mem::take(&mut *self.bytes()).into()
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
/// 2. [`encode_column`](ParquetStream::encode_column) until all columns are done;
/// 3. [`take`](ParquetStream::take) the bytes.
pub struct ParquetStream {
    writer: SerializedFileWriter<Sink>,
    sink: Sink,
    schema: SchemaDescPtr,
    properties: WriterPropertiesPtr,
    /// The current row group.
    cells: Vec<ColumnCells>,
    rows: usize,
    cell_bytes: usize,
    row_group_bytes: usize,
    /// Its columns that are encoded.
    encoded: Vec<ArrowColumnChunk>,
}

impl ParquetStream {
    /// A good size of a row group's cells for readers, in bytes, for this many columns.
    pub fn row_group_bytes(columns: usize) -> usize {
        ROW_GROUP_BYTES + columns * COLUMN_BYTES
    }

    /// A file without rows, whose row groups will hold about this many bytes of cells. Without any batch it is still a
    /// valid file with the columns.
    ///
    /// # Errors
    /// [`EncodeError::Parquet`].
    pub fn try_new(columns: &Columns, row_group_bytes: usize) -> Result<ParquetStream, EncodeError> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .build();
        let properties = Arc::new(properties);
        let schema = Arc::new(ArrowSchemaConverter::new().convert(&arrow_schema(columns.names()))?);
        let sink = Sink::default();
        let writer = SerializedFileWriter::new(sink.clone(), schema.root_schema_ptr(), properties.clone())?;
        let cells = (0..columns.len()).map(|_| ColumnCells::default()).collect();
        let encoded = Vec::new();
        Ok(ParquetStream { writer, sink, schema, properties, cells, rows: 0, cell_bytes: 0, row_group_bytes, encoded })
    }

    /// Bytes that a file of these columns takes while a row group of this size is made: twice the size, and its names.
    /// The footer comes on top ([`footer_bytes`](ParquetStream::footer_bytes)).
    pub fn held_bytes(columns: &Columns, row_group_bytes: usize) -> usize {
        COPIES * row_group_bytes + NAME_COPIES * columns.name_bytes()
    }

    /// Bytes that each row group holds until the end, for the footer.
    pub fn footer_bytes(columns: &Columns) -> usize {
        columns.len() * CHUNK_METADATA_BYTES + columns.name_bytes()
    }

    /// Adds the rows of a batch of the same columns to the row group.
    pub fn push(&mut self, batch: &Batch) {
        let mut start = 0;
        for cell in &batch.cells {
            let row = self.rows as u32 + cell.row;
            self.cell_bytes += self.cells[cell.column as usize].push(row, &batch.text[start..cell.end]);
            start = cell.end;
        }
        self.rows += batch.rows;
    }

    /// Whether the row group should be written.
    pub fn is_full(&self) -> bool {
        /// Rows are numbered with 32 bits, and every null costs a little.
        const MOST_ROWS: usize = 1 << 20;
        self.cell_bytes >= self.row_group_bytes || self.rows >= MOST_ROWS
    }

    /// Encodes the next column of the row group and frees its cells. Returns whether it was the last one. The row group
    /// is then written, and another may begin. Without rows nothing is written.
    ///
    /// # Errors
    /// [`EncodeError`]. The file is then unusable.
    pub fn encode_column(&mut self) -> Result<bool, EncodeError> {
        if self.rows == 0 {
            return Ok(true);
        }
        let cells = mem::take(&mut self.cells[self.encoded.len()]);
        let chunk = self.encode(&cells)?;
        self.encoded.push(chunk);
        if self.encoded.len() < self.cells.len() {
            return Ok(false);
        }
        let bytes: u64 = self.encoded.iter().map(|chunk| chunk.close().bytes_written).sum();
        self.sink.bytes().reserve(usize::try_from(bytes).unwrap_or_default());
        let mut row_group = self.writer.next_row_group()?;
        for chunk in self.encoded.drain(..) {
            chunk.append_to_row_group(&mut row_group)?;
        }
        row_group.close()?;
        (self.rows, self.cell_bytes) = (0, 0);
        Ok(true)
    }

    /// Encodes a column with a writer of its own, which is dropped afterwards.
    fn encode(&self, cells: &ColumnCells) -> Result<ArrowColumnChunk, EncodeError> {
        let column = self.schema.column(self.encoded.len());
        let schema = arrow_schema(&[column.name().to_owned()]);
        let root = Type::group_type_builder(self.schema.name()).with_fields(vec![column.self_type_ptr()]).build()?;
        let alone = SerializedFileWriter::new(io::sink(), Arc::new(root), self.properties.clone())?;
        let writers = ArrowRowGroupWriterFactory::new(&alone, schema.clone()).create_column_writers(0)?;
        let none = || ParquetError::General("a column has no writer".to_owned());
        let mut writer = writers.into_iter().next().ok_or_else(none)?;
        for piece in cells.pieces(self.rows) {
            for shredded in compute_leaves(schema.field(0), &piece?)? {
                writer.write(&shredded)?;
            }
        }
        Ok(writer.close()?)
    }

    /// The bytes of the file that have been written since the last time.
    ///
    /// # Errors
    /// [`EncodeError::Parquet`].
    pub fn take(&mut self) -> Result<Bytes, EncodeError> {
        self.writer.flush().map_err(ParquetError::from)?;
        Ok(self.sink.take())
    }

    /// The rest of the file. All pushed rows must be encoded before.
    ///
    /// # Errors
    /// [`EncodeError::Parquet`].
    pub fn finish(mut self) -> Result<Bytes, EncodeError> {
        self.writer.finish()?;
        self.take()
    }
}

fn arrow_schema(names: &[String]) -> SchemaRef {
    let field = |name: &String| Field::new(name, DataType::LargeUtf8, true);
    Arc::new(Schema::new(names.iter().map(field).collect::<Vec<Field>>()))
}
