//! In-memory hash index of an indexed column, built after reads have scanned the column often, and cached as an
//! [auxiliary index](super::aux_index).
//!
//! For example, the entities 0 to 3 have the values `a`, `b`, `a`, and `c`, and the hashes of `b` and `c` lead to one
//! bucket. A probe for `a` returns 0 and 2, with `is_single_value`. A probe for `b` returns 1 and 3.
//!
//! - A probe returns all entities with the value, in ascending order. It can also return other entities, so callers
//!   must compare the values.
//! - Most buckets have a single value. For these, comparing one of the entities is enough.
//! - The index contains no values. It takes at most [`MAX_INDEX_BYTES_PER_ELEMENT`].

use std::hash::{BuildHasher, RandomState as SipState};

use fixedbitset::FixedBitSet;
use foldhash::quality::RandomState;

use super::aux_index::AuxIndex;

/// Max memory of a hash index, in bytes per element of its column: a position and two buckets.
pub const MAX_INDEX_BYTES_PER_ELEMENT: u64 = 3 * size_of::<u32>() as u64 + 1;
/// Memory for building a hash index, in bytes per element: the entry, the index, and the fingerprints of two buckets.
pub const BUILD_BYTES_PER_ELEMENT: u64 =
    size_of::<HashIndexEntry>() as u64 + MAX_INDEX_BYTES_PER_ELEMENT + 2 * size_of::<u64>() as u64;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IndexedValue<'a> {
    Text(&'a [u8]),
    /// A number as its nearest double, and the remainder: the difference from the double if the number is an integer.
    Number(f64, i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashedValue {
    bucket: u32,
    /// A second, keyed 64-bit hash of the value. Values with equal bucket and fingerprint are treated as equal.
    fingerprint: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct HashIndexEntry {
    pub value: HashedValue,
    pub position: u32,
}

/// Hashes values with random seeds, so that clients cannot choose values that share a bucket.
#[derive(Clone, Debug, Default)]
pub struct SeededValueHasher {
    bucket_hasher: RandomState,
    fingerprint_hasher: SipState,
}

impl SeededValueHasher {
    #[inline]
    fn bucket(&self, value: IndexedValue<'_>) -> u32 {
        let hash = match value {
            IndexedValue::Text(text) => self.bucket_hasher.hash_one(text),
            IndexedValue::Number(double, remainder) => self.bucket_hasher.hash_one((canonical_bits(double), remainder)),
        };
        (hash >> 32) as u32
    }

    pub fn hash(&self, value: IndexedValue<'_>) -> HashedValue {
        let fingerprint = match value {
            IndexedValue::Text(text) => self.fingerprint_hasher.hash_one((true, text)),
            IndexedValue::Number(double, remainder) => {
                self.fingerprint_hasher.hash_one((false, canonical_bits(double), remainder))
            }
        };
        // The fingerprint 0 marks an empty bucket.
        HashedValue { bucket: self.bucket(value), fingerprint: fingerprint.max(1) }
    }
}

fn canonical_bits(double: f64) -> u64 {
    (double + 0.0).to_bits()
}

/// The result of a probe: all entities with the requested value, and possibly entities with other values.
#[derive(Clone, Copy, Debug)]
pub struct HashCandidates<'i> {
    pub positions: &'i [u32],
    /// Whether all candidates are in the bucket because of one value, so that all or none have the requested value.
    pub is_single_value: bool,
}

#[derive(Debug)]
pub struct HashIndex {
    hasher: SeededValueHasher,
    bucket_shift: u32,
    /// For each bucket, the index of its first position in `positions`, followed by the number of all positions.
    bucket_starts: Vec<u32>,
    /// Positions of the entities in each bucket, ascending. An entity with several values of one bucket is repeated.
    positions: Vec<u32>,
    multi_value_buckets: FixedBitSet,
}

impl HashIndex {
    /// Builds a hash index. The positions of `entries` must ascend. `yield_now` is called after each chunk of work.
    pub async fn build(
        hasher: SeededValueHasher,
        entries: &[HashIndexEntry],
        mut yield_now: impl AsyncFnMut(),
    ) -> HashIndex {
        const YIELD_EVERY: usize = 1 << 16;
        let bits = entries.len().max(2).next_power_of_two().trailing_zeros().min(31);
        let bucket_shift = 32 - bits;
        let mut bucket_starts = vec![0_u32; (1 << bits) + 1];
        for chunk in entries.chunks(YIELD_EVERY) {
            chunk.iter().for_each(|entry| bucket_starts[(entry.value.bucket >> bucket_shift) as usize + 1] += 1);
            yield_now().await;
        }
        for chunk in 0..bucket_starts.len().div_ceil(YIELD_EVERY) {
            let first = (chunk * YIELD_EVERY).max(1);
            for bucket in first..bucket_starts.len().min((chunk + 1) * YIELD_EVERY) {
                bucket_starts[bucket] += bucket_starts[bucket - 1];
            }
            yield_now().await;
        }
        let mut positions = vec![0_u32; entries.len()];
        let mut fingerprints = vec![0_u64; 1 << bits];
        let mut multi_value_buckets = FixedBitSet::with_capacity(1 << bits);
        // Each written position advances the start of its bucket, which in the end is the start of the next bucket.
        for chunk in entries.chunks(YIELD_EVERY) {
            for HashIndexEntry { value, position } in chunk {
                let bucket = (value.bucket >> bucket_shift) as usize;
                let next = &mut bucket_starts[bucket];
                positions[*next as usize] = *position;
                *next += 1;
                let fingerprint = &mut fingerprints[bucket];
                if *fingerprint == 0 {
                    *fingerprint = value.fingerprint;
                } else if *fingerprint != value.fingerprint {
                    multi_value_buckets.insert(bucket);
                }
            }
            yield_now().await;
        }
        bucket_starts.rotate_right(1);
        bucket_starts[0] = 0;
        HashIndex { hasher, bucket_shift, bucket_starts, positions, multi_value_buckets }
    }

    pub fn candidates(&self, value: IndexedValue<'_>) -> HashCandidates<'_> {
        let bucket = (self.hasher.bucket(value) >> self.bucket_shift) as usize;
        HashCandidates {
            positions: &self.positions[self.bucket_starts[bucket] as usize..self.bucket_starts[bucket + 1] as usize],
            is_single_value: !self.multi_value_buckets.contains(bucket),
        }
    }
}

impl AuxIndex for HashIndex {
    const MAX_BYTES_PER_ENTITY: u64 = MAX_INDEX_BYTES_PER_ELEMENT;

    fn memory_bytes(&self) -> usize {
        (self.bucket_starts.capacity() + self.positions.capacity()) * size_of::<u32>()
            + size_of_val(self.multi_value_buckets.as_slice())
    }
}
