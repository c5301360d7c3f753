//! Compression with gzip.

use std::io::Write;

/// Compresses bytes at the highest level.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).expect("failed to write to memory");
    encoder.finish().expect("failed to write to memory")
}
