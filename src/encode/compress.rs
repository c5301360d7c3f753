//! The bytes of an answer, compressed as a client asked (`Content-Encoding`).
//!
//! A [`Compressor`] makes one continuous stream of all the parts of an answer: browsers do not read members or frames that
//! were made apart and joined. After each part it flushes, so that a client sees what has been made; parts are about 1
//! MiB, so that this costs next to nothing.
//!
//! Equal parts give equal bytes: no time, no name, no state but the stream's own.

use std::io::{self, Write};

use brotli::CompressorWriter as BrotliEncoder;
use bytes::Bytes;
use flate2::write::GzEncoder;
use zstd::stream::write::Encoder as ZstdEncoder;

/// How the bytes of a body are coded (RFC 9110, section 8.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ContentCoding {
    /// As they are.
    #[default]
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

impl ContentCoding {
    /// Every coding, the plain one first.
    pub const ALL: [ContentCoding; 4] =
        [ContentCoding::Identity, ContentCoding::Gzip, ContentCoding::Brotli, ContentCoding::Zstd];

    /// The name in `Accept-Encoding` and `Content-Encoding`.
    pub fn name(self) -> &'static str {
        match self {
            ContentCoding::Identity => "identity",
            ContentCoding::Gzip => "gzip",
            ContentCoding::Brotli => "br",
            ContentCoding::Zstd => "zstd",
        }
    }

    /// What tells the `ETag` of a coded answer from that of the plain one: they are other bytes.
    pub fn etag_suffix(self) -> &'static str {
        match self {
            ContentCoding::Identity => "",
            ContentCoding::Gzip => "-gzip",
            ContentCoding::Brotli => "-br",
            ContentCoding::Zstd => "-zstd",
        }
    }
}

// The levels, by what they do to the JSON of three fixtures (3.5 MB) and to a page of 150 kB, on one slow core:
//
// | coding | level | ratio | MB/s | page |
// |---|---|---|---|---|
// | zstd | 1, 2, **3**, 4 | 0.113, 0.115, **0.110**, 0.110 | 590, 570, **510**, 450 | 0.28, 0.31, **0.33**, 0.88 ms |
// | gzip | 4, **5**, 6 | 0.119, **0.110**, 0.103 | 131, **103**, 71 | 1.2, **1.5**, 2.3 ms |
// | brotli | **4**, 5 | **0.098**, 0.087 | **142**, 81 | **1.0**, 1.8 ms |

/// Smaller than levels 1 and 2 for hardly more time; from 4 on a page costs three times as much.
const ZSTD_LEVEL: i32 = 3;

/// As small as zstd; one level more costs half as much again.
const GZIP_LEVEL: u32 = 5;

/// Smaller and faster than gzip at any level; one level more costs nearly twice as much.
const BROTLI_LEVEL: u32 = 4;

/// 1 MiB of history, as much as the parts hold; more is more memory for each answer under way.
const BROTLI_WINDOW_BITS: u32 = 20;

/// Bytes that the brotli encoder hands on at once.
const BROTLI_BUFFER_BYTES: usize = 64 << 10;

/// Bodies smaller than this are sent as they are: what is saved does not fill a packet.
pub const LEAST_COMPRESSED_BYTES: usize = 1 << 10;

/// Compresses one body, part by part. Dropped before its end, what it made is incomplete and no reader takes it for whole.
pub struct Compressor(Encoder);

enum Encoder {
    Identity,
    Gzip(GzEncoder<Vec<u8>>),
    Brotli(Box<BrotliEncoder<Vec<u8>>>),
    Zstd(ZstdEncoder<'static, Vec<u8>>),
}

impl Compressor {
    /// A body without bytes.
    ///
    /// # Errors
    /// When the library cannot have its memory.
    pub fn try_new(coding: ContentCoding) -> io::Result<Compressor> {
        Ok(Compressor(match coding {
            ContentCoding::Identity => Encoder::Identity,
            ContentCoding::Gzip => Encoder::Gzip(gzip()),
            ContentCoding::Brotli => Encoder::Brotli(Box::new(brotli())),
            ContentCoding::Zstd => Encoder::Zstd(zstd()?),
        }))
    }

