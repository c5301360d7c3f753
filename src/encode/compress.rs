//! Compresses a response (`Content-Encoding`).
//!
//! A [`BodyCompressor`] creates one continuous stream for all parts of a response, because browsers do not read several
//! concatenated streams. It flushes at increasing distances, so that a client sees data early at little cost.
//!
//! Equal bodies result in equal bytes. The parts of a body depend on the client and on the load of the service, so the
//! encoder receives the body in chunks of fixed sizes.

use std::io::{self, Write};

use brotli::CompressorWriter as BrotliEncoder;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use zstd::stream::write::Encoder as ZstdEncoder;

/// A content coding (RFC 9110, section 8.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ContentCoding {
    #[default]
    Identity,
    Gzip,
    Brotli,
    Zstd,
}

impl ContentCoding {
    pub const ALL: [ContentCoding; 4] =
        [ContentCoding::Identity, ContentCoding::Gzip, ContentCoding::Brotli, ContentCoding::Zstd];

    pub fn name(self) -> &'static str {
        match self {
            ContentCoding::Identity => "identity",
            ContentCoding::Gzip => "gzip",
            ContentCoding::Brotli => "br",
            ContentCoding::Zstd => "zstd",
        }
    }

    /// The suffix of a response's `ETag`, because the bytes of a body differ in each coding.
    pub fn etag_suffix(self) -> &'static str {
        match self {
            ContentCoding::Identity => "",
            ContentCoding::Gzip => "-gzip",
            ContentCoding::Brotli => "-br",
            ContentCoding::Zstd => "-zstd",
        }
    }

    /// The maximum memory of a [`BodyCompressor`]: the encoder, a chunk of the body, and the coded chunk.
    pub fn memory_bytes(self) -> usize {
        let encoder_bytes = match self {
            ContentCoding::Identity => return 0,
            ContentCoding::Gzip => 512 << 10,
            ContentCoding::Brotli | ContentCoding::Zstd => 4 << 20,
        };
        encoder_bytes + 2 * MAX_UNFLUSHED_BYTES
    }
}

// For the JSON test fixtures, the next higher compression levels are much slower, and the output hardly smaller.

const ZSTD_LEVEL: i32 = 3;
const GZIP_LEVEL: u32 = 5;
const BROTLI_LEVEL: u32 = 4;

/// Brotli keeps a history of 1 MiB, the size of the largest chunk. A longer history costs more memory per response.
const BROTLI_WINDOW_BITS: u32 = 20;
const BROTLI_BUFFER_BYTES: usize = 64 << 10;

/// Minimum size of a compressed body. Compression of a smaller body would save less than a network packet.
pub const MIN_COMPRESSED_BODY_BYTES: usize = 1 << 10;

/// Body bytes before the encoder's first flush. The distance between flushes doubles, up to [`MAX_UNFLUSHED_BYTES`].
const FIRST_FLUSH_BYTES: usize = 64 << 10;
const MAX_UNFLUSHED_BYTES: usize = 1 << 20;

/// Compresses a response body, part by part. If a body is not finished, clients notice that the output is incomplete.
pub struct BodyCompressor {
    encoder: CodingEncoder,
    pending: Vec<u8>,
    flush_every_bytes: usize,
}

enum CodingEncoder {
    Identity(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
    Brotli(Box<BrotliEncoder<Vec<u8>>>),
    Zstd(ZstdEncoder<'static, Vec<u8>>),
}

impl BodyCompressor {
    pub fn try_new(coding: ContentCoding) -> io::Result<BodyCompressor> {
        let encoder = match coding {
            ContentCoding::Identity => CodingEncoder::Identity(Vec::new()),
            ContentCoding::Gzip => CodingEncoder::Gzip(GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL))),
            ContentCoding::Brotli => {
                let encoder = BrotliEncoder::new(Vec::new(), BROTLI_BUFFER_BYTES, BROTLI_LEVEL, BROTLI_WINDOW_BITS);
                CodingEncoder::Brotli(Box::new(encoder))
            }
            ContentCoding::Zstd => CodingEncoder::Zstd(ZstdEncoder::new(Vec::new(), ZSTD_LEVEL)?),
        };
        Ok(BodyCompressor { encoder, pending: Vec::new(), flush_every_bytes: FIRST_FLUSH_BYTES })
    }

    /// Adds a part of the body. Returns the compressed bytes that are ready, mostly of earlier parts.
    pub fn write(&mut self, mut part: &[u8]) -> io::Result<Bytes> {
        let mut ready = Vec::new();
        while !part.is_empty() {
            let (fits, rest) = part.split_at(part.len().min(self.flush_every_bytes - self.pending.len()));
            self.pending.extend_from_slice(fits);
            part = rest;
            if self.pending.len() == self.flush_every_bytes {
                ready.append(self.encoder.compress_and_flush(&self.pending)?);
                self.pending.clear();
                self.flush_every_bytes = (self.flush_every_bytes * 2).min(MAX_UNFLUSHED_BYTES);
            }
        }
        Ok(ready.into())
    }

    pub fn finish(self) -> io::Result<Bytes> {
        self.encoder.finish(&self.pending)
    }
}

impl CodingEncoder {
    fn as_writer(&mut self) -> &mut dyn Write {
        match self {
            CodingEncoder::Identity(coded) => coded,
            CodingEncoder::Gzip(encoder) => encoder,
            CodingEncoder::Brotli(encoder) => encoder,
            CodingEncoder::Zstd(encoder) => encoder,
        }
    }

    /// Compresses and flushes a chunk. Returns the output buffer, which the caller must empty.
    fn compress_and_flush(&mut self, chunk: &[u8]) -> io::Result<&mut Vec<u8>> {
        self.as_writer().write_all(chunk)?;
        self.as_writer().flush()?;
        Ok(match self {
            CodingEncoder::Identity(coded) => coded,
            CodingEncoder::Gzip(encoder) => encoder.get_mut(),
            CodingEncoder::Brotli(encoder) => encoder.get_mut(),
            CodingEncoder::Zstd(encoder) => encoder.get_mut(),
        })
    }

    fn finish(mut self, chunk: &[u8]) -> io::Result<Bytes> {
        self.as_writer().write_all(chunk)?;
        let coded = match self {
            CodingEncoder::Identity(coded) => coded,
            CodingEncoder::Gzip(encoder) => encoder.finish()?,
            CodingEncoder::Brotli(encoder) => encoder.into_inner(),
            CodingEncoder::Zstd(encoder) => encoder.finish()?,
        };
        Ok(coded.into())
    }
}

/// Compresses a whole body in one call. The output has the same bytes as the output of a [`BodyCompressor`].
pub fn compress_body(coding: ContentCoding, body: &[u8]) -> io::Result<Bytes> {
    let mut compressor = BodyCompressor::try_new(coding)?;
    let mut coded = compressor.write(body)?.to_vec();
    coded.extend_from_slice(&compressor.finish()?);
    Ok(coded.into())
}
