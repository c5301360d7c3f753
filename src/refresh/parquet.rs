//! Decodes Apache Parquet: one entity per row, as arrow-json prints it with nulls explicit.
//!
//! The file is read row group by row group and page by page. Three things bound the memory: a batch has
//! as many rows as make about [`BATCH_BYTES`] by the file's own account; strings are read as views, so
//! that a dictionary's values are not multiplied by the rows that refer to them; and the text of a batch
//! is made in slices, which become smaller when rows turn out long.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Fields, Schema};
use arrow::json::writer::{LineDelimited, WriterBuilder};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};

use super::Decode;
use super::entity::EntityWriter;
use super::error::{Place, SourceError};
use super::input::{Progress, over_limit};

/// The size that a batch of rows should have in memory.
const BATCH_BYTES: u64 = 4 * 1024 * 1024;
/// The most rows in a batch.
const BATCH_ROWS_MAX: usize = 1024;
/// The text of a slice may be this long, or one entity's limit if that is more.
const SLICE_TEXT_BYTES: usize = 4 * 1024 * 1024;

/// The decoder for [`crate::model::source::SourceFormat::Parquet`].
pub(super) struct ParquetDecoder {
    batches: ParquetRecordBatchReader,
    writer: EntityWriter,
    /// The rest of the current batch, in the slices in which it will be printed.
    slices: VecDeque<RecordBatch>,
    /// The printed slice, one row per line, and how much of it has been given out.
    text: Vec<u8>,
    text_position: usize,
    rows: u64,
    rows_total: u64,
    text_total_bytes: u64,
    source_limit_bytes: u64,
    /// For a local file: its length, spread evenly over its rows, is what counts as read.
    progress: Option<(Progress, u64)>,
}

impl ParquetDecoder {
    /// Reads the footer. `progress` is given when reading `file` is what should be shown; a copy of a
    /// stream was counted when it came.
    ///
    /// # Errors
    /// [`SourceError::BadDocument`] when the footer is damaged, the data is larger than
    /// `source_limit_bytes` (0: no limit) by the file's own account, or a column has a type that JSON
    /// cannot show.
    pub(super) fn try_new(
        file: File,
        writer: EntityWriter,
        source_limit_bytes: u64,
        progress: Option<Progress>,
    ) -> Result<Self, SourceError> {
        let file_bytes = file.metadata().map_err(SourceError::Io)?.len();
        let batches = guard(|| open_reader(file, source_limit_bytes))?;
        let (batches, rows_total) = batches?;
        Ok(Self {
            batches,
            writer,
            slices: VecDeque::new(),
            text: Vec::new(),
            text_position: 0,
            rows: 0,
            rows_total,
            text_total_bytes: 0,
            source_limit_bytes,
            progress: progress.map(|progress| (progress, file_bytes)),
        })
    }

    /// Prints the next slice; false when there is none.
    fn print_slice(&mut self) -> Result<bool, SourceError> {
        loop {
            while self.slices.is_empty() {
                match guard(|| self.batches.next())? {
                    Some(Ok(batch)) if batch.num_rows() > 0 => self.slices.push_back(batch),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(unreadable(error)),
                    None => return Ok(false),
                }
            }
            let Some(slice) = self.slices.pop_front() else {
                return Ok(false);
            };
            self.text.clear();
            self.text_position = 0;
            // An entity of exactly the limit must pass, and the line end after it.
            let limit_bytes = SLICE_TEXT_BYTES.max(self.writer.limit_bytes().saturating_add(1));
            let sink = BoundedSink { text: &mut self.text, limit_bytes, is_over: false };
            let mut lines = WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(sink);
            let printed = guard(|| lines.write(&slice))?;
            let is_over = lines.get_ref().is_over;
            match printed {
                Ok(()) => return Ok(true),
                Err(_) if is_over && slice.num_rows() > 1 => {
                    let half = slice.num_rows() / 2;
                    self.slices.push_front(slice.slice(half, slice.num_rows() - half));
                    self.slices.push_front(slice.slice(0, half));
                }
                Err(_) if is_over => {
                    let place = self.place_of_next();
                    return Err(SourceError::too_large(place, self.writer.limit_bytes()));
                }
                Err(error) => return Err(SourceError::document(error.to_string())),
            }
        }
    }

