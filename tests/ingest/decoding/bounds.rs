//! Bounds, damage, packing, and the address as `_source`.

use std::io::{self, Read};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use strata_ingest::{DecodeOptions, Detected, SourceError, SourceInput, open};
use strata_testing::packed::gzip;
use strata_types::source::{Compression, SourceFormat};

use super::parquet::parquet_bytes;
use super::{check, check_with, decode, decode_and_detect, zstandard};

#[test]
fn an_entity_larger_than_its_limit_is_refused_in_every_format() {
    let options = DecodeOptions { entity_limit_bytes: 40, window_bytes: 16, ..DecodeOptions::default() };
    let refusal = "the entity is larger than limits.entity_bytes (40)";
    let fits = format!("{{\"a\":\"{}\"}}", "x".repeat(40 - 8));
    let too_long = format!("{{\"a\":\"{}\"}}", "x".repeat(41 - 8));
    let endless = format!("{{\"a\":\"{}", "x".repeat(5_000));
    let expected = format!("{fits}\n! item 2 (line 1, column 43): {refusal}");
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
            assert!(text.ends_with(&format!("! the {name} data is truncated\n")), "{name} cut at {cut}: {text}");
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
            "gzip" => "! the gzip data is followed by data that is not gzip\n",
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
        assert_eq!(error.to_string(), "failed to read the source: the disk is on fire");
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
