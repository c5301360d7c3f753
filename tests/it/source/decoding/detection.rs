//! Which format a source has.

use std::io::{self};

use strata::model::source::SourceFormat;
use strata::source::{DecodeOptions, SourceInput, open};

use super::{as_format, check_with};

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
    // The lone body of a push was taken for a line, and became one entity. Other objects around arrays are lines.
    check_detected("", "", "{\"dataset_id\":10,\"entities\":[]}", Ok(Json));
    check_detected("", "", " {\"entities\": [ {\"a\":1} ],\"dataset_id\":1}\r\n\n", Ok(Json));
    check_detected("", "", "{\"dataset_id\":10,\"o\":{\"entities\":[]}}\n", Ok(Jsonl));
    check_detected("", "", "{\"data\":[{\"a\":1},{\"a\":2}]}", Ok(Jsonl));
    check_detected("", "", "{\"dataset_id\":1,\"entities\":[{\"a\":1}]}\n{\"data\":[]}\n", Ok(Jsonl));
    check_detected("data.jsonl", "", "{\"data\":[{\"a\":1}]}", Ok(Jsonl));
    check_detected("", "application/x-ndjson", "{\"data\":[{\"a\":1}]}", Ok(Jsonl));
    check_detected("", "", "a,\"b\tc\"\n1,2\n", Ok(Csv));
    check_detected("", "", "\"a,b\"\tc\n1\t2\n", Ok(Tsv));
    let advice = "name it by `format`: json, jsonl, csv, tsv or parquet";
    let unknown = |reason| format!("the format cannot be told from the content ({reason}); {advice}");
    check_detected("", "", "a,b\tc\n", Err(&unknown("its first line has both commas and tabs")));
    check_detected("a.txt", "", "name\nx\n", Err(&unknown("its first line has neither a comma nor a tab")));
    let semicolons = "the format cannot be told from the content: its first line has semicolons, and only commas (csv) and \
                      tabs (tsv) separate cells; replace the semicolons by commas or tabs";
    check_detected("", "", "name;age\nx;1\n", Err(semicolons));
    check_detected("", "", "\"name;age\"\nx;1\n", Err(&unknown("its first line has neither a comma nor a tab")));
    let archive = "it is a ZIP archive, as a spreadsheet (xlsx, ods) is: export the sheet as csv";
    check_detected("book.xlsx", "", "PK\u{3}\u{4}\u{14}\0,", Err(&unknown(archive)));
    check_detected("", "", "a,b\0\n", Err(&unknown("it is binary, and not Parquet")));
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
        Err("\"JSON\" is not a source format; valid: json, jsonl, csv, tsv, parquet".to_owned())
    );
}
