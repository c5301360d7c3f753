//! From a source's bytes to its entities: every format and compression, what is detected, what is refused and where,
//! and fetching over HTTP.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
    TimestampMillisecondArray,
};
use arrow::datatypes::{DataType, Field, Fields, Int64Type};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::{ParquetMetaDataReader, ParquetMetaDataWriter, RowGroupMetaData};
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use strata::model::path::Path;
use strata::model::source::{Compression, SourceFormat};
use strata::source::{DecodeOptions, Detected, FetchLimits, Fetched, Opened, SourceError, SourceInput, open};

use crate::support::loopback_client;

// ---------------------------------------------------------------------------------------------- helpers

/// What a source gives as text: one entity per line, and a last line `! error` if it is bad.
fn decode(input: SourceInput, options: &DecodeOptions) -> String {
    let (lines, _) = decode_and_detect(input, options);
    lines
}

fn decode_and_detect(input: SourceInput, options: &DecodeOptions) -> (String, Option<Detected>) {
    let mut text = String::new();
    let (mut decoder, detected) = match open(input, options) {
        Ok(opened) => opened,
        Err(error) => return (format!("! {error}\n"), None),
    };
    let mut entity = Vec::new();
    loop {
        entity.clear();
        match decoder.next(&mut entity) {
            Ok(true) => writeln!(text, "{}", std::str::from_utf8(&entity).expect("entities are UTF-8")),
            Ok(false) => {
                assert!(entity.is_empty(), "the end appends nothing");
                break;
            }
            Err(error) => {
                writeln!(text, "! {error}").expect("a string takes all");
                break;
            }
        }
        .expect("a string takes all");
    }
    (text, Some(detected))
}

/// Checks what a file of that name and content gives: plain, as two gzip members, and as two Zstandard frames. The
/// expected text is trimmed line by line, so that it can be indented.
#[track_caller]
fn check(name: &str, content: impl AsRef<[u8]>, expected: &str) {
    check_with(&DecodeOptions::default(), name, content, expected);
}

#[track_caller]
fn check_with(options: &DecodeOptions, name: &str, content: impl AsRef<[u8]>, expected: &str) {
    let content = content.as_ref();
    let expected: String =
        expected.lines().map(str::trim).filter(|line| !line.is_empty()).fold(String::new(), |mut text, line| {
            text.push_str(line);
            text.push('\n');
            text
        });
    let middle = content.len() / 2;
    let halves = [&content[..middle], &content[middle..]];
    let gzipped: Vec<u8> = halves.iter().flat_map(|half| gzip(half)).collect();
    let zstandard: Vec<u8> = halves.iter().flat_map(|half| zstandard(half)).collect();
    for (packing, bytes) in [("plain", content.to_vec()), ("gzip", gzipped), ("zstd", zstandard)] {
        let input = SourceInput::stream(io::Cursor::new(bytes)).with_name(name);
        assert_eq!(decode(input, options), expected, "{packing}");
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}

fn zstandard(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("memory takes all")
}

fn at_path(path: &str) -> DecodeOptions {
    DecodeOptions { records_path: Some(Path::parse(path).expect("a path")), ..DecodeOptions::default() }
}

fn as_format(format: SourceFormat) -> DecodeOptions {
    DecodeOptions { format: Some(format), ..DecodeOptions::default() }
}

/// A reader that gives its bytes in pieces of the given sizes, again and again.
struct Pieces {
    bytes: Vec<u8>,
    position: usize,
    sizes: Vec<usize>,
    turn: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes[self.turn % self.sizes.len()];
        self.turn += 1;
        if size == 0 {
            return Err(io::Error::from(io::ErrorKind::Interrupted));
        }
        let rest = &self.bytes[self.position..];
        let count = size.min(rest.len()).min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.position += count;
        Ok(count)
    }
}

// ----------------------------------------------------------------------------------------- json and jsonl

