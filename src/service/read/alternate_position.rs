//! Finds an entity of a version in the alternate (the edited copy of the version).
//!
//! 1. The extents of both lists show the positions of entities that stay in their files.
//! 2. The other entities are in the file of the alternate: changed entities, and unchanged entities between two
//!    changes. Entities whose hash occurs exactly once on both sides correspond to each other, and narrow the range in
//!    which the searched entity can be (the idea of patience diff).
//!
//! For example, if entities b and d of `a b c d` were changed to x and y, hashes show that c is unchanged. So the
//! entity between a and c is the changed b.

use std::collections::HashMap;
use std::ops::Range;

use arrow::array::AsArray;
use strata_format::reader::{RowPosition, VersionReader};
use strata_json::EntityHash;
use strata_store::StorageError;
use strata_types::version::DatasetVersion;

use crate::lookup::error::ReadError;
use crate::read::ReadService;

/// Maximum number of entities in a range whose hashes are compared. Of larger ranges, only the lengths are compared.
const MAX_COMPARED_HASHES: u64 = 4_096;

/// The result of finding an entity of a version in the alternate (edited copy), with its position in the alternate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlternatePosition {
    Unchanged(u64),
    Changed(u64),
    Removed,
    Replaced(u64),
}

impl ReadService {
    /// Finds the entity at a position of a version in the alternate (edited copy). Returns `None` if there is no
    /// alternate or no such position. Reads hashes only if the entity does not stay in the version's file.
    pub async fn find_in_alternate(
        &self,
        version: &DatasetVersion,
        position: u64,
    ) -> Result<Option<AlternatePosition>, ReadError> {
        let Some(alternate) = &version.alternate else { return Ok(None) };
        let alternate = VersionReader::open_recorded(&self.store, alternate, &self.cache).await?;
        let version = self.open_as_base(version, &alternate).await?;
        let (before, after) = match alternate.locate_entity(&version, position) {
            None => return Ok(None),
            Some(RowPosition::Retained(position)) => return Ok(Some(AlternatePosition::Unchanged(position))),
            Some(RowPosition::Replaced { after, .. }) if after.is_empty() => {
                return Ok(Some(AlternatePosition::Removed));
            }
            Some(RowPosition::Replaced { before, after }) => (before, after),
        };
        let is_compared = |range: &Range<u64>| range.end - range.start <= MAX_COMPARED_HASHES;
        let (old, new) = if is_compared(&before) && is_compared(&after) {
            (read_hashes(&version, before.clone()).await?, read_hashes(&alternate, after.clone()).await?)
        } else {
            (Vec::new(), Vec::new())
        };
        Ok(Some(locate_by_neighbors(position, before, after, &old, &new)))
    }

    /// Opens the file of a version that an alternate has as a base. A compaction can have replaced this file, but the
    /// alternate keeps it.
    async fn open_as_base(
        &self,
        version: &DatasetVersion,
        alternate: &VersionReader,
    ) -> Result<VersionReader, StorageError> {
        let overlay = alternate.layout().overlay.as_ref();
        match overlay.and_then(|overlay| overlay.find_base_with_content(&version.file.content_hash)) {
            Some(base) => {
                VersionReader::open(&self.store, &base.path.as_str().into(), base.size_bytes, &self.cache).await
            }
            None => VersionReader::open_recorded(&self.store, &version.file, &self.cache).await,
        }
    }
}

async fn read_hashes(reader: &VersionReader, positions: Range<u64>) -> Result<Vec<EntityHash>, StorageError> {
    let mut hashes = Vec::new();
    let mut position = positions.start;
    while position < positions.end {
        let number = reader.row_group_at(position);
        let row_group = reader.row_groups()[number];
        let end = positions.end.min(row_group.first_position + row_group.rows as u64);
        let column = reader.read_entity_hashes(number).await?;
        let column = column.as_fixed_size_binary_opt();
        let column =
            column.ok_or_else(|| StorageError::InvalidFile("its hash column has an unexpected type".to_owned()))?;
        for row in position - row_group.first_position..end - row_group.first_position {
            hashes.push(column.value(row as usize).try_into().unwrap_or_default());
        }
        position = end;
    }
    Ok(hashes)
}

