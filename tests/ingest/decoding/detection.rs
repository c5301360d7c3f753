//! Detection of the format of a source.

use std::io;

use strata_ingest::{DecodeOptions, SourceInput, open_decoder};
use strata_types::source::SourceFormat;

use super::{as_format, check_with};

#[track_caller]
fn check_detected(name: &str, content_type: &str, content: &str, expected: Result<SourceFormat, &str>) {
    let mut input = SourceInput::from_reader(io::Cursor::new(content.to_owned())).with_name(name);
    if !content_type.is_empty() {
        input = input.with_content_type(content_type);
    }
    match (open_decoder(input, &DecodeOptions::default()), expected) {
        (Ok((_, detected)), expected) => assert_eq!(Ok(detected.format), expected),
        (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected),
        (Err(error), Ok(_)) => panic!("{error}"),
    }
}

#[test]
fn format_is_detected() {
    use SourceFormat::{Csv, Json, Jsonl, Tsv};
    // The file name takes precedence over the content type and the content.
    check_detected("a.csv", "application/json", "a\tb\n", Ok(Csv));
    check_detected("A.TSV.GZ", "", "a,b\n", Ok(Tsv));
    check_detected("a.b.json.zst", "", "[]", Ok(Json));
    check_detected("a.geojson", "", "[]", Ok(Json));
    check_detected("a.json", "", "\n{}\r\n{}\n", Ok(Jsonl));
    check_detected("a.json", "", "{}\n", Ok(Json));
    // The content type takes precedence over the content.
    check_detected("export.php", "text/csv; charset=utf-8", "a\tb\n", Ok(Csv));
    check_detected("", "Text/Tab-Separated-Values", "a\n", Ok(Tsv));
    check_detected("", "application/x-ndjson", "", Ok(Jsonl));
    check_detected("", "application/json", "{}\n{}\n", Ok(Jsonl));
    check_detected("", "application/geo+json", "[]", Ok(Json));
    // Without a file name and a content type, the content decides.
    check_detected("data", "text/plain", " \n[", Ok(Json));
    check_detected("", "application/octet-stream", "{\"a\":1}\n{\"a\":2}", Ok(Jsonl));
    check_detected("", "", "{\"a\":\"}\"}", Ok(Jsonl));
    check_detected("", "", "{\n\"a\":{}\n}", Ok(Json));
    // The body of a push on one line is JSON, so that it does not become one entity. Other objects with arrays are
    // lines.
    check_detected("", "", "{\"dataset_id\":10,\"entities\":[]}", Ok(Json));
    check_detected("", "", " {\"entities\": [ {\"a\":1} ],\"dataset_id\":1}\r\n\n", Ok(Json));
    check_detected("", "", "{\"dataset_id\":10,\"o\":{\"entities\":[]}}\n", Ok(Jsonl));
    check_detected("", "", "{\"data\":[{\"a\":1},{\"a\":2}]}", Ok(Jsonl));
    check_detected("", "", "{\"dataset_id\":1,\"entities\":[{\"a\":1}]}\n{\"data\":[]}\n", Ok(Jsonl));
    check_detected("data.jsonl", "", "{\"data\":[{\"a\":1}]}", Ok(Jsonl));
    check_detected("", "application/x-ndjson", "{\"data\":[{\"a\":1}]}", Ok(Jsonl));
    check_detected("", "", "a,\"b\tc\"\n1,2\n", Ok(Csv));
    check_detected("", "", "\"a,b\"\tc\n1\t2\n", Ok(Tsv));
    let advice = "set `format` to json, jsonl, csv, tsv, or parquet";
    let unknown = |reason| format!("the format cannot be detected from the content ({reason}); {advice}");
    check_detected("", "", "a,b\tc\n", Err(&unknown("its first line has both commas and tabs")));
    check_detected("a.txt", "", "name\nx\n", Err(&unknown("its first line has neither a comma nor a tab")));
    let semicolons = "the format cannot be detected from the content: its first line has semicolons, but only commas \
                      (csv) and tabs (tsv) separate cells; replace the semicolons with commas or tabs";
    check_detected("", "", "name;age\nx;1\n", Err(semicolons));
    check_detected("", "", "\"name;age\"\nx;1\n", Err(&unknown("its first line has neither a comma nor a tab")));
    check_detected("", "", "a,b\0\n", Err(&unknown("it is binary, but not Parquet")));
    check_detected("", "", " \n", Err(&unknown("its beginning contains only whitespace")));
}

