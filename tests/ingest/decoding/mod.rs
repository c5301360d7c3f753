//! Decoding of all formats and compressions: entities, detection, errors, and their positions.

use std::fmt::Write as _;
use std::io::{self, Read};

use strata_ingest::{DecodeOptions, DetectedFormat, SourceInput, open_decoder};
use strata_testing::packed::gzip;
use strata_types::field_path::FieldPath;
use strata_types::source::SourceFormat;

mod bounds;
mod corpora;
mod cuts;
mod detection;
mod json;
pub(crate) mod parquet;
mod parquet_types;
mod tables;

/// Decodes a source as text: one entity per line, and a last line `! error` if decoding fails.
pub(crate) fn decode(input: SourceInput, options: &DecodeOptions) -> String {
    let (lines, _) = decode_and_detect(input, options);
    lines
}

fn decode_and_detect(input: SourceInput, options: &DecodeOptions) -> (String, Option<DetectedFormat>) {
    let mut lines = String::new();
    let (mut decoder, detected) = match open_decoder(input, options) {
        Ok(opened) => opened,
        Err(error) => return (format!("! {error}\n"), None),
    };
    let mut entity = Vec::new();
    loop {
        entity.clear();
        match decoder.next_entity(&mut entity) {
            Ok(true) => writeln!(lines, "{}", std::str::from_utf8(&entity).expect("failed to decode UTF-8")),
            Ok(false) => {
                assert!(entity.is_empty(), "the decoder must not append anything at the end");
                break;
            }
            Err(error) => {
                writeln!(lines, "! {error}").expect("failed to write");
                break;
            }
        }
        .expect("failed to write");
    }
    (lines, Some(detected))
}

/// Checks the result of decoding a file: uncompressed, as two gzip members, and as two Zstandard frames. The lines of
/// the expected text are trimmed, so that tests can indent them.
#[track_caller]
fn check(name: &str, content: impl AsRef<[u8]>, expected: &str) {
    check_with(&DecodeOptions::default(), name, content, expected);
}

#[track_caller]
fn check_with(options: &DecodeOptions, name: &str, content: impl AsRef<[u8]>, expected: &str) {
    let content = content.as_ref();
    let expected: String =
        expected.lines().map(str::trim).filter(|line| !line.is_empty()).fold(String::new(), |mut text, line| {
            text.push_str(line);
            text.push('\n');
            text
        });
    let middle = content.len() / 2;
    let halves = [&content[..middle], &content[middle..]];
    let gzipped: Vec<u8> = halves.iter().flat_map(|half| gzip(half)).collect();
    let zstandard: Vec<u8> = halves.iter().flat_map(|half| zstandard(half)).collect();
    for (compression, bytes) in [("plain", content.to_vec()), ("gzip", gzipped), ("zstd", zstandard)] {
        let input = SourceInput::from_reader(io::Cursor::new(bytes)).with_name(name);
        assert_eq!(decode(input, options), expected, "{compression}");
    }
}

fn zstandard(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("failed to write")
}

fn at_path(path: &str) -> DecodeOptions {
    DecodeOptions {
        records_path: Some(FieldPath::parse(path).expect("failed to parse path")),
        ..DecodeOptions::default()
    }
}

fn as_format(format: SourceFormat) -> DecodeOptions {
    DecodeOptions { format: Some(format), ..DecodeOptions::default() }
}

/// A reader that returns its bytes in chunks of the given sizes, repeatedly. A size of 0 is an interrupted read.
struct ChunkedReader {
    bytes: Vec<u8>,
    position: usize,
    sizes: Vec<usize>,
    read_count: usize,
}

impl Read for ChunkedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes[self.read_count % self.sizes.len()];
        self.read_count += 1;
        if size == 0 {
            return Err(io::Error::from(io::ErrorKind::Interrupted));
        }
        let rest = &self.bytes[self.position..];
        let count = size.min(rest.len()).min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.position += count;
        Ok(count)
    }
}
