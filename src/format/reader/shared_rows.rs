//! Rows of files that two versions share, and the positions of these rows in both.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::version_reader::VersionReader;
use crate::overlay::Extent;

/// Rows that two versions share, by their first positions in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRowRun {
    pub first_positions: [u64; 2],
    pub rows: u64,
}

/// Where a version has an entity of another version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowPosition {
    Retained(u64),
    /// The entities at the positions `before` of the other version, which include the requested one, were replaced by
    /// those at the positions `after`. Some may be equal, because an edit also rewrites short unchanged runs.
    Replaced {
        before: Range<u64>,
        after: Range<u64>,
    },
}

/// Consecutive rows of a file's row group at consecutive positions of a version.
#[derive(Clone, Copy, Debug)]
struct RowRun {
    row_group: u32,
    row: u64,
    position: u64,
    rows: u64,
}

impl VersionReader {
    /// Returns the rows of files that both versions contain, ascending in both; empty if they share no rows. If blocks
    /// of rows were moved, the result has as many rows as possible.
    pub fn shared_rows(&self, other: &VersionReader) -> Vec<SharedRowRun> {
        // Files have the same number in both versions. Comparing paths would take most of the time.
        let mut numbers = HashMap::new();
        let mut runs = [self, other].map(|version| version.row_runs(&mut numbers)).map(Vec::into_iter);
        let mut shared = Vec::new();
        while let [Some(left), Some(right)] = runs.each_mut().map(Iterator::next) {
            shared.append(&mut intersect_runs(&left, &right));
        }
        // The runs of each file are ascending, so that sorting costs little.
        shared.sort_by_key(|run| run.first_positions[0]);
        // Versions with many extents have few runs after this.
        merge_adjacent(longest_ascending(merge_adjacent(shared)))
    }

    /// Locates the entity at a position of `before` in this version. `None` if the versions share no rows, or if the
    /// position does not exist.
    pub fn locate_entity(&self, before: &VersionReader, position: u64) -> Option<RowPosition> {
        let shared = before.shared_rows(self);
        let is_located = !shared.is_empty() && position < before.entity_count();
        is_located.then(|| locate(&shared, [before.entity_count(), self.entity_count()], position))
    }

    /// Returns the runs of each file by row group and row. `numbers` has the numbers of files by path, and gets new
    /// ones.
    fn row_runs<'a>(&'a self, numbers: &mut HashMap<&'a str, usize>) -> Vec<Vec<RowRun>> {
        let mut number_of = |path| {
            let next = numbers.len();
            *numbers.entry(path).or_insert(next)
        };
        let files: Vec<usize> = self.files.iter().map(|file| number_of(file.object_file.path.as_ref())).collect();
        let mut position = 0;
        let mut runs = vec![Vec::new(); numbers.len()];
        for Extent { file, row_group, start, rows } in self.extents() {
            runs[files[usize::from(file)]].push(RowRun { row_group, row: start.into(), position, rows: rows.into() });
            position += u64::from(rows);
        }
        // Most extents of a file are in the order of its rows already, which a stable sort uses.
        runs.iter_mut().for_each(|runs| runs.sort_by_key(|run| (run.row_group, run.row)));
        runs
    }
}

/// Locates a position in the first list. `lengths` has the number of entities of both lists.
fn locate(shared: &[SharedRowRun], lengths: [u64; 2], position: u64) -> RowPosition {
    let next = shared.partition_point(|run| run.first_positions[0] <= position);
    let mut start = [0, 0];
    if let Some(SharedRowRun { first_positions, rows }) = shared[..next].last() {
        if position - first_positions[0] < *rows {
            return RowPosition::Retained(first_positions[1] + position - first_positions[0]);
        }
        start = first_positions.map(|first| first + rows);
    }
    let end = shared.get(next).map_or(lengths, |next| next.first_positions);
    RowPosition::Replaced { before: start[0]..end[0], after: start[1]..end[1] }
}

/// Returns the common rows of runs of one file, which are sorted by row.
fn intersect_runs(left_runs: &[RowRun], right_runs: &[RowRun]) -> Vec<SharedRowRun> {
    let mut shared: Vec<SharedRowRun> = Vec::new();
    let mut left = 0;
    let mut right = 0;
    while let Some(left_run) = left_runs.get(left)
        && let Some(right_run) = right_runs.get(right)
    {
        let ends = [left_run, right_run].map(|run| (run.row_group, run.row + run.rows));
        let start = left_run.row.max(right_run.row);
        let end = ends[0].1.min(ends[1].1);
        if left_run.row_group == right_run.row_group && start < end {
            let first_positions = [left_run, right_run].map(|run| run.position + (start - run.row));
            shared.push(SharedRowRun { first_positions, rows: end - start });
        }
        if ends[0] <= ends[1] { left += 1 } else { right += 1 }
    }
    shared
}

