//! Size limits, damaged compression, local files, and the URL as `_source`.

use std::io::{self, Read};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use strata_ingest::{DecodeOptions, DetectedFormat, SourceError, SourceInput, open_decoder};
use strata_testing::packed::gzip;
use strata_types::source::{SourceCompression, SourceFormat};

use super::parquet::parquet_bytes;
use super::{check, check_with, decode, decode_and_detect, zstandard};

#[test]
fn entity_over_limit_is_rejected_in_every_format() {
    let options = DecodeOptions { max_entity_bytes: 40, window_bytes: 16, ..DecodeOptions::default() };
    let reason = "the entity is larger than limits.entity_bytes (40)";
    let fits = format!("{{\"a\":\"{}\"}}", "x".repeat(40 - 8));
    let too_long = format!("{{\"a\":\"{}\"}}", "x".repeat(41 - 8));
    let endless = format!("{{\"a\":\"{}", "x".repeat(5_000));
    let expected = format!("{fits}\n! item 2 (line 1, column 43): {reason}");
    check_with(&options, "a.json", format!("[{fits},{too_long}]"), &expected);
    check_with(&options, "a.json", format!("[{fits},{endless}"), &expected);
    let expected = format!("{fits}\n! item 2 (line 2): {reason}");
    check_with(&options, "a.jsonl", format!("{fits}\n{too_long}\n"), &expected);
    check_with(&options, "a.jsonl", format!("{fits}\n{endless}"), &expected);
    let cell = "x".repeat(40 - 8);
    let expected = format!("{fits}\n! item 2 (line 3): {reason}");
    check_with(&options, "a.csv", format!("a\n{cell}\n{cell}y\n"), &expected);
    check_with(&options, "a.csv", format!("a\n{cell}\n\"{}", "x,\n".repeat(5_000)), &expected);
    let column = StringArray::from(vec![cell.clone(), format!("{cell}y")]);
    let batch = RecordBatch::try_from_iter([("a", Arc::new(column) as ArrayRef)]).expect("failed to build batch");
    check_with(&options, "a.parquet", parquet_bytes(&batch, 10), &format!("{fits}\n! item 2: {reason}"));
}

#[test]
fn source_over_limit_is_rejected() {
    let content = "{\"a\":1}\n".repeat(1_000);
    let options = DecodeOptions { max_source_bytes: 8_000, ..DecodeOptions::default() };
    check_with(&options, "a.jsonl", &content, &"{\"a\":1}\n".repeat(1_000));
    let options = DecodeOptions { max_source_bytes: 7_999, ..DecodeOptions::default() };
    check_with(&options, "a.jsonl", &content, "! the source is larger than sources.max_bytes (7999)");
    // Empty gzip members produce no output, so the limit must apply to the compressed size, too.
    let empty_members = gzip(b"").repeat(1_000);
    let input = SourceInput::from_reader(io::Cursor::new(empty_members)).with_name("a.jsonl");
    assert_eq!(decode(input, &options), "! the source is larger than sources.max_bytes (7999)\n");
}

#[test]
fn damaged_compression_is_invalid_document() {
    let content: String = (0..2_000).map(|number| format!("{{\"a\":{}}}\n", number * 7919 % 2003)).collect();
    for (name, packed) in [("gzip", gzip(content.as_bytes())), ("zstd", zstandard(content.as_bytes()))] {
        for cut in [packed.len() - 1, packed.len() - 5, packed.len() / 2, 11] {
            let input = SourceInput::from_reader(io::Cursor::new(packed[..cut].to_vec())).with_name("a.jsonl");
            let text = decode(input, &DecodeOptions::default());
            assert!(text.ends_with(&format!("! the {name} data is truncated\n")), "{name} cut at {cut}: {text}");
        }
        let mut damaged = packed.clone();
        damaged[packed.len() / 2] ^= 0xff;
        let text =
            decode(SourceInput::from_reader(io::Cursor::new(damaged)).with_name("a.jsonl"), &DecodeOptions::default());
        assert!(text.contains("! "), "{name}: damage is not detected");
        let mut followed = packed.clone();
        followed.extend_from_slice(b"garbage");
        let text =
            decode(SourceInput::from_reader(io::Cursor::new(followed)).with_name("a.jsonl"), &DecodeOptions::default());
        let expected = match name {
            // The error must not claim that the data is truncated.
            "gzip" => "! the gzip data is followed by data that is not gzip\n",
            _ => "! the zstd data is damaged: ",
        };
        assert!(text.contains(expected), "{name}: {text}");
    }
}

#[test]
fn two_compression_layers_are_removed() {
    let inner = gzip(b"a,b\n1,2\n");
    check("a.csv.gz", inner, r#"{"a":"1","b":"2"}"#);
    // A skippable frame can precede the data.
    let mut frames = vec![0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 7, 7];
    frames.extend(zstandard(b"a,b\n1,2\n"));
    assert_eq!(
        decode(SourceInput::from_reader(io::Cursor::new(frames)).with_name("a.csv"), &DecodeOptions::default()),
        "{\"a\":\"1\",\"b\":\"2\"}\n"
    );
}

#[test]
fn reader_error_is_preserved() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is on fire"))
        }
    }
    for start in [b"{}\n".to_vec(), gzip(b"{}\n")[..15].to_vec(), zstandard(b"{}\n")[..8].to_vec()] {
        let input = SourceInput::from_reader(io::Cursor::new(start).chain(Failing)).with_name("a.jsonl");
        let error = open_decoder(input, &DecodeOptions::default()).err().expect("decoded without an error");
        assert!(matches!(error, SourceError::Io(_)), "{error:?}");
        assert_eq!(error.to_string(), "failed to read the source: the disk is on fire");
    }
}

#[test]
fn local_file_is_decoded() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let path = directory.path().join("cities.csv.gz");
    std::fs::write(&path, gzip(b"a,b\n1,2\n")).expect("failed to write file");
    let input = SourceInput::open_file(&path).expect("failed to open file");
    let progress = input.progress();
    let (text, detected) = decode_and_detect(input, &DecodeOptions::default());
    assert_eq!(text, "{\"a\":\"1\",\"b\":\"2\"}\n");
    assert_eq!(detected, Some(DetectedFormat { format: SourceFormat::Csv, compression: SourceCompression::Gzip }));
    assert_eq!(Some(progress.read_bytes()), progress.total_bytes());
    for missing in [directory.path().join("none.json"), directory.path().to_owned()] {
        let error = SourceInput::open_file(&missing).err().expect("opened a missing file");
        assert!(matches!(error, SourceError::Io(_)), "{error:?}");
    }
}

#[test]
fn entity_without_source_gets_url_as_last_key() {
    let options = DecodeOptions { source_url: Some("https://a.test/\"x\"".to_owned()), ..DecodeOptions::default() };
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
