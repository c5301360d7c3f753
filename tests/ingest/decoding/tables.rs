//! CSV and TSV.

use std::io;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use strata_ingest::{DecodeOptions, InferTypes, SourceInput};
use strata_reference::{delimited, hostile};
use strata_types::source::SourceFormat;

use super::{check, check_with, decode};

/// What is told of a table in another encoding.
const CONVERT: &str = ": save the table as UTF-8, or convert it, for example with `iconv -f latin1 -t utf-8`";

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
           ! item 2 (line 5): the row has 1 cell, but the header has 2"#,
    );
    check("a.csv", "a,b\n1,2,3\n", "! item 1 (line 2): the row has 3 cells, but the header has 2");
    check("a.csv", "a,b\r\n1,\"2\r\n3,4\r\n", "! item 1 (line 2): a quote is opened but never closed");
    check("a.csv", "a,b\n1,\"2\"x\n", "! item 1 (line 2): there is text after the closing quote of a cell");
    // A quote that does not begin a cell quotes nothing.
    let quote = "; the quote in cell 2 has no effect, because the cell does not begin with a quote";
    let expected = format!("! item 1 (line 2): the row has 3 cells, but the header has 2{quote}");
    check("a.csv", "a,b\n1, \"x, y\"\n", &expected);
    check("a.csv", b"a,b\n1,\xe9\n", &format!("! item 1 (line 2): cell 2 is not UTF-8{CONVERT}"));
    // Also in a column that a later one of the same name hides.
    check(
        "a.csv",
        b"a,b,a\n1,2,3\n\xe9,2,3\n",
        &format!("{{\"a\":\"3\",\"b\":\"2\"}}\n! item 2 (line 3): cell 1 is not UTF-8{CONVERT}"),
    );
    check("a.csv", b"a,\xe9\n1,2\n", &format!("! the header line is not UTF-8{CONVERT}"));
    check("a.csv", "a,\"b\n", "! the header line: a quote is opened but never closed");
    check("a.csv", "", "! the table is empty: its first line must name the columns");
    check("a.tsv", "\n\n", "! the table is empty: its first line must name the columns");
}

#[test]
fn quoted_cells_with_another_delimiter_name_it() {
    let text = "there is text after the closing quote of a cell";
    let found = |found: &str, wanted: &str| {
        format!("{text}: the cells seem to be separated by {found}, but must be separated by {wanted}")
    };
    check("a.csv", "\"a\";\"b\"\n1;2\n", &format!("! the header line: {}", found("semicolons", "commas")));
    check("a.csv", "\"a\"|b\n1|2\n", &format!("! the header line: {}", found("bars", "commas")));
    check("a.csv", "\"a\"\tb\n1\t2\n", &format!("! the header line: {}", found("tabs", "commas")));
    check("a.tsv", "\"a\",\"b\"\n1,2\n", &format!("! the header line: {}", found("commas", "tabs")));
    check("a.csv", "a;b\n\"1\";\"2\"\n", &format!("! item 1 (line 2): {}", found("semicolons", "commas")));
    check("a.csv", "\"a\" ,b\n", &format!("! the header line: {text}"));
}

#[test]
fn a_line_end_cut_by_the_window_counts_once() {
    for window_bytes in 1..20 {
        let options = DecodeOptions { window_bytes, ..DecodeOptions::default() };
        let expected = "{\"a\":\"1\",\"b\":\"x\\r\\ny\"}
            ! item 2 (line 4): the row has 1 cell, but the header has 2";
        check_with(&options, "a.csv", "a,b\r\n1,\"x\r\ny\"\r\n3\r\n", expected);
    }
}

fn inferring() -> DecodeOptions {
    DecodeOptions { infer_types: InferTypes::Tables, ..DecodeOptions::default() }
}

#[test]
fn cells_that_are_exactly_a_json_scalar_are_inferred_and_keep_their_text() {
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
        // All else is text, to the byte.
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
        check_with(&inferring(), "a.csv", format!("a,b\n{cell},x\n"), &line);
        check_with(&inferring(), "a.tsv", format!("a\tb\n{cell}\tx\n"), &line);
    }
    // Names stay texts, and so do all cells without it.
    check_with(&inferring(), "a.csv", "1,true,\n2,false,\n", r#"{"1":2,"true":false,"":null}"#);
    check("a.csv", "a,b,c\n1,true,\n", r#"{"a":"1","b":"true","c":""}"#);
}

#[test]
fn other_formats_have_their_own_types() {
    check_with(&inferring(), "a.json", r#"[{"a":"1","b":"","c":"true"}]"#, r#"{"a":"1","b":"","c":"true"}"#);
    let only = DecodeOptions { infer_types: InferTypes::TablesOnly, ..DecodeOptions::default() };
    check_with(&only, "a.csv", "a\n1\n", r#"{"a":1}"#);
    for (name, format) in [("a.json", "json"), ("a.jsonl", "jsonl")] {
        let told = format!("! `infer_types` applies only to csv and tsv, but the format is {format}; omit it");
        check_with(&only, name, "[]\n", &told);
    }
}

/// Cells: numbers, what nearly is one, what nearly is a boolean, and any text.
fn cell() -> impl Strategy<Value = String> {
    const NEARLY: &[&str] =
        &["", "", "true", "false", "null", "True", "-", "+", ".", "e", "E", "0", " ", "\t", "\"", "NaN"];
    prop_oneof![
        4 => hostile::number(),
        2 => (hostile::number(), select(NEARLY)).prop_map(|(number, more)| format!("{number}{more}")),
        2 => (select(NEARLY), hostile::number()).prop_map(|(before, number)| format!("{before}{number}")),
        3 => select(NEARLY).prop_map(str::to_owned),
        2 => hostile::string(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// With and without inference, as the reference decodes, whatever the cells are and wherever reads cut them.
    #[test]
    fn any_table_is_decoded_as_the_reference_decodes(
        rows in vec(vec((cell(), any::<bool>()), 3), 0..6),
        (is_tsv, infers) in any::<(bool, bool)>(),
        window_bytes in 1..40_usize,
    ) {
        let (format, delimiter) = if is_tsv { (SourceFormat::Tsv, '\t') } else { (SourceFormat::Csv, ',') };
        let mut table = ["a", "b", "c"].join(&delimiter.to_string());
        table.push('\n');
        for row in &rows {
            let cells = row.iter().map(|(cell, quotes)| {
                let needs = cell.contains(['"', '\r', '\n', delimiter]);
                if *quotes || needs { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.clone() }
            });
            table.push_str(&cells.collect::<Vec<_>>().join(&delimiter.to_string()));
            table.push('\n');
        }
        let options = DecodeOptions {
            format: Some(format),
            window_bytes,
            infer_types: if infers { InferTypes::Tables } else { DecodeOptions::default().infer_types },
            ..DecodeOptions::default()
        };
        let found = decode(SourceInput::stream(io::Cursor::new(table.clone().into_bytes())), &options);
        let expected = delimited::entities(table.as_bytes(), delimiter as u8, infers).expect("a table");
        let found: Vec<&str> = found.lines().collect();
        prop_assert_eq!(found, expected, "{:?}", table);
    }
}
