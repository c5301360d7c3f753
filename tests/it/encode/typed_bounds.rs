//! The minimum and maximum of typed columns, for each row group and page. Readers skip row groups and pages by these
//! bounds. `-0.0` and `0.0` are equal, but some readers order doubles by their bits, with `-0.0` first. Therefore, a
//! minimum of zero must be `-0.0`, and a maximum of zero must be `0.0`.

use std::fmt::Write;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, Int64Type};
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics;
use strata_testing::TestService;
use strata_testing::scripts::{tool, tools_file};

/// Columns with the values of their rows, which repeat. These columns have few values and thus a dictionary.
const COLUMNS: [(&str, &[&str]); 15] = [
    ("minus", &["-0.0"]),
    ("plus", &["0.0"]),
    ("minus_then_plus", &["-0.0", "0.0"]),
    ("plus_then_minus", &["0.0", "-0.0"]),
    ("up_to_minus", &["-1.5", "-0.0"]),
    ("up_to_plus", &["0.0", "-1.5"]),
    ("from_minus", &["-0.0", "1.5"]),
    ("from_plus", &["1.5", "0.0", "null"]),
    ("around", &["null", "-1.5", "-0.0", "1.5"]),
    ("not_zero", &["-0.5", "0.5"]),
    ("int_zero", &["0", "-0"]),
    ("int_up_to", &["-1", "0", "null"]),
    ("int_from", &["1", "0"]),
    ("int_around", &["-256", "255", "0"]),
    ("int_below", &["-1", "-256"]),
];

/// Two pages in each of two row groups.
const ROWS: usize = 70_000;

fn entities() -> String {
    let mut lines = String::new();
    for row in 0..ROWS {
        let _ = write!(lines, "{{\"row\":{row}");
        for (name, values) in COLUMNS {
            let _ = write!(lines, ",\"{name}\":{}", values[row % values.len()]);
        }
        // Columns of many values, with zero as the maximum or the minimum.
        let double = if row % 1_000 == 0 { "0.0".to_owned() } else { format!("{row}.5") };
        let _ = write!(lines, ",\"down\":-{double},\"up\":{double},\"int_down\":-{row},\"int_up\":{row}");
        lines.push_str("}\n");
    }
    lines
}

/// Returns the minimum and the maximum of a column, as the Parquet format defines them.
fn bounds(column: &dyn Array) -> Option<(i128, i128)> {
    let (min, max) = match column.as_primitive_opt::<Int64Type>() {
        Some(integer_range) => {
            let values = || integer_range.iter().flatten();
            return Some((i128::from(values().min()?), i128::from(values().max()?)));
        }
        None => {
            let values = || column.as_primitive::<Float64Type>().iter().flatten();
            (values().reduce(f64::min)?, values().reduce(f64::max)?)
        }
    };
    let zero = |value: f64, zero: f64| if value == 0.0 { zero } else { value };
    Some((bits(zero(min, -0.0)), bits(zero(max, 0.0))))
}

/// Returns a number that is different for each double, also for zeros of both signs.
fn bits(value: f64) -> i128 {
    i128::from(value.to_bits())
}

/// The bounds of a column in a row group; and the number of rows and the bounds of each of its pages.
type ColumnBounds = (Option<(i128, i128)>, Vec<(usize, Option<(i128, i128)>)>);