/// JSON that was declared as CSV lost its first line as a header, or became a version without entities.
#[test]
fn json_declared_as_table_is_rejected() {
    for format in [SourceFormat::Csv, SourceFormat::Tsv] {
        let expected = format!(
            "! the source cannot be read as {format}: it looks like JSON; set `format` to json, or to jsonl if each \
             line is an object"
        );
        let long = format!("[{{\"{}\":1}}]", "a".repeat(5_000));
        for document in [
            "{\"a\":1}\n{\"a\":2}\n",
            "[{\"a\":1}]",
            "[\n  {\"a\":1}\n]\n",
            " [ { \"a\": 1 } ]",
            "{\n\"a\":1}\n",
            "[]\n",
            "{}\n",
            "[{},\n{}]",
            "{ \"a\" : 1 }\n{ \"a\" : 2 }\n",
            "[1,2]\n",
            "[null,{\"a\":1}]",
            "{",
            &long,
        ] {
            for window_bytes in [1, 7, 512] {
                let options = DecodeOptions { window_bytes, ..as_format(format) };
                check_with(&options, "", document.as_bytes(), &expected);
            }
        }
    }
    for (table, entity) in [
        ("{a},b\n1,2\n", r#"{"{a}":"1","b":"2"}"#),
        ("[x],[y]\n1,2\n", r#"{"[x]":"1","[y]":"2"}"#),
        ("{\"a\",b\n1,2\n", r#"{"{\"a\"":"1","b":"2"}"#),
    ] {
        for window_bytes in [1, 7, 512] {
            let options = DecodeOptions { window_bytes, ..as_format(SourceFormat::Csv) };
            check_with(&options, "", table.as_bytes(), entity);
        }
    }
}

/// Earlier errors were about the delimiter, the number of cells, or the encoding of the header line.
#[test]
fn foreign_content_is_explained() {
    use SourceFormat::{Csv, Json, Jsonl, Parquet, Tsv};
    let html = "it is an HTML page, perhaps a login page or an error page; valid: json, jsonl, csv, tsv, parquet";
    let xml = "it is XML or HTML, which cannot be imported; valid: json, jsonl, csv, tsv, parquet";
    let archive = "it is a ZIP archive, such as a spreadsheet (xlsx, ods): export the sheet as csv";
    let office = "it is an old Office document, such as a spreadsheet (xls): export the sheet as csv";
    let database = "it is an SQLite database: export a table as csv or jsonl";
    let arrow = "it is an Arrow file (Feather): convert it to parquet";
    let utf_16 = "it is UTF-16: save it as UTF-8, or convert it, for example with `iconv -f utf-16 -t utf-8`";
    let whitespace = " \n".repeat(500);
    let pages = [
        "<!DOCTYPE html>\n<html></html>\n".to_owned(),
        "<!doctype HTML PUBLIC \"-//W3C//DTD HTML 4.01//EN\">\n".to_owned(),
        "<html>".to_owned(),
        "\u{feff}\r\n <HTML lang=\"en\">a,b".to_owned(),
        format!("{whitespace}<html\n>"),
    ];
    let mut contents: Vec<(Vec<u8>, &str)> = pages.map(|page| (page.into_bytes(), html)).into();
    for (bytes, reason) in [
        (&b"<?xml version=\"1.0\"?><dataset><entity><a>1,2</a></entity></dataset>"[..], xml),
        (b"\xef\xbb\xbf\n<?XML version=\"1.1\"?>", xml),
        (b"PK\x03\x04\x14\0,", archive),
        (b"PK\x05\x06\0\0", "it is an empty ZIP archive"),
        (b"\xff\xfea\0,\0b\0\n\0", utf_16),
        (b"\xfe\xff\0a\0,\0b\0\n", utf_16),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", office),
        (b"SQLite format 3\0\x10\0", database),
        (b"ARROW1\0\0", arrow),
    ] {
        contents.push((bytes.to_vec(), reason));
    }
    let undetected = |reason: &str| format!("! the format cannot be detected from the content: {reason}");
    let texts = [(Csv, "a.csv"), (Tsv, "a.tsv"), (Json, "a.json"), (Jsonl, "a.jsonl")];
    for (bytes, reason) in &contents {
        check_with(&DecodeOptions::default(), "", bytes, &undetected(reason));
        for (format, name) in texts.into_iter().chain([(Parquet, "a.parquet")]) {
            let expected = format!("! the source cannot be read as {format}: {reason}");
            check_with(&DecodeOptions::default(), name, bytes, &expected);
            for window_bytes in [1, 7, 512] {
                let options = DecodeOptions { window_bytes, ..as_format(format) };
                check_with(&options, "", bytes, &expected);
            }
        }
    }
    // A tag is XML if no format was declared.
    for tag in ["<a>1,2</a>", "<svg xmlns=\"x\">", "<x:y-z.0/>", "<a\n", "<dataset", "<!-- saved -->\n<html>"] {
        check_with(&DecodeOptions::default(), "", tag, &undetected(xml));
    }
    // A tag is also XML if a table was declared but the first line has no delimiter.
    for markup in ["<rss version=\"2.0\">\n<a>1,2</a>\n", "<Error>\n<Code>\tAccessDenied,", "<!-- saved -->\n<html>\n"]
    {
        for (format, name) in [(Csv, "a.csv"), (Tsv, "a.tsv")] {
            let expected = format!("! the source cannot be read as {format}: {xml}");
            check_with(&DecodeOptions::default(), name, markup, &expected);
        }
    }
    // An encrypted file is also detected as Parquet.
    let encrypted = "! the Parquet file is encrypted, but strata has no keys: decrypt it before you import it";
    check_with(&DecodeOptions::default(), "", b"PARE\0\0\0\0\x04\0\0\0PARE", encrypted);
    let parquet = b"PAR1\x15\x04\x15\x10";
    for (format, name) in texts {
        let expected = format!("! the source cannot be read as {format}: it is Parquet; set `format` to parquet");
        check_with(&DecodeOptions::default(), name, parquet, &expected);
        check_with(&as_format(format), "", parquet, &expected);
    }
}

#[test]
fn table_with_markup_like_header_is_table() {
    for (name, content, expected) in [
        ("a.csv", "<a>,b\n1,2\n", r#"{"<a>":"1","b":"2"}"#),
        ("a.tsv", "<a>\tb\n1\t2\n", r#"{"<a>":"1","b":"2"}"#),
        ("a.csv", "<html_id,b\n1,2\n", r#"{"<html_id":"1","b":"2"}"#),
        ("a.csv", "<!DOCTYPE,b\n1,2\n", r#"{"<!DOCTYPE":"1","b":"2"}"#),
        ("a.csv", "<?xmlns\n1\n", r#"{"<?xmlns":"1"}"#),
        ("a.csv", "PAR1,b\n1,2\n", r#"{"PAR1":"1","b":"2"}"#),
        ("a.csv", "<", ""),
        ("", "<5,b\n1,2\n", r#"{"<5":"1","b":"2"}"#),
        ("", "<a,b\n1,2\n", r#"{"<a":"1","b":"2"}"#),
        ("", "<a\tb\n1\t2\n", r#"{"<a":"1","b":"2"}"#),
    ] {
        check_with(&DecodeOptions::default(), name, content, expected);
    }
    // The delimiter can be far from the start of the line, in a later chunk.
    let long = format!("<{}>", "name ".repeat(100));
    let content = format!("{long},b\n1,2\n");
    for window_bytes in [1, 7, 512, 4096] {
        let options = DecodeOptions { window_bytes, ..DecodeOptions::default() };
        check_with(&options, "a.csv", &content, &format!(r#"{{"{long}":"1","b":"2"}}"#));
    }
}

#[test]
fn requested_format_wins() {
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
