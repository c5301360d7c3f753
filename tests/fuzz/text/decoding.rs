//! A source decoded to its end, and what must hold whatever it was.

use std::io::{self, Read};

use strata_ingest::{Decode, DecodeOptions, Detected, SourceError, SourceInput, open, open_push};
use strata_reference::Value;
use strata_types::source::Compression;

/// What a source gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub detected: Option<Detected>,
    pub entities: Vec<String>,
    pub error: Option<String>,
}

impl Outcome {
    /// Entities are canonical, within their bound and named where they should be; errors are one line of text.
    pub fn is_sound(&self, options: &DecodeOptions) {
        for entity in &self.entities {
            let mut canonical = Vec::new();
            strata_json::canonicalize(entity.as_bytes(), &mut canonical).expect("an entity");
            assert_eq!(canonical, entity.as_bytes(), "canonical");
            let added = options.fetched_from.as_ref().map_or(0, |url| url.len() + 16);
            assert!(entity.len() <= options.entity_limit_bytes + added, "{} bytes: {entity}", entity.len());
            if options.fetched_from.is_some() {
                let entity = Value::parse_entity(entity).expect("an entity");
                assert!(entity.get("_source").is_some(), "{entity:?}");
            }
        }
        if let Some(error) = &self.error {
            assert!(!error.contains('\n') && error.len() < 4_096, "{error:?}");
        }
    }
}

/// Decodes a source that comes in pieces of `size` bytes.
pub fn decode(source: &[u8], size: usize, options: &DecodeOptions) -> Outcome {
    let input = SourceInput::stream(Pieces { bytes: source.to_vec(), at: 0, size });
    match open(input, options) {
        Ok((decoder, detected)) => read(decoder, Some(detected)),
        Err(error) => Outcome { detected: None, entities: Vec::new(), error: Some(said(&error)) },
    }
}

/// Decodes a pushed body that comes in pieces of `size` bytes; with it, what `dataset_id` is in the end.
pub fn decode_push(body: &[u8], size: usize, options: &DecodeOptions) -> (Outcome, Result<Option<u64>, String>) {
    let input = SourceInput::stream(Pieces { bytes: body.to_vec(), at: 0, size });
    match open_push(input, options, &["dataset_id"]) {
        Ok((decoder, fields)) => {
            let outcome = read(decoder, None);
            (outcome, fields.integer("dataset_id").map_err(|error| error.to_string()))
        }
        Err(error) => (Outcome { detected: None, entities: Vec::new(), error: Some(said(&error)) }, Ok(None)),
    }
}

fn read(mut decoder: Box<dyn Decode>, detected: Option<Detected>) -> Outcome {
    let mut outcome = Outcome { detected, entities: Vec::new(), error: None };
    let mut entity = Vec::new();
    loop {
        entity.clear();
        match decoder.next(&mut entity) {
            Ok(true) => outcome.entities.push(String::from_utf8(entity.clone()).expect("UTF-8")),
            Ok(false) => {
                assert!(entity.is_empty(), "the end appends nothing");
                return outcome;
            }
            Err(error) => {
                outcome.error = Some(said(&error));
                return outcome;
            }
        }
    }
}

/// What a source is told: never that this machine failed, for it reads from memory. (The text alone would not tell:
/// an error quotes the source.)
fn said(error: &SourceError) -> String {
    assert!(!matches!(error, SourceError::Io(_) | SourceError::Full(_)), "a failure of this machine: {error}");
    error.to_string()
}

/// The content without its packing, unpacked by the libraries at once; none if it is damaged or larger than the bound.
pub fn unpack(source: &[u8], compression: Compression, bound_bytes: u64) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    let mut reader: Box<dyn Read + '_> = match compression {
        Compression::None => Box::new(source),
        Compression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(source)),
        Compression::Zstd => Box::new(zstd::stream::read::Decoder::new(source).ok()?),
    };
    reader.by_ref().take(bound_bytes + 1).read_to_end(&mut content).ok()?;
    (content.len() as u64 <= bound_bytes).then_some(content)
}

struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    size: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = &self.bytes[self.at..];
        let count = self.size.min(rest.len()).min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}
