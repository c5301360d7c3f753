//! Values of fields as numbers that are equal if the values are equal.

use std::hash::Hasher;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use serde::{Deserialize, Serialize};
use strata_json::CanonicalForm;

/// Bits of the hash of a value. The other bits of a `u128` are the number of its field.
pub(crate) const HASH_BITS: u32 = 96;

/// Random seeds for a diff, so that no source can construct equal hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seeds {
    seeds: [u64; 2],
    shared: [u64; 2],
}

impl Seeds {
    pub fn random() -> Seeds {
        Seeds { seeds: rand::random(), shared: rand::random() }
    }
}

/// Hashes values. Of 2^32 different ones, two have the same hash with a probability of 2^-33.
pub(crate) struct ValueHasher {
    seeds: [u64; 2],
    shared: [SharedSeed; 2],
    canonical: CanonicalForm,
    form: Vec<u8>,
}

impl ValueHasher {
    pub(crate) fn new(seeds: Seeds) -> ValueHasher {
        let Seeds { seeds, shared } = seeds;
        ValueHasher {
            seeds,
            shared: shared.map(SharedSeed::from_u64),
            canonical: CanonicalForm::default(),
            form: Vec::new(),
        }
    }

    /// A hash of [`HASH_BITS`] of a value's canonical form.
    pub(crate) fn hash(&mut self, value: &[u8]) -> u128 {
        let form = match value.first() {
            // Strings and literals have one spelling.
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

pub fn value(hash: u128, field: u32) -> u128 {
    hash << (u128::BITS - HASH_BITS) | u128::from(field)
}

pub fn hash(value: u128) -> u128 {
    value >> (u128::BITS - HASH_BITS)
}

pub fn field(value: u128) -> u32 {
    value as u32
}

/// A field of an entity: its rank in the highest bits, and the hash of its value.
pub type Feature = u128;

pub(crate) fn feature(rank: u32, hash: u128) -> Feature {
    u128::from(rank) << HASH_BITS | hash
}

#[inline]
pub fn rank(feature: Feature) -> usize {
    (feature >> HASH_BITS) as usize
}
