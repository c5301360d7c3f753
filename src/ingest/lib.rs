//! From a source to entities: fetch, decompress, decode. Each step is a stream over the one before, so memory is
//! bounded for any size:
//!
//! 1. [`SourceClient`] checks a URL, and asks a server (`fetch`) or the store (`object`). [`SourceInput`] is that body,
//!    a local file or the body of a request, and counts the bytes that pass ([`Progress`]).
//! 2. `compression` looks at the first bytes and unpacks gzip and Zstandard.
//! 3. `detect` decides on the format.
//! 4. One decoder per format finds the items: `json`, `jsonl`, `delimited` (CSV and TSV), `parquet` (which needs a
//!    file, so a stream is copied to a temporary one). [`open_push`] takes a JSON body that holds more than the
//!    entities (`envelope`).
//! 5. `entity` makes each item canonical and gives it the `_source` that it lacks.
//!
//! The decoders are synchronous and run on a thread that may block. Rules: docs/reference/paths-and-values.md, Entities
//! and values; docs/reference/import-semantics.md, Sources.

mod client;
mod compression;
mod delimited;
mod detect;
mod entity;
mod envelope;
mod error;
mod expansion;
mod fetch;
mod input;
mod json;
mod jsonl;
pub mod net;
mod object;
mod parquet;
mod receive;

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;

use bytes::Bytes;
use strata_store::budget::{SpoolAccount, SpoolCharge};
use strata_store::temporary;
use strata_types::limits::BRACKET_WITHIN_BYTES;
use strata_types::path::Path;
use strata_types::source::{Compression, SourceFormat};
use tokio_util::sync::CancellationToken;

pub use self::client::{ObjectSources, SourceClient};
pub use self::detect::has_objects_as_lines;
pub use self::envelope::EnvelopeFields;
pub use self::error::{Place, SourceError};
pub use self::expansion::ExpansionLimits;
pub use self::input::{FetchLimits, Fetched, LeastRate, Opened, Progress, SourceInput};
pub use self::receive::{ReceiveError, Received, Receiver};

use self::entity::EntityWriter;
use self::expansion::Expansion;
use self::input::{Body, Counted, CountingReader, StreamReader, Window};

pub trait Decode: Send {
    /// Appends the next entity's canonical compact text to `out`: a complete object, nothing else, not
    /// even a line end. False at the end, with `out` as it was.
    ///
    /// After an error the source cannot be used. Drop the bytes that `out` got in that call, and all earlier entities:
    /// a source gives a whole version or none (docs/reference/refreshes.md, A version or nothing).
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, SourceError>;

    /// Warnings for the sender of a source that can be decoded. They are complete at the end.
    fn warnings(&self) -> &[String] {
        &[]
    }
}

#[derive(Debug, Clone)]
pub struct DecodeOptions {
    pub format: Option<SourceFormat>,
    /// Where in a json document the array of records is, inside objects; none if it is the document itself.
    pub records_path: Option<Path>,
    pub infer_types: InferTypes,
    /// The `_source` ([`Fetched::published_url`]) of entities without one; none for local files and pushes.
    pub fetched_from: Option<String>,
    /// The most bytes that one entity may have (`limits.entity_bytes`).
    pub entity_limit_bytes: usize,
    /// The most bytes that a source may have, compressed or not (`sources.max_bytes`); 0 is no limit.
    pub source_limit_bytes: u64,
    pub expansion: ExpansionLimits,
    /// The most bytes of history that a Zstandard frame may need (`sources.zstd_window_bytes`).
    pub zstd_window_bytes: u64,
    /// The most columns that a table may have (`sources.max_columns`).
    pub columns_max: usize,
    /// The most bytes of memory that decoding Parquet may take (`sources.parquet_memory_bytes`).
    pub parquet_memory_bytes: u64,
    /// Bytes read at a time, at least 1. The window grows past it only for a longer entity.
    pub window_bytes: usize,
    /// Where the temporary copy of a Parquet stream is written, without a name.
    pub spool_directory: PathBuf,
    pub spool_account: SpoolAccount,
    /// Cancelled when the entities are no longer needed. Reading then ends with [`SourceError::Interrupted`].
    pub cancelled: CancellationToken,
}