    fn place_of_next(&self) -> Place {
        Place { item: self.rows + 1, line: None }
    }
}

impl Decode for ParquetDecoder {
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, SourceError> {
        if self.text_position >= self.text.len() && !self.print_slice()? {
            return Ok(false);
        }
        let place = self.place_of_next();
        let rest = &self.text[self.text_position..];
        // The line end after the row: those inside strings are escaped.
        let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        self.writer.write_json(&rest[..length], place, out)?;
        self.text_position += length + 1;
        self.text_total_bytes += length as u64;
        if self.source_limit_bytes != 0 && self.text_total_bytes > self.source_limit_bytes {
            return Err(over_limit(self.source_limit_bytes));
        }
        self.rows += 1;
        if let Some((progress, file_bytes)) = &self.progress {
            let share = self.rows as f64 / self.rows_total.max(1) as f64;
            progress.set((share * *file_bytes as f64) as u64);
        }
        Ok(true)
    }
}

/// The reader over all row groups and the number of rows that the footer promises.
fn open_reader(file: File, source_limit_bytes: u64) -> Result<(ParquetRecordBatchReader, u64), SourceError> {
    let found = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).map_err(unreadable)?;
    let views = with_views(found.schema());
    let options = ArrowReaderOptions::new().with_schema(Arc::new(views));
    let metadata = ArrowReaderMetadata::try_new(Arc::clone(found.metadata()), options)
        // A type for which views cannot be asked is read as it is.
        .unwrap_or(found);
    let (mut rows, mut bytes) = (0_u64, 0_u64);
    for row_group in metadata.metadata().row_groups() {
        rows = rows.saturating_add(u64::try_from(row_group.num_rows()).unwrap_or(0));
        bytes = bytes.saturating_add(u64::try_from(row_group.total_byte_size()).unwrap_or(0));
    }
    if source_limit_bytes != 0 && bytes > source_limit_bytes {
        return Err(over_limit(source_limit_bytes));
    }
    let row_bytes = (bytes / rows.max(1)).max(1);
    let batch_rows = usize::try_from(BATCH_BYTES / row_bytes).unwrap_or(BATCH_ROWS_MAX).clamp(1, BATCH_ROWS_MAX);
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
        .with_batch_size(batch_rows)
        .build()
        .map_err(unreadable)?;
    Ok((reader, rows))
}

/// The schema with every string and binary column, nested ones too, as views.
fn with_views(schema: &Schema) -> Schema {
    Schema::new_with_metadata(fields_with_views(schema.fields()), schema.metadata().clone())
}

fn fields_with_views(fields: &Fields) -> Fields {
    fields.iter().map(|field| field_with_views(field)).collect()
}

fn field_with_views(field: &Field) -> Arc<Field> {
    let data_type = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::Struct(fields) => DataType::Struct(fields_with_views(fields)),
        DataType::List(item) => DataType::List(field_with_views(item)),
        DataType::LargeList(item) => DataType::LargeList(field_with_views(item)),
        other => other.clone(),
    };
    Arc::new(field.clone().with_data_type(data_type))
}

/// Runs a call into the Parquet reader, which panics on some damaged files.
fn guard<T>(call: impl FnOnce() -> T) -> Result<T, SourceError> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| SourceError::document("the Parquet file is damaged"))
}

fn unreadable(error: impl std::fmt::Display) -> SourceError {
    SourceError::document(format!("the Parquet file cannot be read: {error}"))
}

/// Collects text up to a limit, so that an enormous slice is noticed while it is printed.
struct BoundedSink<'a> {
    text: &'a mut Vec<u8>,
    limit_bytes: usize,
    is_over: bool,
}

impl Write for BoundedSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() + bytes.len() > self.limit_bytes {
            self.is_over = true;
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
