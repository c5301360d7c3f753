//! A hash index of a shredded column: which entities may hold a value, in memory alone. It is computed from the column
//! when reads have looked through it often, and kept as an [auxiliary index](super::aux_index).
//!
//! Values are hashed, and the positions of a hash's bucket are listed together. So an answer names all entities that
//! hold the value, and may name others: who asks compares their values. Most buckets are of one value alone, which the
//! index knows: there one of them tells of all.

use std::hash::{BuildHasher, RandomState as SipState};

use fixedbitset::FixedBitSet;
use foldhash::quality::RandomState;

use super::aux_index::AuxIndex;

/// Bytes that an index takes for each element of its column, at most: its position, and two buckets.
pub const ELEMENT_BYTES: u64 = 3 * size_of::<u32>() as u64 + 1;

/// Bytes that making an index takes for each element: its entry, the index, and the fingerprints of two buckets.
pub const MAKING_BYTES: u64 = size_of::<Entry>() as u64 + ELEMENT_BYTES + 2 * size_of::<u64>() as u64;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IndexedValue<'a> {
    Text(&'a [u8]),
    /// A number: its double, and what that leaves of it.
    Number(f64, i64),
}

/// A value, hashed: the same for values that are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashedValue {
    bucket: u32,
    /// Of another hash, with 64 bits and a key: values of one bucket that have the same one are taken to be equal.
    fingerprint: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub value: HashedValue,
    pub position: u32,
}

/// Hashes values, with seeds of its own: nobody outside can choose values that share a bucket.
#[derive(Clone, Debug, Default)]
pub struct ValueHasher {
    buckets: RandomState,
    fingerprints: SipState,
}

impl ValueHasher {
    #[inline]
    fn bucket(&self, value: IndexedValue<'_>) -> u32 {
        let hash = match value {
            IndexedValue::Text(text) => self.buckets.hash_one(text),
            IndexedValue::Number(double, remainder) => self.buckets.hash_one((bits(double), remainder)),
        };
        (hash >> 32) as u32
    }

    pub fn hash(&self, value: IndexedValue<'_>) -> HashedValue {
        let fingerprint = match value {
            IndexedValue::Text(text) => self.fingerprints.hash_one((true, text)),
            IndexedValue::Number(double, remainder) => self.fingerprints.hash_one((false, bits(double), remainder)),
        };
        // 0 is none.
        HashedValue { bucket: self.bucket(value), fingerprint: fingerprint.max(1) }
    }
}

fn bits(double: f64) -> u64 {
    (double + 0.0).to_bits()
}

/// Entities that hold a value, and perhaps others.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'i> {
    /// Their positions, ascending; some stand there more than once.
    pub positions: &'i [u32],
    /// Whether they are listed for one and the same value: then all of them hold the value that is looked for, or none
    /// does.
    pub are_of_one_value: bool,
}

#[derive(Debug)]
pub struct HashIndex {
    hasher: ValueHasher,
    shift: u32,
    /// Where each bucket's positions begin, and where the last one's end.
    starts: Vec<u32>,
    /// The positions of each bucket, ascending. One that holds several such values stands there as often.
    positions: Vec<u32>,
    /// A bit for each bucket: whether it has several values.
    mixed: FixedBitSet,
}

impl HashIndex {
    /// The index of these entries, whose positions ascend. Each is looked at twice, so the work is done in stretches:
    /// `give_way` is called between them.
    pub async fn build(hasher: ValueHasher, entries: &[Entry], mut give_way: impl AsyncFnMut()) -> HashIndex {
        const YIELD_EVERY: usize = 1 << 16;
        let bits = entries.len().max(2).next_power_of_two().trailing_zeros().min(31);
        let shift = 32 - bits;
        let mut starts = vec![0_u32; (1 << bits) + 1];
        for stretch in entries.chunks(YIELD_EVERY) {
            stretch.iter().for_each(|entry| starts[(entry.value.bucket >> shift) as usize + 1] += 1);
            give_way().await;
        }
        for stretch in 0..starts.len().div_ceil(YIELD_EVERY) {
            let first = (stretch * YIELD_EVERY).max(1);
            for bucket in first..starts.len().min((stretch + 1) * YIELD_EVERY) {
                starts[bucket] += starts[bucket - 1];
            }
            give_way().await;
        }
        let mut positions = vec![0_u32; entries.len()];
        let mut fingerprints = vec![0_u64; 1 << bits];
        let mut mixed = FixedBitSet::with_capacity(1 << bits);
        // Each bucket's start moves to its end, which is the start of the next one.
        for stretch in entries.chunks(YIELD_EVERY) {
            for Entry { value, position } in stretch {
                let bucket = (value.bucket >> shift) as usize;
                let place = &mut starts[bucket];
                positions[*place as usize] = *position;
                *place += 1;
                let fingerprint = &mut fingerprints[bucket];
                if *fingerprint == 0 {
                    *fingerprint = value.fingerprint;
                } else if *fingerprint != value.fingerprint {
                    mixed.insert(bucket);
                }
            }
            give_way().await;
        }
        starts.rotate_right(1);
        starts[0] = 0;
        HashIndex { hasher, shift, starts, positions, mixed }
    }

    pub fn candidates(&self, value: IndexedValue<'_>) -> Listed<'_> {
        let bucket = (self.hasher.bucket(value) >> self.shift) as usize;
        Listed {
            positions: &self.positions[self.starts[bucket] as usize..self.starts[bucket + 1] as usize],
            are_of_one_value: !self.mixed.contains(bucket),
        }
    }
}

impl AuxIndex for HashIndex {
    const ENTITY_BYTES: u64 = ELEMENT_BYTES;

    fn memory_bytes(&self) -> usize {
        (self.starts.capacity() + self.positions.capacity()) * size_of::<u32>() + size_of_val(self.mixed.as_slice())
    }
}
