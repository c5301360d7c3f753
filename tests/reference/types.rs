//! The types of columns (docs/reference/formats.md, parquet), decided by digits.

use super::number::nearest_double;
use super::rules;
use super::value::Value;

/// The type of a column by its name in Parquet; text is `BYTE_ARRAY`.
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
    // All its digits, of which an integer must have the same.
    double.is_finite()
        && (!is_integer(text) || format!("{double:.0}").trim_start_matches('-') == text.trim_start_matches('-'))
}

/// A cell as it is compared: the value in its type.
pub fn cell(text: &str, column_type: &str) -> String {
    match column_type {
        "INT64" => text.parse::<i128>().expect("an integer").to_string(),
        // An integer has no sign of zero.
        "DOUBLE" if text == "-0" => double(0.0),
        "DOUBLE" => double(nearest_double(text)),
        _ => text.to_owned(),
    }
}

/// A double by its bits: -0.0 is another than 0.0.
pub fn double(value: f64) -> String {
    format!("{value:?} {:016x}", value.to_bits())
}