/// Returns the runs with the most rows that are ascending in both lists. Costs `n log n` for `n` runs, which must be
/// ascending in the first list.
fn longest_ascending(runs: Vec<SharedRowRun>) -> Vec<SharedRowRun> {
    // For each end in the second list: the number of rows of the best chain with this end, and its last run. Chains
    // that end later have more rows.
    let mut best: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
    let mut previous = vec![None; runs.len()];
    for (number, SharedRowRun { first_positions: [_, first], rows }) in runs.iter().enumerate() {
        let before = best.range(..=first).next_back().map(|(_, chain)| *chain);
        previous[number] = before.map(|(_, last)| last);
        let total = before.map_or(0, |(total, _)| total) + rows;
        let end = first + rows;
        if best.range(..=end).next_back().is_some_and(|(_, (other, _))| *other >= total) {
            continue;
        }
        let worse: Vec<u64> =
            best.range(end..).take_while(|(_, (other, _))| *other <= total).map(|(end, _)| *end).collect();
        worse.iter().for_each(|end| _ = best.remove(end));
        best.insert(end, (total, number));
    }
    let mut chain = Vec::new();
    let mut last = best.last_key_value().map(|(_, (_, last))| *last);
    while let Some(number) = last {
        chain.push(runs[number].clone());
        last = previous[number];
    }
    chain.reverse();
    chain
}

fn merge_adjacent(runs: Vec<SharedRowRun>) -> Vec<SharedRowRun> {
    let mut merged: Vec<SharedRowRun> = Vec::with_capacity(runs.len());
    for run in runs {
        match merged.last_mut() {
            Some(last) if last.first_positions.map(|first| first + last.rows) == run.first_positions => {
                last.rows += run.rows;
            }
            _ => merged.push(run),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn run(first_positions: [u64; 2], rows: u64) -> SharedRowRun {
        SharedRowRun { first_positions, rows }
    }

    /// The most rows of a chain that starts with a run at or after `starts` in both lists.
    fn most_rows(runs: &[SharedRowRun], starts: [u64; 2]) -> u64 {
        let follows = |run: &&SharedRowRun| (0..2).all(|list| run.first_positions[list] >= starts[list]);
        let rows = |run: &SharedRowRun| run.rows + most_rows(runs, run.first_positions.map(|first| first + run.rows));
        runs.iter().filter(follows).map(rows).max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn longest_chain_is_found(lengths in vec(1..5_u64, 0..7), order in Just((0..7_usize).collect::<Vec<_>>()).prop_shuffle()) {
            let starts = |order: &[usize]| {
                let mut starts = vec![0; lengths.len()];
                let mut position = 0;
                for number in order.iter().filter(|number| **number < lengths.len()) {
                    starts[*number] = position;
                    position += lengths[*number];
                }
                starts
            };
            let left = starts(&(0..lengths.len()).collect::<Vec<_>>());
            let right = starts(&order);
            let runs: Vec<_> = (0..lengths.len()).map(|number| run([left[number], right[number]], lengths[number])).collect();
            let chain = longest_ascending(runs.clone());
            for pair in chain.windows(2) {
                let is_ascending =
                    (0..2).all(|list| pair[0].first_positions[list] + pair[0].rows <= pair[1].first_positions[list]);
                prop_assert!(is_ascending, "{:?}", pair);
            }
            prop_assert_eq!(chain.iter().map(|run| run.rows).sum::<u64>(), most_rows(&runs, [0, 0]));
        }
    }

    #[test]
    fn common_rows_of_runs_are_found() {
        let runs = |runs: &[(u32, u64, u64, u64)]| {
            runs.iter()
                .map(|&(row_group, row, position, rows)| RowRun { row_group, row, position, rows })
                .collect::<Vec<_>>()
        };
        let left = runs(&[(0, 0, 10, 6), (1, 0, 0, 3), (1, 5, 3, 2)]);
        let right = runs(&[(0, 2, 0, 2), (0, 5, 2, 4), (1, 2, 6, 9)]);
        let expected = vec![run([12, 0], 2), run([15, 2], 1), run([2, 6], 1), run([3, 9], 2)];
        assert_eq!(intersect_runs(&left, &right), expected);
        assert_eq!(
            merge_adjacent(vec![run([0, 5], 2), run([2, 7], 1), run([4, 8], 1)]),
            [run([0, 5], 3), run([4, 8], 1)]
        );
    }

    #[test]
    fn entity_is_located() {
        // Entity 3 is replaced by one entity, 6 and 7 by two, and 9 is removed.
        let shared = [run([0, 0], 3), run([4, 4], 2), run([8, 8], 1)];
        let replaced = |before, after| RowPosition::Replaced { before, after };
        for (position, expected) in [
            (0, RowPosition::Retained(0)),
            (2, RowPosition::Retained(2)),
            (3, replaced(3..4, 3..4)),
            (5, RowPosition::Retained(5)),
            (6, replaced(6..8, 6..8)),
            (7, replaced(6..8, 6..8)),
            (8, RowPosition::Retained(8)),
            (9, replaced(9..10, 9..9)),
        ] {
            assert_eq!(locate(&shared, [10, 9], position), expected, "{position}");
        }
        // An insertion between two rows replaces no row.
        assert_eq!(locate(&[run([0, 0], 2), run([2, 5], 2)], [4, 7], 2), RowPosition::Retained(5));
    }
}