/// What cells of csv and tsv become (docs/reference/import-semantics.md, Sources).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InferTypes {
    #[default]
    No,
    /// Numbers, booleans and nulls, where they are exactly that. Other formats have their own types.
    Tables,
    /// The same, and another format is refused, because the sender declared a table.
    TablesOnly,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        let defaults = strata_config::Sources::default();
        Self {
            format: None,
            records_path: None,
            infer_types: InferTypes::No,
            fetched_from: None,
            entity_limit_bytes: 16 * 1024 * 1024,
            source_limit_bytes: 0,
            expansion: ExpansionLimits::default(),
            zstd_window_bytes: defaults.zstd_window_bytes,
            columns_max: usize::try_from(defaults.max_columns).unwrap_or(usize::MAX),
            parquet_memory_bytes: defaults.parquet_memory_bytes,
            window_bytes: 512 * 1024,
            spool_directory: std::env::temp_dir(),
            spool_account: SpoolAccount::unbounded(),
            cancelled: CancellationToken::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detected {
    pub format: SourceFormat,
    pub compression: Compression,
}

/// Starts decoding: reads what detection needs, a table's header, or all of a Parquet stream. Blocks meanwhile.
pub fn open(input: SourceInput, options: &DecodeOptions) -> Result<(Box<dyn Decode>, Detected), SourceError> {
    open_as(input, options, None)
}

/// Starts decoding a pushed JSON body: an object whose member `entities` is the array, with the members `fields` before
/// or after it, and no others ([`SourceError::BadBody`]). The format and the records path of `options` do not count.
/// Blocks while it reads.
pub fn open_push(
    input: SourceInput,
    options: &DecodeOptions,
    fields: &[&'static str],
) -> Result<(Box<dyn Decode>, EnvelopeFields), SourceError> {
    let fields = EnvelopeFields::new(fields);
    let options = DecodeOptions { format: Some(SourceFormat::Json), records_path: None, ..options.clone() };
    let (decoder, _) = open_as(input, &options, Some(fields.clone()))?;
    Ok((decoder, fields))
}

/// How far the beginning of a document is unpacked: callers do not wait for bombs.
const HEAD_EXPANSION: ExpansionLimits = ExpansionLimits { times: 1, free_bytes: 1 << 20 };

/// The members `fields` in the beginning of a pushed JSON body. Later members, and those behind an error, are left out.
pub fn envelope_of_head(head: &[u8], fields: &[&'static str]) -> EnvelopeFields {
    let options =
        DecodeOptions { entity_limit_bytes: head.len(), expansion: HEAD_EXPANSION, ..DecodeOptions::default() };
    let input = SourceInput::stream(io::Cursor::new(head.to_vec()));
    let Ok((mut decoder, found)) = open_push(input, &options, fields) else { return EnvelopeFields::new(fields) };
    let mut entities = Vec::new();
    // The first error ends the beginning.
    while let Ok(true) = decoder.next(&mut entities) {
        entities.clear();
    }
    found
}

/// Whether a document begins with an object, by its first [`BRACKET_WITHIN_BYTES`], unpacked.
pub fn begins_with_object(head: &[u8]) -> bool {
    let expansion = Expansion::new(HEAD_EXPANSION);
    let head = &head[..head.len().min(BRACKET_WITHIN_BYTES)];
    let input = Box::new(io::Cursor::new(head.to_vec()));
    let Ok((unpacked, _)) = compression::decompress(input, &DecodeOptions::default(), &expansion) else { return false };
    let mut text = Vec::new();
    // A cut or damaged stream has already yielded its beginning.
    let _ = unpacked.take(BRACKET_WITHIN_BYTES as u64).read_to_end(&mut text);
    let text = text.strip_prefix(MARK).unwrap_or(&text);
    text.trim_ascii_start().starts_with(b"{")
}

fn open_as(
    input: SourceInput,
    options: &DecodeOptions,
    envelope: Option<EnvelopeFields>,
) -> Result<(Box<dyn Decode>, Detected), SourceError> {
    let SourceInput { body, name, content_type, progress, is_received } = input;
    let (stream, file): (Box<dyn Read + Send>, Option<File>) = match body {
        Body::File(file) => (Box::new(file.try_clone().map_err(SourceError::Io)?), Some(file)),
        Body::Stream(stream) => (stream, None),
        Body::Chunks(chunks) => (Box::new(StreamReader { chunks: *chunks, chunk: Bytes::new() }), None),
    };
    let expansion = Expansion::new(options.expansion);
    let shown = (!is_received).then(|| progress.clone());
    let came = Counted::Came(expansion.clone());
    let counted = CountingReader::new(stream, shown.clone(), came, options);
    let (unpacked, compression) = compression::decompress(Box::new(counted), options, &expansion)?;
    let mut window = Window::new(Box::new(unpacked), options.window_bytes);
    while window.unread().len() < MARK.len() && window.fill()? {}
    if window.unread().starts_with(MARK) {
        window.consume(MARK.len());
    }
    while !detect::has_head(window.unread(), options.format) && window.fill()? {}
    if options.format.is_none() {
        read_for_detection(&mut window, options.entity_limit_bytes)?;
    }
    let detected = detect::detect(&detect::Evidence {
        asked: options.format,
        name: name.as_deref(),
        content_type: content_type.as_deref(),
        has_records_path: options.records_path.is_some(),
        content: window.unread(),
    });
    let format = detected.map_err(|error| match (error, &envelope) {
        (SourceError::BadDocument { reason, .. }, Some(_)) => SourceError::BadBody { reason },
        (error, _) => error,
    })?;

    if options.infer_types == InferTypes::TablesOnly && !matches!(format, SourceFormat::Csv | SourceFormat::Tsv) {
        let reason = format!("`infer_types` applies only to csv and tsv, but the format is {}; omit it", format.name());
        return Err(SourceError::BadBody { reason });
    }
    let infers = options.infer_types != InferTypes::No;
    let fetched_from = options.fetched_from.as_deref();
    let writer = EntityWriter::new(options.entity_limit_bytes, fetched_from, expansion.clone());
    let decoder: Box<dyn Decode> = match format {
        SourceFormat::Json => Box::new(json::JsonDecoder::new(window, writer, options.records_path.as_ref(), envelope)),
        SourceFormat::Jsonl => Box::new(jsonl::JsonlDecoder::new(window, writer)),
        SourceFormat::Csv | SourceFormat::Tsv => {
            let delimiter = if format == SourceFormat::Csv { b',' } else { b'\t' };
            Box::new(delimited::DelimitedDecoder::try_new(window, writer, delimiter, options.columns_max, infers)?)
        }
        SourceFormat::Parquet => match file {
            Some(file) if compression == Compression::None => {
                expansion.came_in_all(file.metadata().map_err(SourceError::Io)?.len());
                if let Some(progress) = &shown {
                    progress.set(0);
                }
                Box::new(parquet::ParquetDecoder::try_new(file, None, writer, options, &expansion, shown)?)
            }
            _ => {
                let (copy, charge) = spool(window, options)?;
                Box::new(parquet::ParquetDecoder::try_new(copy, Some(charge), writer, options, &expansion, None)?)
            }
        },
    };
    Ok((decoder, Detected { format, compression }))
}

const MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads as much as detection looks at: the first line and one character after it, unless the first byte decides.
fn read_for_detection(window: &mut Window, entity_limit_bytes: usize) -> Result<(), SourceError> {
    while !window.ended && window.unread().len() <= entity_limit_bytes {
        let content = window.unread().trim_ascii_start();
        if content.starts_with(b"[") || detect::is_parquet(content) {
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

/// Copies the rest of a stream to a temporary file without a name, and charges the disk that it takes.
fn spool(mut window: Window, options: &DecodeOptions) -> Result<(File, SpoolCharge), SourceError> {
    let mut charge = options.spool_account.charge();
    let mut file = temporary::file_in(&options.spool_directory).map_err(SourceError::Io)?;
    loop {
        let chunk = window.unread();
        charge.add(chunk.len() as u64)?;
        file.write_all(chunk).map_err(SourceError::Io)?;
        window.consume(chunk.len());
        if !window.fill()? {
            break;
        }
    }
    file.rewind().map_err(SourceError::Io)?;
    Ok((file, charge))
}
