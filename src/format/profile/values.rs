//! The values of one path: how many there are, which are frequent, the minimum and the maximum.
//!
//! While there are few, each has its count. When there are too many, sketches take over, and what is told of them is
//! estimated. Nulls are no values.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use serde::{Deserialize, Serialize};
use strata_json::Scalar;
use utoipa::ToSchema;

use super::limits::{DISTINCT, DISTINCT_TOTAL, SAMPLED, TEXT_TOTAL_BYTES, TOP};
use super::min_max::{Cut, NumberMinMax, StringMinMax};
use super::sketch::{DistinctSketch, FrequentValues};

#[derive(Default)]
pub(super) struct Shared {
    hasher: foldhash::fast::FixedState,
    distinct: usize,
    text_bytes: usize,
}

/// A value as it is kept to be shown: its type, whether it is cut, and the [`Cut`]'s bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Shown {
    pub(super) scalar_type: ScalarType,
    pub(super) value: Cut,
}

/// The number of values of each type at a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TypeCounts {
    /// The number of nulls.
    pub null: u64,
    /// The number of booleans.
    pub boolean: u64,
    /// The number of numbers.
    pub number: u64,
    /// The number of strings.
    pub string: u64,
    /// The number of objects.
    pub object: u64,
    /// The number of arrays.
    pub array: u64,
}

