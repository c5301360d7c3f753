//! The linear-space algorithm of Myers (An O(ND) Difference Algorithm and Its Variations, 1986).
//!
//! It searches for the shortest script of edits from both ends at once, divides the lists where both searches meet, and
//! repeats this for both parts. The time is O((n + m) d) for d edits. If a search needs more than [`MAX_SEARCH_EDITS`]
//! edits, the lists are divided where the forward search got farthest, as in GNU diff and Git. The result is then not
//! always a longest common subsequence.

use std::ops::Range;

use super::alignment::{IndexPair, YIELD_EVERY_STEPS};

/// Maximum edits of a search from one end. The search is exact for lists of up to twice as many symbols together.
const MAX_SEARCH_EDITS: usize = 1 << 13;

/// Returns pairs of equal symbols in both lists, in order.
pub(super) async fn align(old: &[u32], new: &[u32]) -> Vec<IndexPair> {
    align_with_limit(old, new, MAX_SEARCH_EDITS).await
}

async fn align_with_limit(old: &[u32], new: &[u32], max_edits: usize) -> Vec<IndexPair> {
    let mut pairs = Vec::new();
    let mut search = EditSearch::default();
    let mut open: Vec<[Range<usize>; 2]> = vec![[0..old.len(), 0..new.len()]];
    while let Some([mut olds, mut news]) = open.pop() {
        while !olds.is_empty() && !news.is_empty() && old[olds.start] == new[news.start] {
            pairs.push([olds.start as u32, news.start as u32]);
            olds.start += 1;
            news.start += 1;
        }
        let suffix = old[olds.clone()].iter().rev().zip(new[news.clone()].iter().rev());
        let suffix = suffix.take_while(|(old, new)| old == new).count();
        if suffix > 0 {
            // The suffix is added after the middle, when its ranges are popped.
            open.push([olds.end - suffix..olds.end, news.end - suffix..news.end]);
            olds.end -= suffix;
            news.end -= suffix;
        }
        if olds.is_empty() || news.is_empty() {
            continue;
        }
        let Some([x, y]) = search.find_division(&old[olds.clone()], &new[news.clone()], max_edits).await else {
            continue;
        };
        let division = [olds.start + x, news.start + y];
        open.push([division[0]..olds.end, division[1]..news.end]);
        open.push([olds.start..division[0], news.start..division[1]]);
    }
    pairs
}

/// The farthest points of both searches by diagonal. The buffers are reused between searches.
#[derive(Default)]
struct EditSearch {
    forward: Vec<usize>,
    backward: Vec<usize>,
    steps: usize,
}

impl EditSearch {
    /// Returns how many items of each list belong to the first part. `None` if the lists cannot be divided, because
    /// they have no common subsequence. The lists must not be empty, and must have no common prefix or suffix.
    async fn find_division(&mut self, old: &[u32], new: &[u32], max_edits: usize) -> Option<[usize; 2]> {
        let ends = [old.len(), new.len()];
        let limit = (ends[0] + ends[1]).div_ceil(2).min(max_edits);
        let center = limit as isize + 1;
        let slot = |diagonal: isize| (center + diagonal) as usize;
        for points in [&mut self.forward, &mut self.backward] {
            points.clear();
            points.resize(2 * limit + 3, 0);
        }
        let delta = ends[0] as isize - ends[1] as isize;
        let is_odd = delta & 1 != 0;
        let is_division =
            |point: &[usize; 2]| *point != [0, 0] && *point != ends && point[0] <= ends[0] && point[1] <= ends[1];
        for edits in 0..=limit as isize {
            for diagonal in (-edits..=edits).step_by(2) {
                let start = next_start(&self.forward, slot, diagonal, edits);
                let mut x = start;
                let y = |x: usize| (x as isize - diagonal) as usize;
                while x < ends[0] && y(x) < ends[1] && old[x] == new[y(x)] {
                    x += 1;
                }
                self.forward[slot(diagonal)] = x;
                self.steps += 1 + x - start;
                let reverse = delta - diagonal;
                if is_odd && reverse.abs() < edits && x + self.backward[slot(reverse)] >= ends[0] {
                    return Some([start, y(start)]).filter(is_division);
                }
            }
            for diagonal in (-edits..=edits).step_by(2) {
                let start = next_start(&self.backward, slot, diagonal, edits);
                let mut x = start;
                let y = |x: usize| (x as isize - diagonal) as usize;
                while x < ends[0] && y(x) < ends[1] && old[ends[0] - 1 - x] == new[ends[1] - 1 - y(x)] {
                    x += 1;
                }
                self.backward[slot(diagonal)] = x;
                self.steps += 1 + x - start;
                let reverse = delta - diagonal;
                if !is_odd && reverse.abs() <= edits && x + self.forward[slot(reverse)] >= ends[0] {
                    let point = [ends[0].checked_sub(x)?, ends[1].checked_sub(y(x))?];
                    return Some(point).filter(is_division);
                }
            }
            if self.steps >= YIELD_EVERY_STEPS {
                self.steps = 0;
                tokio::task::yield_now().await;
            }
        }
        let edits = limit as isize;
        let points = (-edits..=edits).step_by(2).map(|diagonal| {
            let x = self.forward[slot(diagonal)];
            [x, (x as isize - diagonal) as usize]
        });
        points.filter(is_division).max_by_key(|[x, y]| x + y)
    }
}

/// Returns the first x on a diagonal that is reachable with `edits` edits, from the neighbors with one edit less.
fn next_start(points: &[usize], slot: impl Fn(isize) -> usize, diagonal: isize, edits: isize) -> usize {
    let below = || points[slot(diagonal - 1)];
    let above = || points[slot(diagonal + 1)];
    if diagonal == -edits || (diagonal != edits && below() < above()) { above() } else { below() + 1 }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// With a limit, the result can be shorter than possible, but consists of equal symbols in order.
        #[test]
        fn limited_search_returns_equal_pairs(
            (old, new) in (1..5_u32).prop_flat_map(|items| (vec(0..items, 0..60), vec(0..items, 0..60))),
            max_edits in 0..5_usize,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let pairs = runtime.block_on(align_with_limit(&old, &new, max_edits));
            prop_assert!(pairs.iter().all(|[i, j]| old[*i as usize] == new[*j as usize]), "{pairs:?}");
            prop_assert!(pairs.is_sorted_by(|one, other| one[0] < other[0] && one[1] < other[1]), "{pairs:?}");
        }
    }
}
