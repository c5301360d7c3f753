//! Parquet types whose values arrow-json does not print, or prints in another form.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Date64Array, Decimal128Array, Float64Array, Int32Array,
    Int64Array, ListArray, MapArray, RecordBatch, StringArray, StructArray, TimestampMillisecondArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, Int32Type};
use parquet::data_type::{
    ByteArray, ByteArrayType, DataType as ParquetType, FixedLenByteArrayType, Int32Type as Int32, Int96, Int96Type,
};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::check;
use super::parquet::parquet_bytes;

/// Writes a file with one column and no nulls.
fn file<T: ParquetType>(column: &str, values: &[T::T], definition: i16, repetitions: Option<&[i16]>) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(&format!("message m {{ {column} }}")).expect("failed to parse schema"));
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).expect("failed to create writer");
    let mut group = writer.next_row_group().expect("failed to build row group");
    let mut chunk = group.next_column().expect("failed to write").expect("failed to build column");
    let definitions = vec![definition; values.len()];
    chunk.typed::<T>().write_batch(values, Some(&definitions), repetitions).expect("failed to write");
    chunk.close().expect("failed to write");
    group.close().expect("failed to write");
    writer.into_inner().expect("failed to write")
}

/// Returns a timestamp as Spark writes it: the days since 1970-01-01, and the nanoseconds of the day.
fn int96(day: i64, nanoseconds: u64) -> Int96 {
    let day = u32::try_from(day + 2_440_588).expect("day out of range");
    Int96::from(vec![nanoseconds as u32, (nanoseconds >> 32) as u32, day])
}

const DAY_OF_9999_12_31: i64 = 2_932_896;

#[test]
fn int96_outside_64_bit_range_keeps_date() {
    // 64-bit nanoseconds cover only the years 1677 to 2262. Other dates wrapped around: 9999-12-31 became 1816-03-29.
    let values = [
        int96(DAY_OF_9999_12_31, 0),
        int96(-719_162, 1_000),
        int96(0, 45_296_123_456_789),
        int96(-1, 86_399_999_000_000),
        int96(0, 86_400_000_000_000),
    ];
    let expected = r#"{"at":"9999-12-31T00:00:00"}
        {"at":"0001-01-01T00:00:00.000001"}
        {"at":"1970-01-01T12:34:56.123456789"}
        {"at":"1969-12-31T23:59:59.999"}
        {"at":"1970-01-02T00:00:00"}"#;
    check("a.parquet", file::<Int96Type>("required int96 at;", &values, 0, None), expected);
    check("a.parquet", file::<Int96Type>("optional int96 at;", &values, 1, None), expected);
}

