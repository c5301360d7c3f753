//! The contents of a Parquet export, read with the library.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::types;

/// The cells of each row; `None` for null.
type CellRows = Vec<Vec<Option<String>>>;

/// Returns the columns with their types, and the cells of each row.
pub fn typed_cells(file: &Bytes) -> (Vec<(String, String)>, CellRows) {
    let builder = ParquetRecordBatchReaderBuilder::try_new(file.clone()).expect("failed to open Parquet file");
    let columns = builder.parquet_schema().columns().iter();
    let columns = columns.map(|column| (column.name().to_owned(), column.physical_type().to_string())).collect();
    let mut rows: Vec<Vec<Option<String>>> = Vec::new();
    for batch in builder.build().expect("failed to build reader") {
        let batch = batch.expect("failed to read batch");
        let start = rows.len();
        rows.resize(start + batch.num_rows(), Vec::new());
        for column in batch.columns() {
            let cell = |row: usize| match column.data_type() {
                _ if column.is_null(row) => None,
                DataType::Boolean => Some(column.as_boolean().value(row).to_string()),
                DataType::Int64 => Some(column.as_primitive::<Int64Type>().value(row).to_string()),
                DataType::Float64 => Some(types::double(column.as_primitive::<Float64Type>().value(row))),
                _ => Some(column.as_string::<i32>().value(row).to_owned()),
            };
            (0..batch.num_rows()).for_each(|row| rows[start + row].push(cell(row)));
        }
    }
    (columns, rows)
}

/// Returns the columns and the cells of each row.
pub fn cells(file: &Bytes) -> (Vec<String>, Vec<Vec<Option<String>>>) {
    let builder = ParquetRecordBatchReaderBuilder::try_new(file.clone()).expect("failed to open Parquet file");
    let names = builder.schema().fields().iter().map(|field| {
        assert!(field.is_nullable(), "{field}");
        field.name().clone()
    });
    let names = names.collect();
    let mut rows: Vec<Vec<Option<String>>> = Vec::new();
    for batch in builder.build().expect("failed to build reader") {
        let batch = batch.expect("failed to read batch");
        let start = rows.len();
        rows.resize(start + batch.num_rows(), Vec::new());
        for column in batch.columns() {
            let column = arrow::compute::cast(column, &DataType::Utf8).expect("invalid text");
            let column = column.as_string::<i32>();
            for row in 0..batch.num_rows() {
                rows[start + row].push(column.is_valid(row).then(|| column.value(row).to_owned()));
            }
        }
    }
    (names, rows)
}
