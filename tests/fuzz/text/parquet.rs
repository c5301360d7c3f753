//! Parquet files as sources. Regardless of their metadata, they yield entities or an error within the limits.

use strata_ingest::DecodeOptions;
use strata_types::source::SourceFormat;

use super::decoding::decode;

pub fn check(bytes: &[u8]) {
    let options = DecodeOptions {
        format: Some(SourceFormat::Parquet),
        max_entity_bytes: 1 << 16,
        max_source_bytes: 1 << 20,
        ..DecodeOptions::default()
    };
    decode(bytes, usize::MAX, &options).assert_valid(&options);
}
