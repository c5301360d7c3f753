//! Encodes documents as the bytes of a response, with one file for each format.
//!
//! | format | encoder | needs the columns first |
//! |---|---|---|
//! | json, jsonl, xml | [`text_encoder`] | no |
//! | csv, tsv | [`text_encoder`] | yes |
//! | parquet | [`BatchBuilder`], then [`RowGroup`], then [`ParquetStream`] | yes |
//!
//! An encoder writes entity by entity, so a body can be streamed and its parts can be encoded separately. It has no
//! state between entities that changes its output. Entities are canonical documents, not flattened.

mod compress;
mod delimited;
mod flattened;
mod json;
mod parquet;
mod pool;
mod row;
mod tag;
mod xml;
mod xml_names;

pub use compress::{Compressor, ContentCoding, LEAST_COMPRESSED_BYTES, compress};
pub use json::{count, indented_entity};
pub use parquet::{
    Batch, BatchBuilder, Batches, ColumnChunk, ColumnEncoder, ColumnType, ParquetStream, RowGroup, TypesBuilder, Typing,
};

use std::sync::Arc;

use strata_json::Columns;
use strata_types::limits::ENCODED_EXPANSION;
use strata_types::request::{Format, ReadRequest};

/// Writes the entities of a response.
pub trait Encode: Send + Sync {
    /// Writes the text before the first entity. `empty` is whether there are no entities.
    fn begin(&self, _empty: bool, _out: &mut Vec<u8>) {}

    /// Writes an entity, a canonical document, with its separator from the previous one.
    ///
    /// # Errors
    /// [`EntityTooLarge`]. The output is then unusable.
    fn entity(&self, document: &[u8], first: bool, out: &mut Vec<u8>) -> Result<(), EntityTooLarge>;

    /// Writes the text after the last entity.
    fn end(&self, _empty: bool, _out: &mut Vec<u8>) {}
}

/// The maximum size of an encoded entity, which is in memory as a whole. Some formats repeat parts of an entity:
/// indentation repeats spaces for every value, flattened names repeat the keys of their parents, and XML repeats the
/// tag of an array for each element. So a small entity can have a form that does not fit in memory.
#[derive(Clone, Copy, Debug)]
pub struct EntityBound {
    max_bytes: usize,
}

/// An encoded entity would exceed `limits.encoded_entity_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entity would be larger than {limit_bytes} bytes")]
pub struct EntityTooLarge {
    pub limit_bytes: usize,
}

impl EntityBound {
    /// This many bytes, or four times the size of the document if that is more.
    pub fn new(max_bytes: u64) -> EntityBound {
        EntityBound { max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX) }
    }

    fn bytes(self, document_bytes: usize) -> usize {
        self.max_bytes.max(document_bytes.saturating_mul(ENCODED_EXPANSION))
    }

    fn check(self, document_bytes: usize, bytes: usize) -> Result<(), EntityTooLarge> {
        let limit_bytes = self.bytes(document_bytes);
        if bytes <= limit_bytes { Ok(()) } else { Err(EntityTooLarge { limit_bytes }) }
    }
}

/// Text formats cannot fail.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("parquet: {0}")]
    Parquet(#[from] ::parquet::errors::ParquetError),
    #[error("compression: {0}")]
    Compression(std::io::Error),
}

/// The encoder of a request's format. `None` for Parquet, which is not text.
///
/// `columns` are the columns of a table ([`Format::is_table`]). Without them, a table has the column `_source`.
pub fn text_encoder(
    request: &ReadRequest,
    columns: Option<Arc<Columns>>,
    bound: EntityBound,
) -> Option<Box<dyn Encode>> {
    Some(match request.format {
        Format::Json if request.pretty => flattened_if(request.flatten, json::Pretty(bound), bound),
        Format::Json => flattened_if(request.flatten, json::Compact, bound),
        Format::Jsonl => flattened_if(request.flatten, json::Jsonl, bound),
        Format::Xml => flattened_if(request.flatten, xml::Xml::new(bound), bound),
        Format::Csv => Box::new(delimited::Delimited::new(b',', columns.unwrap_or_default())),
        Format::Tsv => Box::new(delimited::Delimited::new(b'\t', columns.unwrap_or_default())),
        Format::Parquet => return None,
    })
}

/// Whether encoding an entity only indents it as an element of an array.
pub fn indents_documents(request: &ReadRequest) -> bool {
    request.format == Format::Json && request.pretty && !request.flatten
}

fn flattened_if<E: Encode + 'static>(flatten: bool, encoder: E, bound: EntityBound) -> Box<dyn Encode> {
    if flatten { Box::new(flattened::Flattened::new(encoder, bound)) } else { Box::new(encoder) }
}
