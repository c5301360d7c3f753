//! Fetches, decompresses, and decodes sources. Each step streams from the previous one, so that memory is limited:
//!
//! 1. [`SourceClient`] checks a URL and fetches it over HTTP (`http_fetch`) or from the store (`object_source`).
//!    [`SourceInput`] is a response, a local file, or a request body, and counts the bytes read ([`ReadProgress`]).
//! 2. `decompression` detects gzip and Zstandard by the first bytes.
//! 3. `format_detection` chooses the format.
//! 4. A decoder finds the items: `json`, `jsonl`, `delimited` (CSV and TSV), or `parquet`, which copies a stream to a
//!    temporary file because it needs random access. [`open_push_decoder`] accepts a JSON body with further fields
//!    (`envelope`).
//! 5. `entity_writer` writes each item as canonical text and adds the missing `_source`.
//!
//! The decoders are synchronous and must run on a thread that may block. The rules for users are in
//! docs/reference/paths-and-values.md and docs/reference/import-semantics.md.

mod body_receiver;
mod decompression;
mod delimited;
pub mod egress;
mod entity_writer;
mod envelope;
mod error;
mod expansion_guard;
mod format_detection;
mod http_fetch;
mod json;
mod jsonl;
mod object_source;
mod parquet;
mod source_client;
mod source_input;

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;

use bytes::Bytes;
use strata_store::spool_quota::{PrincipalSpoolQuota, SpoolReservation};
use strata_store::temp_file;
use strata_types::field_path::FieldPath;
use strata_types::limits::MAX_BYTES_BEFORE_BRACE;
use strata_types::source::{SourceCompression, SourceFormat};
use tokio_util::sync::CancellationToken;

pub use self::body_receiver::{BodyReceiver, ReceiveError, ReceivedBody};
pub use self::envelope::EnvelopeFields;
pub use self::error::{SourceError, SourcePosition};
pub use self::expansion_guard::ExpansionLimits;
pub use self::format_detection::has_object_per_line;
pub use self::source_client::{ObjectSourceStore, SourceClient};
pub use self::source_input::{FetchLimits, FetchOutcome, FetchedSource, MinTransferRate, ReadProgress, SourceInput};

use self::entity_writer::EntityWriter;
use self::expansion_guard::ExpansionGuard;
use self::source_input::{BlockingChunkReader, CountingReader, ExpansionStage, ReadWindow, SourceBody};

pub trait EntityDecoder: Send {
    /// Appends the canonical text of the next entity to `out`, without a line end. Returns `false` at the end. After an
    /// error, the caller must discard `out` and all earlier entities, because a source yields a whole version or none.
    fn next_entity(&mut self, out: &mut Vec<u8>) -> Result<bool, SourceError>;

    /// Returns warnings for the sender. They are complete after the last entity.
    fn warnings(&self) -> &[String] {
        &[]
    }
}

#[derive(Debug, Clone)]
pub struct DecodeOptions {
    pub format: Option<SourceFormat>,
    /// The path of the records array in a JSON document; `None` if the document is the array.
    pub records_path: Option<FieldPath>,
    pub infer_types: TypeInference,
    /// The `_source` to add to entities without one ([`FetchedSource::published_url`]); `None` for files and pushes.
    pub source_url: Option<String>,
    pub max_entity_bytes: usize,
    /// The maximum size of a source, both compressed and decompressed (`sources.max_bytes`); 0 means no limit.
    pub max_source_bytes: u64,
    pub expansion_limits: ExpansionLimits,
    /// The maximum window of a Zstandard frame (`sources.zstd_window_bytes`).
    pub zstd_window_bytes: u64,
    pub max_columns: usize,
    pub parquet_memory_bytes: u64,
    /// The number of bytes to read at once, at least 1. The window becomes larger only for a larger entity.
    pub window_bytes: usize,
    pub spool_directory: PathBuf,
    pub spool_account: PrincipalSpoolQuota,
    /// Cancelled when the entities are no longer needed. Reads then return [`SourceError::Interrupted`].
    pub cancellation: CancellationToken,
}

