//! The types of Parquet columns.

use std::sync::Arc;

use strata_encode::{ColumnType, ColumnTypeInference};
use strata_json::TableColumnNames;

#[track_caller]
fn check(values: &[&str], expected: ColumnType) {
    let inference = ColumnTypeInference::new(Arc::new(TableColumnNames::from(vec!["v".to_owned()])), vec![None]);
    // In one part, and with a part for each value.
    let mut all = inference.new_builder();
    let mut merged = inference.new_builder();
    for value in values {
        let document = format!("{{\"v\":{value}}}");
        all.add_entity(document.as_bytes());
        let mut one = inference.new_builder();
        one.add_entity(document.as_bytes());
        merged.merge(&one);
    }
    assert_eq!((all.finish()[0], merged.finish()[0]), (expected, expected), "{values:?}");
}

#[test]
fn column_type_fits_all_values() {
    use ColumnType::{Boolean, Double, Int64, Text};
    check(&[], Text);
    check(&["null", "{}"], Text);
    check(&["true", "null", "false"], Boolean);
    check(&["true", "1"], Text);
    check(&["true", "\"true\""], Text);
    check(&["0", "-0", "null", "9223372036854775807", "-9223372036854775808"], Int64);
    check(&["1", "1.0"], Double);
    check(&["1e2"], Double);
    check(&["0.1", "-0.0", "5e-324", "1e-400"], Double);
    check(&["9223372036854775808"], Double);
    check(&["-9223372036854775809"], Text);
    check(&["9007199254740993"], Int64);
    check(&["9007199254740993", "0.5"], Text);
    check(&["9007199254740992", "0.5"], Double);
    check(&["100000000000000000000"], Double);
    check(&["100000000000000000001"], Text);
    check(&["1e400"], Text);
    check(&["1", "-1e400"], Text);
    check(&[&format!("1{}", "0".repeat(400))], Text);
    check(&["1", "\"\""], Text);
    check(&["1", "[]"], Text);
    check(&["[1]", "[2]"], Text);
}
