//! CSV and TSV: cells, headers, errors, and type inference.

use std::io;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use strata_ingest::{DecodeOptions, SourceInput, TypeInference};
use strata_reference::{delimited, hostile};
use strata_types::source::SourceFormat;

use super::{check, check_with, decode};

/// The advice in errors about cells that are not UTF-8.
const ENCODING_HINT: &str = ": save the table as UTF-8, or convert it, for example with `iconv -f latin1 -t utf-8`";

#[test]
fn table_cells_are_strings() {
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
fn duplicate_columns_keep_last_cell() {
    check("a.csv", "a,b,a\n1,2,3\n", r#"{"a":"3","b":"2"}"#);
    check("a.csv", ",\n1,2\n", r#"{"":"2"}"#);
}

#[test]
fn invalid_row_reports_position_and_line() {
    check(
        "a.csv",
        "a,b\n\"1\n1\",2\n\n3\n",
        r#"{"a":"1\n1","b":"2"}
           ! item 2 (line 5): the row has 1 cell, but the header has 2"#,
    );
    check("a.csv", "a,b\n1,2,3\n", "! item 1 (line 2): the row has 3 cells, but the header has 2");
    check("a.csv", "a,b\r\n1,\"2\r\n3,4\r\n", "! item 1 (line 2): a quote is opened but never closed");
    check("a.csv", "a,b\n1,\"2\"x\n", "! item 1 (line 2): there is text after the closing quote of a cell");
    // A quote in the middle of a cell has no effect.
    let quote = "; the quote in cell 2 has no effect, because the cell does not begin with a quote";
    let expected = format!("! item 1 (line 2): the row has 3 cells, but the header has 2{quote}");
    check("a.csv", "a,b\n1, \"x, y\"\n", &expected);
    check("a.csv", b"a,b\n1,\xe9\n", &format!("! item 1 (line 2): cell 2 is not UTF-8{ENCODING_HINT}"));
    // Cells of hidden columns must be UTF-8, too.
    check(
        "a.csv",
        b"a,b,a\n1,2,3\n\xe9,2,3\n",
        &format!("{{\"a\":\"3\",\"b\":\"2\"}}\n! item 2 (line 3): cell 1 is not UTF-8{ENCODING_HINT}"),
    );
    check("a.csv", b"a,\xe9\n1,2\n", &format!("! the header line is not UTF-8{ENCODING_HINT}"));
    check("a.csv", "a,\"b\n", "! the header line: a quote is opened but never closed");
    check("a.csv", "", "! the table is empty: its first line must name the columns");
    check("a.tsv", "\n\n", "! the table is empty: its first line must name the columns");
}

#[test]
fn wrong_delimiter_after_quote_is_named() {
    let text = "there is text after the closing quote of a cell";
    let error = |found: &str, expected: &str| {
        format!("{text}: the cells seem to be separated by {found}, but must be separated by {expected}")
    };
    check("a.csv", "\"a\";\"b\"\n1;2\n", &format!("! the header line: {}", error("semicolons", "commas")));
    check("a.csv", "\"a\"|b\n1|2\n", &format!("! the header line: {}", error("bars", "commas")));
    check("a.csv", "\"a\"\tb\n1\t2\n", &format!("! the header line: {}", error("tabs", "commas")));
    check("a.tsv", "\"a\",\"b\"\n1,2\n", &format!("! the header line: {}", error("commas", "tabs")));
    check("a.csv", "a;b\n\"1\";\"2\"\n", &format!("! item 1 (line 2): {}", error("semicolons", "commas")));
    check("a.csv", "\"a\" ,b\n", &format!("! the header line: {text}"));
}

#[test]
fn split_line_end_counts_once() {
    for window_bytes in 1..20 {
        let options = DecodeOptions { window_bytes, ..DecodeOptions::default() };
        let expected = "{\"a\":\"1\",\"b\":\"x\\r\\ny\"}
            ! item 2 (line 4): the row has 1 cell, but the header has 2";
        check_with(&options, "a.csv", "a,b\r\n1,\"x\r\ny\"\r\n3\r\n", expected);
    }
}

fn with_inference() -> DecodeOptions {
    DecodeOptions { infer_types: TypeInference::Tables, ..DecodeOptions::default() }
}

#[test]
fn exact_json_scalars_are_inferred() {
    let huge = "9".repeat(400);
    for (cell, value) in [
        ("1", "1"),
        ("-0", "-0"),
        ("1.50", "1.50"),
        ("1E+2", "1E+2"),
        ("1e400", "1e400"),
        ("9007199254740993", "9007199254740993"),
        (huge.as_str(), huge.as_str()),
        ("\"12\"", "12"),
        ("true", "true"),
        ("\"false\"", "false"),
        ("", "null"),
        ("\"\"", "null"),
        // All other cells remain strings, byte for byte.
        ("01", "\"01\""),
        ("+1", "\"+1\""),
        ("1.", "\"1.\""),
        (".5", "\".5\""),
        ("1_000", "\"1_000\""),
        ("0x1", "\"0x1\""),
        ("NaN", "\"NaN\""),
        ("-Infinity", "\"-Infinity\""),
        (" 1", "\" 1\""),
        ("1 ", "\"1 \""),
        ("1\u{a0}", "\"1\u{a0}\""),
        ("True", "\"True\""),
        ("TRUE", "\"TRUE\""),
        (" true", "\" true\""),
        ("null", "\"null\""),
        ("\"\"\"1\"\"\"", "\"\\\"1\\\"\""),
        ("{}", "\"{}\""),
        ("١", "\"١\""),
        ("-", "\"-\""),
        ("1e", "\"1e\""),
    ] {
        let line = format!("{{\"a\":{value},\"b\":\"x\"}}");
        check_with(&with_inference(), "a.csv", format!("a,b\n{cell},x\n"), &line);
        check_with(&with_inference(), "a.tsv", format!("a\tb\n{cell}\tx\n"), &line);
    }
    // Column names remain strings, and so do all cells without inference.
    check_with(&with_inference(), "a.csv", "1,true,\n2,false,\n", r#"{"1":2,"true":false,"":null}"#);
    check("a.csv", "a,b,c\n1,true,\n", r#"{"a":"1","b":"true","c":""}"#);
}

#[test]
fn infer_types_does_not_change_other_formats() {
    check_with(&with_inference(), "a.json", r#"[{"a":"1","b":"","c":"true"}]"#, r#"{"a":"1","b":"","c":"true"}"#);
    let only = DecodeOptions { infer_types: TypeInference::TablesOnly, ..DecodeOptions::default() };
    check_with(&only, "a.csv", "a\n1\n", r#"{"a":1}"#);
    for (name, format) in [("a.json", "json"), ("a.jsonl", "jsonl")] {
        let expected = format!("! `infer_types` applies only to csv and tsv, but the format is {format}; omit it");
        check_with(&only, name, "[]\n", &expected);
    }
}

/// Generates cells: numbers, near numbers, near booleans, and other strings.
fn cell() -> impl Strategy<Value = String> {
    const FRAGMENTS: &[&str] =
        &["", "", "true", "false", "null", "True", "-", "+", ".", "e", "E", "0", " ", "\t", "\"", "NaN"];
    prop_oneof![
        4 => hostile::number(),
        2 => (hostile::number(), select(FRAGMENTS)).prop_map(|(number, suffix)| format!("{number}{suffix}")),
        2 => (select(FRAGMENTS), hostile::number()).prop_map(|(prefix, number)| format!("{prefix}{number}")),
        3 => select(FRAGMENTS).prop_map(str::to_owned),
        2 => hostile::string(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Tables decode like the reference decoder, with and without inference, for any chunk size.
    #[test]
    fn tables_match_reference_decoder(
        rows in vec(vec((cell(), any::<bool>()), 3), 0..6),
        (is_tsv, infers_types) in any::<(bool, bool)>(),
        window_bytes in 1..40_usize,
    ) {
        let format = if is_tsv { SourceFormat::Tsv } else { SourceFormat::Csv };
        let delimiter = if is_tsv { '\t' } else { ',' };
        let mut table = ["a", "b", "c"].join(&delimiter.to_string());
        table.push('\n');
        for row in &rows {
            let cells = row.iter().map(|(cell, is_quoted)| {
                let needs_quotes = cell.contains(['"', '\r', '\n', delimiter]);
                if *is_quoted || needs_quotes { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.clone() }
            });
            table.push_str(&cells.collect::<Vec<_>>().join(&delimiter.to_string()));
            table.push('\n');
        }
        let options = DecodeOptions {
            format: Some(format),
            window_bytes,
            infer_types: if infers_types { TypeInference::Tables } else { DecodeOptions::default().infer_types },
            ..DecodeOptions::default()
        };
        let decoded = decode(SourceInput::from_reader(io::Cursor::new(table.clone().into_bytes())), &options);
        let expected = delimited::entities(table.as_bytes(), delimiter as u8, infers_types);
        let expected = expected.expect("failed to decode table");
        let decoded: Vec<&str> = decoded.lines().collect();
        prop_assert_eq!(decoded, expected, "{:?}", table);
    }
}
