//! Finds an entity of a version in the alternate of the version.
//!
//! 1. The extents of the alternate show the positions of entities that stay in the file of the version.
//! 2. The others are in the file of the alternate, near each other: entities that were changed, and those that an edit
//!    moved because they are between two changes. Entities whose hash occurs once on both sides correspond to each
//!    other, and limit the candidates for the entity that is searched.
//!
//! For example, if entities b and d of `a b c d` were changed to x and y, hashes show that c stays c. So the entity
//! between a and c is what b became.

use std::collections::HashMap;
use std::ops::Range;

use arrow::array::AsArray;
use strata_format::reader::{BasePlace, VersionReader};
use strata_store::StorageError;
use strata_types::version::Version;

use crate::lookup::error::ReadError;
use crate::read::Reads;

/// Entities whose hashes are compared, on each side. If there are more, only their numbers are compared.
const COMPARED: u64 = 4_096;

type Hash = [u8; 32];

/// The fate of an entity of a version in the alternate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InAlternate {
    Kept(u64),
    Changed(u64),
    Removed,
    /// It was changed or removed, and so were its neighbors. Their replacements begin at this position.
    Replaced(u64),
}

impl Reads {
    /// The fate of the entity at a position of a version in the version's alternate. `None` if it is unknown: there is
    /// no alternate, it was saved as a whole, or the version has no such position. Opens the alternate, and reads
    /// hashes of both if the entity does not stay in the version's file.
    pub async fn place_in_alternate(&self, version: &Version, position: u64) -> Result<Option<InAlternate>, ReadError> {
        let Some(alternate) = &version.alt else { return Ok(None) };
        let alternate = VersionReader::open_recorded(&self.store, alternate, &self.cache).await?;
        let (base, list) = match alternate.place_of_base_row(&version.file.path, position) {
            None => return Ok(None),
            Some(BasePlace::Stays(position)) => return Ok(Some(InAlternate::Kept(position))),
            Some(BasePlace::Left { list, .. }) if list.is_empty() => return Ok(Some(InAlternate::Removed)),
            Some(BasePlace::Left { base, list }) => (base, list),
        };
        let is_compared = |range: &Range<u64>| range.end - range.start <= COMPARED;
        let (old, new) = if is_compared(&base) && is_compared(&list) {
            let version = VersionReader::open_recorded(&self.store, &version.file, &self.cache).await?;
            (hashes(&version, base.clone()).await?, hashes(&alternate, list.clone()).await?)
        } else {
            (Vec::new(), Vec::new())
        };
        Ok(Some(narrowed(position, base, list, &old, &new)))
    }
}

async fn hashes(reader: &VersionReader, positions: Range<u64>) -> Result<Vec<Hash>, StorageError> {
    let mut hashes = Vec::new();
    let mut position = positions.start;
    while position < positions.end {
        let number = reader.row_group_of(position);
        let row_group = reader.row_groups()[number];
        let end = positions.end.min(row_group.first + row_group.rows as u64);
        let column = reader.hashes(number).await?;
        let column = column.as_fixed_size_binary_opt();
        let column = column.ok_or_else(|| StorageError::Layout("its hash column has an unexpected type".to_owned()))?;
        for row in position - row_group.first..end - row_group.first {
            hashes.push(column.value(row as usize).try_into().unwrap_or_default());
        }
        position = end;
    }
    Ok(hashes)
}

/// The fate of the entity at `position`, if `list` has replaced `base`.
fn narrowed(position: u64, mut base: Range<u64>, mut list: Range<u64>, old: &[Hash], new: &[Hash]) -> InAlternate {
    for (from, to) in pairs(&base, &list, old, new) {
        match from.cmp(&position) {
            std::cmp::Ordering::Less => (base.start, list.start) = (from + 1, list.start.max(to + 1)),
            std::cmp::Ordering::Equal => return InAlternate::Kept(to),
            std::cmp::Ordering::Greater => {
                (base.end, list.end) = (from, to);
                break;
            }
        }
    }
    // An entity that was moved elsewhere leaves nothing between its neighbors.
    match list.end.saturating_sub(list.start) {
        0 => InAlternate::Removed,
        rows if rows == base.end - base.start => InAlternate::Changed(list.start + position - base.start),
        _ => InAlternate::Replaced(list.start),
    }
}

/// The positions of entities that occur once on both sides, in the order of the first side.
fn pairs(base: &Range<u64>, list: &Range<u64>, old: &[Hash], new: &[Hash]) -> Vec<(u64, u64)> {
    let once = |hashes: &[Hash], first: u64| {
        let mut places: HashMap<Hash, Option<u64>> = HashMap::new();
        for (place, hash) in (first..).zip(hashes) {
            places.entry(*hash).and_modify(|place| *place = None).or_insert(Some(place));
        }
        places
    };
    let old_places = once(old, base.start);
    let new_places = once(new, list.start);
    let pair = |(place, hash): (u64, &Hash)| {
        old_places.get(hash).copied().flatten()?;
        Some((place, new_places.get(hash).copied().flatten()?))
    };
    (base.start..).zip(old).filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_neighbours_locate_changed_entity() {
        let hashes = |text: &str| text.bytes().map(|byte| [byte; 32]).collect::<Vec<Hash>>();
        let of = |old: &str, new: &str, position: u64| {
            let base = 100..100 + old.len() as u64;
            let list = 50..50 + new.len() as u64;
            narrowed(100 + position, base, list, &hashes(old), &hashes(new))
        };
        for (old, new, position, expected) in [
            ("a", "b", 0, InAlternate::Changed(50)),
            ("a", "a", 0, InAlternate::Kept(50)),
            ("a", "xy", 0, InAlternate::Replaced(50)),
            // b was changed and d removed; then the other way round.
            ("abcd", "aXc", 0, InAlternate::Kept(50)),
            ("abcd", "aXc", 1, InAlternate::Changed(51)),
            ("abcd", "aXc", 2, InAlternate::Kept(52)),
            ("abcd", "aXc", 3, InAlternate::Removed),
            ("abcd", "acX", 1, InAlternate::Removed),
            ("abcd", "acX", 3, InAlternate::Changed(52)),
            // Two were inserted before b, and one of c and d removed and the other changed.
            ("abcd", "xyabX", 0, InAlternate::Kept(52)),
            ("abcd", "xyabX", 3, InAlternate::Replaced(54)),
            // Equal ones tell nothing.
            ("aab", "aaX", 2, InAlternate::Changed(52)),
            ("aab", "aX", 2, InAlternate::Replaced(50)),
            // One that went elsewhere.
            ("abc", "caX", 2, InAlternate::Kept(50)),
        ] {
            assert_eq!(of(old, new, position), expected, "{old} {new} {position}");
        }
        // Of too many, the numbers alone tell.
        assert_eq!(narrowed(5, 0..9_000, 7..9_007, &[], &[]), InAlternate::Changed(12));
        assert_eq!(narrowed(5, 0..9_000, 7..9_008, &[], &[]), InAlternate::Replaced(7));
    }
}
