//! The last step of every decoder: an item's text becomes an entity's canonical text.

use strata_json::Canonicalizer;

use super::error::{Place, SourceError};
use super::expansion::Expansion;

/// Writes entities: canonical, within the size limit, and with `_source` where it belongs.
pub(super) struct EntityWriter {
    /// The most bytes that an entity may have, in the source and as canonical text without an added `_source`.
    pub(super) limit_bytes: usize,
    canonicalizer: Canonicalizer,
    expansion: Expansion,
    text_bytes: u64,
    /// `"_source":"https://…"`, for entities that have none.
    source_member: Option<Vec<u8>>,
}

const SOURCE_KEY: &str = "_source";

impl EntityWriter {
    pub(super) fn new(limit_bytes: usize, fetched_from: Option<&str>, expansion: Expansion) -> Self {
        let source_member = fetched_from.map(|url| {
            let mut member = Vec::new();
            strata_json::write_string(SOURCE_KEY, &mut member);
            member.push(b':');
            strata_json::write_string(url, &mut member);
            member
        });
        Self { limit_bytes, canonicalizer: Canonicalizer::default(), expansion, text_bytes: 0, source_member }
    }

    /// Appends the entity that `item` is, any JSON text. `locate` returns the place of a byte of the item, or of the
    /// item.
    pub(super) fn write_json(
        &mut self,
        item: &[u8],
        locate: impl Fn(usize) -> Place,
        out: &mut Vec<u8>,
    ) -> Result<(), SourceError> {
        if item.len() > self.limit_bytes {
            return Err(SourceError::too_large(locate(0), self.limit_bytes));
        }
        let start = out.len();
        self.canonicalizer.canonicalize(item, out).map_err(|error| {
            let place = locate(error.offset().unwrap_or(0));
            // The column shows where the problem is.
            let reason = if place.column.is_some() { error.problem() } else { error.to_string() };
            SourceError::item(place, reason)
        })?;
        self.finish(start, || locate(0), out)
    }

    pub(super) fn write_canonical(
        &mut self,
        entity: &[u8],
        place: Place,
        out: &mut Vec<u8>,
    ) -> Result<(), SourceError> {
        let start = out.len();
        out.extend_from_slice(entity);
        self.finish(start, || place, out)
    }

    /// Checks the size of the entity that begins at `start`, adds `_source` if it has none, and counts it.
    fn finish(&mut self, start: usize, place: impl FnOnce() -> Place, out: &mut Vec<u8>) -> Result<(), SourceError> {
        let entity = &out[start..];
        if entity.len() > self.limit_bytes {
            return Err(SourceError::too_large(place(), self.limit_bytes));
        }
        if let Some(member) = &self.source_member
            && strata_json::member(entity, SOURCE_KEY).is_none()
        {
            let is_empty = entity.len() == 2;
            out.pop();
            if !is_empty {
                out.push(b',');
            }
            out.extend_from_slice(member);
            out.push(b'}');
        }
        self.text_bytes += (out.len() - start) as u64;
        self.expansion.check(self.text_bytes)
    }
}
