//! Where the entities of a base are in the list of an edited file.

use std::ops::Range;

use crate::edit::{Piece, Source};
use crate::footer::RowGroup;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BasePlace {
    /// It is one of those that stay in the base, at this position of the list.
    Stays(u64),
    /// It does not stay there. With it these rows of the base do not, and in their place the list has the file's own
    /// entities at these positions. Some of them may be what they were: an edit also moves what lies between two
    /// changes.
    Left { base: Range<u64>, list: Range<u64> },
}

impl BasePlace {
    /// That of a row of the base, which has these row groups; `None` where it has no such row. Costs a look at each
    /// piece at most.
    pub(super) fn of(pieces: &[Piece], row_groups: &[RowGroup], row: u64) -> Option<BasePlace> {
        let last = row_groups.last()?;
        let mut end = last.first + last.rows as u64;
        if row >= end {
            return None;
        }
        // The position in the list, the first row of the base after those that were seen, and how many own entities
        // were seen since.
        let (mut position, mut next, mut own) = (0, 0, 0);
        for piece in pieces {
            let rows = u64::from(piece.rows);
            if piece.source == Source::Own {
                (position, own) = (position + rows, own + rows);
                continue;
            }
            let start = row_groups.get(piece.row_group as usize)?.first + u64::from(piece.start);
            if row < start {
                end = start;
                break;
            }
            if row < start + rows {
                return Some(BasePlace::Stays(position + row - start));
            }
            (position, next, own) = (position + rows, start + rows, 0);
        }
        Some(BasePlace::Left { base: next..end, list: position - own..position })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_of_the_base_is_found_in_the_list() {
        let row_groups = [(0, 6), (6, 1), (7, 3)].map(|(first, rows)| RowGroup { first, rows });
        let left = |base, list| Some(BasePlace::Left { base, list });
        let (base, own) = (Source::Base, Source::Own);
        let of = |pieces: &[(Source, u32, u32, u32)], row| {
            let piece = |&(source, row_group, start, rows): &_| Piece { source, row_group, start, rows };
            BasePlace::of(&pieces.iter().map(piece).collect::<Vec<_>>(), &row_groups, row)
        };
        // Of the base 0 to 2, one for 3, 4 and 5, two for 6 and 7, 8 and no 9.
        let pieces = [(base, 0, 0, 3), (own, 0, 0, 1), (base, 0, 4, 2), (own, 0, 1, 2), (base, 2, 1, 1)];
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
            assert_eq!(of(&pieces, row), place, "{row}");
        }
        // One comes before all, 0 is gone, and 3 goes for two others.
        let pieces = [(own, 0, 0, 1), (base, 0, 1, 2), (own, 0, 1, 2), (base, 0, 4, 2), (base, 1, 0, 1)];
        assert_eq!(of(&pieces, 0), left(0..1, 0..1));
        assert_eq!(of(&pieces, 1), Some(BasePlace::Stays(1)));
        assert_eq!(of(&pieces, 3), left(3..4, 3..5));
        assert_eq!(of(&pieces, 4), Some(BasePlace::Stays(5)));
        assert_eq!(of(&pieces, 6), Some(BasePlace::Stays(7)));
        assert_eq!(of(&pieces, 7), left(7..10, 8..8));
        // What is inserted between two takes the place of none.
        let pieces = [(base, 0, 0, 2), (own, 0, 0, 3), (base, 0, 2, 2)];
        assert_eq!(of(&pieces, 2), Some(BasePlace::Stays(5)));
        assert_eq!(of(&[], 2), left(0..10, 0..0));
    }
}
