//! Column types (docs/reference/formats.md, parquet), determined from digits.

use super::number::nearest_double;
use super::rules;
use super::value::Value;

/// Returns the Parquet name of a column's type; `BYTE_ARRAY` for text.
pub fn type_of(entities: &[Value], column: &str) -> &'static str {
    let cells: Vec<Value> = entities.iter().filter_map(|entity| rules::flatten(entity).get(column).cloned()).collect();
    let values: Vec<&Value> = cells.iter().filter(|value| !matches!(value, Value::Null)).collect();
    let all = |holds: fn(&str) -> bool| values.iter().all(|value| matches!(value, Value::Number(text) if holds(text)));
    match () {
        () if values.is_empty() => "BYTE_ARRAY",
        () if values.iter().all(|value| matches!(value, Value::Bool(_))) => "BOOLEAN",
        () if all(is_int64) => "INT64",
        () if all(is_double) => "DOUBLE",
        () => "BYTE_ARRAY",
    }
}

fn is_integer(text: &str) -> bool {
    !text.contains(['.', 'e', 'E'])
}

fn is_int64(text: &str) -> bool {
    is_integer(text)
        && text.len() < 30
        && text.parse::<i128>().is_ok_and(|value| (-(1_i128 << 63)..1 << 63).contains(&value))
}

fn is_double(text: &str) -> bool {
    let double = nearest_double(text);
    // An integer must have the same digits as its double.
    double.is_finite()
        && (!is_integer(text) || format!("{double:.0}").trim_start_matches('-') == text.trim_start_matches('-'))
}

/// Returns a comparable form of a cell: the value in its type.
pub fn cell(text: &str, column_type: &str) -> String {
    match column_type {
        "INT64" => text.parse::<i128>().expect("failed to parse integer").to_string(),
        // An integer has no negative zero.
        "DOUBLE" if text == "-0" => double(0.0),
        "DOUBLE" => double(nearest_double(text)),
        _ => text.to_owned(),
    }
}

/// Returns the bits of a double, so that -0.0 differs from 0.0.
pub fn double(value: f64) -> String {
    format!("{value:?} {:016x}", value.to_bits())
}