fn column_bounds(metadata: &ParquetMetaData, row_group: usize, column: usize) -> ColumnBounds {
    let group = metadata.row_group(row_group);
    let group_bounds = match group.column(column).statistics().expect("statistics") {
        Statistics::Int64(statistics) => {
            statistics.min_opt().zip(statistics.max_opt()).map(|(min, max)| (i128::from(*min), i128::from(*max)))
        }
        Statistics::Double(statistics) => {
            statistics.min_opt().zip(statistics.max_opt()).map(|(min, max)| (bits(*min), bits(*max)))
        }
        other => panic!("neither integers nor doubles: {other:?}"),
    };
    let index = &metadata.column_index().expect("an index of pages")[row_group][column];
    let locations = metadata.offset_index().expect("an index of pages")[row_group][column].page_locations();
    let starts = locations.iter().map(|location| usize::try_from(location.first_row_index).expect("a row"));
    let starts: Vec<usize> = starts.chain([usize::try_from(group.num_rows()).expect("rows")]).collect();
    let page_bounds = |page: usize| match index {
        ColumnIndexMetaData::INT64(statistics) => statistics
            .min_value(page)
            .zip(statistics.max_value(page))
            .map(|(min, max)| (i128::from(*min), i128::from(*max))),
        ColumnIndexMetaData::DOUBLE(statistics) => {
            statistics.min_value(page).zip(statistics.max_value(page)).map(|(min, max)| (bits(*min), bits(*max)))
        }
        other => panic!("neither integers nor doubles: {other:?}"),
    };
    (group_bounds, starts.windows(2).enumerate().map(|(page, rows)| (rows[1] - rows[0], page_bounds(page))).collect())
}

#[tokio::test]
async fn bounds_include_zeros_of_both_signs() {
    let service = TestService::start().await;
    service.import("Zeros", &entities()).await;
    let file = service.get("/api/1/zeros/v1/?format=parquet&typed=true").await.body;
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
    let open = || ParquetRecordBatchReaderBuilder::try_new_with_options(file.clone(), options.clone()).expect("a file");
    let metadata = open().metadata().clone();
    let names: Vec<&str> =
        metadata.file_metadata().schema_descr().columns().iter().map(|column| column.name()).collect();
    assert_eq!(names.len(), COLUMNS.len() + 5);
    assert!(metadata.num_row_groups() > 1);
    let mut pages = 0;
    for row_group in 0..metadata.num_row_groups() {
        for (number, name) in names.iter().enumerate() {
            let (group_bounds, pages_of_column) = column_bounds(&metadata, row_group, number);
            let read = |start: usize, rows: usize| {
                let selection = RowSelection::from(vec![RowSelector::skip(start), RowSelector::select(rows)]);
                let reader = open().with_row_groups(vec![row_group]).with_batch_size(rows);
                let mut batches = reader.with_row_selection(selection).build().expect("a reader");
                batches.next().expect("a batch").expect("a batch").column(number).clone()
            };
            let rows = usize::try_from(metadata.row_group(row_group).num_rows()).expect("rows");
            assert_eq!(group_bounds, bounds(&read(0, rows)), "{name} in row group {row_group}");
            let mut start = 0;
            for (page, (rows, page_bounds)) in pages_of_column.into_iter().enumerate() {
                assert_eq!(page_bounds, bounds(&read(start, rows)), "{name} in page {page} of row group {row_group}");
                start += rows;
                pages += 1;
            }
            assert_eq!(start, rows, "{name}");
        }
    }
    assert!(pages > 2 * names.len(), "{pages} pages");
    // Bounds of columns without a dictionary are computed differently.
    let dictionary = |name: &str| {
        let column = names.iter().position(|other| *other == name).expect("a column");
        metadata.row_group(0).column(column).dictionary_page_offset().is_some()
    };
    assert_eq!(["minus", "up", "int_down"].map(dictionary), [true, false, false]);
}

/// Tools select the same rows with and without the bounds.
#[tokio::test]
async fn tools_find_zeros_of_either_sign() {
    let service = TestService::start().await;
    service.import("Zeros", &entities()).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("zeros.parquet");
    let answer = service.get("/api/1/zeros/v1/?format=parquet&typed=true").await;
    std::fs::write(&path, &answer.body).expect("written");
    let output = tool("python").arg(tools_file("bounds.py")).arg(&path).output().expect("the script runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    let columns = COLUMNS.len() + 5;
    assert_eq!(printed, format!("{ROWS} rows, {columns} columns, {} conditions\n", columns * 18));
}
