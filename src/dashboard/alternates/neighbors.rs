//! The neighbors of an entity in a list. The server does not store previous lists, but a form contains the hashes of
//! the neighbors. With them, strata can tell whether an entity was changed or removed: if the entity was between A and
//! C, and C now follows A, the entity was removed.

use sha2::{Digest, Sha256};

const NEIGHBOR_HASH_BYTES: usize = 16;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum NeighborEntity {
    #[default]
    Unknown,
    ListEnd,
    Hash(String),
}

impl NeighborEntity {
    pub(super) fn from_entity(entity: &[u8]) -> NeighborEntity {
        NeighborEntity::Hash(hex::encode(&Sha256::digest(entity)[..NEIGHBOR_HASH_BYTES]))
    }

    fn parse(text: &str) -> NeighborEntity {
        match text {
            "end" => NeighborEntity::ListEnd,
            hash if hash.len() == 2 * NEIGHBOR_HASH_BYTES => NeighborEntity::Hash(hash.to_owned()),
            _ => NeighborEntity::Unknown,
        }
    }

    fn as_str(&self) -> &str {
        match self {
            NeighborEntity::Unknown => "unknown",
            NeighborEntity::ListEnd => "end",
            NeighborEntity::Hash(hash) => hash,
        }
    }

    fn is_known_equal(&self, other: &NeighborEntity) -> bool {
        *self != NeighborEntity::Unknown && self == other
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EntityNeighbors {
    pub(super) before: NeighborEntity,
    pub(super) after: NeighborEntity,
}

/// A change by another user to an entity that is no longer at the position at which a form edits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConcurrentChange {
    /// The entity is the same, but can have moved.
    Unchanged,
    Changed,
    Removed,
    /// The neighbors of the entity have changed, too, so its change is not known.
    Unknown,
}

impl EntityNeighbors {
    pub(super) fn parse(text: &str) -> EntityNeighbors {
        let (before, after) = text.split_once(' ').unwrap_or_default();
        EntityNeighbors { before: NeighborEntity::parse(before), after: NeighborEntity::parse(after) }
    }

    pub(super) fn to_field_text(&self) -> String {
        format!("{} {}", self.before.as_str(), self.after.as_str())
    }

    /// Returns the change by another user to the entity that was between these neighbors. `entity_now` is at its
    /// position now. In ambiguous cases, the entity counts as removed if the list is shorter.
    pub(super) fn infer_change(
        &self,
        entity_now: &NeighborEntity,
        neighbors_now: &EntityNeighbors,
        is_shorter: bool,
    ) -> ConcurrentChange {
        if !self.before.is_known_equal(&neighbors_now.before) {
            return ConcurrentChange::Unknown;
        }
        let is_changed =
            matches!(entity_now, NeighborEntity::Hash(_)) && self.after.is_known_equal(&neighbors_now.after);
        match (self.after.is_known_equal(entity_now), is_changed) {
            (true, is_changed) if is_shorter || !is_changed => ConcurrentChange::Removed,
            (_, true) => ConcurrentChange::Changed,
            _ => ConcurrentChange::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbors_at(list: &str, index: usize) -> EntityNeighbors {
        let letters = list.as_bytes();
        let after =
            letters.get(index + 1).map_or(NeighborEntity::ListEnd, |letter| NeighborEntity::from_entity(&[*letter]));
        let before = index
            .checked_sub(1)
            .map_or(NeighborEntity::ListEnd, |before| NeighborEntity::from_entity(&[letters[before]]));
        EntityNeighbors { before, after: if index < list.len() { after } else { NeighborEntity::Unknown } }
    }

    #[test]
    fn concurrent_change_follows_from_neighbors() {
        for (before, at, now, there, change) in [
            ("abc", 1, "aXc", 1, ConcurrentChange::Changed),
            ("abc", 1, "ac", 1, ConcurrentChange::Removed),
            ("abc", 0, "Xbc", 0, ConcurrentChange::Changed),
            ("abc", 0, "bc", 0, ConcurrentChange::Removed),
            ("abc", 2, "abX", 2, ConcurrentChange::Changed),
            ("abc", 2, "ab", 2, ConcurrentChange::Removed),
            ("a", 0, "", 0, ConcurrentChange::Removed),
            ("a", 0, "X", 0, ConcurrentChange::Changed),
            ("abc", 1, "xaXc", 2, ConcurrentChange::Changed),
            ("abc", 1, "xac", 2, ConcurrentChange::Removed),
            ("abc", 1, "axXc", 1, ConcurrentChange::Unknown),
            ("abc", 1, "XYZ", 1, ConcurrentChange::Unknown),
            ("abc", 1, "XY", 1, ConcurrentChange::Unknown),
            ("abaa", 1, "aaa", 1, ConcurrentChange::Removed),
            ("abaa", 1, "aaaa", 1, ConcurrentChange::Changed),
        ] {
            let neighbors = EntityNeighbors::parse(&neighbors_at(before, at).to_field_text());
            assert_eq!(neighbors, neighbors_at(before, at));
            let letter = now
                .as_bytes()
                .get(there)
                .map_or(NeighborEntity::ListEnd, |letter| NeighborEntity::from_entity(&[*letter]));
            let is_shorter = now.len() < before.len();
            assert_eq!(
                neighbors.infer_change(&letter, &neighbors_at(now, there), is_shorter),
                change,
                "{before} {now}"
            );
        }
        for text in ["", "x", "unknown unknown", "end", "x y"] {
            let neighbors = EntityNeighbors::parse(text);
            assert_eq!(neighbors, EntityNeighbors::default(), "{text}");
            assert_eq!(
                neighbors.infer_change(&NeighborEntity::ListEnd, &neighbors, true),
                ConcurrentChange::Unknown,
                "{text}"
            );
        }
    }
}
