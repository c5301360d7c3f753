//! A hash index of a shredded column: which entities may hold a value, in memory alone. It is computed from the column
//! when reads have looked through it often, and kept as what is [derived](super::derived) from a file.
//!
//! Values are hashed, and the positions of a hash's bucket are listed together. So an answer names all entities that
//! hold the value, and may name others: who asks compares their values.

use std::fmt;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;

/// Bytes that an index takes for each element of its column, at most: its position, and two buckets.
pub const ELEMENT_BYTES: u64 = 3 * size_of::<u32>() as u64;

/// A value that equality compares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IndexedValue<'a> {
    /// A folded text.
    Text(&'a [u8]),
    /// A number: its double, and what that leaves of it.
    Number(f64, i64),
}

/// Hashes values, with a seed of its own: nobody outside can choose values that share a bucket.
#[derive(Clone, Default)]
pub struct ValueHasher(RandomState);

impl ValueHasher {
    /// The hash of a value: the same for values that are equal.
    #[inline]
    pub fn hash(&self, value: IndexedValue<'_>) -> u32 {
        let hash = match value {
            IndexedValue::Text(text) => self.0.hash_one(text),
            // Both zeros are equal.
            IndexedValue::Number(double, remainder) => self.0.hash_one(((double + 0.0).to_bits(), remainder)),
        };
        (hash >> 32) as u32
    }
}

/// The index. Bounded by [`ELEMENT_BYTES`] an element.
pub struct HashIndex {
    hasher: ValueHasher,
    /// How far a hash is shifted to give its bucket.
    shift: u32,
    /// Where each bucket's positions begin, and where the last one's end.
    starts: Vec<u32>,
    /// The positions of each bucket, ascending. One that holds several such values stands there as often.
    positions: Vec<u32>,
}

impl HashIndex {
    /// The index of these hashes and positions, of which the latter ascend. Each is looked at twice, so the work is
    /// done in stretches: `give_way` is called between them.
    pub async fn build(hasher: ValueHasher, entries: &[(u32, u32)], mut give_way: impl AsyncFnMut()) -> HashIndex {
        /// Entries that are worked on between two points of giving way.
        const STRETCH: usize = 1 << 16;
        let bits = entries.len().max(2).next_power_of_two().trailing_zeros().min(31);
        let shift = 32 - bits;
        let mut starts = vec![0_u32; (1 << bits) + 1];
        for stretch in entries.chunks(STRETCH) {
            stretch.iter().for_each(|(hash, _)| starts[(hash >> shift) as usize + 1] += 1);
            give_way().await;
        }
        for stretch in 0..starts.len().div_ceil(STRETCH) {
            let first = (stretch * STRETCH).max(1);
            for bucket in first..starts.len().min((stretch + 1) * STRETCH) {
                starts[bucket] += starts[bucket - 1];
            }
            give_way().await;
        }
        let mut positions = vec![0_u32; entries.len()];
        // Each bucket's start moves to its end, which is the start of the next one.
        for stretch in entries.chunks(STRETCH) {
            for (hash, position) in stretch {
                let place = &mut starts[(hash >> shift) as usize];
                positions[*place as usize] = *position;
                *place += 1;
            }
            give_way().await;
        }
        starts.rotate_right(1);
        starts[0] = 0;
        HashIndex { hasher, shift, starts, positions }
    }

    /// The positions of all entities that hold a value, and perhaps of others: ascending, some of them more than once.
    pub fn candidates(&self, value: IndexedValue<'_>) -> &[u32] {
        let bucket = (self.hasher.hash(value) >> self.shift) as usize;
        &self.positions[self.starts[bucket] as usize..self.starts[bucket + 1] as usize]
    }

    pub(super) fn memory_bytes(&self) -> usize {
        (self.starts.capacity() + self.positions.capacity()) * size_of::<u32>()
    }
}

impl fmt::Debug for HashIndex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HashIndex").field("positions", &self.positions.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn index(values: &[Vec<u8>]) -> HashIndex {
        let hasher = ValueHasher::default();
        let hash = |value: &Vec<u8>| hasher.hash(IndexedValue::Text(value));
        let entries: Vec<(u32, u32)> = values.iter().map(hash).zip(0..).collect();
        HashIndex::build(hasher, &entries, async || {}).await
    }

    #[tokio::test]
    async fn every_entity_that_holds_a_value_is_a_candidate_and_few_others_are() {
        for count in [0, 1, 2, 3, 1_000, 200_000_u32] {
            let values: Vec<Vec<u8>> = (0..count).map(|at| format!("value {}", at % 5_000).into_bytes()).collect();
            let index = index(&values).await;
            let mut listed = 0;
            for number in (0..5_000).step_by(97) {
                let candidates = index.candidates(IndexedValue::Text(format!("value {number}").as_bytes()));
                assert!(candidates.is_sorted());
                listed += candidates.len();
                let holding: Vec<u32> = (number..count).step_by(5_000).collect();
                assert!(
                    holding.iter().all(|position| candidates.binary_search(position).is_ok()),
                    "{number} of {count}"
                );
            }
            assert!(listed <= 2 * (count as usize / 97) + 200, "{listed} of {count}");
        }
    }

    #[test]
    fn equal_numbers_have_one_hash() {
        let hasher = ValueHasher::default();
        let hash = |double, remainder| hasher.hash(IndexedValue::Number(double, remainder));
        assert_eq!(hash(0.0, 0), hash(-0.0, 0));
        assert_ne!(hash(1.0, 0), hash(1.0, 1));
    }
}