impl TypeCounts {
    pub(super) fn scalars(&self) -> u64 {
        self.null + self.boolean + self.number + self.string
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ScalarType {
    Number,
    String,
    Boolean,
}

pub(super) struct Frequent {
    pub(super) shown: Shown,
    pub(super) count: u64,
}

#[derive(Default)]
pub(super) struct Values {
    counts: Counts,
    /// What counts the values when there are too many for `counts`, which is empty then.
    sketches: Option<Box<Sketches>>,
    pub(super) numbers: NumberMinMax,
    pub(super) strings: StringMinMax,
}

struct Sketches {
    distinct: DistinctSketch,
    min: u64,
    frequent: FrequentValues,
    scalars: u64,
}

impl Values {
    #[inline]
    pub(super) fn add(&mut self, scalar: Scalar<'_>, double: Option<f64>, shared: &mut Shared) {
        let Some(hash) = hash(scalar, &shared.hasher) else { return };
        match &mut self.sketches {
            None => match self.counts.add(hash, scalar, shared) {
                Added::Known => return,
                Added::New => {}
                Added::TooMany => self.sketches = Some(Box::new(self.counts.sketches(shared))),
            },
            Some(sketches) => sketches.add(hash, scalar),
        }
        match scalar {
            Scalar::Number(text) => self.numbers.add(text, double),
            Scalar::String(text) => self.strings.add(text),
            Scalar::Null | Scalar::Bool(_) => {}
        }
    }

    pub(super) fn are_many(&self) -> bool {
        self.sketches.is_some()
    }

    /// How many there are, and whether that is an estimate. `scalars` are all that were added.
    pub(super) fn distinct(&self, scalars: u64) -> (u64, bool) {
        match &self.sketches {
            None => (self.counts.table.len() as u64, false),
            Some(sketches) => (sketches.distinct.estimate().max(sketches.min).min(scalars), true),
        }
    }

    /// The [most frequent](most_frequent) of the values that occur more than once, and whether they are estimates.
    pub(super) fn frequent(&self) -> (Vec<Frequent>, bool) {
        let (found, estimated) = match &self.sketches {
            None => (self.counts.repeated(), self.counts.incomplete),
            Some(sketches) => {
                let found = sketches.frequent.frequent();
                let frequent = |bytes: &[u8], count| Frequent { shown: Shown::unpack(bytes), count };
                (found.map(|candidate| frequent(&candidate.value, candidate.count)).collect(), true)
            }
        };
        (most_frequent(found), estimated)
    }
}

/// The most frequent of these values first, those of one count by what they are.
pub(super) fn most_frequent(mut found: Vec<Frequent>) -> Vec<Frequent> {
    found.sort_by(|one, other| (other.count, &one.shown).cmp(&(one.count, &other.shown)));
    found.truncate(TOP);
    found
}

#[inline]
fn hash(scalar: Scalar<'_>, hasher: &foldhash::fast::FixedState) -> Option<u64> {
    /// Keeps the number 1 and the string "1" apart.
    const NUMBERS: u64 = 0x9E37_79B9_7F4A_7C15;
    match scalar {
        Scalar::Null => None,
        Scalar::Bool(false) => Some(0xD1B5_4A32_D192_ED03),
        Scalar::Bool(true) => Some(0xAEF1_7502_B3DD_84B5),
        Scalar::Number(text) => Some(hasher.hash_one(text.as_bytes()) ^ NUMBERS),
        Scalar::String(text) => Some(hasher.hash_one(text.raw())),
    }
}

#[derive(Default)]
struct Counts {
    table: HashTable<Count>,
    /// What occurs more than once, packed one after the other.
    texts: Vec<u8>,
    /// Whether something that occurs more than once is not there.
    incomplete: bool,
}

struct Count {
    hash: u64,
    count: u32,
    text: u32,
}

const NOWHERE: u32 = u32::MAX;

enum Added {
    Known,
    New,
    TooMany,
}

impl Counts {
    #[inline]
    fn add(&mut self, hash: u64, scalar: Scalar<'_>, shared: &mut Shared) -> Added {
        match self.table.find_mut(hash, |count| count.hash == hash) {
            Some(known) if known.count == 1 => {
                known.count = 2;
                if shared.text_bytes < TEXT_TOTAL_BYTES {
                    let start = self.texts.len();
                    known.text = start as u32;
                    Shown::from_scalar(scalar).pack(&mut self.texts);
                    shared.text_bytes += self.texts.len() - start;
                } else {
                    self.incomplete = true;
                }
                Added::Known
            }
            Some(known) => match known.count.checked_add(1) {
                Some(count) => {
                    known.count = count;
                    Added::Known
                }
                None => Added::TooMany,
            },
            None => {
                self.table.insert_unique(hash, Count { hash, count: 1, text: NOWHERE }, |count| count.hash);
                shared.distinct += 1;
                match self.table.len() > DISTINCT || shared.distinct > DISTINCT_TOTAL {
                    true => Added::TooMany,
                    false => Added::New,
                }
            }
        }
    }

    fn sketches(&mut self, shared: &mut Shared) -> Sketches {
        shared.distinct -= self.table.len();
        shared.text_bytes -= self.texts.len();
        let mut distinct = DistinctSketch::new();
        self.table.iter().for_each(|count| distinct.add(count.hash));
        let counts = self.table.iter().map(|count| (count.hash, u64::from(count.count), self.packed(count)));
        let frequent = FrequentValues::from_counts(counts);
        let min = self.table.len() as u64;
        *self = Counts::default();
        Sketches { distinct, min, frequent, scalars: 0 }
    }

    fn packed(&self, count: &Count) -> &[u8] {
        let Some(rest) = self.texts.get(count.text as usize..) else { return &[] };
        &rest[..Shown::packed_length(rest).min(rest.len())]
    }

    fn repeated(&self) -> Vec<Frequent> {
        let found = self.table.iter().filter(|count| count.text != NOWHERE);
        found.map(|count| Frequent { shown: Shown::unpack(self.packed(count)), count: count.count.into() }).collect()
    }
}

impl Sketches {
    #[inline]
    fn add(&mut self, hash: u64, scalar: Scalar<'_>) {
        self.distinct.add(hash);
        self.scalars += 1;
        // Evenly, but in step with nothing.
        let place = self.scalars.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        if place < u64::MAX / SAMPLED {
            self.frequent.add(hash, || {
                let mut packed = Vec::new();
                Shown::from_scalar(scalar).pack(&mut packed);
                packed.into()
            });
        }
    }
}

impl Shown {
    fn from_scalar(scalar: Scalar<'_>) -> Shown {
        match scalar {
            Scalar::Number(text) => Shown { scalar_type: ScalarType::Number, value: Cut::new(text.as_bytes()) },
            Scalar::String(text) => Shown { scalar_type: ScalarType::String, value: Cut::of_string(text) },
            Scalar::Bool(value) => {
                let text = if value { &b"true"[..] } else { b"false" };
                Shown { scalar_type: ScalarType::Boolean, value: Cut::new(text) }
            }
            Scalar::Null => Shown { scalar_type: ScalarType::Boolean, value: Cut::default() },
        }
    }

    /// A byte for the type, one for the length, whose top bit says that it is cut, and the bytes.
    fn pack(&self, out: &mut Vec<u8>) {
        const { assert!(super::limits::VALUE_BYTES < 128) };
        out.push(self.scalar_type as u8);
        out.push(self.value.bytes.len() as u8 | u8::from(self.value.cut) << 7);
        out.extend_from_slice(&self.value.bytes);
    }

    fn packed_length(packed: &[u8]) -> usize {
        2 + packed.get(1).map_or(0, |length| usize::from(length & 0x7F))
    }

    fn unpack(packed: &[u8]) -> Shown {
        let scalar_type = match packed.first() {
            Some(0) => ScalarType::Number,
            Some(1) => ScalarType::String,
            _ => ScalarType::Boolean,
        };
        let cut = packed.get(1).is_some_and(|length| length >> 7 == 1);
        Shown { scalar_type, value: Cut { bytes: packed.get(2..).unwrap_or_default().to_vec(), cut } }
    }
}
