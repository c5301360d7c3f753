//! Chooses bases whose rows a new version stores again, because it would otherwise have too many bases.
//!
//! Storing all rows outside of the largest base again takes more bytes each time. Therefore, similar sizes are merged,
//! as in a log-structured merge tree: the smallest bases, and each larger one that is not larger than these together.
//! For example, bases with documents of 1, 1, 1, 2, 4, 20, 30, 40, and 900 MB become the bases 20, 30, 40, and 900, and
//! 9 MB are stored again. After `n` small versions, each row has been stored about `log n` times.

use crate::overlay::MAX_BASES;

/// Merging fewer bases would leave too many for the next versions, which then merge the same rows again.
const MIN_MERGED_BASES: usize = 3;

pub(super) struct BaseMerge {
    /// The numbers of the merged bases, in ascending order of their sizes.
    bases: Vec<u8>,
}

impl BaseMerge {
    /// Chooses among the bases, whose numbers start from 1. `document_bytes` has the size of the documents that the
    /// previous version has in each of them. If all of them may stay, none is merged.
    pub(super) fn new(document_bytes: &[u64]) -> BaseMerge {
        let mut bases: Vec<(u64, u8)> = document_bytes.iter().copied().zip(1..).collect();
        bases.sort_unstable();
        let mut merged = if bases.len() > MAX_BASES { MIN_MERGED_BASES } else { 0 };
        let mut merged_bytes: u64 = bases[..merged].iter().map(|(bytes, _)| bytes).sum();
        // Merging the largest base, too, would store the whole list again.
        while merged > 0 && merged + 1 < bases.len() && bases[merged].0 <= merged_bytes {
            merged_bytes += bases[merged].0;
            merged += 1;
        }
        BaseMerge { bases: bases[..merged].iter().map(|(_, number)| *number).collect() }
    }

    pub(super) fn contains(&self, base: u8) -> bool {
        self.bases.contains(&base)
    }

    /// Merges only the smaller half. Returns `None` if that would be no base.
    pub(super) fn halved(mut self) -> Option<BaseMerge> {
        self.bases.truncate(self.bases.len() / 2);
        (!self.bases.is_empty()).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(document_bytes: &[u64]) -> Vec<u8> {
        BaseMerge::new(document_bytes).bases
    }

    #[test]
    fn smallest_bases_of_similar_size_are_merged() {
        assert!(merged(&[]).is_empty());
        assert!(merged(&[1; 8]).is_empty());
        assert_eq!(merged(&[1, 40, 1, 900, 20, 2, 30, 1, 4]), [1, 3, 8, 6, 9]);
        assert_eq!(merged(&[5, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800]), [1, 2, 3]);
        assert_eq!(merged(&[7; 9]), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn halved_merge_contains_smaller_bases() {
        let mut merge = Some(BaseMerge::new(&[900, 8, 7, 6, 5, 4, 3, 2, 1]));
        let mut merges = Vec::new();
        while let Some(current) = merge {
            merges.push(current.bases.clone());
            merge = current.halved();
        }
        assert_eq!(merges, [vec![9, 8, 7, 6, 5, 4, 3, 2], vec![9, 8, 7, 6], vec![9, 8], vec![9]]);
    }
}
