//! Values of fields as numbers that are equal where the values are.

use std::hash::Hasher;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;

use crate::document::CanonicalForm;

/// Bits of a value's hash; the rest of a `u128` is for the number of its field.
pub(super) const HASH_BITS: u32 = 96;

/// The seeds of one diff: another diff hashes otherwise, so that no source can bring equal hashes about.
#[derive(Clone, Debug)]
pub(super) struct Seeds {
    seeds: [u64; 2],
    shared: [SharedSeed; 2],
}

impl Seeds {
    pub(super) fn random() -> Seeds {
        let shared = || SharedSeed::from_u64(rand::random());
        Seeds { seeds: rand::random(), shared: [shared(), shared()] }
    }
}

/// Hashes values. Of 2^32 different ones, two have the same hash with a probability of 2^-33.
pub(super) struct ValueHasher<'a> {
    seeds: &'a Seeds,
    canonical: CanonicalForm,
    form: Vec<u8>,
}

impl<'a> ValueHasher<'a> {
    pub(super) fn new(seeds: &'a Seeds) -> ValueHasher<'a> {
        ValueHasher { seeds, canonical: CanonicalForm::default(), form: Vec::new() }
    }

    /// A hash of [`HASH_BITS`] of a value's canonical form.
    pub(super) fn hash(&mut self, value: &[u8]) -> u128 {
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
            let mut hasher = FoldHasher::with_seed(self.seeds.seeds[number], &self.seeds.shared[number]);
            hasher.write(form);
            hasher.write_usize(form.len());
            hasher.finish()
        };
        u128::from(half(0)) << 32 | u128::from(half(1) >> 32)
    }
}
