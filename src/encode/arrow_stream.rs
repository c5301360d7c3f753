//! Arrow IPC streams (docs/reference/files.md): typed columns, for tools that read batches as they arrive.
//!
//! ```text
//! schema   write_schema   name: Utf8, price: Int64
//! batch    write_batch    3 rows: ["a", null, "c"], [1, 2, null]
//! end      write_end
//! ```
//!
//! The parts can be encoded separately, because no column has a dictionary. A body is their concatenation.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use strata_json::TableColumnNames;

use crate::EncodeError;
use crate::parquet::{CellBatch, CellBatchBuilder, CellBatchFactory, ColumnType, EncodedValues};

/// Alignment of buffers in bytes. A larger one would dominate the size of batches with many columns.
const BUFFER_ALIGNMENT: usize = 8;

/// Encodes the parts of a stream.
pub struct ArrowStreamEncoder {
    batches: CellBatchFactory,
    types: Arc<[ColumnType]>,
    schema: SchemaRef,
}

impl ArrowStreamEncoder {
    /// Creates the encoder of a response. All values of a column must have the type of the column in `types`.
    pub fn new(columns: Arc<TableColumnNames>, types: Arc<[ColumnType]>) -> ArrowStreamEncoder {
        let fields = columns.names().iter().zip(&*types);
        let fields: Vec<Field> =
            fields.map(|(name, column_type)| Field::new(name, arrow_type(*column_type), true)).collect();
        let batches = CellBatchFactory::new(columns, Some(types.clone()));
        ArrowStreamEncoder { batches, types, schema: Arc::new(Schema::new(fields)) }
    }

    pub fn new_batch(&self) -> CellBatchBuilder {
        self.batches.new_builder()
    }

    pub fn write_schema(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.append(self.new_writer()?.get_mut());
        Ok(())
    }

    /// Appends a record batch with the rows of a batch of cells.
    pub fn write_batch(&self, batch: &CellBatch, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let columns = self.types.iter().enumerate();
        let columns = columns.map(|(column, column_type)| column_array(batch, column, *column_type));
        let record_batch = RecordBatch::try_new(self.schema.clone(), columns.collect::<Result<_, _>>()?)?;
        let mut writer = self.new_writer()?;
        writer.get_mut().clear();
        writer.write(&record_batch)?;
        out.append(writer.get_mut());
        Ok(())
    }

    pub fn write_end(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut writer = self.new_writer()?;
        writer.get_mut().clear();
        writer.finish()?;
        out.append(writer.get_mut());
        Ok(())
    }

    /// Creates a writer, which has already written the schema.
    fn new_writer(&self) -> Result<StreamWriter<Vec<u8>>, ArrowError> {
        let options = IpcWriteOptions::try_new(BUFFER_ALIGNMENT, false, MetadataVersion::V5)?;
        StreamWriter::try_new_with_options(Vec::new(), &self.schema, options)
    }
}

fn arrow_type(column_type: ColumnType) -> DataType {
    match column_type {
        ColumnType::Text => DataType::Utf8,
        ColumnType::Boolean => DataType::Boolean,
        ColumnType::Int64 => DataType::Int64,
        ColumnType::Double => DataType::Float64,
    }
}

fn column_array(batch: &CellBatch, column: usize, column_type: ColumnType) -> Result<ArrayRef, ArrowError> {
    let rows = column_values(batch, column, column_type);
    Ok(match column_type {
        ColumnType::Text => {
            let texts = rows.map(|value| value.map(std::str::from_utf8).transpose());
            Arc::new(texts.collect::<Result<StringArray, _>>()?)
        }
        ColumnType::Boolean => Arc::new(rows.map(|value| Some(value? == [1])).collect::<BooleanArray>()),
        ColumnType::Int64 => {
            Arc::new(rows.map(|value| Some(i64::from_le_bytes(eight_bytes(value?)))).collect::<Int64Array>())
        }
        ColumnType::Double => {
            Arc::new(rows.map(|value| Some(f64::from_le_bytes(eight_bytes(value?)))).collect::<Float64Array>())
        }
    })
}

fn eight_bytes(value: &[u8]) -> [u8; 8] {
    value.try_into().unwrap_or_default()
}

/// Returns the encoded value of a column in each row; `None` for nulls and missing cells.
fn column_values(batch: &CellBatch, column: usize, column_type: ColumnType) -> impl Iterator<Item = Option<&[u8]>> {
    let cells = batch.column_cells(column);
    let bytes = cells.map_or(&[][..], |cells| cells.values);
    let mut values = EncodedValues { bytes, width: column_type.value_width() }.enumerate().peekable();
    let is_in_row = move |cell: usize, row: usize| cells.is_some_and(|cells| cells.row_of_cell(cell) as usize == row);
    (0..batch.rows).map(move |row| values.next_if(|(cell, _)| is_in_row(*cell, row)).map(|(_, value)| value))
}
