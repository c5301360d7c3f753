//! Bodies in a content coding, decoded by the libraries as a browser would.

use std::io::Read;

/// The body of an answer: one stream, to its end, and nothing after it.
#[track_caller]
pub fn decoded(coding: &str, body: &[u8]) -> Vec<u8> {
    let mut rest = body;
    let mut decoded = Vec::new();
    match coding {
        "gzip" => {
            let mut decoder = flate2::bufread::GzDecoder::new(&mut rest);
            decoder.read_to_end(&mut decoded).expect("gzip");
        }
        "br" => {
            brotli::BrotliDecompress(&mut rest, &mut decoded).expect("brotli");
        }
        "zstd" => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(&mut rest).expect("a decoder").single_frame();
            decoder.read_to_end(&mut decoded).expect("Zstandard");
        }
        other => panic!("{other}"),
    }
    assert!(rest.is_empty(), "{} bytes after the end of {coding}", rest.len());
    decoded
}