#[test]
fn json_arrays() {
    check("a.json", "[]", "");
    check("a.json", " [ ] \r\n", "");
    check("a.json", "\u{feff}[{}]", "{}");
    check(
        "a.json",
        "[ {\"b\" : 1.0, \"a\":[ 1e400 , {} ]}\n,\t{\"\\u00e9\\/\":\"\\u0041\"} ]",
        r#"{"b":1.0,"a":[1e400,{}]}
           {"é/":"A"}"#,
    );
    check("a.json", r#"[{"a":1,"b":2,"a":3}]"#, r#"{"a":3,"b":2}"#);
}

#[test]
fn json_items_that_are_bad_are_named_by_position() {
    check(
        "a.json",
        r#"[{"a":1},{"a":2},[3]]"#,
        r#"{"a":1}
           {"a":2}
           ! item 3: an entity must be a JSON object; this is an array"#,
    );
    for (item, kind) in [("null", "null"), ("\"x\"", "a string"), ("-1", "a number"), ("true", "a boolean")] {
        let expected = format!("! item 1: an entity must be a JSON object; this is {kind}");
        check("a.json", format!("[{item}]"), &expected);
    }
    check("a.json", r#"[{"a":01}]"#, "! item 1: byte 6: not a JSON number");
    check("a.json", r#"[{"a":"\ud800"}]"#, "! item 1: byte 6: half of a surrogate pair, which is no character");
    check("a.json", b"[{\"a\":\"\xff\"}]", "! item 1: byte 6: not UTF-8");
    check("a.json", r#"[{"a":[}]"#, "! item 1: byte 6: found '}' where a value should stand");
}

#[test]
fn json_documents_that_are_cut_or_go_on_are_bad() {
    check("a.json", "", "! not a JSON document: the document ends where an array should be");
    check("a.json", "[", "! not a JSON document: the document ends where an item should be");
    check("a.json", r#"[{"a":1"#, "! item 1: the document ends in the middle of it");
    check(
        "a.json",
        r#"[{"a":1}"#,
        r#"{"a":1}
           ! not a JSON document: the document ends after item 1 where a comma or a closing bracket should be"#,
    );
    check(
        "a.json",
        r#"[{"a":1},]"#,
        r#"{"a":1}
           ! not a JSON document: there is ']' after item 1 where an item should be"#,
    );
    check(
        "a.json",
        r#"[{"a":1} {"a":2}]"#,
        r#"{"a":1}
           ! not a JSON document: there is '{' after item 1 where a comma or a closing bracket should be"#,
    );
    check("a.json", "[] []", "! not a JSON document: there is '[' where the end of the document should be");
    check("a.json", "[,]", "! not a JSON document: there is ',' where an item should be");
    check("a.json", "<html>", "! not a JSON document: there is '<' where an array should be");
}

#[test]
fn json_nests_as_deep_as_entities_may() {
    let nested = |levels: usize| format!("[{{\"a\":{}{}}}]", "[".repeat(levels - 1), "]".repeat(levels - 1));
    let deepest = nested(128);
    check("a.json", &deepest, &deepest[1..deepest.len() - 1]);
    let text = decode(SourceInput::stream(io::Cursor::new(nested(129))).with_name("a.json"), &DecodeOptions::default());
    assert!(text.starts_with("! item 1: byte ") && text.ends_with("nested deeper than 128 levels\n"), "{text}");
    // Hundreds of thousands of levels must not exhaust the stack.
    let text = decode(
        SourceInput::stream(io::Cursor::new("[{\"a\":".to_owned() + &"[".repeat(300_000))).with_name("a.json"),
        &DecodeOptions::default(),
    );
    assert!(text.contains("nested deeper than 128 levels"), "{text}");
}

#[test]
fn json_records_at_a_path() {
    let document = r#"
        {"meta": {"items": [1, "]}", {"x":"\\\""}], "n": -1.5e3}, "other" : "a,]}" , "t":true,
         "data": {"next": null, "items": [{"a":1}, {"a":2}], "after": [[]]},
         "last": "items"}"#;
    check_with(&at_path("data.items"), "a.json", document, "{\"a\":1}\n{\"a\":2}");
    check_with(&at_path("data.items"), "", document, "{\"a\":1}\n{\"a\":2}");
    check_with(&at_path("rows"), "a.json", r#"{"rows":[]}"#, "");
    check_with(&at_path(r"a\.b"), "a.json", r#"{"a":{"b":[{"no":1}]},"a.b":[{"yes":1}]}"#, r#"{"yes":1}"#);
    check_with(&at_path("é"), "a.json", r#"{"\u00e9":[{}]}"#, "{}");
    check_with(&at_path("a..b"), "a.json", r#"{"a":{"":{"b":[{}]}}}"#, "{}");
}

#[test]
fn json_records_paths_that_lead_nowhere() {
    let nothing = "! the document has nothing at the records path";
    check_with(&at_path("data.items"), "a.json", r#"{"data":{"x":1}}"#, &format!("{nothing} data.items"));
    check_with(&at_path("data.items"), "a.json", r#"{"data":{}}"#, &format!("{nothing} data.items"));
    check_with(&at_path("data.items"), "a.json", r#"{"dat":{"items":[]}}"#, &format!("{nothing} data"));
    check_with(
        &at_path("data.items"),
        "a.json",
        r#"{"data":{"items":{"a":1}}}"#,
        "! at the records path data.items there is an object, not an array",
    );
    check_with(
        &at_path("data.items"),
        "a.json",
        r#"{"data":[{"items":[]}]}"#,
        "! at the records path data there is an array, not an object",
    );
    check_with(&at_path("data"), "a.json", "[{}]", "! the document is an array, not an object");
    check_with(
        &at_path("items"),
        "a.json",
        r#"{"items":[{}],"items":[]}"#,
        "{}
         ! the key at the records path items comes twice",
    );
    check_with(
        &at_path("items"),
        "a.json",
        r#"{"items":[{}]"#,
        "{}
         ! not a JSON document: the document ends after item 1 where a comma or a closing brace should be",
    );
    check_with(
        &at_path("items"),
        "a.json",
        r#"{"x":tru,"items":[]}"#,
        r#"! not a JSON document: "tru" beside the array of records"#,
    );
    check_with(
        &at_path("items"),
        "a.csv",
        "a,b\n",
        "! a records path was given, which only json sources have, and this one is csv",
    );
}

#[test]
fn a_json_object_without_a_records_path_is_refused_with_advice() {
    let advice = "! the document is an object, not an array: give the path to the array of records in it (records_path), \
                  or the format jsonl if every line is an object";
    check("a.json", r#"{"items":[{"a":1}]}"#, advice);
    check("a.json", "{\n  \"items\": [\n    {\"a\": 1}\n  ]\n}\n", advice);
    check("", "{\n  \"items\": []\n}\n", advice);
    check_with(&as_format(SourceFormat::Json), "a.jsonl", "{}\n{}\n", advice);
}

#[test]
fn jsonl_lines() {
    check("a.jsonl", "", "");
    check("a.ndjson", "\n \n", "");
    check("a.jsonl", " \t \r\n{\"a\":1}\t \r\n", "{\"a\":1}");
    // What is white space elsewhere is none in JSON.
    for bad in ["\u{c}\n", "{}\u{c}\n", "\u{b}{}", "\u{a0}\n"] {
        let input = SourceInput::stream(io::Cursor::new(bad.to_owned())).with_name("a.jsonl");
        let text = decode(input, &DecodeOptions::default());
        assert!(text.starts_with("! item 1 (line 1): "), "{bad:?}: {text}");
    }
    check("a.jsonl", "\u{feff}{\"a\":1}\r\n\r\n  { \"a\" : 2 }  \n{\"a\":3}", "{\"a\":1}\n{\"a\":2}\n{\"a\":3}");
    check(
        "a.jsonl",
        "{}\n\n\n[1]\n{}",
        "{}
         ! item 2 (line 4): an entity must be a JSON object; this is an array",
    );
    check(
        "a.jsonl",
        "{}\n{\"a\":\n1}\n",
        "{}
         ! item 2 (line 2): byte 5: the text ends where a value should follow",
    );
    check("a.jsonl", "{} {}\n", "! item 1 (line 1): byte 3: text after the end of the object");
    check(
        "a.jsonl",
        "{\"a\":1",
        "! item 1 (line 1): byte 6: the text ends where a comma or a closing brace should follow",
    );
}

// ------------------------------------------------------------------------------------------------ tables

#[test]
fn tables_give_strings() {
    check(
        "a.csv",
        "id,name,note\n1,Zoë,\n007,\"a, \"\"b\"\"\",\"two\nlines\"\n",
        r#"{"id":"1","name":"Zoë","note":""}
           {"id":"007","name":"a, \"b\"","note":"two\nlines"}"#,
    );
    check("a.tsv", "a\tb\n1,5\t\"x\ty\"\n", r#"{"a":"1,5","b":"x\ty"}"#);
    check("a.csv", "a,b", "");
    check("a.csv", "\u{feff}a,b\r\n1,2\r\n\r\n3,4", "{\"a\":\"1\",\"b\":\"2\"}\n{\"a\":\"3\",\"b\":\"4\"}");
    check("a.csv", "a,b\r1,2\r3,4\r", "{\"a\":\"1\",\"b\":\"2\"}\n{\"a\":\"3\",\"b\":\"4\"}");
    check("a.csv", "a\n\"\"\n\nx\n", "{\"a\":\"\"}\n{\"a\":\"x\"}");
    check("a.csv", "a,\"b\"\"\nc\"\n\"\",\"\"\n", r#"{"a":"","b\"\nc":""}"#);
    check("a.csv", "a,b\n6\" pipe, x \n", r#"{"a":"6\" pipe","b":" x "}"#);
    check("a.csv", "a,b\n\"\"\"\",\"\"\"\"\"\"\n", r#"{"a":"\"","b":"\"\""}"#);
    check("a.csv", "a,b\n,", r#"{"a":"","b":""}"#);
    check("a.csv", "a\u{1},b\n\u{0},\\\n", r#"{"a\u0001":"\u0000","b":"\\"}"#);
}

#[test]
fn equal_column_names_are_one_key_with_the_last_cell() {
    check("a.csv", "a,b,a\n1,2,3\n", r#"{"a":"3","b":"2"}"#);
    check("a.csv", ",\n1,2\n", r#"{"":"2"}"#);
}

#[test]
fn rows_that_are_bad_are_named_by_position_and_line() {
    check(
        "a.csv",
        "a,b\n\"1\n1\",2\n\n3\n",
        r#"{"a":"1\n1","b":"2"}
           ! item 2 (line 5): the row has 1 cell, the header has 2"#,
    );
    check("a.csv", "a,b\n1,2,3\n", "! item 1 (line 2): the row has 3 cells, the header has 2");
    check("a.csv", "a,b\r\n1,\"2\r\n3,4\r\n", "! item 1 (line 2): a quote is opened and never closed");
    check("a.csv", "a,b\n1,\"2\"x\n", "! item 1 (line 2): there is text after the closing quote of a cell");
    check("a.csv", b"a,b\n1,\xe9\n", "! item 1 (line 2): cell 2 is not UTF-8");
    // Also in a column that a later one of the same name hides.
    check("a.csv", b"a,b,a\n1,2,3\n\xe9,2,3\n", "{\"a\":\"3\",\"b\":\"2\"}\n! item 2 (line 3): cell 1 is not UTF-8");
    check("a.csv", b"a,\xe9\n1,2\n", "! the header line is not UTF-8");
    check("a.csv", "a,\"b\n", "! the header line: a quote is opened and never closed");
    check("a.csv", "", "! the table is empty: its first line must name the columns");
    check("a.tsv", "\n\n", "! the table is empty: its first line must name the columns");
}

#[test]
fn a_line_end_cut_by_the_window_counts_once() {
    for window_bytes in 1..20 {
        let options = DecodeOptions { window_bytes, ..DecodeOptions::default() };
        let expected = "{\"a\":\"1\",\"b\":\"x\\r\\ny\"}
            ! item 2 (line 4): the row has 1 cell, the header has 2";
        check_with(&options, "a.csv", "a,b\r\n1,\"x\r\ny\"\r\n3\r\n", expected);
    }
}

// ----------------------------------------------------------------------------------------------- parquet

fn parquet_bytes(batch: &RecordBatch, row_group_rows: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(row_group_rows)).build();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).expect("a writable schema");
    writer.write(batch).expect("memory takes all");
    writer.close().expect("memory takes all");
    bytes
}

fn mixed_batch() -> RecordBatch {
    let point = StructArray::new(
        Fields::from(vec![Field::new("x", DataType::Int64, true), Field::new("t", DataType::Utf8, true)]),
        vec![
            Arc::new(Int64Array::from(vec![Some(1), None, None])) as ArrayRef,
            Arc::new(StringArray::from(vec![Some("a\n\"b\""), None, Some("é")])) as ArrayRef,
        ],
        None,
    );
    let numbers = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), Some(vec![]), None]);
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(Int64Array::from(vec![i64::MAX, -1, 0])) as ArrayRef, false),
        ("name", Arc::new(StringArray::from(vec![Some("Ünï"), None, Some("")])) as ArrayRef, true),
        ("ok", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])) as ArrayRef, true),
        ("value", Arc::new(Float64Array::from(vec![Some(1.5), Some(f64::NAN), None])) as ArrayRef, true),
        ("point", Arc::new(point) as ArrayRef, true),
        ("numbers", Arc::new(numbers) as ArrayRef, true),
        ("raw", Arc::new(BinaryArray::from(vec![Some(&b"\x01\xff"[..]), None, None])) as ArrayRef, true),
        ("at", Arc::new(TimestampMillisecondArray::from(vec![Some(0), None, None])) as ArrayRef, true),
    ])
    .expect("columns of one length")
}

#[test]
fn parquet_rows_with_explicit_nulls() {
    let expected = r#"
        {"id":9223372036854775807,"name":"Ünï","ok":true,"value":1.5,"point":{"x":1,"t":"a\n\"b\""},"numbers":[1,null],"raw":"01ff","at":"1970-01-01T00:00:00"}
        {"id":-1,"name":null,"ok":null,"value":null,"point":{"x":null,"t":null},"numbers":[],"raw":null,"at":null}
        {"id":0,"name":"","ok":false,"value":null,"point":{"x":null,"t":"é"},"numbers":null,"raw":null,"at":null}"#;
    let bytes = parquet_bytes(&mixed_batch(), 2);
    check("a.parquet", &bytes, expected);
    check("", &bytes, expected);
    check("a.parquet", parquet_bytes(&mixed_batch().slice(0, 0), 2), "");
}

#[test]
fn parquet_from_a_file_reports_progress() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.parquet");
    std::fs::write(&path, parquet_bytes(&mixed_batch(), 1)).expect("a file");
    let input = SourceInput::open_file(&path).expect("the file");
    let progress = input.progress();
    let (text, detected) = decode_and_detect(input, &DecodeOptions::default());
    assert_eq!(text.lines().count(), 3, "{text}");
    assert_eq!(detected, Some(Detected { format: SourceFormat::Parquet, compression: Compression::None }));
    assert_eq!(Some(progress.read_bytes()), progress.total_bytes());
}

#[test]
fn parquet_that_is_damaged_is_a_bad_document() {
    let bytes = parquet_bytes(&mixed_batch(), 2);
    for cut in [3, 4, 12, bytes.len() / 2, bytes.len() - 1] {
        let input = SourceInput::stream(io::Cursor::new(bytes[..cut].to_vec())).with_name("a.parquet");
        let error = open(input, &DecodeOptions::default()).err().expect("a cut file is bad");
        assert!(matches!(error, SourceError::BadDocument { .. }), "{error:?}");
    }
    // Whatever a flipped byte does, it does not bring the process down.
    for position in (0..bytes.len()).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[position] ^= 0x55;
        decode(SourceInput::stream(io::Cursor::new(damaged)).with_name("a.parquet"), &DecodeOptions::default());
    }
}

#[test]
fn parquet_whose_footer_names_other_rows_than_it_holds_is_a_bad_document() {
    let bytes = parquet_bytes(&mixed_batch(), 2);
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&Bytes::from(bytes.clone())).expect("a footer");
    let first = metadata.row_group(0).clone();
    let with_rows = |group: usize, rows: i64, total: i64| {
        let mut groups = metadata.row_groups().to_vec();
        groups[group] = groups[group].clone().into_builder().set_num_rows(rows).build().expect("a row group");
        (groups, total)
    };
    let changes = [
        // The total is told alike, so that what was decoded tells.
        with_rows(0, 3, 4),
        with_rows(0, 1, 2),
        with_rows(1, 7, 9),
        with_rows(1, 0, 2),
        // Only the total tells.
        (metadata.row_groups().to_vec(), 0),
        (metadata.row_groups().to_vec(), 4),
        (metadata.row_groups().to_vec(), -1),
        (Vec::new(), 3),
        (vec![first.clone()], 3),
        (vec![first.clone(), first], 3),
    ];
    for (groups, total) in changes {
        let rows: Vec<i64> = groups.iter().map(RowGroupMetaData::num_rows).collect();
        let changed = metadata.clone().into_builder().set_row_groups(groups).build();
        let mut bytes = bytes.clone();
        // What is before the new footer stays in its place; the old one is skipped.
        let start = bytes.len();
        ParquetMetaDataWriter::new(&mut bytes, &changed).finish().expect("memory takes all");
        // The writer adds the rows up. In the footer they are a 64-bit integer between the schema and a list.
        let number = |rows: i64| u8::try_from((rows << 1) ^ (rows >> 63)).expect("a small number");
        let written = [0x16, number(rows.iter().sum()), 0x19];
        let at = bytes[start..].windows(3).position(|bytes| bytes == written).expect("the number of rows");
        bytes[start + at + 1] = number(total);
        let input = SourceInput::stream(io::Cursor::new(bytes)).with_name("a.parquet");
        let text = decode(input, &DecodeOptions::default());
        assert!(text.lines().any(|line| line.starts_with("! ")), "{rows:?} of {total}: {text}");
    }
}

#[test]
fn parquet_dictionaries_of_long_values_stay_small() {
    // 5,000 rows that share one value of 200 KB are a file of some KB and 1 GB of text: the rows come one by one, and
    // the source's limit counts the text.
    let long = "x".repeat(200_000);
    let column = StringArray::from_iter_values((0..5_000).map(|_| long.as_str()));
    let batch = RecordBatch::try_from_iter([("a", Arc::new(column) as ArrayRef)]).expect("one column");
    let bytes = parquet_bytes(&batch, 10_000);
    assert!(bytes.len() < 1_000_000, "{}", bytes.len());
    let options = DecodeOptions { source_limit_bytes: 2_000_000, ..DecodeOptions::default() };
    let input = SourceInput::stream(io::Cursor::new(bytes)).with_name("a.parquet");
    let text = decode(input, &options);
    assert_eq!(text.lines().count(), 10);
    assert!(text.ends_with("! the source is larger than sources.max_bytes (2000000)\n"));
}

// --------------------------------------------------------------------------------------- bounds and damage

#[test]
fn an_entity_larger_than_its_limit_is_refused_in_every_format() {
    let options = DecodeOptions { entity_limit_bytes: 40, window_bytes: 16, ..DecodeOptions::default() };
    let refusal = "the entity is larger than limits.entity_bytes (40)";
    let fits = format!("{{\"a\":\"{}\"}}", "x".repeat(40 - 8));
    let too_long = format!("{{\"a\":\"{}\"}}", "x".repeat(41 - 8));
    let endless = format!("{{\"a\":\"{}", "x".repeat(5_000));
    let expected = format!("{fits}\n! item 2: {refusal}");
    check_with(&options, "a.json", format!("[{fits},{too_long}]"), &expected);
    check_with(&options, "a.json", format!("[{fits},{endless}"), &expected);
    let expected = format!("{fits}\n! item 2 (line 2): {refusal}");
    check_with(&options, "a.jsonl", format!("{fits}\n{too_long}\n"), &expected);
    check_with(&options, "a.jsonl", format!("{fits}\n{endless}"), &expected);
    let cell = "x".repeat(40 - 8);
    let expected = format!("{fits}\n! item 2 (line 3): {refusal}");
    check_with(&options, "a.csv", format!("a\n{cell}\n{cell}y\n"), &expected);
    check_with(&options, "a.csv", format!("a\n{cell}\n\"{}", "x,\n".repeat(5_000)), &expected);
    let column = StringArray::from(vec![cell.clone(), format!("{cell}y")]);
    let batch = RecordBatch::try_from_iter([("a", Arc::new(column) as ArrayRef)]).expect("one column");
    check_with(&options, "a.parquet", parquet_bytes(&batch, 10), &format!("{fits}\n! item 2: {refusal}"));
}

#[test]
fn a_source_larger_than_its_limit_is_refused_packed_or_not() {
    let content = "{\"a\":1}\n".repeat(1_000);
    let options = DecodeOptions { source_limit_bytes: 8_000, ..DecodeOptions::default() };
    check_with(&options, "a.jsonl", &content, &"{\"a\":1}\n".repeat(1_000));
    let options = DecodeOptions { source_limit_bytes: 7_999, ..DecodeOptions::default() };
    check_with(&options, "a.jsonl", &content, "! the source is larger than sources.max_bytes (7999)");
    // Members that hold nothing never fill the decompressed side; the packed side is counted too.
    let empty_members = gzip(b"").repeat(1_000);
    let input = SourceInput::stream(io::Cursor::new(empty_members)).with_name("a.jsonl");
    assert_eq!(decode(input, &options), "! the source is larger than sources.max_bytes (7999)\n");
}

#[test]
fn packed_data_that_is_cut_or_damaged_is_a_bad_document() {
    let content: String = (0..2_000).map(|number| format!("{{\"a\":{}}}\n", number * 7919 % 2003)).collect();
    for (name, packed) in [("gzip", gzip(content.as_bytes())), ("zstd", zstandard(content.as_bytes()))] {
        for cut in [packed.len() - 1, packed.len() - 5, packed.len() / 2, 11] {
            let input = SourceInput::stream(io::Cursor::new(packed[..cut].to_vec())).with_name("a.jsonl");
            let text = decode(input, &DecodeOptions::default());
            assert!(text.ends_with(&format!("! the {name} data is cut short\n")), "{name} cut at {cut}: {text}");
        }
        let mut damaged = packed.clone();
        damaged[packed.len() / 2] ^= 0xff;
        let text =
            decode(SourceInput::stream(io::Cursor::new(damaged)).with_name("a.jsonl"), &DecodeOptions::default());
        assert!(text.contains("! "), "{name}: damage goes unnoticed");
        let mut followed = packed.clone();
        followed.extend_from_slice(b"garbage");
        let text =
            decode(SourceInput::stream(io::Cursor::new(followed)).with_name("a.jsonl"), &DecodeOptions::default());
        let expected = match name {
            // It was called cut short.
            "gzip" => "! what follows the gzip data is no gzip data\n",
            _ => "! the zstd data is damaged: ",
        };
        assert!(text.contains(expected), "{name}: {text}");
    }
}

#[test]
fn two_layers_of_compression_come_off() {
    let inner = gzip(b"a,b\n1,2\n");
    check("a.csv.gz", inner, r#"{"a":"1","b":"2"}"#);
    // A skippable frame may come first.
    let mut frames = vec![0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 7, 7];
    frames.extend(zstandard(b"a,b\n1,2\n"));
    assert_eq!(
        decode(SourceInput::stream(io::Cursor::new(frames)).with_name("a.csv"), &DecodeOptions::default()),
        "{\"a\":\"1\",\"b\":\"2\"}\n"
    );
}

#[test]
fn failures_of_the_reader_keep_their_meaning() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is on fire"))
        }
    }
    for start in [b"{}\n".to_vec(), gzip(b"{}\n")[..15].to_vec(), zstandard(b"{}\n")[..8].to_vec()] {
        let input = SourceInput::stream(io::Cursor::new(start).chain(Failing)).with_name("a.jsonl");
        let error = open(input, &DecodeOptions::default()).err().expect("the reader fails");
        assert!(matches!(error, SourceError::Io(_)), "{error:?}");
        assert_eq!(error.to_string(), "reading the source failed: the disk is on fire");
    }
}

#[test]
fn local_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("cities.csv.gz");
    std::fs::write(&path, gzip(b"a,b\n1,2\n")).expect("a file");
    let input = SourceInput::open_file(&path).expect("the file");
    let progress = input.progress();
    let (text, detected) = decode_and_detect(input, &DecodeOptions::default());
    assert_eq!(text, "{\"a\":\"1\",\"b\":\"2\"}\n");
    assert_eq!(detected, Some(Detected { format: SourceFormat::Csv, compression: Compression::Gzip }));
    assert_eq!(Some(progress.read_bytes()), progress.total_bytes());
    for missing in [directory.path().join("none.json"), directory.path().to_owned()] {
        let error = SourceInput::open_file(&missing).err().expect("no file");
        assert!(matches!(error, SourceError::Io(_)), "{error:?}");
    }
}

// ----------------------------------------------------------------------------------------------- _source

#[test]
fn entities_without_a_source_get_the_address_as_last_key() {
    let options = DecodeOptions { fetched_from: Some("https://a.test/\"x\"".to_owned()), ..DecodeOptions::default() };
    check_with(
        &options,
        "a.jsonl",
        r#"{}
           {"a":1}
           {"_source":null,"a":1}
           {"a":{"_source":1},"b":"_source"}
           {"a":1,"\u005fsource":"mine"}"#,
        r#"{"_source":"https://a.test/\"x\""}
           {"a":1,"_source":"https://a.test/\"x\""}
           {"_source":null,"a":1}
           {"a":{"_source":1},"b":"_source","_source":"https://a.test/\"x\""}
           {"a":1,"_source":"mine"}"#,
    );
    check_with(&options, "a.csv", "a\n1\n", r#"{"a":"1","_source":"https://a.test/\"x\""}"#);
    check_with(&options, "a.csv", "_source\n\n\"\"\n", r#"{"_source":""}"#);
}

// --------------------------------------------------------------------------------------------- detection

#[track_caller]
fn check_detected(name: &str, content_type: &str, content: &str, expected: Result<SourceFormat, &str>) {
    let mut input = SourceInput::stream(io::Cursor::new(content.to_owned())).with_name(name);
    if !content_type.is_empty() {
        input = input.with_content_type(content_type);
    }
    match (open(input, &DecodeOptions::default()), expected) {
        (Ok((_, detected)), expected) => assert_eq!(Ok(detected.format), expected),
        (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected),
        (Err(error), Ok(_)) => panic!("{error}"),
    }
}

#[test]
fn the_format_is_detected() {
    use SourceFormat::{Csv, Json, Jsonl, Tsv};
    // By name, whatever the type and content say.
    check_detected("a.csv", "application/json", "a\tb\n", Ok(Csv));
    check_detected("A.TSV.GZ", "", "a,b\n", Ok(Tsv));
    check_detected("a.b.json.zst", "", "[]", Ok(Json));
    check_detected("a.geojson", "", "[]", Ok(Json));
    check_detected("a.json", "", "\n{}\r\n{}\n", Ok(Jsonl));
    check_detected("a.json", "", "{}\n", Ok(Json));
    // By type.
    check_detected("export.php", "text/csv; charset=utf-8", "a\tb\n", Ok(Csv));
    check_detected("", "Text/Tab-Separated-Values", "a\n", Ok(Tsv));
    check_detected("", "application/x-ndjson", "", Ok(Jsonl));
    check_detected("", "application/json", "{}\n{}\n", Ok(Jsonl));
    check_detected("", "application/geo+json", "[]", Ok(Json));
    // By content.
    check_detected("data", "text/plain", " \n[", Ok(Json));
    check_detected("", "application/octet-stream", "{\"a\":1}\n{\"a\":2}", Ok(Jsonl));
    check_detected("", "", "{\"a\":\"}\"}", Ok(Jsonl));
    check_detected("", "", "{\n\"a\":{}\n}", Ok(Json));
    check_detected("", "", "a,\"b\tc\"\n1,2\n", Ok(Csv));
    check_detected("", "", "\"a,b\"\tc\n1\t2\n", Ok(Tsv));
    let advice = "name it by format (json, jsonl, csv, tsv or parquet), on the command line --format";
    let unknown = |reason| format!("the format cannot be told from the content ({reason}); {advice}");
    check_detected("", "", "a,b\tc\n", Err(&unknown("its first line has both commas and tabs")));
    check_detected("a.txt", "", "name\nx\n", Err(&unknown("its first line has neither a comma nor a tab")));
    check_detected("", "", " \n", Err(&unknown("it begins with blanks alone")));
}

#[test]
fn an_asked_format_wins() {
    check_with(&as_format(SourceFormat::Tsv), "a.csv", "a,b\tc\n1\t2\n", r#"{"a,b":"1","c":"2"}"#);
    check_with(&as_format(SourceFormat::Csv), "", "a\n1\n", r#"{"a":"1"}"#);
    check_with(&as_format(SourceFormat::Jsonl), "a.json", "{}\n", "{}");
    for format in SourceFormat::ALL {
        assert_eq!(format.to_string().parse(), Ok(format));
    }
    assert_eq!(
        "JSON".parse::<SourceFormat>().map_err(|error| error.to_string()),
        Err("\"JSON\" is not a source format; valid are json, jsonl, csv, tsv, parquet".to_owned())
    );
}

// ------------------------------------------------------------------------------------- any cut of the stream

fn json_value() -> impl Strategy<Value = serde_json::Value> {
    let key = prop_oneof!["[a-c]{0,3}", "[\\PC\u{0}-\u{1f}\"\\\\{}\\[\\],:]{0,8}"];
    let shredded = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<f64>().prop_map(serde_json::Value::from),
        key.clone().prop_map(serde_json::Value::from),
    ];
    shredded.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::vec((key.clone(), inner), 0..4)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

fn entity() -> impl Strategy<Value = serde_json::Value> {
    prop::collection::vec(("[a-e\"\\\\]{0,2}", json_value()), 0..5)
        .prop_map(|members| serde_json::Value::Object(members.into_iter().collect()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn json_is_split_alike_however_the_stream_is_cut(
        entities in prop::collection::vec(entity(), 0..8),
        beside in json_value(),
        pretty in any::<bool>(),
        window_bytes in 1..200_usize,
        sizes in prop::collection::vec(0..40_usize, 1..5),
    ) {
        prop_assume!(sizes.iter().any(|size| *size > 0));
        let expected: String = entities.iter().map(|entity| format!("{entity}\n")).collect();
        let array = serde_json::Value::from(entities.clone());
        let inside = serde_json::json!({"before": beside, "": {"items": array, "x": beside}, "after": beside});
        let write = |value: &serde_json::Value| {
            if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) }.expect("a value")
        };
        let mark = if pretty { "\u{feff}" } else { "" };
        let lines: String = entities.iter().map(|entity| format!("{entity}\r\n\n")).collect();
        let items = Path::from_keys(["", "items"]).expect("a path");
        for (format, records_path, document) in [
            (SourceFormat::Json, None, write(&array)),
            (SourceFormat::Json, Some(items), write(&inside)),
            (SourceFormat::Jsonl, None, lines),
        ] {
            let options = DecodeOptions { format: Some(format), records_path, window_bytes, ..DecodeOptions::default() };
            let pieces = Pieces { bytes: (mark.to_owned() + &document).into_bytes(), position: 0, sizes: sizes.clone(), turn: 0 };
            prop_assert_eq!(decode(SourceInput::stream(pieces), &options), expected.clone());
        }
    }

    #[test]
    fn tables_are_split_alike_however_the_stream_is_cut(
        rows in prop::collection::vec(prop::collection::vec("[a,\t\"\r\né]{0,6}", 3), 0..6),
        line_end in prop::sample::select(vec!["\n", "\r\n", "\r"]),
        always_quoted in any::<bool>(),
        delimiter in prop::sample::select(vec![",", "\t"]),
        window_bytes in 1..60_usize,
        sizes in prop::collection::vec(1..20_usize, 1..5),
    ) {
        let mut document = ["x", "y", "z"].join(delimiter) + line_end;
        let mut expected = String::new();
        for row in &rows {
            let cells: Vec<String> = row.iter().map(|cell| {
                let quoted = always_quoted || cell.contains([',', '\t', '"', '\r', '\n']);
                if quoted { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.clone() }
            }).collect();
            document += &(cells.join(delimiter) + line_end);
            writeln!(expected, "{}", serde_json::json!({"x": row[0], "y": row[1], "z": row[2]})).expect("a string");
        }
        let format = if delimiter == "," { SourceFormat::Csv } else { SourceFormat::Tsv };
        let options = DecodeOptions { format: Some(format), window_bytes, ..DecodeOptions::default() };
        let pieces = Pieces { bytes: document.into_bytes(), position: 0, sizes, turn: 0 };
        prop_assert_eq!(decode(SourceInput::stream(pieces), &options), expected);
    }

    #[test]
    fn no_bytes_bring_a_decoder_down(
        bytes in prop::collection::vec(
            prop_oneof![4 => prop::sample::select(b"{}[]\",:\\ \n\r\ta1".to_vec()), 1 => any::<u8>()], 0..200),
        window_bytes in 1..50_usize,
    ) {
        for format in [SourceFormat::Json, SourceFormat::Jsonl, SourceFormat::Csv, SourceFormat::Tsv] {
            for records_path in [None, Some(Path::from_keys(["a"]).expect("a path"))] {
                let options =
                    DecodeOptions { format: Some(format), records_path, window_bytes, ..DecodeOptions::default() };
                decode(SourceInput::stream(io::Cursor::new(bytes.clone())), &options);
            }
        }
    }
}

// ---------------------------------------------------------------------------------------------- fixtures

fn fixtures() -> PathBuf {
    FilePath::new(env!("CARGO_MANIFEST_DIR")).join("data-fixtures")
}

#[test]
fn every_fixture_decodes_to_what_it_says() {
    for (file, records_path, count) in [
        ("world-countries/countries.json", None, 250),
        ("emoji/emoji.json.zst", None, 1949),
        ("earthquakes/earthquakes.json", Some("features"), 1707),
        ("football/matches.jsonl.gz", None, 6508),
        ("airports/airports.csv", None, 3376),
        ("unemployment/unemployment.tsv", None, 3218),
        ("penguins/penguins.json", None, 344),
    ] {
        let path = fixtures().join(file);
        let manifest = std::fs::read_to_string(fixtures().join("manifest.toml")).expect("the manifest");
        assert!(manifest.contains(&format!("file = \"{file}\"")), "{file} is not in the manifest");
        assert!(path.with_file_name("ORIGIN.md").is_file(), "{file} has no origin");
        let options = records_path.map(at_path).unwrap_or_default();
        let text = decode(SourceInput::open_file(&path).expect("the file"), &options);
        assert_eq!(text.lines().count(), count, "{file}");
        for line in text.lines() {
            let value: serde_json::Value = serde_json::from_str(line).expect(file);
            assert_eq!(value.to_string(), line, "{file}");
        }
    }
}

#[test]
fn a_fixture_has_the_same_values_as_a_value_tree() {
    let bytes = std::fs::read(fixtures().join("world-countries/countries.json")).expect("the file");
    let whole: Vec<serde_json::Value> = serde_json::from_slice(&bytes).expect("an array");
    let expected: String = whole.iter().map(|entity| format!("{entity}\n")).collect();
    check("countries.json", &bytes, &expected);
}

// ------------------------------------------------------------------------------------------------- fetch

/// Answers each connection with what `answer` gives for the request's path, byte for byte, and closes it.
fn serve(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            let Some(path) = request_path(&mut connection) else { continue };
            // A client that has seen enough may be gone.
            let _ = connection.write_all(&answer(&path));
        }
    });
    format!("http://{address}")
}

fn request_path(connection: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        connection.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    assert!(head.to_ascii_lowercase().contains("accept-encoding: identity\r\n"), "{head}");
    head.split(' ').nth(1).map(str::to_owned)
}

fn response(headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{headers}\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

fn redirect(location: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

async fn open_document(url: &str, limits: &FetchLimits) -> Result<Fetched, SourceError> {
    match loopback_client(limits.clone()).open(url, None).await? {
        Opened::Document(fetched) => Ok(fetched),
        Opened::NotModified(_) => panic!("nobody asked whether it has changed"),
    }
}

fn fetch_with(url: &str, limits: &FetchLimits) -> Result<(String, Fetched), SourceError> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut fetched = open_document(url, limits).await?;
        let options = DecodeOptions { fetched_from: Some(fetched.source_url.clone()), ..DecodeOptions::default() };
        let input = std::mem::replace(&mut fetched.input, SourceInput::stream(io::empty()));
        let text = tokio::task::spawn_blocking(move || decode(input, &options)).await.expect("the decoder runs");
        Ok((text, fetched))
    })
}

fn fetch(url: &str) -> Result<(String, Fetched), SourceError> {
    fetch_with(url, &FetchLimits::default())
}

#[track_caller]
fn check_unreachable(url: &str, expected: &str) {
    let error = fetch(url).err().expect("the source cannot be fetched");
    assert!(matches!(error, SourceError::Unreachable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_source_is_fetched() {
    let server = serve(|path| match path {
        "/cities.jsonl?key=1" => response("ETag: \"v1\"\r\nLast-Modified: now\r\n", b"{\"a\":1}\n"),
        "/typed" => response("Content-Type: text/csv; charset=utf-8\r\n", b"a\n1\n"),
        "/packed" => response("Content-Type: text/csv\r\nContent-Encoding: gzip\r\n", &gzip(b"a\n1\n")),
        "/chunked" => {
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[{},{\r\n2\r\n}]\r\n0\r\n\r\n".to_vec()
        }
        "/data.parquet" => response("", &parquet_bytes(&mixed_batch(), 1)),
        _ => response("", b""),
    });
    let (text, fetched) = fetch(&format!("{server}/cities.jsonl?key=1#part")).expect("an answer");
    assert_eq!(text, format!("{{\"a\":1,\"_source\":\"{server}/cities.jsonl?key=1\"}}\n"));
    assert_eq!(fetched.validators.etag.as_deref(), Some("\"v1\""));
    assert_eq!(fetched.validators.last_modified.as_deref(), Some("now"));
    let (text, _) = fetch(&format!("{server}/typed")).expect("an answer");
    assert_eq!(text, format!("{{\"a\":\"1\",\"_source\":\"{server}/typed\"}}\n"));
    let (text, _) = fetch(&format!("{server}/packed")).expect("an answer");
    assert_eq!(text, format!("{{\"a\":\"1\",\"_source\":\"{server}/packed\"}}\n"));
    let (text, _) = fetch(&format!("{server}/chunked")).expect("an answer");
    assert_eq!(text.lines().count(), 2, "{text}");
    let (text, _) = fetch(&format!("{server}/data.parquet")).expect("an answer");
    assert_eq!(text.lines().filter(|line| line.contains("\"id\"")).count(), 3, "{text}");
}

#[test]
fn a_body_larger_than_any_buffer_arrives_whole() {
    let body: String =
        (0..60_000).map(|number| format!("{{\"number\":{number},\"text\":\"{:060}\"}}\n", number)).collect();
    let copy = body.clone();
    let server = serve(move |_| response("", copy.as_bytes()));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let fetched =
        runtime.block_on(open_document(&format!("{server}/a.jsonl"), &FetchLimits::default())).expect("an answer");
    let progress = fetched.input.progress();
    assert_eq!((progress.read_bytes(), progress.total_bytes()), (0, Some(body.len() as u64)));
    // Outside of the runtime any thread may block.
    assert!(decode(fetched.input, &DecodeOptions::default()) == body);
    assert_eq!(progress.read_bytes(), body.len() as u64);
}

#[test]
fn credentials_do_not_reach_the_entities() {
    let server = serve(|_| response("", b"{}\n"));
    let (text, _) = fetch(&format!("{}/a.jsonl", server.replace("//", "//user:secret@"))).expect("an answer");
    assert_eq!(text, format!("{{\"_source\":\"{server}/a.jsonl\"}}\n"));
}

#[test]
fn redirects_are_followed_five_times() {
    let server = serve(|path| match path.trim_start_matches("/r").parse::<u32>() {
        Ok(0) => redirect("/opaque"),
        Ok(left) => redirect(&format!("/r{}", left - 1)),
        Err(_) if path == "/loop" => redirect("/loop"),
        Err(_) if path == "/elsewhere" => redirect("ftp://a.test/x"),
        Err(_) if path == "/a.csv" => redirect("/opaque"),
        Err(_) => response("", b"a\n1\n"),
    });
    let (text, fetched) = fetch(&format!("{server}/a.csv")).expect("an answer");
    assert_eq!(text, format!("{{\"a\":\"1\",\"_source\":\"{server}/opaque\"}}\n"));
    assert_eq!(fetched.source_url, format!("{server}/opaque"));
    assert!(fetch(&format!("{server}/r4")).is_ok());
    check_unreachable(&format!("{server}/r5"), "more than 5 redirects");
    check_unreachable(&format!("{server}/loop"), "more than 5 redirects");
    let error = fetch(&format!("{server}/elsewhere")).err().expect("not http");
    assert!(matches!(error, SourceError::BadAddress { .. }), "{error:?}");
}

#[test]
fn answers_that_are_no_document() {
    let server = serve(|path| match path {
        "/cut.jsonl" => b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}\n".to_vec(),
        "/cut-chunks.jsonl" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n".to_vec(),
        "/brotli.jsonl" => response("Content-Encoding: br\r\n", b"{}"),
        "/nonsense" => b"SMTP ready\r\n".to_vec(),
        "/broken" => b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone".to_vec(),
    });
    check_unreachable(&format!("{server}/none?token=secret"), "the server answered 404 Not Found");
    check_unreachable(&format!("{server}/broken"), "the server answered 500 Internal Server Error");
    check_unreachable(&format!("{server}/brotli.jsonl"), "the content encoding \"br\", which was not asked for");
    check_unreachable(&format!("{server}/nonsense"), "the source cannot be fetched: ");
    for path in ["cut.jsonl", "cut-chunks.jsonl"] {
        let (text, _) = fetch(&format!("{server}/{path}")).expect("the head is fine");
        assert!(text.contains("! the source cannot be fetched: "), "a cut body must not pass for a whole one: {text}");
    }
}

#[test]
fn addresses_that_cannot_be_fetched() {
    for url in ["file:///etc/passwd", "ftp://a.test/x", "not a url", "", "/relative"] {
        let error = fetch(url).err().expect("no http address");
        assert!(matches!(error, SourceError::BadAddress { .. }), "{url}: {error:?}");
    }
    // A port on which nothing listens any more.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let url = format!("http://127.0.0.1:{port}/x?token=secret");
    check_unreachable(&url, "refused");
    let error = fetch(&url).err().expect("nothing listens");
    assert!(!error.to_string().contains("secret"), "{error}");
}
