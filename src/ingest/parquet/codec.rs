//! Decompresses pages. The result has at most one byte more than the header of the page announces, for any bytes.
//!
//! LZ4 has two codecs. LZ4_RAW is one block. The older LZ4 is the framing of Hadoop, for example
//! `[0, 0, 0, 8] [0, 0, 0, 9] block`: the bytes that a block becomes, the bytes that it has, and the block. Old
//! versions of parquet-cpp wrote a bare block instead.

use std::io::Read;

use parquet::basic::Compression;

use super::super::error::SourceError;
use super::damaged;

/// Upper bound of a Brotli decoder's memory, its window not counted: three kinds of 256 prefix codes of 1,080 entries.
const BROTLI_CODES_BYTES: u64 = 4 << 20;

const BROTLI_BUFFER_BYTES: usize = 4 << 10;

/// The memory that decompressing a page takes besides the page.
pub(super) fn decoder_bytes(compression: Compression, packed: &[u8]) -> u64 {
    match compression {
        Compression::BROTLI(_) => BROTLI_CODES_BYTES + brotli_window_bytes(packed).unwrap_or(0),
        // The other decoders look back into their output.
        _ => 0,
    }
}

/// The window that a Brotli stream announces in its first byte (RFC 7932, section 9.1). `None` for the windows of more
/// than 16 MiB that some decoders know; no Parquet writer needs them.
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

/// Decompresses the bytes after the first `kept`. Returns at most one byte more than `expected` in total.
pub(super) fn unpack(
    compression: Compression,
    bytes: Vec<u8>,
    kept: usize,
    expected: usize,
) -> Result<Vec<u8>, SourceError> {
    let packed = &bytes[kept..];
    let wanted = expected - kept;
    let mut unpacked = Vec::with_capacity(expected + 1);
    unpacked.extend_from_slice(&bytes[..kept]);
    // A page of nulls has no values to decompress.
    if wanted == 0 {
        return Ok(unpacked);
    }
    // For decoders that write into a slice.
    let mut fill = |decode: &dyn Fn(&mut [u8]) -> Option<usize>| {
        unpacked.resize(expected, 0);
        let length = decode(&mut unpacked[kept..])?;
        unpacked.truncate(kept + length);
        Some(length)
    };
    let limit = wanted as u64 + 1;
    let (codec, length) = match compression {
        Compression::SNAPPY => ("snappy", fill(&|out| snap::raw::Decoder::new().decompress(packed, out).ok())),
        Compression::LZ4_RAW => ("lz4_raw", fill(&|out| lz4_block(packed, out))),
        Compression::LZ4 => ("lz4", fill(&|out| lz4_hadoop(packed, out).or_else(|| lz4_block(packed, out)))),
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
            return Err(SourceError::document(
                "the Parquet file cannot be read: LZO compression is not supported; valid: none, snappy, gzip, brotli, \
                 zstd, lz4, lz4_raw",
            ));
        }
    };
    length.ok_or_else(|| damaged(&format!("a page is not valid {codec} data")))?;
    Ok(unpacked)
}

fn lz4_block(packed: &[u8], out: &mut [u8]) -> Option<usize> {
    lz4_flex::block::decompress_into(packed, out).ok()
}

/// The bytes that the blocks in the framing of Hadoop become; `None` if this is not their form.
fn lz4_hadoop(packed: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut rest = packed;
    let mut filled = 0;
    while let Some((head, blocks)) = rest.split_first_chunk::<8>() {
        let [a, b, c, d, head @ ..] = *head;
        let plain_bytes = u32::from_be_bytes([a, b, c, d]) as usize;
        let (block, more) = blocks.split_at_checked(u32::from_be_bytes(head) as usize)?;
        let target = out[filled..].get_mut(..plain_bytes)?;
        if lz4_block(block, target)? != plain_bytes {
            return None;
        }
        rest = more;
        filled += plain_bytes;
    }
    rest.is_empty().then_some(filled)
}
