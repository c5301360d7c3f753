//! Sources in JSON and JSON lines, with or without gzip or Zstandard, and with a declared or detected format. The input
//! is a byte with options, a byte that selects the chunk size, and the source.

use strata_ingest::DecodeOptions;
use strata_reference::Value;
use strata_types::field_path::FieldPath;
use strata_types::source::{SourceCompression, SourceFormat};

use super::decoding::{DecodeResult, decode, unpack};

const FORMATS: [Option<SourceFormat>; 5] =
    [None, Some(SourceFormat::Json), Some(SourceFormat::Jsonl), Some(SourceFormat::Csv), Some(SourceFormat::Tsv)];

/// The beginning of the error for a document that is an object.
const OBJECT_ERROR_PREFIX: &str = "the document is an object";

pub fn check(bytes: &[u8]) {
    let [choice, pieces, source @ ..] = bytes else { return };
    let options = DecodeOptions {
        format: FORMATS[usize::from(choice % 5)],
        records_path: (choice & 0x20 != 0).then(|| FieldPath::parse("a.items").expect("a path")),
        source_url: (choice & 0x40 != 0).then(|| "https://shop.test/\"x\"".to_owned()),
        max_entity_bytes: if choice & 0x80 != 0 { 64 } else { 4096 },
        max_source_bytes: 1 << 20,
        ..DecodeOptions::default()
    };
    let whole = decode(source, usize::MAX, &options);
    let cut = DecodeOptions { window_bytes: 1 + usize::from(pieces % 16), ..options.clone() };
    let again = decode(source, 1 + usize::from(pieces / 16), &cut);
    // If a compressed source is damaged, the chunk size influences which damage is found first and how many entities
    // precede it.
    match (&whole.error, whole.detected.map(|detected| detected.compression)) {
        (None, _) => assert_eq!((&again.entities, &again.error), (&whole.entities, &None), "in pieces"),
        // The advice in this error depends on the part of the object that is already in the window.
        (Some(error), Some(SourceCompression::None)) if error.starts_with(OBJECT_ERROR_PREFIX) => {
            assert!(
                again.error.as_ref().is_some_and(|error| error.starts_with(OBJECT_ERROR_PREFIX)),
                "in pieces: {again:?}"
            );
        }
        (Some(_), Some(SourceCompression::None)) => assert_eq!(again, whole, "in pieces"),
        (Some(_), _) => assert!(again.error.is_some(), "in pieces: {again:?} for {whole:?}"),
    }
    whole.assert_valid(&options);

    if let Some(detected) = whole.detected {
        if detected.compression != SourceCompression::None {
            // The decompressed content yields the same entities.
            if let Some(content) = unpack(source, detected.compression, 1 << 20) {
                let plain = DecodeOptions { format: Some(detected.format), ..options.clone() };
                let unpacked = decode(&content, usize::MAX, &plain);
                let nested = unpacked.detected.is_some_and(|detected| detected.compression != SourceCompression::None);
                assert!(nested || (unpacked.entities, unpacked.error) == (whole.entities, whole.error), "unpacked");
            }
        } else if options.source_url.is_none() && options.max_entity_bytes == 4096 {
            check_with_reference(source, &whole, detected.format, options.records_path.is_some());
        }
    }
}

/// Compares a document in JSON or JSON lines with the reference. A byte order mark at the start is ignored.
fn check_with_reference(source: &[u8], found: &DecodeResult, format: SourceFormat, nested: bool) {
    let source = source.strip_prefix(b"\xef\xbb\xbf").unwrap_or(source);
    let text = std::str::from_utf8(source);
    let expected: Option<Vec<String>> = match (format, text) {
        // Lines of the reference are never empty. Sources with other line ends are not compared.
        (SourceFormat::Jsonl, Ok(text)) if !text.contains('\r') => {
            let lines = text.split('\n').filter(|line| !line.trim_matches([' ', '\t']).is_empty());
            lines.map(|line| Value::parse_entity(line).ok().map(|entity| entity.write())).collect()
        }
        // The items are at level 1.
        (SourceFormat::Json, Ok(text)) if !nested => match Value::parse_at(text, 0) {
            Ok(Value::Array(items)) => {
                items.iter().map(|item| matches!(item, Value::Object(_)).then(|| item.write())).collect()
            }
            _ => None,
        },
        (SourceFormat::Json | SourceFormat::Jsonl, Err(_)) => None,
        _ => return,
    };
    assert_eq!(found.error.is_none(), expected.is_some(), "{found:?}");
    if let Some(expected) = expected {
        assert_eq!(found.entities, expected);
    }
}
