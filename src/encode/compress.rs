//! The bytes of an answer, compressed as a client asked (`Content-Encoding`).
//!
//! A [`Compressor`] makes one continuous stream of all parts of an answer, because browsers do not read joined members
//! or frames. It flushes now and then, so that a client sees data: early at first, then seldom enough to cost next to
//! nothing.
//!
//! Equal bodies give equal bytes. The parts of a body depend on its reader and on the load of the service. So the
//! encoder gets the body cut at fixed places. It gets no time, no name, and no state other than the stream's.

use std::io::{self, Write};

use brotli::CompressorWriter as BrotliEncoder;
use bytes::Bytes;
use flate2::write::GzEncoder;
use zstd::stream::write::Encoder as ZstdEncoder;

/// How the bytes of a body are coded (RFC 9110, section 8.4).
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

    /// The part of an `ETag` that tells a coded answer from the plain one, because their bytes differ.
    pub fn etag_suffix(self) -> &'static str {
        match self {
            ContentCoding::Identity => "",
            ContentCoding::Gzip => "-gzip",
            ContentCoding::Brotli => "-br",
            ContentCoding::Zstd => "-zstd",
        }
    }

    /// Most bytes that a [`Compressor`] holds: the encoder's memory, a piece of the body, and its coded form.
    pub fn memory_bytes(self) -> usize {
        let encoder_bytes = match self {
            ContentCoding::Identity => return 0,
            ContentCoding::Gzip => 512 << 10,
            ContentCoding::Brotli | ContentCoding::Zstd => 4 << 20,
        };
        encoder_bytes + 2 * MOST_UNFLUSHED_BYTES
    }
}

// The levels: as small as the next ones, for clearly less time, on the JSON of the fixtures.

const ZSTD_LEVEL: i32 = 3;

const GZIP_LEVEL: u32 = 5;

const BROTLI_LEVEL: u32 = 4;

/// 1 MiB of history, as much as the parts hold. More would cost more memory for each running answer.
const BROTLI_WINDOW_BITS: u32 = 20;

/// Bytes that the brotli encoder hands on at once.
const BROTLI_BUFFER_BYTES: usize = 64 << 10;

/// Bodies smaller than this are sent as they are: compression would save less than a packet.
pub const LEAST_COMPRESSED_BYTES: usize = 1 << 10;

/// Bytes of a body up to the first flush, and most bytes between two flushes. The distance doubles each time.
const FIRST_FLUSH_BYTES: usize = 64 << 10;
const MOST_UNFLUSHED_BYTES: usize = 1 << 20;

/// Compresses one body, part by part. If it is dropped before the end, its output is incomplete, and readers notice
/// that.
///
/// Holds up to `MOST_UNFLUSHED_BYTES` of the body besides what the encoder needs.
pub struct Compressor {
    encoder: Encoder,
    /// The next input of the encoder, in one piece.
    piece: Vec<u8>,
    piece_bytes: usize,
}

enum Encoder {
    Identity(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
    Brotli(Box<BrotliEncoder<Vec<u8>>>),
    Zstd(ZstdEncoder<'static, Vec<u8>>),
}

impl Compressor {
    pub fn try_new(coding: ContentCoding) -> io::Result<Compressor> {
        let encoder = match coding {
            ContentCoding::Identity => Encoder::Identity(Vec::new()),
            ContentCoding::Gzip => Encoder::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::new(GZIP_LEVEL))),
            ContentCoding::Brotli => {
                let encoder = BrotliEncoder::new(Vec::new(), BROTLI_BUFFER_BYTES, BROTLI_LEVEL, BROTLI_WINDOW_BITS);
                Encoder::Brotli(Box::new(encoder))
            }
            ContentCoding::Zstd => Encoder::Zstd(ZstdEncoder::new(Vec::new(), ZSTD_LEVEL)?),
        };
        Ok(Compressor { encoder, piece: Vec::new(), piece_bytes: FIRST_FLUSH_BYTES })
    }

    /// Adds a part. Returns the coded bytes that have become ready, mostly of earlier parts.
    ///
    /// # Errors
    /// When the library fails. The body cannot continue then.
    pub fn write(&mut self, mut part: &[u8]) -> io::Result<Bytes> {
        let mut ready = Vec::new();
        while !part.is_empty() {
            let (fits, rest) = part.split_at(part.len().min(self.piece_bytes - self.piece.len()));
            self.piece.extend_from_slice(fits);
            part = rest;
            if self.piece.len() == self.piece_bytes {
                ready.append(self.encoder.write(&self.piece)?);
                self.piece.clear();
                self.piece_bytes = (self.piece_bytes * 2).min(MOST_UNFLUSHED_BYTES);
            }
        }
        Ok(ready.into())
    }

    pub fn finish(self) -> io::Result<Bytes> {
        self.encoder.finish(&self.piece)
    }
}

