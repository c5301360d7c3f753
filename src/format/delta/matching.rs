//! Finds the entities of a new list in the previous version.

use fixedbitset::FixedBitSet;
use strata_json::CanonicalFormWriter;
use tokio::runtime::Handle;

use super::Stop;
use super::previous_entities::PreviousEntities;
use crate::overlay::Extent;
use crate::reader::VersionReader;

/// Candidates with the same hash that are compared with an entity.
const MAX_CANDIDATES: usize = 2;

/// Finds entities in the order of the new list. Most are at the position after the previous one, or behind replaced
/// ones. Others are found by their hash, such as the first entity of a moved block.
pub(super) struct EntityMatcher<'a> {
    previous: PreviousEntities<'a>,
    canonical_form: CanonicalFormWriter,
    /// The position after the last found entity, and the number of entities since then that were not found.
    next: u64,
    missed: u64,
    /// The positions that were found. Each row is used at most once, so that a row of a file has one position.
    used: FixedBitSet,
}

impl<'a> EntityMatcher<'a> {
    pub(super) fn new(previous: &'a VersionReader, runtime: &'a Handle) -> EntityMatcher<'a> {
        EntityMatcher {
            previous: PreviousEntities::new(previous, runtime),
            canonical_form: CanonicalFormWriter::default(),
            next: 0,
            missed: 0,
            used: FixedBitSet::with_capacity(previous.entity_count() as usize),
        }
    }

    /// Returns the row of the previous version with this document; `None` if it has none, or if none was found.
    pub(super) fn find(&mut self, document: &[u8]) -> Result<Option<Extent>, Stop> {
        let replaced = self.next + self.missed;
        let mut found = self.is_unused_and_equal(self.next, document)?.then_some(self.next);
        if found.is_none() && self.missed > 0 && self.is_unused_and_equal(replaced, document)? {
            found = Some(replaced);
        }
        if found.is_none() {
            let hash = self.canonical_form.hash_without_source_field(document);
            for position in self.previous.positions_of_hash(&hash, self.next, MAX_CANDIDATES)? {
                if self.is_unused_and_equal(position, document)? {
                    found = Some(position);
                    break;
                }
            }
        }
        match found {
            Some(position) => {
                self.used.insert(position as usize);
                self.next = position + 1;
                self.missed = 0;
            }
            None => self.missed += 1,
        }
        Ok(found.map(|position| self.previous.row(position)))
    }

    fn is_unused_and_equal(&mut self, position: u64, document: &[u8]) -> Result<bool, Stop> {
        Ok(!self.used.contains(position as usize) && self.previous.is_equal(position, document)?)
    }
}
