//! Ranks: the order of rows by 64 bits of their sort value, so that a scan compares few complete values.
//!
//! The top three bits of a rank are the class of the value:
//!
//! | Value | Class | Other bits |
//! |---|---|---|
//! | number | 1 | the first bits of [`strata_json::sortable_bits`] |
//! | string | 2 | the first bits of the text after the prefix that all strings of the column share |
//! | false, true | 3 | 0, 1 |
//! | none, or a value that only the document contains | [`LAST_RANK`] | |
//!
//! For example, `"region"` has a lower rank than `"segment"`. The strings `"regional"` and `"regional office"` have the
//! same rank, because they begin with the same eight bytes. If all strings of the column begin with `"region"`, these
//! two have different ranks, because only the rest of the text counts. In descending order, ranks except [`LAST_RANK`]
//! are subtracted from the end of the last class.
//!
//! - If a value precedes another one, its rank is not higher. Values with the same rank must be compared.
//! - [`LAST_RANK`] is above all other ranks in both directions.

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int32Array};
use arrow::datatypes::Int32Type;
use strata_json::SortDirection;

pub(super) const LAST_RANK: u64 = u64::MAX;
/// The rank of the empty string, and of some strings that begin with NUL.
pub(super) const EMPTY_STRING_RANK: u64 = 2 << 61;
const END_OF_CLASSES: u64 = 4 << 61;

pub(super) struct RowRanks {
    /// The sort rank of each row. Only the ranks of selected rows are valid.
    pub(super) ranks: Vec<u64>,
    pub(super) needs_documents: bool,
}

#[inline]
pub(super) fn number_rank(double: f64) -> u64 {
    1 << 61 | strata_json::sortable_bits(double) >> 3
}

/// `prefix` is the [`rest_prefix`] of the text.
#[inline]
pub(super) fn string_rank(prefix: u64) -> u64 {
    EMPTY_STRING_RANK | prefix >> 3
}

#[inline]
pub(super) fn boolean_rank(value: bool) -> u64 {
    3 << 61 | u64::from(value)
}

/// `rank` must not be [`LAST_RANK`].
#[inline]
pub(super) fn apply_direction(rank: u64, direction: SortDirection) -> u64 {
    match direction {
        SortDirection::Ascending => rank,
        SortDirection::Descending => END_OF_CLASSES - 1 - rank,
    }
}

/// Returns the [`strata_json::sortable_prefix`] of the text after its first `shared_bytes`.
#[inline]
pub(super) fn rest_prefix(text: &[u8], shared_bytes: usize) -> u64 {
    strata_json::sortable_prefix(text.get(shared_bytes..).unwrap_or_default())
}

/// The first eight bytes of texts after their shared prefix, as ordered numbers, computed once for each distinct text
/// of a dictionary.
pub(super) enum TextPrefixes<'a> {
    Plain { texts: &'a BinaryArray, shared_bytes: usize },
    Dictionary { keys: &'a Int32Array, prefixes: Vec<u64> },
}

impl TextPrefixes<'_> {
    pub(super) fn new(array: &ArrayRef, shared_bytes: usize) -> TextPrefixes<'_> {
        match array.as_dictionary_opt::<Int32Type>() {
            Some(dictionary) => {
                let values = dictionary.values().as_binary::<i32>();
                let prefixes = values.iter().map(|text| rest_prefix(text.unwrap_or_default(), shared_bytes)).collect();
                TextPrefixes::Dictionary { keys: dictionary.keys(), prefixes }
            }
            None => TextPrefixes::Plain { texts: array.as_binary::<i32>(), shared_bytes },
        }
    }

    #[inline]
    pub(super) fn prefix_at(&self, row: usize) -> Option<u64> {
        match self {
            TextPrefixes::Plain { texts, shared_bytes } => {
                texts.is_valid(row).then(|| rest_prefix(texts.value(row), *shared_bytes))
            }
            TextPrefixes::Dictionary { keys, prefixes } => {
                keys.is_valid(row).then(|| prefixes.get(keys.value(row) as usize).copied())?
            }
        }
    }
}
