//! Sources in CSV and TSV. The input is a byte that selects the delimiter, the chunk size, and type inference, followed
//! by the table.

use strata_ingest::{DecodeOptions, TypeInference};
use strata_reference::delimited;
use strata_types::source::SourceFormat;

use super::decoding::decode;

pub fn check(bytes: &[u8]) {
    let Some((choice, table)) = bytes.split_first() else { return };
    // The service would decompress these sources or read them as Parquet.
    if table.starts_with(&[0x1f, 0x8b]) || table.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || table.starts_with(b"PAR1") {
        return;
    }
    let (format, delimiter) = if choice & 1 == 0 { (SourceFormat::Csv, b',') } else { (SourceFormat::Tsv, b'\t') };
    let infer_types = *choice >= 128;
    let options = DecodeOptions {
        format: Some(format),
        max_entity_bytes: 1 << 16,
        window_bytes: 1 + usize::from(choice / 2 % 16),
        infer_types: if infer_types { TypeInference::Tables } else { DecodeOptions::default().infer_types },
        ..DecodeOptions::default()
    };
    let found = decode(table, 1 + usize::from(choice / 32 % 4), &options);
    found.assert_valid(&options);
    // The source begins like another format, which the reference does not detect.
    if found.error.as_ref().is_some_and(|error| error.starts_with("the source cannot be read as")) {
        return;
    }

    let table = table.strip_prefix(b"\xef\xbb\xbf").unwrap_or(table);
    let expected = delimited::entities(table, delimiter, infer_types);
    assert_eq!(found.error.is_none(), expected.is_ok(), "{found:?} for {expected:?}");
    let (Ok(expected) | Err(expected)) = expected;
    assert_eq!(found.entities, expected);
}
