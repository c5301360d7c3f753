//! Decoding of a whole source, with the checks that apply to every source.

use std::io::{self, Read};

use strata_ingest::{
    DecodeOptions, DetectedFormat, EntityDecoder, SourceError, SourceInput, open_decoder, open_push_decoder,
};
use strata_reference::Value;
use strata_types::source::SourceCompression;

/// The result of decoding a source.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodeResult {
    pub detected: Option<DetectedFormat>,
    pub entities: Vec<String>,
    pub error: Option<String>,
}

impl DecodeResult {
    /// Asserts that entities are canonical, within the size limit, and have a `_source` if required, and that an error
    /// is one line.
    pub fn assert_valid(&self, options: &DecodeOptions) {
        for entity in &self.entities {
            let mut canonical = Vec::new();
            strata_json::canonicalize(entity.as_bytes(), &mut canonical).expect("an entity");
            assert_eq!(canonical, entity.as_bytes(), "canonical");
            let added = options.source_url.as_ref().map_or(0, |url| url.len() + 16);
            assert!(entity.len() <= options.max_entity_bytes + added, "{} bytes: {entity}", entity.len());
            if options.source_url.is_some() {
                let entity = Value::parse_entity(entity).expect("an entity");
                assert!(entity.get("_source").is_some(), "{entity:?}");
            }
        }
        if let Some(error) = &self.error {
            assert!(!error.contains('\n') && error.len() < 4_096, "{error:?}");
        }
    }
}

/// Decodes a source that arrives in chunks of `size` bytes.
pub fn decode(source: &[u8], size: usize, options: &DecodeOptions) -> DecodeResult {
    let input = SourceInput::from_reader(ChunkReader { bytes: source.to_vec(), at: 0, size });
    match open_decoder(input, options) {
        Ok((decoder, detected)) => read(decoder, Some(detected)),
        Err(error) => DecodeResult { detected: None, entities: Vec::new(), error: Some(error_text(&error)) },
    }
}

/// Decodes a pushed body that arrives in chunks of `size` bytes. Also returns the final value of `dataset_id`.
pub fn decode_push(body: &[u8], size: usize, options: &DecodeOptions) -> (DecodeResult, Result<Option<u64>, String>) {
    let input = SourceInput::from_reader(ChunkReader { bytes: body.to_vec(), at: 0, size });
    match open_push_decoder(input, options, &["dataset_id"]) {
        Ok((decoder, fields)) => {
            let outcome = read(decoder, None);
            (outcome, fields.integer("dataset_id").map_err(|error| error.to_string()))
        }
        Err(error) => {
            (DecodeResult { detected: None, entities: Vec::new(), error: Some(error_text(&error)) }, Ok(None))
        }
    }
}

fn read(mut decoder: Box<dyn EntityDecoder>, detected: Option<DetectedFormat>) -> DecodeResult {
    let mut outcome = DecodeResult { detected, entities: Vec::new(), error: None };
    let mut entity = Vec::new();
    loop {
        entity.clear();
        match decoder.next_entity(&mut entity) {
            Ok(true) => outcome.entities.push(String::from_utf8(entity.clone()).expect("UTF-8")),
            Ok(false) => {
                assert!(entity.is_empty(), "the end appends nothing");
                return outcome;
            }
            Err(error) => {
                outcome.error = Some(error_text(&error));
                return outcome;
            }
        }
    }
}

/// Returns the text of an error. Reading from memory cannot fail, so I/O errors are findings. (The text alone is not
/// enough to detect them, because errors quote the source.)
fn error_text(error: &SourceError) -> String {
    assert!(
        !matches!(error, SourceError::Io(_) | SourceError::DiskQuotaExceeded(_)),
        "I/O error while reading from memory: {error}"
    );
    error.to_string()
}

/// Decompresses the whole content with the compression library; `None` if it is damaged or larger than `max_bytes`.
pub fn unpack(source: &[u8], compression: SourceCompression, max_bytes: u64) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    let mut reader: Box<dyn Read + '_> = match compression {
        SourceCompression::None => Box::new(source),
        SourceCompression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(source)),
        SourceCompression::Zstd => Box::new(zstd::stream::read::Decoder::new(source).ok()?),
    };
    reader.by_ref().take(max_bytes + 1).read_to_end(&mut content).ok()?;
    (content.len() as u64 <= max_bytes).then_some(content)
}

struct ChunkReader {
    bytes: Vec<u8>,
    at: usize,
    size: usize,
}

impl Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = &self.bytes[self.at..];
        let count = self.size.min(rest.len()).min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}
