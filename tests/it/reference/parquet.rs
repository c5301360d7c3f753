//! What a Parquet export holds, read by the library.

use arrow::array::{Array, AsArray};
use arrow::datatypes::DataType;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// The columns, and each row's cells.
pub fn cells(file: &Bytes) -> (Vec<String>, Vec<Vec<Option<String>>>) {
    let builder = ParquetRecordBatchReaderBuilder::try_new(file.clone()).expect("a Parquet file");
    let names = builder.schema().fields().iter().map(|field| {
        assert!(field.is_nullable(), "{field}");
        field.name().clone()
    });
    let names = names.collect();
    let mut rows: Vec<Vec<Option<String>>> = Vec::new();
    for batch in builder.build().expect("a reader") {
        let batch = batch.expect("a batch");
        let start = rows.len();
        rows.resize(start + batch.num_rows(), Vec::new());
        for column in batch.columns() {
            let column = arrow::compute::cast(column, &DataType::Utf8).expect("text");
            let column = column.as_string::<i32>();
            for row in 0..batch.num_rows() {
                rows[start + row].push(column.is_valid(row).then(|| column.value(row).to_owned()));
            }
        }
    }
    (names, rows)
}
