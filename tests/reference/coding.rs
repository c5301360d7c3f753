//! Decodes compressed bodies with the libraries that browsers use.

use std::io::Read;

/// Returns the decoded body of a response, which must be a single complete stream.
#[track_caller]
pub fn decoded(coding: &str, body: &[u8]) -> Vec<u8> {
    let mut rest = body;
    let mut decoded = Vec::new();
    match coding {
        "gzip" => {
            let mut decoder = flate2::bufread::GzDecoder::new(&mut rest);
            decoder.read_to_end(&mut decoded).expect("failed to decompress gzip");
        }
        "br" => {
            brotli::BrotliDecompress(&mut rest, &mut decoded).expect("failed to decompress Brotli");
        }
        "zstd" => {
            let mut decoder =
                zstd::stream::read::Decoder::with_buffer(&mut rest).expect("failed to create decoder").single_frame();
            decoder.read_to_end(&mut decoded).expect("failed to decompress Zstandard");
        }
        other => panic!("{other}"),
    }
    assert!(rest.is_empty(), "{} bytes after the end of {coding}", rest.len());
    decoded
}
