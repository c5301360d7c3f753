//! Encodes documents as the bytes of a response, with one file for each format.
//!
//! | format | encoder | needs the columns first |
//! |---|---|---|
//! | json, jsonl, xml | [`new_text_encoder`] | no |
//! | csv, tsv | [`new_text_encoder`] | yes |
//! | parquet | [`CellBatchBuilder`], then [`PendingRowGroup`], then [`ParquetFileStream`] | yes |
//! | arrow | [`CellBatchBuilder`], then [`ArrowStreamEncoder`] | yes |
//!
//! An encoder writes entity by entity, so a body can be streamed and its parts can be encoded separately. The output of
//! an entity does not depend on other entities. The input is canonical documents, not flattened.

mod arrow_stream;
mod buffer_pool;
mod compress;
mod delimited;
mod flattened;
mod json;
mod parquet;
mod row_buffer;
mod xml;
mod xml_names;
mod xml_tags;

pub use arrow_stream::ArrowStreamEncoder;
pub use compress::{BodyCompressor, ContentCoding, MIN_COMPRESSED_BODY_BYTES, compress_body};
pub use json::{JsonLayout, format_count_response, write_indented_entity};
pub use parquet::{
    CellBatch, CellBatchBuilder, CellBatchFactory, ColumnChunk, ColumnEncoder, ColumnType, ColumnTypeInference,
    ColumnTypesBuilder, ParquetFileStream, PendingRowGroup,
};

use std::sync::Arc;

use strata_json::TableColumnNames;
use strata_types::limits::MIN_ENCODED_EXPANSION;
use strata_types::read_request::{ReadRequest, ResponseFormat};

pub trait TextEncoder: Send + Sync {
    /// Writes the text before the first entity.
    fn write_header(&self, _contents: ListContents, _out: &mut Vec<u8>) {}

    /// Writes an entity, a canonical document, with its separator from the previous one. After an error, the output is
    /// unusable.
    fn write_entity(&self, document: &[u8], element: ListElement, out: &mut Vec<u8>) -> Result<(), EntityTooLarge>;

    fn write_footer(&self, _contents: ListContents, _out: &mut Vec<u8>) {}
}

/// Whether a response contains entities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListContents {
    Empty,
    NonEmpty,
}

impl ListContents {
    pub fn from_entity_count(entity_count: u64) -> ListContents {
        if entity_count == 0 { ListContents::Empty } else { ListContents::NonEmpty }
    }
}

/// Whether a separator precedes an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListElement {
    First,
    Later,
}

impl ListElement {
    pub fn from_ordinal(ordinal: u64) -> ListElement {
        if ordinal == 0 { ListElement::First } else { ListElement::Later }
    }
}

/// The maximum size of an encoded entity, which is in memory as a whole. Some formats repeat parts of an entity:
/// indentation repeats spaces for every value, flattened names repeat the keys of their parents, and XML repeats the
/// tag of an array for each element. So the encoded form of a small entity may not fit in memory.
#[derive(Clone, Copy, Debug)]
pub struct EncodedSizeLimit {
    max_bytes: usize,
}

/// An encoded entity would exceed `limits.encoded_entity_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entity would be larger than {limit_bytes} bytes")]
pub struct EntityTooLarge {
    pub limit_bytes: usize,
}

impl EncodedSizeLimit {
    /// Limits each encoded entity to `max_bytes`, or to four times the size of its document if that is more.
    pub fn new(max_bytes: u64) -> EncodedSizeLimit {
        EncodedSizeLimit { max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX) }
    }

    fn max_bytes_for(self, document_bytes: usize) -> usize {
        self.max_bytes.max(document_bytes.saturating_mul(MIN_ENCODED_EXPANSION))
    }

    fn check_size(self, document_bytes: usize, bytes: usize) -> Result<(), EntityTooLarge> {
        let limit_bytes = self.max_bytes_for(document_bytes);
        if bytes <= limit_bytes { Ok(()) } else { Err(EntityTooLarge { limit_bytes }) }
    }
}

/// An error of the Parquet or Arrow encoder, or of a compressor.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("parquet: {0}")]
    Parquet(#[from] ::parquet::errors::ParquetError),
    #[error("arrow: {0}")]
    Arrow(#[from] ::arrow::error::ArrowError),
    #[error("compression: {0}")]
    Compression(std::io::Error),
}

/// Creates the encoder of a request's format. `None` for Parquet and Arrow, which are not text.
///
/// `columns` are the columns of a table ([`ResponseFormat::is_table`]). Without them, a table has the column `_source`.
pub fn new_text_encoder(
    request: &ReadRequest,
    columns: Option<Arc<TableColumnNames>>,
    size_limit: EncodedSizeLimit,
) -> Option<Box<dyn TextEncoder>> {
    let ReadRequest { format, flatten, pretty, .. } = *request;
    Some(match format {
        ResponseFormat::Json if pretty => flatten_if(flatten, json::PrettyJsonEncoder(size_limit), size_limit),
        ResponseFormat::Json => flatten_if(flatten, json::CompactJsonEncoder, size_limit),
        ResponseFormat::Jsonl => flatten_if(flatten, json::JsonLinesEncoder, size_limit),
        ResponseFormat::Xml => flatten_if(flatten, xml::XmlEncoder::new(size_limit), size_limit),
        ResponseFormat::Csv => Box::new(delimited::DelimitedEncoder::new(b',', columns.unwrap_or_default())),
        ResponseFormat::Tsv => Box::new(delimited::DelimitedEncoder::new(b'\t', columns.unwrap_or_default())),
        ResponseFormat::Parquet | ResponseFormat::Arrow => return None,
    })
}

/// Whether the response is indented JSON without flattening, so that encoding an entity only indents it.
pub fn is_plain_indented_json(request: &ReadRequest) -> bool {
    request.format == ResponseFormat::Json && request.pretty && !request.flatten
}

fn flatten_if<E: TextEncoder + 'static>(flatten: bool, encoder: E, limit: EncodedSizeLimit) -> Box<dyn TextEncoder> {
    if flatten { Box::new(flattened::FlatteningEncoder::new(encoder, limit)) } else { Box::new(encoder) }
}
