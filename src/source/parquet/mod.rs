//! Decodes Apache Parquet: one entity per row, as arrow-json prints it with nulls explicit.
//!
//! A file of some kilobytes can announce, and become, any number of gigabytes. So no part of it is trusted:
//!
//! 1. `footer` walks over the footer before the library builds it: depth, columns, row groups.
//! 2. `plan` reads the headers of a row group's pages, sums up their decoded sizes, and chooses the rows of a batch.
//!    The pages that a batch touches and its values stay within `sources.parquet_memory_bytes`. It aims at
//!    [`BATCH_BYTES`].
//! 3. `pages` gives the library one page at a time, unpacked and checked (`header`, `delta`), and counts the bytes
//!    held.
//! 4. Strings are read as views, so that a dictionary's values are not multiplied by the rows that refer to them. The
//!    text of a batch is made in slices, which become smaller when rows are long. The size of all text is bounded by
//!    the bytes received (`expansion`).

mod delta;
mod footer;
mod header;
mod pages;
mod plan;
mod thrift;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Fields, Schema};
use arrow::json::writer::{LineDelimited, WriterBuilder};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, RowGroups};
use parquet::arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels};
use parquet::column::page::PageIterator;
use parquet::errors::Result as ParquetResult;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use self::pages::{Account, Column, OneChunk, Pages};
use self::plan::Became;
use super::entity::EntityWriter;
use super::error::{Place, SourceError};
use super::expansion::Expansion;
use super::input::{Progress, over_limit};
use super::{Decode, DecodeOptions};
use crate::storage::budget::SpoolCharge;

/// The text of a slice may be this long, or one entity's limit if that is more.
const SLICE_TEXT_BYTES: usize = 4 * 1024 * 1024;

/// The decoder for [`crate::model::source::SourceFormat::Parquet`].
pub(super) struct ParquetDecoder {
    file: Arc<File>,
    /// The disk that `file` takes, if it is a copy.
    _copy: Option<SpoolCharge>,
    file_bytes: u64,
    metadata: Arc<ParquetMetaData>,
    levels: FieldLevels,
    fields: Fields,
    /// Whether a batch copies texts; else it refers to them.
    copies_texts: bool,
    /// The memory that decoding pages may take.
    page_memory_bytes: u64,
    /// The next row group.
    row_group: usize,
    /// The batches of the current one, and the memory that they hold.
    batches: Option<(ParquetRecordBatchReader, Arc<Account>)>,
    /// Rows of the current one so far.
    group_rows: u64,
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
    became: Became,
    /// For a local file: its length, spread evenly over its rows, counts as read.
    progress: Option<Progress>,
}

impl ParquetDecoder {
    /// Reads the footer. `progress` is given if it should show the reading of `file`. A copy of a stream was counted
    /// when it came.
    ///
    /// # Errors
    /// [`SourceError::BadDocument`] when the footer is damaged, or a column has a type that JSON cannot show;
    /// [`SourceError::TooLarge`] when the data is larger than it may be by the file's own account.
    pub(super) fn try_new(
        file: File,
        writer: EntityWriter,
        options: &DecodeOptions,
        expansion: &Expansion,
        progress: Option<Progress>,
    ) -> Result<Self, SourceError> {
        let file_bytes = file.metadata().map_err(SourceError::Io)?.len();
        let metadata_bytes = footer::check(&file, file_bytes, options)?;
        let opened = guard(|| open(&file))??;
        let (mut rows, mut bytes) = (0_u64, 0_u64);
        for row_group in opened.metadata.row_groups() {
            rows = rows.saturating_add(u64::try_from(row_group.num_rows()).unwrap_or(0));
            bytes = bytes.saturating_add(u64::try_from(row_group.total_byte_size()).unwrap_or(0));
        }
        let total = opened.metadata.file_metadata().num_rows();
        if u64::try_from(total).ok() != Some(rows) {
            let reason = format!("its row groups have {rows} rows, and the footer says {total}");
            return Err(SourceError::document(reason));
        }
        if options.source_limit_bytes != 0 && bytes > options.source_limit_bytes {
            return Err(over_limit(options.source_limit_bytes));
        }
        expansion.check(bytes)?;
        Ok(Self {
            file: Arc::new(file),
            _copy: None,
            file_bytes,
            metadata: opened.metadata,
            levels: opened.levels,
            fields: opened.fields,
            copies_texts: opened.copies_texts,
            page_memory_bytes: options.parquet_memory_bytes.saturating_sub(metadata_bytes),
            row_group: 0,
            batches: None,
            group_rows: 0,
            writer,
            slices: VecDeque::new(),
            text: Vec::new(),
            text_position: 0,
            rows: 0,
            rows_total: rows,
            text_total_bytes: 0,
            source_limit_bytes: options.source_limit_bytes,
            became: Became { expansion: expansion.clone(), limit_bytes: options.source_limit_bytes, bytes: 0 },
            progress,
        })
    }