    /// Adds a part. Returns coded bytes from which a reader gets all parts so far.
    ///
    /// # Errors
    /// When the library fails; the body cannot go on then.
    pub fn write(&mut self, part: &[u8]) -> io::Result<Bytes> {
        let made = match &mut self.0 {
            Encoder::Identity => return Ok(Bytes::copy_from_slice(part)),
            Encoder::Gzip(encoder) => {
                encoder.write_all(part)?;
                encoder.flush()?;
                encoder.get_mut()
            }
            Encoder::Brotli(encoder) => {
                encoder.write_all(part)?;
                encoder.flush()?;
                encoder.get_mut()
            }
            Encoder::Zstd(encoder) => {
                encoder.write_all(part)?;
                encoder.flush()?;
                encoder.get_mut()
            }
        };
        Ok(std::mem::take(made).into())
    }

    /// The end of the body.
    ///
    /// # Errors
    /// As [`Compressor::write`].
    pub fn finish(self) -> io::Result<Bytes> {
        Ok(match self.0 {
            Encoder::Identity => Bytes::new(),
            Encoder::Gzip(encoder) => encoder.finish()?.into(),
            Encoder::Brotli(encoder) => encoder.into_inner().into(),
            Encoder::Zstd(encoder) => encoder.finish()?.into(),
        })
    }
}

/// A whole body, compressed at once.
///
/// # Errors
/// As [`Compressor::write`].
pub fn compress(coding: ContentCoding, body: &[u8]) -> io::Result<Bytes> {
    Ok(match coding {
        ContentCoding::Identity => Bytes::copy_from_slice(body),
        ContentCoding::Gzip => {
            let mut encoder = gzip();
            encoder.write_all(body)?;
            encoder.finish()?.into()
        }
        ContentCoding::Brotli => {
            let mut encoder = brotli();
            encoder.write_all(body)?;
            encoder.into_inner().into()
        }
        ContentCoding::Zstd => {
            let mut encoder = zstd()?;
            encoder.set_pledged_src_size(Some(body.len() as u64))?;
            encoder.write_all(body)?;
            encoder.finish()?.into()
        }
    })
}

fn gzip() -> GzEncoder<Vec<u8>> {
    GzEncoder::new(Vec::new(), flate2::Compression::new(GZIP_LEVEL))
}

fn brotli() -> BrotliEncoder<Vec<u8>> {
    BrotliEncoder::new(Vec::new(), BROTLI_BUFFER_BYTES, BROTLI_LEVEL, BROTLI_WINDOW_BITS)
}

fn zstd() -> io::Result<ZstdEncoder<'static, Vec<u8>>> {
    ZstdEncoder::new(Vec::new(), ZSTD_LEVEL)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// All that a reader gets out of coded bytes, which may be the beginning of a body.
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
    fn a_reader_sees_every_part_when_it_is_made_and_one_stream_in_the_end() {
        for coding in ContentCoding::ALL {
            let mut compressor = Compressor::try_new(coding).expect("a compressor");
            let (mut coded, mut plain) = (Vec::new(), Vec::new());
            for part in parts() {
                coded.extend_from_slice(&compressor.write(&part).expect("compressed"));
                plain.extend_from_slice(&part);
                assert!(readable(coding, &coded) == plain, "{coding:?} after {} bytes", plain.len());
            }
            let end = compressor.finish().expect("the end");
            assert_eq!(end.is_empty(), coding == ContentCoding::Identity);
            coded.extend_from_slice(&end);
            assert!(readable(coding, &coded) == plain, "{coding:?}");
            assert!(coding == ContentCoding::Identity || coded.len() < plain.len() / 3, "{coding:?}: {}", coded.len());
        }
    }

    #[test]
    fn equal_parts_give_equal_bytes() {
        for coding in ContentCoding::ALL {
            let coded = || {
                let mut compressor = Compressor::try_new(coding).expect("a compressor");
                let mut coded: Vec<Bytes> =
                    parts().iter().map(|part| compressor.write(part).expect("compressed")).collect();
                coded.push(compressor.finish().expect("the end"));
                coded
            };
            assert!(coded() == coded(), "{coding:?}");
        }
    }

    #[test]
    fn a_whole_body_is_read_back() {
        for coding in ContentCoding::ALL {
            for body in [parts().concat(), b"short".to_vec(), Vec::new()] {
                let coded = compress(coding, &body).expect("compressed");
                assert!(readable(coding, &coded) == body, "{coding:?}");
            }
        }
    }
}
