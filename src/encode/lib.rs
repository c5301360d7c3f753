//! Encodes documents as the bytes of an answer, with one file per format.
//!
//! | format | written by | needs the columns first |
//! |---|---|---|
//! | json, jsonl, xml | [`text_encoder`] | no |
//! | csv, tsv | [`text_encoder`] | yes |
//! | parquet | [`BatchBuilder`], then [`RowGroup`], then [`ParquetStream`] | yes |
//!
//! An encoder writes entity by entity, so a body can be streamed and its parts can be encoded separately. It keeps no
//! state between entities that changes its output. The caller tells it whether an entity is the first. Entities are
//! canonical documents, not flattened. The columns of a table come from a
//! [`ColumnsBuilder`](strata_json::ColumnsBuilder).

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

/// Writes the entities of an answer.
pub trait Encode: Send + Sync {
    /// Writes what comes before the first entity; `empty` when there is none.
    fn begin(&self, _empty: bool, _out: &mut Vec<u8>) {}

    /// Writes one entity, a canonical document, with what separates it from the one before.
    ///
    /// # Errors
    /// [`EntityTooLarge`]. The output is then unusable.
    fn entity(&self, document: &[u8], first: bool, out: &mut Vec<u8>) -> Result<(), EntityTooLarge>;

    /// Writes what comes after the last entity; `empty` when there is none.
    fn end(&self, _empty: bool, _out: &mut Vec<u8>) {}
}

/// Bounds the size of an entity as it is written, for it is written as a whole. Some forms of an answer repeat parts of
/// an entity: indentation repeats blanks for every value, flattened names repeat the keys above them, and XML repeats
/// the tag of an array for each of its elements. So a small entity can have a form that fits into no memory.
#[derive(Clone, Copy, Debug)]
pub struct EntityBound {
    most_bytes: usize,
}

/// An entity would take more bytes than it may (`limits.encoded_entity_bytes`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entity would be larger than {limit_bytes} bytes")]
pub struct EntityTooLarge {
    pub limit_bytes: usize,
}

impl EntityBound {
    /// A bound of this many bytes, or four times the entity's JSON if that is more.
    pub fn new(most_bytes: u64) -> EntityBound {
        EntityBound { most_bytes: usize::try_from(most_bytes).unwrap_or(usize::MAX) }
    }

    fn bytes(self, document_bytes: usize) -> usize {
        self.most_bytes.max(document_bytes.saturating_mul(ENCODED_EXPANSION))
    }

    fn check(self, document_bytes: usize, bytes: usize) -> Result<(), EntityTooLarge> {
        let limit_bytes = self.bytes(document_bytes);
        if bytes <= limit_bytes { Ok(()) } else { Err(EntityTooLarge { limit_bytes }) }
    }
}

/// An answer could not be encoded. The text formats cannot fail.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("parquet: {0}")]
    Parquet(#[from] ::parquet::errors::ParquetError),
    #[error("compression: {0}")]
    Compression(std::io::Error),
    /// A page is larger than Parquet's sizes are.
    #[error("parquet: a page is larger than 2 GiB")]
    PageTooLarge,
}

/// The encoder of a request's format; `None` for Parquet, which is not text.
///
/// `columns` are those of the answer, for a table ([`Format::is_table`]). Without them a table has the column
/// `_source`. No entity takes more bytes than `bound` allows.
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

/// Whether all that a request's format does to an entity is to indent it as an element of an array.
pub fn indents_documents(request: &ReadRequest) -> bool {
    request.format == Format::Json && request.pretty && !request.flatten
}

fn flattened_if<E: Encode + 'static>(flatten: bool, encoder: E, bound: EntityBound) -> Box<dyn Encode> {
    if flatten { Box::new(flattened::Flattened::new(encoder, bound)) } else { Box::new(encoder) }
}