    /// The same decoder, for a copy that takes this much disk.
    pub(super) fn with_copy(self, charge: SpoolCharge) -> Self {
        Self { _copy: Some(charge), ..self }
    }

    /// The next batch with rows; none at the end.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        loop {
            let Some((batches, account)) = &mut self.batches else {
                if self.row_group >= self.metadata.num_row_groups() {
                    return Ok(None);
                }
                self.batches = Some(guard(|| self.open_row_group(self.row_group))??);
                self.row_group += 1;
                self.group_rows = 0;
                continue;
            };
            account.begin_batch();
            match guard(|| batches.next()) {
                Ok(Some(Ok(batch))) if batch.num_rows() > 0 => {
                    self.group_rows += batch.num_rows() as u64;
                    return Ok(Some(batch));
                }
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(error))) => return Err(account.take_refusal().unwrap_or_else(|| unreadable(error))),
                Ok(None) => {
                    self.batches = None;
                    self.check_row_count()?;
                }
                Err(error) => return Err(account.take_refusal().unwrap_or(error)),
            }
        }
    }

    /// Whether the row group that has ended had the rows that the footer names. If all of its columns end early, the
    /// library takes that for the end.
    fn check_row_count(&self) -> Result<(), SourceError> {
        let (index, rows) = (self.row_group - 1, self.group_rows);
        let named = self.metadata.row_group(index).num_rows();
        if u64::try_from(named).is_ok_and(|named| named == rows) {
            return Ok(());
        }
        let reason = format!("row group {index} holds {rows} rows, and the footer says {named}");
        Err(SourceError::document(reason))
    }

    /// The batches of a row group, and the account of what they hold.
    fn open_row_group(&mut self, index: usize) -> Result<(ParquetRecordBatchReader, Arc<Account>), SourceError> {
        let metadata = Arc::clone(&self.metadata);
        let row_group = metadata.row_group(index);
        let columns = row_group.columns().iter();
        let columns = columns.map(|chunk| Column::of(chunk, self.file_bytes, self.copies_texts));
        let columns: Vec<Column> = columns.collect::<Result<_, _>>()?;
        let limit_bytes = self.page_memory_bytes;
        let batch_rows =
            plan::batch_rows(&self.file, row_group, &columns, &self.fields, limit_bytes, &mut self.became)?;
        let account = Arc::new(Account::new(self.page_memory_bytes));
        let group = OneRowGroup { decoder: self, row_group, columns, account: account.clone(), batch_rows };
        let reader = ParquetRecordBatchReader::try_new_with_row_groups(&self.levels, &group, batch_rows, None);
        let reader = reader.map_err(|error| account.take_refusal().unwrap_or_else(|| unreadable(error)))?;
        Ok((reader, account))
    }

    /// Prints the next slice; false when there is none.
    fn print_slice(&mut self) -> Result<bool, SourceError> {
        loop {
            if self.slices.is_empty() {
                match self.next_batch()? {
                    Some(batch) => self.slices.push_back(batch),
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
        Place { item: self.rows + 1, line: None, column: None }
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
        if let Some(progress) = &self.progress {
            let share = self.rows as f64 / self.rows_total.max(1) as f64;
            progress.set((share * self.file_bytes as f64) as u64);
        }
        Ok(true)
    }
}

/// A file whose footer has been read.
struct FileOpened {
    metadata: Arc<ParquetMetaData>,
    levels: FieldLevels,
    fields: Fields,
    copies_texts: bool,
}

fn open(file: &File) -> Result<FileOpened, SourceError> {
    let found = ArrowReaderMetadata::load(file, ArrowReaderOptions::new()).map_err(unreadable)?;
    let views = with_views(found.schema());
    let options = ArrowReaderOptions::new().with_schema(Arc::new(views));
    let metadata = ArrowReaderMetadata::try_new(Arc::clone(found.metadata()), options)
        // A type for which views cannot be asked is read as it is.
        .unwrap_or(found);
    let fields = metadata.schema().fields().clone();
    let levels = parquet_to_arrow_field_levels(metadata.parquet_schema(), ProjectionMask::all(), Some(&fields));
    let levels = levels.map_err(unreadable)?;
    let copies_texts = fields.iter().any(|field| copies_texts(field.data_type()));
    Ok(FileOpened { metadata: Arc::clone(metadata.metadata()), levels, fields, copies_texts })
}

/// One row group, as the library asks for it.
struct OneRowGroup<'a> {
    decoder: &'a ParquetDecoder,
    row_group: &'a RowGroupMetaData,
    columns: Vec<Column>,
    account: Arc<Account>,
    batch_rows: usize,
}

impl RowGroups for OneRowGroup<'_> {
    fn num_rows(&self) -> usize {
        usize::try_from(self.row_group.num_rows()).unwrap_or(0)
    }

    fn column_chunks(&self, index: usize) -> ParquetResult<Box<dyn PageIterator>> {
        let column = self.columns[index].clone();
        let pages = Pages::new(Arc::clone(&self.decoder.file), column, Arc::clone(&self.account), self.batch_rows);
        Ok(Box::new(OneChunk(Some(pages))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.row_group))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.decoder.metadata
    }
}

