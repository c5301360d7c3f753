//! Compression of bodies.

use std::io::Read;

use strata_encode::{BodyCompressor, ContentCoding, compress_body};

const MAX_UNFLUSHED_BYTES: usize = 1 << 20;
const ZSTD_LEVEL: i32 = 3;

/// Decodes coded bytes, which may be only the beginning of a body, as far as possible.
fn readable(coding: ContentCoding, coded: &[u8]) -> Vec<u8> {
    let mut reader: Box<dyn Read> = match coding {
        ContentCoding::Identity => Box::new(coded),
        ContentCoding::Gzip => Box::new(flate2::read::GzDecoder::new(coded)),
        ContentCoding::Brotli => Box::new(brotli::Decompressor::new(coded, 4096)),
        ContentCoding::Zstd => Box::new(zstd::stream::read::Decoder::new(coded).expect("a decoder").single_frame()),
    };
    let mut read = Vec::new();
    // The beginning of a body ends with an error, after all readable bytes.
    let _ = reader.read_to_end(&mut read);
    read
}

fn parts() -> Vec<Vec<u8>> {
    let text = |number: usize| format!("{{\"n\":{number},\"square\":{}}}\n", number * number);
    let part = |from: usize| (from..from + 3_000).flat_map(|number| text(number).into_bytes()).collect();
    vec![part(0), b"x".to_vec(), Vec::new(), part(10_000), part(0)]
}

#[test]
fn flushed_output_is_readable_and_one_stream() {
    let body: Vec<u8> = parts().concat().repeat(20);
    assert!(body.len() > 3 << 20, "{}", body.len());
    for coding in ContentCoding::ALL {
        let mut compressor = BodyCompressor::try_new(coding).expect("a compressor");
        let mut coded = Vec::new();
        let mut written = 0;
        let mut flushes = Vec::new();
        for part in body.chunks(10_000) {
            let ready = compressor.write(part).expect("compressed");
            written += part.len();
            if !ready.is_empty() {
                coded.extend_from_slice(&ready);
                flushes.push(readable(coding, &coded).len());
            }
            let seen = flushes.last().copied().unwrap_or_default();
            assert!(written - seen < MAX_UNFLUSHED_BYTES, "{coding:?}: {seen} of {written}");
        }
        let kib = |number: usize| number << 10;
        assert_eq!(flushes[..6], [64, 192, 448, 960, 1_984, 3_008].map(kib), "{coding:?}");
        coded.extend_from_slice(&compressor.finish().expect("the end"));
        assert!(readable(coding, &coded) == body, "{coding:?}");
        assert!(coding == ContentCoding::Identity || coded.len() < body.len() / 3, "{coding:?}: {}", coded.len());
    }
}

#[test]
fn compressed_bytes_do_not_depend_on_parts() {
    for coding in ContentCoding::ALL {
        for body in [parts().concat(), b"short".to_vec(), Vec::new()] {
            let whole = compress_body(coding, &body).expect("compressed");
            assert!(readable(coding, &whole) == body, "{coding:?}");
            for part_bytes in [1_000, 65_536, 100_001, 1 << 20] {
                let mut compressor = BodyCompressor::try_new(coding).expect("a compressor");
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

#[test]
fn zstd_encoder_respects_memory_bytes() {
    let mut encoder = zstd::zstd_safe::CCtx::create();
    encoder.set_parameter(zstd::zstd_safe::CParameter::CompressionLevel(ZSTD_LEVEL)).expect("a level");
    let chunk: Vec<u8> = (0..MAX_UNFLUSHED_BYTES).map(|number| ((number * number) >> 7) as u8).collect();
    for _ in 0..4 {
        let mut coded = Vec::with_capacity(2 * MAX_UNFLUSHED_BYTES);
        let mut out = zstd::zstd_safe::OutBuffer::around(&mut coded);
        encoder.compress_stream(&mut out, &mut zstd::zstd_safe::InBuffer::around(&chunk)).expect("compressed");
    }
    let max = ContentCoding::Zstd.memory_bytes() - 2 * MAX_UNFLUSHED_BYTES;
    assert!((1 << 20..=max).contains(&encoder.sizeof()), "{}", encoder.sizeof());
}
