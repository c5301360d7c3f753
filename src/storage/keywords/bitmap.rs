//! Sets of rows as bitmaps.

/// A set of the rows of a segment. The bit of a row is that of an Arrow bitmap: the lowest bit of a byte comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowBitmap {
    /// Bits past the last row are 0.
    words: Vec<u64>,
    rows: usize,
}

impl RowBitmap {
    /// None of so many rows.
    pub fn none(rows: usize) -> RowBitmap {
        RowBitmap { words: vec![0; rows.div_ceil(64)], rows }
    }

    /// All of so many rows.
    pub fn all(rows: usize) -> RowBitmap {
        let mut all = RowBitmap { words: vec![u64::MAX; rows.div_ceil(64)], rows };
        all.clear_tail();
        all
    }

    /// Rows that there are, in the set or not.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The bits, in words.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Whether the set holds a row. A row that there is not is in no set.
    pub fn contains(&self, row: usize) -> bool {
        self.words.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// Adds a row. `false` if there is no such row.
    #[must_use]
    #[inline]
    pub fn insert(&mut self, row: usize) -> bool {
        let there_is = row < self.rows;
        if there_is && let Some(word) = self.words.get_mut(row / 64) {
            *word |= 1 << (row % 64);
        }
        there_is
    }

    /// How many rows the set holds.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set holds every row.
    pub fn is_all(&self) -> bool {
        self.count() == self.rows
    }

    /// The rows of the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.words.iter().enumerate().flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest.wrapping_sub(1);
                (bit < 64).then_some(index * 64 + bit)
            })
        })
    }

    /// Adds the rows of another set of as many rows.
    pub fn union(&mut self, other: &RowBitmap) {
        debug_assert_eq!(self.rows, other.rows);
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }

    /// Keeps the rows that another set of as many rows holds, too.
    pub fn intersect(&mut self, other: &RowBitmap) {
        debug_assert_eq!(self.rows, other.rows);
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= other);
    }

    /// Adds the rows that another set of as many rows does not hold.
    pub fn union_complement(&mut self, other: &RowBitmap) {
        debug_assert_eq!(self.rows, other.rows);
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= !other);
        self.clear_tail();
    }

    /// Adds the rows of a bitmap in bytes. Bits past the last row are passed over.
    pub(super) fn union_bytes(&mut self, bytes: &[u8]) {
        for (word, bytes) in self.words.iter_mut().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            *word |= u64::from_le_bytes(padded);
        }
        self.clear_tail();
    }

    fn clear_tail(&mut self) {
        let used = self.rows % 64;
        if used > 0
            && let Some(last) = self.words.last_mut()
        {
            *last &= (1 << used) - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_sets() {
        for rows in [0, 1, 63, 64, 65, 200] {
            let mut odd = RowBitmap::none(rows);
            (1..rows).step_by(2).for_each(|row| assert!(odd.insert(row)));
            assert!(!odd.insert(rows));
            assert_eq!(odd.iter().collect::<Vec<_>>(), (1..rows).step_by(2).collect::<Vec<_>>());
            let mut even = RowBitmap::none(rows);
            even.union_complement(&odd);
            assert_eq!(even.count() + odd.count(), rows);
            let mut both = even.clone();
            both.intersect(&odd);
            assert_eq!(both, RowBitmap::none(rows));
            both.union(&even);
            both.union(&odd);
            assert_eq!(both, RowBitmap::all(rows));
            assert!(both.is_all());
        }
    }
}