#[test]
fn int96_in_any_list_is_timestamp() {
    let values = [int96(DAY_OF_9999_12_31, 0), int96(0, 0), int96(0, 1_000_000_000)];
    let expected = r#"{"l":["9999-12-31T00:00:00","1970-01-01T00:00:00"]}
        {"l":["1970-01-01T00:00:01"]}"#;
    for (column, definition) in [
        ("repeated int96 l;", 1),
        ("required group l (LIST) { repeated int96 element; }", 1),
        ("optional group l (LIST) { repeated int96 element; }", 2),
        ("optional group l (LIST) { repeated group list { optional int96 element; } }", 3),
    ] {
        check("a.parquet", file::<Int96Type>(column, &values, definition, Some(&[0, 1, 0])), expected);
    }
    let column = "required fixed_len_byte_array(12) b;";
    let bytes = [ByteArray::from("abcdefghijkl").into()];
    check("a.parquet", file::<FixedLenByteArrayType>(column, &bytes, 0, None), r#"{"b":"6162636465666768696a6b6c"}"#);
}

#[test]
fn int96_out_of_range_reports_item_and_column() {
    let values = [int96(0, 0), Int96::from(vec![0, 0, i32::MAX as u32])];
    let expected = r#"{"at":"1970-01-01T00:00:00"}
        ! item 2: column "at" contains a date outside the years -262143 to 262142"#;
    check("a.parquet", file::<Int96Type>("required int96 at;", &values, 0, None), expected);
}

#[test]
fn interval_keeps_months() {
    let interval = |fields: [i32; 3]| ByteArray::from(fields.map(i32::to_le_bytes).concat()).into();
    let values = [[14, 3, 4_000], [14, 0, 0], [0, 3, 4_000], [0, 0, 0], [-1, 0, 1]].map(interval);
    let column = "required fixed_len_byte_array(12) i (INTERVAL);";
    check(
        "a.parquet",
        file::<FixedLenByteArrayType>(column, &values, 0, None),
        r#"{"i":"14 mons 3 days 4.000 secs"}
           {"i":"14 mons"}
           {"i":"3 days 4.000 secs"}
           {"i":"0 secs"}
           {"i":"-1 mons 0.001 secs"}"#,
    );
}

#[test]
fn enum_is_string() {
    let values = ["Äpfel", ""].map(ByteArray::from);
    let expected = "{\"kind\":\"Äpfel\"}\n{\"kind\":\"\"}";
    check("a.parquet", file::<ByteArrayType>("required binary kind (ENUM);", &values, 0, None), expected);
    let expected = r#"{"kind":["Äpfel",""]}"#;
    let column = "required group kind (LIST) { repeated binary array (ENUM); }";
    check("a.parquet", file::<ByteArrayType>(column, &values, 1, Some(&[0, 1])), expected);
}

/// Writes a file with one row, which contains a map from the keys to 0, 1, 2, ….
fn map_file(keys: ArrayRef) -> Vec<u8> {
    let values: ArrayRef = Arc::new(Int32Array::from_iter_values(0..keys.len() as i32));
    let fields = Fields::from(vec![
        Field::new("keys", keys.data_type().clone(), false),
        Field::new("values", DataType::Int32, true),
    ]);
    let offsets = OffsetBuffer::from_lengths([keys.len()]);
    let entries = StructArray::new(fields.clone(), vec![keys, values], None);
    let entries_field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
    column_file(Arc::new(MapArray::new(entries_field, offsets, entries, None, false)))
}

fn column_file(column: ArrayRef) -> Vec<u8> {
    parquet_bytes(&RecordBatch::try_from_iter([("m", column)]).expect("failed to build batch"), 10)
}

#[test]
fn map_keys_become_names() {
    let decimals =
        Decimal128Array::from(vec![150, -5]).with_precision_and_scale(9, 2).expect("failed to build decimals");
    let times = TimestampMillisecondArray::from(vec![1_500]).with_timezone("UTC");
    let cases: [(ArrayRef, &str); 9] = [
        (Arc::new(StringArray::from(vec!["a", "\"\n"])), r#"{"a":0,"\"\n":1}"#),
        (Arc::new(Int64Array::from(vec![-1, i64::MAX])), r#"{"-1":0,"9223372036854775807":1}"#),
        (Arc::new(BooleanArray::from(vec![true, false])), r#"{"true":0,"false":1}"#),
        (Arc::new(Float64Array::from(vec![1.5, f64::NAN, f64::INFINITY])), r#"{"1.5":0,"NaN":1,"inf":2}"#),
        (Arc::new(decimals), r#"{"1.50":0,"-0.05":1}"#),
        (Arc::new(Date32Array::from(vec![0, 19_782])), r#"{"1970-01-01":0,"2024-02-29":1}"#),
        (Arc::new(times), r#"{"1970-01-01T00:00:01.500Z":0}"#),
        (Arc::new(BinaryArray::from(vec![&b"\x00\xff"[..], b""])), r#"{"00ff":0,"":1}"#),
        // The last of duplicate keys wins, as in JSON.
        (Arc::new(Int64Array::from(vec![7, 7])), r#"{"7":1}"#),
    ];
    for (keys, expected) in cases {
        check("a.parquet", map_file(keys), &format!("{{\"m\":{expected}}}"));
    }
    let keys = file::<Int96Type>(
        "required group m (MAP) { repeated group key_value { required int96 key; } }",
        &[int96(DAY_OF_9999_12_31, 0)],
        1,
        Some(&[0]),
    );
    check("a.parquet", keys, r#"{"m":["9999-12-31T00:00:00"]}"#);
}

#[test]
fn map_with_nested_keys_reports_column() {
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)])]);
    let expected = "! the Parquet file cannot be read: column \"m\" has maps whose keys are lists, structs, or maps, \
                    which JSON does not support";
    check("a.parquet", map_file(Arc::new(lists)), expected);
}

#[test]
fn date_out_of_range_reports_item_and_column() {
    let expected = |column: &str| {
        format!("{{\"m\":{column}}}\n! item 2: column \"m\" contains a date outside the years -262143 to 262142")
    };
    let dates = Date32Array::from(vec![0, i32::MAX]);
    check("a.parquet", column_file(Arc::new(dates)), &expected("\"1970-01-01\""));
    let dates = Date64Array::from(vec![0, i64::MAX / 86_400_000 * 86_400_000]);
    check("a.parquet", column_file(Arc::new(dates)), &expected("\"1970-01-01T00:00:00\""));
    let times = TimestampMillisecondArray::from(vec![0, 0, i64::MAX]);
    let item = Arc::new(Field::new("item", times.data_type().clone(), true));
    let lists = ListArray::new(item, OffsetBuffer::from_lengths([1, 2]), Arc::new(times), None);
    check("a.parquet", column_file(Arc::new(lists)), &expected("[\"1970-01-01T00:00:00\"]"));
}

#[test]
fn unreadable_column_is_reported() {
    let invalid_text = file::<ByteArrayType>("required binary kind (UTF8);", &[ByteArray::from(vec![0xff])], 0, None);
    check(
        "a.parquet",
        invalid_text,
        "! the Parquet file is damaged: column \"kind\" cannot be decoded in row group 0: its values are malformed, or \
         its strings are not UTF-8",
    );
    let zone = TimestampMillisecondArray::from(vec![0]).with_timezone("Mars/Base");
    let expected = "! the Parquet file cannot be read: column \"m\" has the unknown time zone \"Mars/Base\"";
    check("a.parquet", column_file(Arc::new(zone)), expected);
    let list = file::<Int32>("required group l (LIST) { required int32 element; }", &[1], 0, None);
    check(
        "a.parquet",
        list,
        "! the Parquet file cannot be read: column \"l\" has a type annotation that does not match its type, or a \
         group that is neither a list nor a map",
    );
}
