//! The last step of all source decoders: converts an item (an entity in the source) to canonical text.

use strata_json::JsonCanonicalizer;

use super::error::{SourceError, SourcePosition};
use super::expansion_guard::ExpansionGuard;

/// Writes entities as canonical text, enforces the entity size limit, and adds `_source` to entities without one.
pub(super) struct EntityWriter {
    /// The maximum size of an entity, both in the source and as canonical text without an added `_source`.
    pub(super) max_entity_bytes: usize,
    canonicalizer: JsonCanonicalizer,
    expansion: ExpansionGuard,
    written_bytes: u64,
    /// The member `"_source":"https://…"` to add to entities without one.
    source_member: Option<Vec<u8>>,
}

const SOURCE_KEY: &str = "_source";

impl EntityWriter {
    pub(super) fn new(max_entity_bytes: usize, source_url: Option<&str>, expansion: ExpansionGuard) -> Self {
        let source_member = source_url.map(|url| {
            let mut member = Vec::new();
            strata_json::write_json_string(SOURCE_KEY, &mut member);
            member.push(b':');
            strata_json::write_json_string(url, &mut member);
            member
        });
        Self { max_entity_bytes, canonicalizer: Default::default(), expansion, written_bytes: 0, source_member }
    }

    /// Appends an item, any JSON text, as canonical text. `locate` converts an offset in the item to a source position.
    pub(super) fn canonicalize_and_write(
        &mut self,
        item: &[u8],
        locate: impl Fn(usize) -> SourcePosition,
        out: &mut Vec<u8>,
    ) -> Result<(), SourceError> {
        if item.len() > self.max_entity_bytes {
            return Err(SourceError::entity_too_large(locate(0), self.max_entity_bytes));
        }
        let start = out.len();
        self.canonicalizer.canonicalize(item, out).map_err(|error| {
            let position = locate(error.offset().unwrap_or(0));
            // If the position of the error has a column, the byte offset in the message is redundant.
            let reason = if position.column.is_some() { error.message_without_offset() } else { error.to_string() };
            SourceError::invalid_item(position, reason)
        })?;
        self.finish_entity(start, || locate(0), out)
    }

    pub(super) fn write_canonical(
        &mut self,
        entity: &[u8],
        position: SourcePosition,
        out: &mut Vec<u8>,
    ) -> Result<(), SourceError> {
        let start = out.len();
        out.extend_from_slice(entity);
        self.finish_entity(start, || position, out)
    }

    fn finish_entity(
        &mut self,
        start: usize,
        position: impl FnOnce() -> SourcePosition,
        out: &mut Vec<u8>,
    ) -> Result<(), SourceError> {
        let entity = &out[start..];
        if entity.len() > self.max_entity_bytes {
            return Err(SourceError::entity_too_large(position(), self.max_entity_bytes));
        }
        if let Some(member) = &self.source_member
            && strata_json::find_member(entity, SOURCE_KEY).is_none()
        {
            let is_empty = entity.len() == 2;
            out.pop();
            if !is_empty {
                out.push(b',');
            }
            out.extend_from_slice(member);
            out.push(b'}');
        }
        self.written_bytes += (out.len() - start) as u64;
        self.expansion.check_expanded(self.written_bytes)
    }
}
