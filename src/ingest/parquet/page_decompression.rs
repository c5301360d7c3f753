//! Decompresses pages. The output exceeds the size in the page header by at most one byte, for any input. LZ4_RAW is
//! one block. The older LZ4 codec uses Hadoop's framing, for example `[0, 0, 0, 8] [0, 0, 0, 9] block`: decompressed
//! size, compressed size, and block. Old versions of parquet-cpp wrote a single block without framing.

use std::io::Read;

use parquet::basic::Compression;

use super::super::error::SourceError;
use super::damaged_file_error;

/// The maximum memory of a Brotli decoder without its window: three kinds of 256 prefix codes with 1,080 entries.
const MAX_BROTLI_CODES_BYTES: u64 = 4 << 20;
const BROTLI_BUFFER_BYTES: usize = 4 << 10;

/// Returns the memory that the decompression of a page needs in addition to the input and the output.
pub(super) fn decoder_memory_bytes(compression: Compression, packed: &[u8]) -> u64 {
    match compression {
        Compression::BROTLI(_) => MAX_BROTLI_CODES_BYTES + brotli_window_bytes(packed).unwrap_or(0),
        // Decoders for other codecs than Brotli use their output as the window.
        _ => 0,
    }
}

/// Returns the window size of a Brotli stream (RFC 7932, section 9.1); `None` for large windows (over 16 MiB).
fn brotli_window_bytes(packed: &[u8]) -> Option<u64> {
    let first = *packed.first()?;
    let log = match (first & 1, first >> 1 & 7, first >> 4 & 7) {
        (0, _, _) => 16,
        (_, 0, 0) => 17,
        (_, 0, 1) => return None,
        (_, 0, more) => 8 + more,
        (_, more, _) => 17 + more,
    };
    Some(1 << log)
}

/// Decompresses a page, whose first `prefix_bytes` bytes are uncompressed. Returns at most `expected_bytes + 1` bytes.
pub(super) fn decompress_page(
    compression: Compression,
    bytes: Vec<u8>,
    prefix_bytes: usize,
    expected_bytes: usize,
) -> Result<Vec<u8>, SourceError> {
    let packed = &bytes[prefix_bytes..];
    let content_bytes = expected_bytes - prefix_bytes;
    let mut unpacked = Vec::with_capacity(expected_bytes + 1);
    unpacked.extend_from_slice(&bytes[..prefix_bytes]);
    // A page of nulls has no values to decompress.
    if content_bytes == 0 {
        return Ok(unpacked);
    }
    // Calls a decoder that writes to a slice of a fixed size.
    let mut fill = |decode: &dyn Fn(&mut [u8]) -> Option<usize>| {
        unpacked.resize(expected_bytes, 0);
        let length = decode(&mut unpacked[prefix_bytes..])?;
        unpacked.truncate(prefix_bytes + length);
        Some(length)
    };
    let limit = content_bytes as u64 + 1;
    let (codec, length) = match compression {
        Compression::SNAPPY => ("snappy", fill(&|out| snap::raw::Decoder::new().decompress(packed, out).ok())),
        Compression::LZ4_RAW => ("lz4_raw", fill(&|out| decompress_lz4_block(packed, out))),
        Compression::LZ4 => {
            ("lz4", fill(&|out| decompress_lz4_hadoop(packed, out).or_else(|| decompress_lz4_block(packed, out))))
        }
        Compression::ZSTD(_) => ("zstd", fill(&|out| zstd::bulk::decompress_to_buffer(packed, out).ok())),
        Compression::GZIP(_) => {
            let mut decoder = flate2::bufread::MultiGzDecoder::new(packed).take(limit);
            ("gzip", decoder.read_to_end(&mut unpacked).ok())
        }
        Compression::BROTLI(_) => {
            let mut decoder = brotli::Decompressor::new(packed, BROTLI_BUFFER_BYTES).take(limit);
            ("brotli", brotli_window_bytes(packed).and_then(|_| decoder.read_to_end(&mut unpacked).ok()))
        }
        Compression::LZO | Compression::UNCOMPRESSED => {
            return Err(SourceError::invalid_document(
                "the Parquet file cannot be read: LZO compression is not supported; valid: none, snappy, gzip, brotli, \
                 zstd, lz4, lz4_raw",
            ));
        }
    };
    length.ok_or_else(|| damaged_file_error(&format!("a page is not valid {codec} data")))?;
    Ok(unpacked)
}

fn decompress_lz4_block(packed: &[u8], out: &mut [u8]) -> Option<usize> {
    lz4_flex::block::decompress_into(packed, out).ok()
}

/// Decompresses blocks in Hadoop's framing. Returns the decompressed size, or `None` if the framing does not match.
fn decompress_lz4_hadoop(packed: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut rest = packed;
    let mut filled = 0;
    while let Some((head, blocks)) = rest.split_first_chunk::<8>() {
        let [a, b, c, d, head @ ..] = *head;
        let plain_bytes = u32::from_be_bytes([a, b, c, d]) as usize;
        let (block, more) = blocks.split_at_checked(u32::from_be_bytes(head) as usize)?;
        let target = out[filled..].get_mut(..plain_bytes)?;
        if decompress_lz4_block(block, target)? != plain_bytes {
            return None;
        }
        rest = more;
        filled += plain_bytes;
    }
    rest.is_empty().then_some(filled)
}
