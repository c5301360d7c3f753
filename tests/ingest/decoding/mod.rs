//! From a source's bytes to its entities: every format and compression, what is detected, what is refused and where.

use std::fmt::Write as _;
use std::io::{self, Read};

use strata_ingest::{DecodeOptions, Detected, SourceInput, open};
use strata_testing::packed::gzip;
use strata_types::path::Path;
use strata_types::source::SourceFormat;

mod bounds;
mod corpora;
mod cuts;
mod detection;
mod json;
pub(crate) mod parquet;
mod parquet_types;
mod tables;

/// What a source gives as text: one entity per line, and a last line `! error` if it is bad.
pub(crate) fn decode(input: SourceInput, options: &DecodeOptions) -> String {
    let (lines, _) = decode_and_detect(input, options);
    lines
}

fn decode_and_detect(input: SourceInput, options: &DecodeOptions) -> (String, Option<Detected>) {
    let mut text = String::new();
    let (mut decoder, detected) = match open(input, options) {
        Ok(opened) => opened,
        Err(error) => return (format!("! {error}\n"), None),
    };
    let mut entity = Vec::new();
    loop {
        entity.clear();
        match decoder.next(&mut entity) {
            Ok(true) => writeln!(text, "{}", std::str::from_utf8(&entity).expect("entities are UTF-8")),
            Ok(false) => {
                assert!(entity.is_empty(), "the end appends nothing");
                break;
            }
            Err(error) => {
                writeln!(text, "! {error}").expect("a string takes all");
                break;
            }
        }
        .expect("a string takes all");
    }
    (text, Some(detected))
}

/// Checks what a file of that name and content gives: plain, as two gzip members, and as two Zstandard frames. The
/// expected text is trimmed line by line, so that it can be indented.
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
    for (packing, bytes) in [("plain", content.to_vec()), ("gzip", gzipped), ("zstd", zstandard)] {
        let input = SourceInput::stream(io::Cursor::new(bytes)).with_name(name);
        assert_eq!(decode(input, options), expected, "{packing}");
    }
}

fn zstandard(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("memory takes all")
}

fn at_path(path: &str) -> DecodeOptions {
    DecodeOptions { records_path: Some(Path::parse(path).expect("a path")), ..DecodeOptions::default() }
}

fn as_format(format: SourceFormat) -> DecodeOptions {
    DecodeOptions { format: Some(format), ..DecodeOptions::default() }
}

/// A reader that gives its bytes in pieces of the given sizes, again and again.
struct Pieces {
    bytes: Vec<u8>,
    position: usize,
    sizes: Vec<usize>,
    turn: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes[self.turn % self.sizes.len()];
        self.turn += 1;
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
