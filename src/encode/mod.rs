//! Documents to the bytes of an answer, one file per format.
//!
//! An encoder writes entity by entity, so that a body can be streamed and its parts encoded apart: it keeps no
//! state between entities, and is told whether an entity is the first.

mod count;
mod json;
mod jsonl;

pub use count::count;

use crate::model::request::{Format, ReadRequest};

/// Writes the entities of an answer.
pub trait Encode: Send + Sync {
    /// Writes what comes before the first entity; `empty` when there is none.
    fn begin(&self, empty: bool, out: &mut Vec<u8>);

    /// Writes one entity, a canonical document, with what separates it from the one before.
    fn entity(&self, document: &[u8], first: bool, out: &mut Vec<u8>);

    /// Writes what comes after the last entity; `empty` when there is none.
    fn end(&self, empty: bool, out: &mut Vec<u8>);
}

/// The encoder of a request's format.
pub fn encoder(request: &ReadRequest) -> Box<dyn Encode> {
    match request.format {
        Format::Json if request.pretty => Box::new(json::Pretty),
        Format::Json => Box::new(json::Compact),
        Format::Jsonl => Box::new(jsonl::Jsonl),
    }
}
