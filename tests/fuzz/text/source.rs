//! Sources in JSON and JSON Lines, packed with gzip or Zstandard or not, their format given or detected. The input: a
//! byte of options, a byte that says how it is cut into pieces, then the source.

use strata_ingest::DecodeOptions;
use strata_reference::Value;
use strata_types::path::Path;
use strata_types::source::{Compression, SourceFormat};

use super::decoding::{Outcome, decode, unpack};

const FORMATS: [Option<SourceFormat>; 5] =
    [None, Some(SourceFormat::Json), Some(SourceFormat::Jsonl), Some(SourceFormat::Csv), Some(SourceFormat::Tsv)];

/// How the refusal of a document that is an object begins.
const AN_OBJECT: &str = "the document is an object";

pub fn check(bytes: &[u8]) {
    let [choice, pieces, source @ ..] = bytes else { return };
    let options = DecodeOptions {
        format: FORMATS[usize::from(choice % 5)],
        records_path: (choice & 0x20 != 0).then(|| Path::parse("a.items").expect("a path")),
        fetched_from: (choice & 0x40 != 0).then(|| "https://shop.test/\"x\"".to_owned()),
        entity_limit_bytes: if choice & 0x80 != 0 { 64 } else { 4096 },
        source_limit_bytes: 1 << 20,
        ..DecodeOptions::default()
    };
    let whole = decode(source, usize::MAX, &options);
    let cut = DecodeOptions { window_bytes: 1 + usize::from(pieces % 16), ..options.clone() };
    let again = decode(source, 1 + usize::from(pieces / 16), &cut);
    // Of damage in what is packed it depends on the pieces what is noticed first, and how much came before.
    match (&whole.error, whole.detected.map(|detected| detected.compression)) {
        (None, _) => assert_eq!((&again.entities, &again.error), (&whole.entities, &None), "in pieces"),
        // What it advises goes by what is at hand of the object.
        (Some(error), Some(Compression::None)) if error.starts_with(AN_OBJECT) => {
            assert!(again.error.as_ref().is_some_and(|error| error.starts_with(AN_OBJECT)), "in pieces: {again:?}");
        }
        (Some(_), Some(Compression::None)) => assert_eq!(again, whole, "in pieces"),
        (Some(_), _) => assert!(again.error.is_some(), "in pieces: {again:?} for {whole:?}"),
    }
    whole.is_sound(&options);

    if let Some(detected) = whole.detected {
        if detected.compression != Compression::None {
            // The same content without its packing is the same.
            if let Some(content) = unpack(source, detected.compression, 1 << 20) {
                let plain = DecodeOptions { format: Some(detected.format), ..options.clone() };
                let unpacked = decode(&content, usize::MAX, &plain);
                let nested = unpacked.detected.is_some_and(|detected| detected.compression != Compression::None);
                assert!(nested || (unpacked.entities, unpacked.error) == (whole.entities, whole.error), "unpacked");
            }
        } else if options.fetched_from.is_none() && options.entity_limit_bytes == 4096 {
            reads_as_the_reference(source, &whole, detected.format, options.records_path.is_some());
        }
    }
}

/// A whole document of JSON or JSON Lines, without the mark at its start.
fn reads_as_the_reference(source: &[u8], found: &Outcome, format: SourceFormat, nested: bool) {
    let source = source.strip_prefix(b"\xef\xbb\xbf").unwrap_or(source);
    let text = std::str::from_utf8(source);
    let expected: Option<Vec<String>> = match (format, text) {
        // The lines of the reference are never empty; what else ends a line is not settled here.
        (SourceFormat::Jsonl, Ok(text)) if !text.contains('\r') => {
            let lines = text.split('\n').filter(|line| !line.trim_matches([' ', '\t']).is_empty());
            lines.map(|line| Value::parse_entity(line).ok().map(|entity| entity.write())).collect()
        }
        // Its items are at level 1.
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