/// The schema with every string and binary column, nested ones too, as views.
fn with_views(schema: &Schema) -> Schema {
    Schema::new_with_metadata(fields_with_views(schema.fields()), schema.metadata().clone())
}

fn fields_with_views(fields: &Fields) -> Fields {
    fields.iter().map(|field| field_with_views(field)).collect()
}

fn field_with_views(field: &Field) -> Arc<Field> {
    Arc::new(field.clone().with_data_type(type_with_views(field.data_type())))
}

fn type_with_views(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::Struct(fields) => DataType::Struct(fields_with_views(fields)),
        DataType::List(item) => DataType::List(field_with_views(item)),
        DataType::LargeList(item) => DataType::LargeList(field_with_views(item)),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(field_with_views(item), *length),
        DataType::Map(entries, sorted) => DataType::Map(field_with_views(entries), *sorted),
        // Printed alike, and each value is there once either way.
        DataType::Dictionary(_, values) => type_with_views(values),
        other => other.clone(),
    }
}

/// Whether values of a type are texts that an array holds itself.
fn copies_texts(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => true,
        DataType::Dictionary(..) | DataType::RunEndEncoded(..) | DataType::Union(..) => true,
        DataType::Struct(fields) => fields.iter().any(|field| copies_texts(field.data_type())),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => copies_texts(item.data_type()),
        _ => false,
    }
}

/// Runs a call into the Parquet reader, which panics on some damaged files.
fn guard<T>(call: impl FnOnce() -> T) -> Result<T, SourceError> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| SourceError::document("the Parquet file is damaged"))
}

fn unreadable(error: impl std::fmt::Display) -> SourceError {
    SourceError::document(format!("the Parquet file cannot be read: {error}"))
}

/// The file is malformed.
fn damaged(reason: &str) -> SourceError {
    SourceError::document(format!("the Parquet file is damaged: {reason}"))
}

/// Decoding takes more memory than it may.
fn over_memory(what: &str, bytes: u64, options: &DecodeOptions) -> SourceError {
    over_memory_limit(what, bytes, options.parquet_memory_bytes)
}

fn over_memory_limit(what: &str, bytes: u64, limit_bytes: u64) -> SourceError {
    let reason = format!(
        "decoding the Parquet file takes too much memory: {what} would take {bytes} bytes of the {limit_bytes} that there are \
         (sources.parquet_memory_bytes); smaller pages, dictionaries or row groups take less"
    );
    SourceError::TooLarge { place: None, reason }
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