/// The conversion of CSV and TSV cells to JSON types (docs/reference/import-semantics.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TypeInference {
    #[default]
    Off,
    /// Cells that are exactly JSON numbers, booleans, or empty become numbers, booleans, or null.
    Tables,
    /// Infers types like `Tables`, but rejects formats other than CSV and TSV, because the sender declared a table.
    TablesOnly,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        let defaults = strata_config::SourceConfig::default();
        Self {
            format: None,
            records_path: None,
            infer_types: TypeInference::Off,
            source_url: None,
            max_entity_bytes: 16 * 1024 * 1024,
            max_source_bytes: 0,
            expansion_limits: ExpansionLimits::default(),
            zstd_window_bytes: defaults.zstd_window_bytes,
            max_columns: usize::try_from(defaults.max_columns).unwrap_or(usize::MAX),
            parquet_memory_bytes: defaults.parquet_memory_bytes,
            window_bytes: 512 * 1024,
            spool_directory: std::env::temp_dir(),
            spool_account: PrincipalSpoolQuota::unbounded(),
            cancellation: CancellationToken::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DetectedFormat {
    pub format: SourceFormat,
    pub compression: SourceCompression,
}

/// Starts decoding. Blocks while it reads the bytes for format detection, a table header, or a whole Parquet stream.
pub fn open_decoder(
    input: SourceInput,
    options: &DecodeOptions,
) -> Result<(Box<dyn EntityDecoder>, DetectedFormat), SourceError> {
    open_decoder_with_envelope(input, options, None)
}

/// Starts decoding a pushed JSON body: an object with the array `entities` and optionally the members in `fields`, in
/// any order. Other members are [`SourceError::InvalidBody`]. Ignores the format and records path in `options`.
pub fn open_push_decoder(
    input: SourceInput,
    options: &DecodeOptions,
    fields: &[&'static str],
) -> Result<(Box<dyn EntityDecoder>, EnvelopeFields), SourceError> {
    let fields = EnvelopeFields::new(fields);
    let options = DecodeOptions { format: Some(SourceFormat::Json), records_path: None, ..options.clone() };
    let (decoder, _) = open_decoder_with_envelope(input, &options, Some(fields.clone()))?;
    Ok((decoder, fields))
}

/// Expansion limits for decoding only the beginning of a document, so that callers do not wait for decompression bombs.
const HEAD_EXPANSION_LIMITS: ExpansionLimits = ExpansionLimits { max_ratio: 1, free_bytes: 1 << 20 };

/// Returns the members `fields` in the beginning of a pushed JSON body, up to the first error.
pub fn parse_envelope_head(head: &[u8], fields: &[&'static str]) -> EnvelopeFields {
    let options = DecodeOptions {
        max_entity_bytes: head.len(),
        expansion_limits: HEAD_EXPANSION_LIMITS,
        ..DecodeOptions::default()
    };
    let input = SourceInput::from_reader(io::Cursor::new(head.to_vec()));
    let Ok((mut decoder, fields_found)) = open_push_decoder(input, &options, fields) else {
        return EnvelopeFields::new(fields);
    };
    let mut entities = Vec::new();
    while let Ok(true) = decoder.next_entity(&mut entities) {
        entities.clear();
    }
    fields_found
}

/// Returns whether the first [`MAX_BYTES_BEFORE_BRACE`] bytes of a document, decompressed, start with an object.
pub fn begins_with_object(head: &[u8]) -> bool {
    let expansion = ExpansionGuard::new(HEAD_EXPANSION_LIMITS);
    let head = &head[..head.len().min(MAX_BYTES_BEFORE_BRACE)];
    let input = Box::new(io::Cursor::new(head.to_vec()));
    let Ok((decompressed, _)) = decompression::decompress(input, &DecodeOptions::default(), &expansion) else {
        return false;
    };
    let mut text = Vec::new();
    // If the stream is truncated or damaged, the bytes before the damage are already in `text`.
    let _ = decompressed.take(MAX_BYTES_BEFORE_BRACE as u64).read_to_end(&mut text);
    let text = text.strip_prefix(UTF8_BOM).unwrap_or(&text);
    text.trim_ascii_start().starts_with(b"{")
}

fn open_decoder_with_envelope(
    input: SourceInput,
    options: &DecodeOptions,
    envelope: Option<EnvelopeFields>,
) -> Result<(Box<dyn EntityDecoder>, DetectedFormat), SourceError> {
    let SourceInput { body, name, content_type, progress, is_progress_counted } = input;
    let (stream, file): (Box<dyn Read + Send>, Option<File>) = match body {
        SourceBody::File(file) => (Box::new(file.try_clone().map_err(SourceError::Io)?), Some(file)),
        SourceBody::Reader(stream) => (stream, None),
        SourceBody::Chunks(chunks) => (Box::new(BlockingChunkReader { chunks, current_chunk: Bytes::new() }), None),
    };
    let expansion = ExpansionGuard::new(options.expansion_limits);
    let progress = (!is_progress_counted).then_some(progress);
    let stage = ExpansionStage::Received(expansion.clone());
    let counted = CountingReader::new(stream, progress.clone(), stage, options);
    let (decompressed, compression) = decompression::decompress(Box::new(counted), options, &expansion)?;
    let mut window = ReadWindow::new(Box::new(decompressed), options.window_bytes);
    while window.unread().len() < UTF8_BOM.len() && window.fill()? {}
    if window.unread().starts_with(UTF8_BOM) {
        window.consume(UTF8_BOM.len());
    }
    while !format_detection::is_enough_to_detect(window.unread(), options.format) && window.fill()? {}
    if options.format.is_none() {
        fill_for_detection(&mut window, options.max_entity_bytes)?;
    }
    let detected = format_detection::detect_format(&format_detection::FormatEvidence {
        requested: options.format,
        file_name: name.as_deref(),
        content_type: content_type.as_deref(),
        has_records_path: options.records_path.is_some(),
        head: window.unread(),
    });
    let format = detected.map_err(|error| match (error, &envelope) {
        (SourceError::InvalidDocument { reason, .. }, Some(_)) => SourceError::InvalidBody { reason },
        (error, _) => error,
    })?;

    if options.infer_types == TypeInference::TablesOnly && !matches!(format, SourceFormat::Csv | SourceFormat::Tsv) {
        let reason = format!("`infer_types` applies only to csv and tsv, but the format is {}; omit it", format.name());
        return Err(SourceError::InvalidBody { reason });
    }
    let infer = options.infer_types != TypeInference::Off;
    let writer = EntityWriter::new(options.max_entity_bytes, options.source_url.as_deref(), expansion.clone());
    let decoder: Box<dyn EntityDecoder> = match format {
        SourceFormat::Json => Box::new(json::JsonDecoder::new(window, writer, options.records_path.as_ref(), envelope)),
        SourceFormat::Jsonl => Box::new(jsonl::JsonlDecoder::new(window, writer)),
        SourceFormat::Csv | SourceFormat::Tsv => {
            let delimiter = if format == SourceFormat::Csv { b',' } else { b'\t' };
            Box::new(delimited::DelimitedDecoder::try_new(window, writer, delimiter, options.max_columns, infer)?)
        }
        SourceFormat::Parquet => match file {
            Some(file) if compression == SourceCompression::None => {
                expansion.set_received(file.metadata().map_err(SourceError::Io)?.len());
                if let Some(progress) = &progress {
                    progress.set_read_bytes(0);
                }
                Box::new(parquet::ParquetDecoder::try_new(file, None, writer, options, &expansion, progress)?)
            }
            _ => {
                let (copy, reservation) = spool_to_file(window, options)?;
                Box::new(parquet::ParquetDecoder::try_new(copy, Some(reservation), writer, options, &expansion, None)?)
            }
        },
    };
    Ok((decoder, DetectedFormat { format, compression }))
}

const UTF8_BOM: &[u8] = b"\xef\xbb\xbf";

/// Reads the bytes that format detection needs: the first line and one more character, unless the first byte decides.
fn fill_for_detection(window: &mut ReadWindow, max_entity_bytes: usize) -> Result<(), SourceError> {
    while !window.is_at_end && window.unread().len() <= max_entity_bytes {
        let content = window.unread().trim_ascii_start();
        if content.starts_with(b"[") || format_detection::is_parquet(content) {
            break;
        }
        let line_end = memchr::memchr2(b'\n', b'\r', content);
        if line_end.is_some_and(|end| !content[end..].trim_ascii_start().is_empty()) {
            break;
        }
        window.fill()?;
    }
    Ok(())
}

/// Copies the rest of a stream to an unnamed temporary file, and reserves the disk space.
fn spool_to_file(mut window: ReadWindow, options: &DecodeOptions) -> Result<(File, SpoolReservation), SourceError> {
    let mut reservation = options.spool_account.new_reservation();
    let mut file = temp_file::create_temp_file(&options.spool_directory).map_err(SourceError::Io)?;
    loop {
        let chunk = window.unread();
        reservation.try_grow(chunk.len() as u64)?;
        file.write_all(chunk).map_err(SourceError::Io)?;
        window.consume(chunk.len());
        if !window.fill()? {
            break;
        }
    }
    file.rewind().map_err(SourceError::Io)?;
    Ok((file, reservation))
}
