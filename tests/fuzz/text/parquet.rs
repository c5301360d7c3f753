//! Parquet files as sources: whatever their metadata claims, they give entities or an error, within bounds.

use strata_ingest::DecodeOptions;
use strata_types::source::SourceFormat;

use super::decoding::decode;

pub fn check(bytes: &[u8]) {
    let options = DecodeOptions {
        format: Some(SourceFormat::Parquet),
        entity_limit_bytes: 1 << 16,
        source_limit_bytes: 1 << 20,
        ..DecodeOptions::default()
    };
    decode(bytes, usize::MAX, &options).is_sound(&options);
}
