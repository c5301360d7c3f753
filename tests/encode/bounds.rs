//! The minimum and the maximum of Parquet columns.

use std::sync::Arc;

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use strata_encode::{CellBatchFactory, ColumnType};
use strata_json::TableColumnNames;

use super::{ParquetFileStream, ROW_GROUP_BYTES, written_row_group};

/// Returns the bounds of a column with these JSON values.
fn bounds(values: &[&str], column_type: ColumnType) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let columns = TableColumnNames::from(vec!["v".to_owned()]);
    let types: Arc<[ColumnType]> = Arc::from([column_type]);
    let mut stream =
        ParquetFileStream::try_new(&columns, Some(types.clone()), ROW_GROUP_BYTES, usize::MAX).expect("a file");
    let mut batch = CellBatchFactory::new(Arc::new(columns), Some(types)).new_builder();
    values.iter().for_each(|value| batch.add_entity(format!("{{\"v\":{value}}}").as_bytes()));
    stream.push(batch.finish());
    written_row_group(&mut stream);
    let file = stream.finish_file().expect("a file");
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("a Parquet file");
    let statistics = reader.metadata().row_group(0).column(0).statistics().expect("statistics");
    (statistics.min_bytes_opt().map(<[u8]>::to_vec), statistics.max_bytes_opt().map(<[u8]>::to_vec))
}

#[test]
fn text_bounds_are_truncated_between_characters() {
    let long = |text: &str| text.repeat(40);
    for (text, min, max) in [
        ("aaa".to_owned(), "aaa".to_owned(), Some("aaa".to_owned())),
        (long("é"), "é".repeat(32), Some(format!("{}ê", "é".repeat(31)))),
        (format!("a{}", long("é")), format!("a{}", "é".repeat(31)), Some(format!("a{}ê", "é".repeat(30)))),
        (format!("a{}", long("\u{10ffff}")), format!("a{}", "\u{10ffff}".repeat(15)), Some("b".to_owned())),
        (long("\u{10ffff}"), "\u{10ffff}".repeat(16), None),
        (format!("a{}", long("\u{d7ff}")), format!("a{}", "\u{d7ff}".repeat(21)), Some("b".to_owned())),
    ] {
        let expected = (Some(min.into_bytes()), max.map(String::into_bytes));
        assert_eq!(bounds(&[&format!("\"{text}\"")], ColumnType::Text), expected, "{text}");
    }
}

#[test]
fn number_bounds_are_ordered_by_value() {
    let integer_range = bounds(&["-5", "300", "2", "-9223372036854775808"], ColumnType::Int64);
    assert_eq!(integer_range, (Some(i64::MIN.to_le_bytes().to_vec()), Some(300_i64.to_le_bytes().to_vec())));
    let zeros = bounds(&["0.0", "-0.0"], ColumnType::Double);
    assert_eq!(zeros, (Some((-0.0_f64).to_le_bytes().to_vec()), Some(0.0_f64.to_le_bytes().to_vec())));
}