impl Encoder {
    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Encoder::Identity(made) => made,
            Encoder::Gzip(encoder) => encoder,
            Encoder::Brotli(encoder) => encoder,
            Encoder::Zstd(encoder) => encoder,
        }
    }

    /// Codes the whole piece. The output is taken out of the vector.
    fn write(&mut self, piece: &[u8]) -> io::Result<&mut Vec<u8>> {
        self.writer().write_all(piece)?;
        self.writer().flush()?;
        Ok(match self {
            Encoder::Identity(made) => made,
            Encoder::Gzip(encoder) => encoder.get_mut(),
            Encoder::Brotli(encoder) => encoder.get_mut(),
            Encoder::Zstd(encoder) => encoder.get_mut(),
        })
    }

    fn finish(mut self, piece: &[u8]) -> io::Result<Bytes> {
        self.writer().write_all(piece)?;
        let made = match self {
            Encoder::Identity(made) => made,
            Encoder::Gzip(encoder) => encoder.finish()?,
            Encoder::Brotli(encoder) => encoder.into_inner(),
            Encoder::Zstd(encoder) => encoder.finish()?,
        };
        Ok(made.into())
    }
}

/// A whole body, compressed at once: the same bytes as by a [`Compressor`].
pub fn compress(coding: ContentCoding, body: &[u8]) -> io::Result<Bytes> {
    let mut compressor = Compressor::try_new(coding)?;
    let mut coded = compressor.write(body)?.to_vec();
    coded.extend_from_slice(&compressor.finish()?);
    Ok(coded.into())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn an_encoder_takes_no_more_memory_than_is_accounted_for() {
        let mut encoder = zstd::zstd_safe::CCtx::create();
        encoder.set_parameter(zstd::zstd_safe::CParameter::CompressionLevel(ZSTD_LEVEL)).expect("a level");
        let piece: Vec<u8> = (0..MOST_UNFLUSHED_BYTES).map(|number| ((number * number) >> 7) as u8).collect();
        for _ in 0..4 {
            let mut coded = Vec::with_capacity(2 * MOST_UNFLUSHED_BYTES);
            let mut out = zstd::zstd_safe::OutBuffer::around(&mut coded);
            encoder.compress_stream(&mut out, &mut zstd::zstd_safe::InBuffer::around(&piece)).expect("compressed");
        }
        let most = ContentCoding::Zstd.memory_bytes() - 2 * MOST_UNFLUSHED_BYTES;
        assert!((1 << 20..=most).contains(&encoder.sizeof()), "{}", encoder.sizeof());
    }

    /// All bytes that a reader can decode from coded bytes, which may be only the beginning of a body.
    fn readable(coding: ContentCoding, coded: &[u8]) -> Vec<u8> {
        let mut reader: Box<dyn Read> = match coding {
            ContentCoding::Identity => Box::new(coded),
            ContentCoding::Gzip => Box::new(flate2::read::GzDecoder::new(coded)),
            ContentCoding::Brotli => Box::new(brotli::Decompressor::new(coded, 4096)),
            ContentCoding::Zstd => Box::new(zstd::stream::read::Decoder::new(coded).expect("a decoder").single_frame()),
        };
        let mut read = Vec::new();
        // The beginning of a body ends in an error, after all that can be read.
        let _ = reader.read_to_end(&mut read);
        read
    }

    fn parts() -> Vec<Vec<u8>> {
        let text = |number: usize| format!("{{\"n\":{number},\"square\":{}}}\n", number * number);
        let part = |from: usize| (from..from + 3_000).flat_map(|number| text(number).into_bytes()).collect();
        vec![part(0), b"x".to_vec(), Vec::new(), part(10_000), part(0)]
    }

    #[test]
    fn a_reader_sees_what_is_made_early_and_one_stream_in_the_end() {
        let body: Vec<u8> = parts().concat().repeat(20);
        assert!(body.len() > 3 << 20, "{}", body.len());
        for coding in ContentCoding::ALL {
            let mut compressor = Compressor::try_new(coding).expect("a compressor");
            let (mut coded, mut written, mut flushes) = (Vec::new(), 0, Vec::new());
            for part in body.chunks(10_000) {
                let ready = compressor.write(part).expect("compressed");
                written += part.len();
                if !ready.is_empty() {
                    coded.extend_from_slice(&ready);
                    flushes.push(readable(coding, &coded).len());
                }
                let seen = flushes.last().copied().unwrap_or_default();
                assert!(written - seen < MOST_UNFLUSHED_BYTES, "{coding:?}: {seen} of {written}");
            }
            let kib = |number: usize| number << 10;
            assert_eq!(flushes[..6], [64, 192, 448, 960, 1_984, 3_008].map(kib), "{coding:?}");
            coded.extend_from_slice(&compressor.finish().expect("the end"));
            assert!(readable(coding, &coded) == body, "{coding:?}");
            assert!(coding == ContentCoding::Identity || coded.len() < body.len() / 3, "{coding:?}: {}", coded.len());
        }
    }

    #[test]
    fn equal_bodies_give_equal_bytes_however_they_are_cut() {
        for coding in ContentCoding::ALL {
            for body in [parts().concat(), b"short".to_vec(), Vec::new()] {
                let whole = compress(coding, &body).expect("compressed");
                assert!(readable(coding, &whole) == body, "{coding:?}");
                for part_bytes in [1_000, 65_536, 100_001, 1 << 20] {
                    let mut compressor = Compressor::try_new(coding).expect("a compressor");
                    let mut coded = Vec::new();
                    for part in body.chunks(part_bytes) {
                        coded.extend_from_slice(&compressor.write(part).expect("compressed"));
                    }
                    coded.extend_from_slice(&compressor.finish().expect("the end"));
                    assert!(coded == whole, "{coding:?} in parts of {part_bytes}");
                }
            }
        }
    }
}
