//! `format=parquet`: flattened entities as nullable text columns (decisions, section 4).
//!
//! Two halves, so that parts of an answer are made in parallel and written in order:
//!
//! 1. [`BatchBuilder`], one per part, lays the cells of entities out as Arrow columns;
//! 2. [`ParquetStream`], one per answer, compresses batches into row groups and hands out the bytes of those that are
//!    complete.
//!
//! Null and a missing key are null, an empty string stays one. Compression is Zstandard; dictionaries where the writer
//! finds that they pay. Readers see plain optional UTF-8 columns; no Arrow schema is stored, so that every reader takes
//! its own type for text.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, LargeStringArray, NullBufferBuilder, RecordBatch, RecordBatchOptions};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::columns::Columns;
use super::error::EncodeError;
use super::row::Row;
use crate::document::Text;

/// Memory of a row group in the making above which it is written, besides [`COLUMN_BYTES`] for each column.
const ROW_GROUP_BYTES: usize = 32 << 20;

/// Memory that the writer of a column needs however little it holds, so that a table of many columns is not cut into
/// row groups of a few rows.
const COLUMN_BYTES: usize = 8 << 10;

/// Text that goes to the writer at once: it looks at sizes between writes, not within.
const WRITE_BYTES: usize = 8 << 20;

/// Bytes of the file that are worth handing out before its end.
const LEAST_READY_BYTES: usize = 64 << 10;

/// Lays the cells of the entities of one part out in columns.
#[derive(Debug)]
pub struct BatchBuilder {
    columns: Arc<Columns>,
    row: Row,
    cells: Vec<TextColumn>,
    rows: usize,
    size_bytes: usize,
}

/// The cells of one column. Nulls at the end may be outstanding.
#[derive(Debug)]
struct TextColumn {
    text: Vec<u8>,
    /// Where each cell ends. 64 bits, for no part is too long for them.
    ends: Vec<i64>,
    valid: NullBufferBuilder,
}

impl BatchBuilder {
    /// A builder without rows.
    pub fn new(columns: Arc<Columns>) -> BatchBuilder {
        let cells = (0..columns.len()).map(|_| TextColumn::new()).collect();
        BatchBuilder { columns, row: Row::default(), cells, rows: 0, size_bytes: 0 }
    }

    /// Adds a row: one entity, a canonical document. Costs its cells, not the columns.
    pub fn push(&mut self, document: &[u8]) {
        let placed = self.row.place(document, &self.columns);
        for &column in placed.filled {
            let value = &document[placed.by_column[column as usize].clone()];
            if value != b"null" {
                self.size_bytes += self.cells[column as usize].push(self.rows, value);
            }
        }
        self.rows += 1;
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of text so far. A part is done when they are enough; what a builder holds is about as much.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// The rows, for [`ParquetStream::write`].
    ///
    /// # Errors
    /// [`EncodeError::Arrow`], if a document was not UTF-8.
    pub fn finish(self) -> Result<RecordBatch, EncodeError> {
        let arrays = self.cells.into_iter().map(|column| column.finish(self.rows));
        let arrays = arrays.collect::<Result<Vec<ArrayRef>, EncodeError>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok(RecordBatch::try_new_with_options(schema(&self.columns), arrays, &options)?)
    }
}

impl TextColumn {
    fn new() -> TextColumn {
        TextColumn { text: Vec::new(), ends: vec![0], valid: NullBufferBuilder::new(0) }
    }

    /// Sets the cell of row number `row`, which comes after all that were set before. Returns the bytes of its text.
    fn push(&mut self, row: usize, value: &[u8]) -> usize {
        self.fill_up(row);
        let before = self.text.len();
        match value {
            [b'"', text @ .., b'"'] => Text::new(text).unescape_into(&mut self.text),
            other => self.text.extend_from_slice(other),
        }
        self.ends.push(self.text.len() as i64);
        self.valid.append_non_null();
        self.text.len() - before
    }

    /// Nulls for the rows before number `row` that have no cell.
    fn fill_up(&mut self, row: usize) {
        let rows = self.ends.len() - 1;
        if row > rows {
            self.ends.resize(row + 1, self.text.len() as i64);
            self.valid.append_n_nulls(row - rows);
        }
    }

    fn finish(mut self, rows: usize) -> Result<ArrayRef, EncodeError> {
        self.fill_up(rows);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        Ok(Arc::new(LargeStringArray::try_new(offsets, Buffer::from_vec(self.text), self.valid.finish())?))
    }
}

fn schema(columns: &Columns) -> SchemaRef {
    let field = |name: &String| Field::new(name, DataType::LargeUtf8, true);
    Arc::new(Schema::new(columns.names().iter().map(field).collect::<Vec<Field>>()))
}

/// Writes the batches of one answer as a Parquet file, from front to back.
///
/// Holds one row group, some 32 MiB at most and up to 25 KiB for each column, and a few hundred bytes for each column of each
/// row group written, for the file's footer.
pub struct ParquetStream {
    writer: ArrowWriter<Vec<u8>>,
    row_group_bytes: usize,
}

impl ParquetStream {
    /// A file without rows. Without any batch it is still a valid file with the columns.
    ///
    /// # Errors
    /// [`EncodeError::Parquet`].
    pub fn try_new(columns: &Columns) -> Result<ParquetStream, EncodeError> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .build();
        let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(Vec::new(), schema(columns), options)?;
        Ok(ParquetStream { writer, row_group_bytes: ROW_GROUP_BYTES + columns.len() * COLUMN_BYTES })
    }

    /// Adds the rows of a batch of the same columns. Returns the bytes of the file that have become ready; mostly none.
    ///
    /// # Errors
    /// [`EncodeError::Parquet`]; the file is of no use then.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<Bytes, EncodeError> {
        self.write_rows(batch)?;
        // The file's first bytes alone would be an answer's first chunk, as if there were something to read.
        if self.writer.inner().len() < LEAST_READY_BYTES { Ok(Bytes::new()) } else { self.ready() }
    }

    /// The rest of the file.
    ///
    /// # Errors
    /// [`EncodeError::Parquet`].
    pub fn finish(mut self) -> Result<Bytes, EncodeError> {
        self.writer.finish()?;
        self.ready()
    }

    fn write_rows(&mut self, batch: &RecordBatch) -> Result<(), EncodeError> {
        let rows = batch.num_rows();
        if rows > 1 && text_bytes(batch) > WRITE_BYTES {
            self.write_rows(&batch.slice(0, rows / 2))?;
            return self.write_rows(&batch.slice(rows / 2, rows - rows / 2));
        }
        self.writer.write(batch)?;
        if self.writer.memory_size() > self.row_group_bytes {
            self.writer.flush()?;
        }
        Ok(())
    }

    /// Takes what the writer has written.
    fn ready(&mut self) -> Result<Bytes, EncodeError> {
        self.writer.sync().map_err(parquet::errors::ParquetError::from)?;
        // Taking bytes that were counted when written leaves the writer's positions right.
        Ok(Bytes::from(std::mem::take(self.writer.inner_mut())))
    }
}

fn text_bytes(batch: &RecordBatch) -> usize {
    let bytes = |column: &ArrayRef| match column.as_string_opt::<i64>() {
        Some(text) => {
            text.value_offsets().last().zip(text.value_offsets().first()).map_or(0, |(end, start)| end - start)
        }
        None => 0,
    };
    batch.columns().iter().map(bytes).sum::<i64>() as usize
}
