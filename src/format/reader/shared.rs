//! Which rows two lists have in common, because both lie in one file there.

use super::VersionReader;
use crate::edit::Source;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRows {
    pub first: [u64; 2],
    pub rows: u64,
}

/// Some rows of a base in a list: the first one there and here, and how many.
type BaseRows = (u64, u64, u64);

impl VersionReader {
    /// The rows that this list and another one have in one file, in the order of both. Versions that were written by
    /// themselves share none.
    pub fn shared_rows(&self, other: &VersionReader) -> Vec<SharedRows> {
        if self.base_path() == other.base_path() { in_both(&self.base_rows(), &other.base_rows()) } else { Vec::new() }
    }

    fn base_path(&self) -> &str {
        self.layout().edit.as_ref().map_or(self.path(), |edit| &edit.base.path)
    }

    /// Its rows of the base, which ascend in both.
    fn base_rows(&self) -> Vec<BaseRows> {
        let row_groups = &self.edited.as_ref().map_or(&self.own, |edited| &edited.base).footer.row_groups;
        let mut position = 0;
        let mut found = Vec::new();
        for piece in self.pieces() {
            let rows = u64::from(piece.rows);
            if piece.source == Source::Base
                && let Some(row_group) = row_groups.get(piece.row_group as usize)
            {
                found.push((row_group.first + u64::from(piece.start), position, rows));
            }
            position += rows;
        }
        found
    }
}

fn in_both(one: &[BaseRows], other: &[BaseRows]) -> Vec<SharedRows> {
    let mut found: Vec<SharedRows> = Vec::new();
    let (mut left, mut right) = (0, 0);
    while let (Some((one_row, one_position, one_rows)), Some((other_row, other_position, other_rows))) =
        (one.get(left), other.get(right))
    {
        let start = *one_row.max(other_row);
        let end = (one_row + one_rows).min(other_row + other_rows);
        if start < end {
            let first = [one_position + (start - one_row), other_position + (start - other_row)];
            match found.last_mut() {
                Some(last) if [0, 1].iter().all(|list| last.first[*list] + last.rows == first[*list]) => {
                    last.rows += end - start;
                }
                _ => found.push(SharedRows { first, rows: end - start }),
            }
        }
        if one_row + one_rows <= other_row + other_rows { left += 1 } else { right += 1 }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn rows(pieces: &[(u64, u64, u64)]) -> Vec<BaseRows> {
        let (mut row, mut position) = (0, 0);
        let piece = |(gone, own, stays): &(u64, u64, u64)| {
            let piece = (row + gone, position + own, *stays);
            (row, position) = (piece.0 + stays, piece.1 + stays);
            piece
        };
        pieces.iter().map(piece).collect()
    }

    fn pairs(list: &[BaseRows]) -> Vec<(u64, u64)> {
        list.iter().flat_map(|(row, position, rows)| (0..*rows).map(move |at| (row + at, position + at))).collect()
    }

    proptest! {
        #[test]
        fn what_lies_in_both_is_found_row_by_row(
            one in vec((0..3_u64, 0..3_u64, 1..6_u64), 0..6),
            other in vec((0..3_u64, 0..3_u64, 1..6_u64), 0..6),
        ) {
            let (one, other) = (rows(&one), rows(&other));
            let (of_one, of_other) = (pairs(&one), pairs(&other));
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
}
