//! Where the rows of a base are in the lists that have it: which of them stay, and which two lists share.

use std::ops::Range;

use super::version::VersionReader;
use crate::extent_list::RowGroup;
use crate::overlay::Extent;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRows {
    pub first: [u64; 2],
    pub rows: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BasePlace {
    /// The row stays in the base, and has this position in the list.
    Stays(u64),
    /// The row does not stay in the base, and neither do its neighbors in `base`. The list has the file's own entities
    /// at the positions `list` in their place. Some of them may be unchanged: an edit also moves what lies between two
    /// changes.
    Left { base: Range<u64>, list: Range<u64> },
}

/// Consecutive rows of a base in a list: the first one in the base, its position in the list, and their number.
#[derive(Clone, Copy, Debug)]
struct BaseRows {
    row: u64,
    position: u64,
    rows: u64,
}

impl VersionReader {
    /// The rows that this list and another one have in one file, in the order of both. Versions that were written by
    /// themselves share none.
    pub fn shared_rows(&self, other: &VersionReader) -> Vec<SharedRows> {
        if self.base_path() == other.base_path() { in_both(&self.base_rows(), &other.base_rows()) } else { Vec::new() }
    }

    /// Where a row of a base is in this list; `None` if this is no edited list with that base, or the base has no such
    /// row.
    pub fn place_of_base_row(&self, base_path: &str, row: u64) -> Option<BasePlace> {
        self.layout().edit.as_ref().filter(|edit| edit.base.path == base_path)?;
        let last = self.base().footer.list.row_groups.last()?;
        place_of(&self.base_rows(), last.first + last.rows as u64, self.entity_count(), row)
    }

    fn base_path(&self) -> &str {
        self.layout().edit.as_ref().map_or(self.path(), |edit| &edit.base.path)
    }

    fn base_rows(&self) -> Vec<BaseRows> {
        base_rows(self.extents(), &self.base().footer.list.row_groups)
    }
}

/// The rows of a base with these row groups. They ascend in the base and in the list.
fn base_rows(extents: &[Extent], row_groups: &[RowGroup]) -> Vec<BaseRows> {
    let mut position = 0;
    let mut found = Vec::new();
    for extent in extents {
        let rows = u64::from(extent.rows);
        if extent.file == Extent::BASE
            && let Some(row_group) = row_groups.get(extent.row_group as usize)
        {
            found.push(BaseRows { row: row_group.first + u64::from(extent.start), position, rows });
        }
        position += rows;
    }
    found
}

/// `base_end` is the number of rows of the base, `list_end` that of the list.
fn place_of(found: &[BaseRows], base_end: u64, list_end: u64, row: u64) -> Option<BasePlace> {
    let next = found.partition_point(|rows| rows.row <= row);
    let mut start = [0, 0];
    if let Some(before) = found[..next].last() {
        if row - before.row < before.rows {
            return Some(BasePlace::Stays(before.position + row - before.row));
        }
        start = [before.row + before.rows, before.position + before.rows];
    }
    let end = found.get(next).map_or([base_end, list_end], |next| [next.row, next.position]);
    (row < base_end).then_some(BasePlace::Left { base: start[0]..end[0], list: start[1]..end[1] })
}

fn in_both(one: &[BaseRows], other: &[BaseRows]) -> Vec<SharedRows> {
    let mut found: Vec<SharedRows> = Vec::new();
    let mut left = 0;
    let mut right = 0;
    while let Some(one) = one.get(left)
        && let Some(other) = other.get(right)
    {
        let start = one.row.max(other.row);
        let end = (one.row + one.rows).min(other.row + other.rows);
        if start < end {
            let first = [one, other].map(|list| list.position + (start - list.row));
            match found.last_mut() {
                Some(last) if [0, 1].iter().all(|list| last.first[*list] + last.rows == first[*list]) => {
                    last.rows += end - start;
                }
                _ => found.push(SharedRows { first, rows: end - start }),
            }
        }
        if one.row + one.rows <= other.row + other.rows { left += 1 } else { right += 1 }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn rows(pieces: &[(u64, u64, u64)]) -> Vec<BaseRows> {
        let mut row = 0;
        let mut position = 0;
        let piece = |(gone, own, stays): &(u64, u64, u64)| {
            let found = BaseRows { row: row + gone, position: position + own, rows: *stays };
            (row, position) = (found.row + stays, found.position + stays);
            found
        };
        pieces.iter().map(piece).collect()
    }

    fn pairs(list: &[BaseRows]) -> Vec<(u64, u64)> {
        list.iter().flat_map(|list| (0..list.rows).map(|at| (list.row + at, list.position + at))).collect()
    }

    proptest! {
        #[test]
        fn what_lies_in_both_is_found_row_by_row(
            one in vec((0..3_u64, 0..3_u64, 1..6_u64), 0..6),
            other in vec((0..3_u64, 0..3_u64, 1..6_u64), 0..6),
        ) {
            let one = rows(&one);
            let other = rows(&other);
            let of_one = pairs(&one);
            let of_other = pairs(&other);
            let expected: Vec<[u64; 2]> = of_one.iter().filter_map(|(row, position)| {
                let there = of_other.iter().find(|(other, _)| other == row)?;
                Some([*position, there.1])
            }).collect();
            let found = in_both(&one, &other);
            let each = found.iter().flat_map(|shared| (0..shared.rows).map(|at| shared.first.map(|first| first + at)));
            prop_assert_eq!(each.collect::<Vec<_>>(), expected);
            for pair in found.windows(2) {
                let follows = |list: usize| pair[0].first[list] + pair[0].rows == pair[1].first[list];
                prop_assert!(!(follows(0) && follows(1)), "they are one");
            }
        }
    }

    #[test]
    fn base_row_is_found_in_the_list() {
        let row_groups = [(0, 6), (6, 1), (7, 3)].map(|(first, rows)| RowGroup { first, rows });
        let left = |base, list| Some(BasePlace::Left { base, list });
        let base = Extent::BASE;
        let own = Extent::DELTA;
        let of = |extents: &[(u8, u32, u32, u32)], row| {
            let extent = |&(file, row_group, start, rows): &_| Extent { file, row_group, start, rows };
            let extents: Vec<Extent> = extents.iter().map(extent).collect();
            let entities = extents.iter().map(|extent| u64::from(extent.rows)).sum();
            place_of(&base_rows(&extents, &row_groups), 10, entities, row)
        };
        // Of the base 0 to 2, one for 3, 4 and 5, two for 6 and 7, 8 and no 9.
        let extents = [(base, 0, 0, 3), (own, 0, 0, 1), (base, 0, 4, 2), (own, 0, 1, 2), (base, 2, 1, 1)];
        for (row, place) in [
            (0, Some(BasePlace::Stays(0))),
            (2, Some(BasePlace::Stays(2))),
            (3, left(3..4, 3..4)),
            (4, Some(BasePlace::Stays(4))),
            (5, Some(BasePlace::Stays(5))),
            (6, left(6..8, 6..8)),
            (7, left(6..8, 6..8)),
            (8, Some(BasePlace::Stays(8))),
            (9, left(9..10, 9..9)),
            (10, None),
            (u64::MAX, None),
        ] {
            assert_eq!(of(&extents, row), place, "{row}");
        }
        // One comes before all, 0 is gone, and 3 goes for two others.
        let extents = [(own, 0, 0, 1), (base, 0, 1, 2), (own, 0, 1, 2), (base, 0, 4, 2), (base, 1, 0, 1)];
        assert_eq!(of(&extents, 0), left(0..1, 0..1));
        assert_eq!(of(&extents, 1), Some(BasePlace::Stays(1)));
        assert_eq!(of(&extents, 3), left(3..4, 3..5));
        assert_eq!(of(&extents, 4), Some(BasePlace::Stays(5)));
        assert_eq!(of(&extents, 6), Some(BasePlace::Stays(7)));
        assert_eq!(of(&extents, 7), left(7..10, 8..8));
        // What is inserted between two takes the place of none.
        let extents = [(base, 0, 0, 2), (own, 0, 0, 3), (base, 0, 2, 2)];
        assert_eq!(of(&extents, 2), Some(BasePlace::Stays(5)));
        assert_eq!(of(&[], 2), left(0..10, 0..0));
    }
}