fn locate_by_neighbors(
    position: u64,
    mut base: Range<u64>,
    mut list: Range<u64>,
    old: &[EntityHash],
    new: &[EntityHash],
) -> AlternatePosition {
    for (from, to) in match_unique_hashes(base.start, list.start, old, new) {
        match from.cmp(&position) {
            std::cmp::Ordering::Less => {
                base.start = from + 1;
                list.start = list.start.max(to + 1);
            }
            std::cmp::Ordering::Equal => return AlternatePosition::Unchanged(to),
            std::cmp::Ordering::Greater => {
                base.end = from;
                list.end = to;
                break;
            }
        }
    }
    // An entity that was moved to another place in the list leaves an empty range between its neighbors.
    match list.end.saturating_sub(list.start) {
        0 => AlternatePosition::Removed,
        rows if rows == base.end - base.start => AlternatePosition::Changed(list.start + position - base.start),
        _ => AlternatePosition::Replaced(list.start),
    }
}

fn match_unique_hashes(old_start: u64, new_start: u64, old: &[EntityHash], new: &[EntityHash]) -> Vec<(u64, u64)> {
    let unique_positions = |hashes: &[EntityHash], first: u64| {
        let mut positions: HashMap<EntityHash, Option<u64>> = HashMap::new();
        for (position, hash) in (first..).zip(hashes) {
            positions.entry(*hash).and_modify(|position| *position = None).or_insert(Some(position));
        }
        positions
    };
    let old_positions = unique_positions(old, old_start);
    let new_positions = unique_positions(new, new_start);
    let pair = |(position, hash): (u64, &EntityHash)| {
        old_positions.get(hash).copied().flatten()?;
        Some((position, new_positions.get(hash).copied().flatten()?))
    };
    (old_start..).zip(old).filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_neighbours_locate_changed_entity() {
        let hashes = |text: &str| text.bytes().map(|byte| [byte; size_of::<EntityHash>()]).collect::<Vec<EntityHash>>();
        let locate = |old: &str, new: &str, position: u64| {
            let base = 100..100 + old.len() as u64;
            let list = 50..50 + new.len() as u64;
            locate_by_neighbors(100 + position, base, list, &hashes(old), &hashes(new))
        };
        for (old, new, position, expected) in [
            ("a", "b", 0, AlternatePosition::Changed(50)),
            ("a", "a", 0, AlternatePosition::Unchanged(50)),
            ("a", "xy", 0, AlternatePosition::Replaced(50)),
            // First, b is changed and d removed; then, b is removed and d changed.
            ("abcd", "aXc", 0, AlternatePosition::Unchanged(50)),
            ("abcd", "aXc", 1, AlternatePosition::Changed(51)),
            ("abcd", "aXc", 2, AlternatePosition::Unchanged(52)),
            ("abcd", "aXc", 3, AlternatePosition::Removed),
            ("abcd", "acX", 1, AlternatePosition::Removed),
            ("abcd", "acX", 3, AlternatePosition::Changed(52)),
            // Two entities were inserted before a, and one of c and d was removed and the other changed.
            ("abcd", "xyabX", 0, AlternatePosition::Unchanged(52)),
            ("abcd", "xyabX", 3, AlternatePosition::Replaced(54)),
            ("aab", "aaX", 2, AlternatePosition::Changed(52)),
            ("aab", "aX", 2, AlternatePosition::Replaced(50)),
            ("abc", "caX", 2, AlternatePosition::Unchanged(50)),
        ] {
            assert_eq!(locate(old, new, position), expected, "{old} {new} {position}");
        }
        // If ranges are large, only their lengths are compared.
        assert_eq!(locate_by_neighbors(5, 0..9_000, 7..9_007, &[], &[]), AlternatePosition::Changed(12));
        assert_eq!(locate_by_neighbors(5, 0..9_000, 7..9_008, &[], &[]), AlternatePosition::Replaced(7));
    }
}
