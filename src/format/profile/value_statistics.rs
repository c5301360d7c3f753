//! Statistics of the values of one path: distinct and frequent values, minimum and maximum, without nulls. Counts are
//! exact while there are few distinct values. Later, sketches estimate them.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use serde::{Deserialize, Serialize};
use strata_json::JsonScalar;
use utoipa::ToSchema;

use super::limits::{
    MAX_EXACT_DISTINCT, MAX_EXACT_DISTINCT_TOTAL, MAX_REPEATED_TEXT_BYTES, MAX_TOP_VALUES, SAMPLE_INTERVAL,
};
use super::min_max::{NumberMinMax, StringMinMax, TruncatedValue};
use super::sketch::{DistinctSketch, FrequentValueSketch};

/// A number of distinct values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DistinctCount {
    /// The number of distinct values.
    pub count: u64,
    /// Whether `count` is an estimate. Estimates have a standard error of 2.3%. Counts of up to 4,096 are exact.
    pub estimated: bool,
}

#[derive(Default)]
pub(super) struct SharedValueBudget {
    hasher: foldhash::fast::FixedState,
    distinct_count: usize,
    text_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DisplayValue {
    pub(super) scalar_type: ScalarType,
    pub(super) value: TruncatedValue,
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

pub(super) struct FrequentValue {
    pub(super) value: DisplayValue,
    pub(super) count: u64,
}

#[derive(Default)]
pub(super) struct ValueStatistics {
    exact_counts: ExactCounts,
    /// Set after `exact_counts` has exceeded its limits. `exact_counts` is then empty.
    sketches: Option<Box<ValueSketches>>,
    pub(super) numbers: NumberMinMax,
    pub(super) strings: StringMinMax,
}

struct ValueSketches {
    distinct: DistinctSketch,
    min_distinct: u64,
    frequent: FrequentValueSketch,
    scalar_count: u64,
}

impl ValueStatistics {
    #[inline]
    pub(super) fn add(&mut self, scalar: JsonScalar<'_>, double: Option<f64>, shared_budget: &mut SharedValueBudget) {
        let Some(hash) = hash_scalar(scalar, &shared_budget.hasher) else { return };
        match &mut self.sketches {
            None => match self.exact_counts.add(hash, scalar, shared_budget) {
                CountOutcome::Known => return,
                CountOutcome::New => {}
                CountOutcome::TooMany => {
                    self.sketches = Some(Box::new(self.exact_counts.convert_to_sketches(shared_budget)))
                }
            },
            Some(sketches) => sketches.add(hash, scalar),
        }
        match scalar {
            JsonScalar::Number(text) => self.numbers.add(text, double),
            JsonScalar::String(text) => self.strings.add(text),
            JsonScalar::Null | JsonScalar::Bool(_) => {}
        }
    }

    pub(super) fn is_estimated(&self) -> bool {
        self.sketches.is_some()
    }

    /// `scalars` is the number of values so far.
    pub(super) fn distinct_count(&self, scalars: u64) -> DistinctCount {
        let count = match &self.sketches {
            None => self.exact_counts.table.len() as u64,
            Some(sketches) => sketches.distinct.estimate().max(sketches.min_distinct).min(scalars),
        };
        DistinctCount { count, estimated: self.is_estimated() }
    }

    pub(super) fn frequent_values_and_is_estimated(&self) -> (Vec<FrequentValue>, bool) {
        let (frequent, estimated) = match &self.sketches {
            None => (self.exact_counts.repeated_values(), self.exact_counts.is_incomplete),
            Some(sketches) => {
                let candidates = sketches.frequent.frequent_candidates();
                let to_frequent = |bytes: &[u8], count| FrequentValue { value: DisplayValue::unpack(bytes), count };
                (candidates.map(|candidate| to_frequent(&candidate.value, candidate.count)).collect(), true)
            }
        };
        (most_frequent(frequent), estimated)
    }
}

pub(super) fn most_frequent(mut values: Vec<FrequentValue>) -> Vec<FrequentValue> {
    values.sort_by(|left, right| (right.count, &left.value).cmp(&(left.count, &right.value)));
    values.truncate(MAX_TOP_VALUES);
    values
}

#[inline]
fn hash_scalar(scalar: JsonScalar<'_>, hasher: &foldhash::fast::FixedState) -> Option<u64> {
    /// Changes the hash of a number, so that the number 1 and the string "1" have different hashes.
    const NUMBER_HASH_MASK: u64 = 0x9E37_79B9_7F4A_7C15;
    match scalar {
        JsonScalar::Null => None,
        JsonScalar::Bool(false) => Some(0xD1B5_4A32_D192_ED03),
        JsonScalar::Bool(true) => Some(0xAEF1_7502_B3DD_84B5),
        JsonScalar::Number(text) => Some(hasher.hash_one(text.as_bytes()) ^ NUMBER_HASH_MASK),
        JsonScalar::String(text) => Some(hasher.hash_one(text.raw())),
    }
}

#[derive(Default)]
struct ExactCounts {
    table: HashTable<ValueCount>,
    repeated_texts: Vec<u8>,
    is_incomplete: bool,
}

struct ValueCount {
    hash: u64,
    count: u32,
    text_offset: u32,
}

const NO_TEXT: u32 = u32::MAX;

enum CountOutcome {
    Known,
    New,
    TooMany,
}

impl ExactCounts {
    #[inline]
    fn add(&mut self, hash: u64, scalar: JsonScalar<'_>, shared_budget: &mut SharedValueBudget) -> CountOutcome {
        match self.table.find_mut(hash, |count| count.hash == hash) {
            Some(known) if known.count == 1 => {
                known.count = 2;
                if shared_budget.text_bytes < MAX_REPEATED_TEXT_BYTES {
                    let start = self.repeated_texts.len();
                    known.text_offset = start as u32;
                    DisplayValue::from_scalar(scalar).pack(&mut self.repeated_texts);
                    shared_budget.text_bytes += self.repeated_texts.len() - start;
                } else {
                    self.is_incomplete = true;
                }
                CountOutcome::Known
            }
            Some(known) => match known.count.checked_add(1) {
                Some(count) => {
                    known.count = count;
                    CountOutcome::Known
                }
                None => CountOutcome::TooMany,
            },
            None => {
                self.table.insert_unique(hash, ValueCount { hash, count: 1, text_offset: NO_TEXT }, |count| count.hash);
                shared_budget.distinct_count += 1;
                match self.table.len() > MAX_EXACT_DISTINCT || shared_budget.distinct_count > MAX_EXACT_DISTINCT_TOTAL {
                    true => CountOutcome::TooMany,
                    false => CountOutcome::New,
                }
            }
        }
    }

    fn convert_to_sketches(&mut self, shared_budget: &mut SharedValueBudget) -> ValueSketches {
        shared_budget.distinct_count -= self.table.len();
        shared_budget.text_bytes -= self.repeated_texts.len();
        let mut distinct = DistinctSketch::new();
        self.table.iter().for_each(|count| distinct.add(count.hash));
        let counts = self.table.iter().map(|count| (count.hash, u64::from(count.count), self.packed_text(count)));
        let frequent = FrequentValueSketch::from_counts(counts);
        let min_distinct = self.table.len() as u64;
        *self = ExactCounts::default();
        ValueSketches { distinct, min_distinct, frequent, scalar_count: 0 }
    }

    fn packed_text(&self, count: &ValueCount) -> &[u8] {
        let Some(rest) = self.repeated_texts.get(count.text_offset as usize..) else { return &[] };
        &rest[..DisplayValue::packed_length(rest).min(rest.len())]
    }

    fn repeated_values(&self) -> Vec<FrequentValue> {
        let repeated = self.table.iter().filter(|count| count.text_offset != NO_TEXT);
        let values = repeated.map(|count| (DisplayValue::unpack(self.packed_text(count)), count.count.into()));
        values.map(|(value, count)| FrequentValue { value, count }).collect()
    }
}

impl ValueSketches {
    #[inline]
    fn add(&mut self, hash: u64, scalar: JsonScalar<'_>) {
        self.distinct.add(hash);
        self.scalar_count += 1;
        // Multiplicative hashing of a counter samples values evenly, but not periodically.
        let sample_hash = self.scalar_count.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        if sample_hash < u64::MAX / SAMPLE_INTERVAL {
            self.frequent.add(hash, || {
                let mut packed = Vec::new();
                DisplayValue::from_scalar(scalar).pack(&mut packed);
                packed.into()
            });
        }
    }
}

impl DisplayValue {
    fn from_scalar(scalar: JsonScalar<'_>) -> DisplayValue {
        let (scalar_type, value) = match scalar {
            JsonScalar::Number(text) => (ScalarType::Number, TruncatedValue::new(text.as_bytes())),
            JsonScalar::String(text) => (ScalarType::String, TruncatedValue::from_string(text)),
            JsonScalar::Bool(true) => (ScalarType::Boolean, TruncatedValue::new(b"true")),
            JsonScalar::Bool(false) => (ScalarType::Boolean, TruncatedValue::new(b"false")),
            JsonScalar::Null => (ScalarType::Boolean, TruncatedValue::default()),
        };
        DisplayValue { scalar_type, value }
    }

    /// Encodes a value as its type, its length with the truncation flag in the highest bit, and its bytes.
    fn pack(&self, out: &mut Vec<u8>) {
        const { assert!(super::limits::MAX_SHOWN_VALUE_BYTES < 128) };
        out.push(self.scalar_type as u8);
        out.push(self.value.bytes.len() as u8 | u8::from(self.value.is_truncated) << 7);
        out.extend_from_slice(&self.value.bytes);
    }

    fn packed_length(packed: &[u8]) -> usize {
        2 + packed.get(1).map_or(0, |length| usize::from(length & 0x7F))
    }

    fn unpack(packed: &[u8]) -> DisplayValue {
        let scalar_type = match packed.first() {
            Some(0) => ScalarType::Number,
            Some(1) => ScalarType::String,
            _ => ScalarType::Boolean,
        };
        let is_truncated = packed.get(1).is_some_and(|length| length >> 7 == 1);
        let bytes = packed.get(2..).unwrap_or_default().to_vec();
        DisplayValue { scalar_type, value: TruncatedValue { bytes, is_truncated } }
    }
}
