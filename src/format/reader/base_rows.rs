//! Mapping between the rows of a base file and the positions in edited versions that reuse these rows.

use std::ops::Range;

use super::version_reader::VersionReader;
use crate::extent_list::RowGroupSpan;
use crate::overlay::Extent;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRowRun {
    pub first_positions: [u64; 2],
    pub rows: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseRowPosition {
    Retained(u64),
    /// The rows `base`, which include the requested row, were replaced by the entities at the positions `list` of the
    /// version. Some may equal the replaced rows, because an edit also rewrites short unchanged runs between changes.
    Replaced {
        base: Range<u64>,
        list: Range<u64>,
    },
}

#[derive(Clone, Copy, Debug)]
struct BaseRowRun {
    row: u64,
    position: u64,
    rows: u64,
}

impl VersionReader {
    /// Returns the rows of the common base file that both versions contain, in order; empty if their bases differ.
    pub fn shared_base_rows(&self, other: &VersionReader) -> Vec<SharedRowRun> {
        if self.base_path() != other.base_path() {
            return Vec::new();
        }
        intersect_runs(&self.base_row_runs(), &other.base_row_runs())
    }

    /// Locates a row of the base at `base_path` in this version. Returns `None` for another base or a missing row.
    pub fn locate_base_row(&self, base_path: &str, row: u64) -> Option<BaseRowPosition> {
        self.layout().edit.as_ref().filter(|edit| edit.base.path == base_path)?;
        let last = self.base_file().footer.extent_list.row_groups.last()?;
        locate_row(&self.base_row_runs(), last.first_position + last.rows as u64, self.entity_count(), row)
    }

    fn base_path(&self) -> &str {
        self.layout().edit.as_ref().map_or(self.path(), |edit| &edit.base.path)
    }

    fn base_row_runs(&self) -> Vec<BaseRowRun> {
        base_row_runs(self.extents(), &self.base_file().footer.extent_list.row_groups)
    }
}

fn base_row_runs(extents: &[Extent], row_groups: &[RowGroupSpan]) -> Vec<BaseRowRun> {
    let mut position = 0;
    let mut runs = Vec::new();
    for extent in extents {
        let rows = u64::from(extent.rows);
        if extent.file == Extent::BASE
            && let Some(row_group) = row_groups.get(extent.row_group as usize)
        {
            runs.push(BaseRowRun { row: row_group.first_position + u64::from(extent.start), position, rows });
        }
        position += rows;
    }
    runs
}

/// Locates a row of a base, whose number of rows is `base_end`, in a version with `list_end` entities.
fn locate_row(runs: &[BaseRowRun], base_end: u64, list_end: u64, row: u64) -> Option<BaseRowPosition> {
    let next = runs.partition_point(|run| run.row <= row);
    let mut start = [0, 0];
    if let Some(before) = runs[..next].last() {
        if row - before.row < before.rows {
            return Some(BaseRowPosition::Retained(before.position + row - before.row));
        }
        start = [before.row + before.rows, before.position + before.rows];
    }
    let end = runs.get(next).map_or([base_end, list_end], |next| [next.row, next.position]);
    (row < base_end).then_some(BaseRowPosition::Replaced { base: start[0]..end[0], list: start[1]..end[1] })
}

fn intersect_runs(left_runs: &[BaseRowRun], right_runs: &[BaseRowRun]) -> Vec<SharedRowRun> {
    let mut shared: Vec<SharedRowRun> = Vec::new();
    let mut left = 0;
    let mut right = 0;
    while let Some(left_run) = left_runs.get(left)
        && let Some(right_run) = right_runs.get(right)
    {
        let start = left_run.row.max(right_run.row);
        let end = (left_run.row + left_run.rows).min(right_run.row + right_run.rows);
        if start < end {
            let first = [left_run, right_run].map(|run| run.position + (start - run.row));
            match shared.last_mut() {
                Some(last) if [0, 1].iter().all(|list| last.first_positions[*list] + last.rows == first[*list]) => {
                    last.rows += end - start;
                }
                _ => shared.push(SharedRowRun { first_positions: first, rows: end - start }),
            }
        }
        if left_run.row + left_run.rows <= right_run.row + right_run.rows { left += 1 } else { right += 1 }
    }
    shared
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn rows(runs: &[(u64, u64, u64)]) -> Vec<BaseRowRun> {
        let mut row = 0;
        let mut position = 0;
        let to_run = |(removed, delta, stays): &(u64, u64, u64)| {
            let run = BaseRowRun { row: row + removed, position: position + delta, rows: *stays };
            row = run.row + stays;
            position = run.position + stays;
            run
        };
        runs.iter().map(to_run).collect()
    }

    fn pairs(runs: &[BaseRowRun]) -> Vec<(u64, u64)> {
        runs.iter().flat_map(|run| (0..run.rows).map(|offset| (run.row + offset, run.position + offset))).collect()
    }

    proptest! {
        #[test]
        fn shared_rows_match_pairwise_comparison(
            one in vec((0..3_u64, 0..3_u64, 1..6_u64), 0..6),
            other in vec((0..3_u64, 0..3_u64, 1..6_u64), 0..6),
        ) {
            let one = rows(&one);
            let other = rows(&other);
            let pairs_of_one = pairs(&one);
            let pairs_of_other = pairs(&other);
            let expected: Vec<[u64; 2]> = pairs_of_one.iter().filter_map(|(row, position)| {
                let shared_row = pairs_of_other.iter().find(|(other, _)| other == row)?;
                Some([*position, shared_row.1])
            }).collect();
            let shared = intersect_runs(&one, &other);
            let positions = |run: &SharedRowRun, offset: u64| run.first_positions.map(|first| first + offset);
            let each = shared.iter().flat_map(|run| (0..run.rows).map(move |offset| positions(run, offset)));
            prop_assert_eq!(each.collect::<Vec<_>>(), expected);
            for pair in shared.windows(2) {
                let follows = |list: usize| pair[0].first_positions[list] + pair[0].rows == pair[1].first_positions[list];
                prop_assert!(!(follows(0) && follows(1)), "adjacent runs are not merged");
            }
        }
    }

    #[test]
    fn base_row_is_located_in_the_list() {
        let row_groups = [(0, 6), (6, 1), (7, 3)].map(|(first, rows)| RowGroupSpan { first_position: first, rows });
        let replaced = |base, list| Some(BaseRowPosition::Replaced { base, list });
        let base = Extent::BASE;
        let delta = Extent::DELTA;
        let locate = |extents: &[(u8, u32, u32, u32)], row| {
            let extent = |&(file, row_group, start, rows): &_| Extent { file, row_group, start, rows };
            let extents: Vec<Extent> = extents.iter().map(extent).collect();
            let entities = extents.iter().map(|extent| u64::from(extent.rows)).sum();
            locate_row(&base_row_runs(&extents, &row_groups), 10, entities, row)
        };
        // In this version, row 3 of the base is replaced by one entity, rows 6 and 7 by two, and row 9 is removed.
        let extents = [(base, 0, 0, 3), (delta, 0, 0, 1), (base, 0, 4, 2), (delta, 0, 1, 2), (base, 2, 1, 1)];
        for (row, expected) in [
            (0, Some(BaseRowPosition::Retained(0))),
            (2, Some(BaseRowPosition::Retained(2))),
            (3, replaced(3..4, 3..4)),
            (4, Some(BaseRowPosition::Retained(4))),
            (5, Some(BaseRowPosition::Retained(5))),
            (6, replaced(6..8, 6..8)),
            (7, replaced(6..8, 6..8)),
            (8, Some(BaseRowPosition::Retained(8))),
            (9, replaced(9..10, 9..9)),
            (10, None),
            (u64::MAX, None),
        ] {
            assert_eq!(locate(&extents, row), expected, "{row}");
        }
        // In this version, an entity is inserted before all rows, row 0 of the base removed, and row 3 replaced by two.
        let extents = [(delta, 0, 0, 1), (base, 0, 1, 2), (delta, 0, 1, 2), (base, 0, 4, 2), (base, 1, 0, 1)];
        assert_eq!(locate(&extents, 0), replaced(0..1, 0..1));
        assert_eq!(locate(&extents, 1), Some(BaseRowPosition::Retained(1)));
        assert_eq!(locate(&extents, 3), replaced(3..4, 3..5));
        assert_eq!(locate(&extents, 4), Some(BaseRowPosition::Retained(5)));
        assert_eq!(locate(&extents, 6), Some(BaseRowPosition::Retained(7)));
        assert_eq!(locate(&extents, 7), replaced(7..10, 8..8));
        // An insertion between two rows replaces no row.
        let extents = [(base, 0, 0, 2), (delta, 0, 0, 3), (base, 0, 2, 2)];
        assert_eq!(locate(&extents, 2), Some(BaseRowPosition::Retained(5)));
        assert_eq!(locate(&[], 2), replaced(0..10, 0..0));
    }
}
