//! Hashes of field values: equal values have equal hashes, regardless of key order and the spelling of numbers.

use std::hash::Hasher;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use serde::{Deserialize, Serialize};
use strata_json::CanonicalFormWriter;

/// The number of bits in the hash of a value. The other bits of a `u128` contain the number or the rank of the field.
pub(crate) const VALUE_HASH_BITS: u32 = 96;

/// Random seeds for a diff, so that no source can construct values with equal hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashSeeds {
    seeds: [u64; 2],
    shared: [u64; 2],
}

impl HashSeeds {
    pub fn random() -> HashSeeds {
        HashSeeds { seeds: rand::random(), shared: rand::random() }
    }
}

/// Hashes field values. Among 2^32 different values, two have the same hash with a probability of 2^-33.
pub(crate) struct FieldValueHasher {
    seeds: [u64; 2],
    shared: [SharedSeed; 2],
    canonical: CanonicalFormWriter,
    form: Vec<u8>,
}

impl FieldValueHasher {
    pub(crate) fn new(seeds: HashSeeds) -> FieldValueHasher {
        let HashSeeds { seeds, shared } = seeds;
        let shared = shared.map(SharedSeed::from_u64);
        FieldValueHasher { seeds, shared, canonical: CanonicalFormWriter::default(), form: Vec::new() }
    }

    /// Returns a hash of a value's canonical form, with [`VALUE_HASH_BITS`] bits.
    pub(crate) fn hash_canonical(&mut self, value: &[u8]) -> u128 {
        let form = match value.first() {
            // JSON strings and literals have only one spelling in canonical documents.
            Some(b'"' | b't' | b'f' | b'n') => value,
            _ => {
                self.form.clear();
                self.canonical.write(value, &mut self.form);
                &self.form
            }
        };
        let half = |number: usize| {
            let mut hasher = FoldHasher::with_seed(self.seeds[number], &self.shared[number]);
            hasher.write(form);
            hasher.write_usize(form.len());
            hasher.finish()
        };
        u128::from(half(0)) << 32 | u128::from(half(1) >> 32)
    }
}

pub fn pack_value(hash: u128, field: u32) -> u128 {
    hash << (u128::BITS - VALUE_HASH_BITS) | u128::from(field)
}

pub fn unpack_value_hash(value: u128) -> u128 {
    value >> (u128::BITS - VALUE_HASH_BITS)
}

pub fn unpack_field_number(value: u128) -> u32 {
    value as u32
}

/// A field of an entity: the rank of the field in the highest bits, and the hash of the value.
pub type FieldFeature = u128;

pub(crate) fn pack_feature(rank: u32, hash: u128) -> FieldFeature {
    u128::from(rank) << VALUE_HASH_BITS | hash
}

#[inline]
pub fn unpack_field_rank(feature: FieldFeature) -> usize {
    (feature >> VALUE_HASH_BITS) as usize
}
