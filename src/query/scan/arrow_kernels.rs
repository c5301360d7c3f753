//! Evaluates predicates on the Arrow arrays of a row group.
//!
//! Lists are evaluated element by element. A row matches if one of its elements matches.

use std::cmp::Ordering;
use std::io::Write as _;
use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanBufferBuilder, ListArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{Float64Type, Int32Type, Int64Type, UInt8Type};
use memchr::arch::all::packedpair::HeuristicFrequencyRank;
use memchr::memmem;
use strata_format::layout::ShreddedKind;
use strata_format::substring_search::for_each_match;
use strata_json::NumericValue;
use strata_types::read_request::RangeBound;

use crate::scan::dedup_key_column::{bytes_at, remainder_at};

/// The elements of an indexed column: the values of a list array, or of the array itself.
pub(super) struct ColumnElements<'a> {
    pub(super) values: &'a ArrayRef,
    list: Option<&'a ListArray>,
}

impl<'a> ColumnElements<'a> {
    pub(super) fn new(column: &'a ArrayRef) -> ColumnElements<'a> {
        let list = column.as_list_opt::<i32>();
        ColumnElements { values: list.map_or(column, ListArray::values), list }
    }

    /// The offsets of the elements of each row. `None` if each row has one element.
    pub(super) fn offsets(&self) -> Option<&[i32]> {
        self.list.map(ListArray::value_offsets)
    }

    pub(super) fn elements_in_row(&self, row: usize) -> Range<usize> {
        match self.offsets() {
            Some(offsets) => offsets[row] as usize..offsets[row + 1] as usize,
            None => row..row + 1,
        }
    }

    pub(super) fn to_row_bits(&self, selected: BooleanBuffer) -> BooleanBuffer {
        let Some(list) = self.list else { return selected };
        let offsets = list.value_offsets();
        let mut rows = BooleanBufferBuilder::new(list.len());
        rows.append_n(list.len(), false);
        let mut row = 0;
        for element in selected.set_indices() {
            while (offsets[row + 1] as usize) <= element {
                row += 1;
            }
            rows.set_bit(row, true);
        }
        rows.finish()
    }

    pub(super) fn text_equals(&self, text: &[u8]) -> BooleanBuffer {
        self.evaluate_texts(|values| select_values(values, |value| value == text))
    }

    pub(super) fn text_satisfies(&self, fits: &dyn Fn(&[u8]) -> bool) -> BooleanBuffer {
        self.evaluate_texts(|values| select_values(values, fits))
    }

    pub(super) fn text_contains(&self, text: &[u8]) -> BooleanBuffer {
        self.evaluate_texts(|values| values_containing(values, text))
    }

    /// Selects elements equal to a number, by the nearest double and the remainder (the difference to that double).
    /// Selects none for a number without a remainder, which equals only its own text.
    pub(super) fn number_equals(&self, remainders: &ColumnElements<'_>, number: &NumericValue) -> BooleanBuffer {
        let doubles = self.values.as_primitive::<Float64Type>();
        let (double, Some(remainder)) = (number.nearest_double(), number.double_remainder()) else {
            return BooleanBuffer::new_unset(doubles.len());
        };
        let remainders = remainders.values.as_primitive::<Int64Type>();
        let values = doubles.values();
        let equal = BooleanBuffer::collect_bool(values.len(), |index| values[index] == double);
        let equal = clear_nulls(equal, doubles.nulls());
        if remainder == 0 && remainders.null_count() == remainders.len() {
            return equal;
        }
        let fits = |index| equal.value(index) && remainder_at(remainders, index) == remainder;
        BooleanBuffer::collect_bool(values.len(), fits)
    }

    /// Selects integers that contain a needle in their decimal form, if their text is omitted.
    pub(super) fn omitted_integer_contains(
        &self,
        remainders: &ColumnElements<'_>,
        texts: &ColumnElements<'_>,
        needle: &[u8],
    ) -> BooleanBuffer {
        let doubles = self.values.as_primitive::<Float64Type>();
        let remainders = remainders.values.as_primitive::<Int64Type>();
        let finder = memmem::Finder::new(needle);
        let mut digits = Vec::new();
        BooleanBuffer::collect_bool(doubles.len(), |index| {
            if doubles.is_null(index) || texts.values.is_valid(index) {
                return false;
            }
            let integer = doubles.value(index) as i128 + i128::from(remainder_at(remainders, index));
            digits.clear();
            write!(digits, "{integer}").is_ok() && finder.find(&digits).is_some()
        })
    }

    /// Selects numbers on one side of a limit, by the nearest double and the remainder (the difference to that double).
    /// Elements without a remainder do not match.
    pub(super) fn number_in_range(
        &self,
        remainders: &ColumnElements<'_>,
        bound: RangeBound,
        limit_and_tie_breaker: (f64, i128),
    ) -> BooleanBuffer {
        let (limit, side) = limit_and_tie_breaker;
        let doubles = self.values.as_primitive::<Float64Type>();
        let values = doubles.values();
        let remainders = remainders.values.as_primitive::<Int64Type>();
        let matching = if remainders.null_count() < remainders.len() {
            let remainder = |index| i128::from(remainder_at(remainders, index));
            BooleanBuffer::collect_bool(values.len(), |index| match values[index].partial_cmp(&limit) {
                Some(Ordering::Equal) => bound.accepts(remainder(index).cmp(&side)),
                Some(ordering) => bound.accepts(ordering),
                None => false,
            })
        } else {
            // All numbers equal their doubles, so all numbers with the limit's double are on one side of the limit.
            let with_limit = bound.accepts(0_i128.cmp(&side));
            match (bound.is_lower_bound(), with_limit) {
                (true, true) => BooleanBuffer::collect_bool(values.len(), |index| values[index] >= limit),
                (true, false) => BooleanBuffer::collect_bool(values.len(), |index| values[index] > limit),
                (false, true) => BooleanBuffer::collect_bool(values.len(), |index| values[index] <= limit),
                (false, false) => BooleanBuffer::collect_bool(values.len(), |index| values[index] < limit),
            }
        };
        clear_nulls(matching, doubles.nulls())
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn bytes_at(&self, element: usize) -> Option<&[u8]> {
        bytes_at(self.values, element)
    }

    pub(super) fn kind_equals(&self, kind: ShreddedKind) -> BooleanBuffer {
        let kinds = self.values.as_primitive::<UInt8Type>().values();
        let wanted = kind as u8;
        BooleanBuffer::collect_bool(kinds.len(), |index| kinds[index] == wanted)
    }

    fn evaluate_texts(&self, evaluate: impl Fn(&BinaryArray) -> BooleanBuffer) -> BooleanBuffer {
        let Some(dictionary) = self.values.as_dictionary_opt::<Int32Type>() else {
            return evaluate(self.values.as_binary::<i32>());
        };
        let matches = evaluate(dictionary.values().as_binary::<i32>());
        let keys = dictionary.keys().values();
        let selected = match matches.count_set_bits() {
            0 => return BooleanBuffer::new_unset(keys.len()),
            1 => {
                let wanted = matches.set_indices().next().unwrap_or_default() as i32;
                BooleanBuffer::collect_bool(keys.len(), |index| keys[index] == wanted)
            }
            // The dictionary key of a null is undefined.
            _ => BooleanBuffer::collect_bool(keys.len(), |index| {
                let key = keys[index] as usize;
                key < matches.len() && matches.value(key)
            }),
        };
        clear_nulls(selected, dictionary.nulls())
    }
}

fn values_containing(values: &BinaryArray, needle: &[u8]) -> BooleanBuffer {
    if needle.is_empty() {
        return clear_nulls(BooleanBuffer::new_set(values.len()), values.nulls());
    }
    let mut rows = BooleanBufferBuilder::new(values.len());
    rows.append_n(values.len(), false);
    for_each_match(values, &build_finder(values, needle), |row| rows.set_bit(row, true));
    clear_nulls(rows.finish(), values.nulls())
}

/// Builds a substring finder for these values. If there are many values, it searches for the two bytes of the needle
/// that occur together least often in a sample, because bytes that are rare in general can be frequent here.
fn build_finder<'n>(values: &BinaryArray, needle: &'n [u8]) -> memmem::Finder<'n> {
    const MIN_SAMPLED_BYTES: usize = 1 << 20;
    const SAMPLE_BYTES: usize = 16 << 10;
    const MAX_NEEDLE_HEAD_BYTES: usize = 8;
    let offsets = values.value_offsets();
    let bytes = &values.value_data()[offsets[0] as usize..offsets[values.len()] as usize];
    let head = &needle[..needle.len().min(MAX_NEEDLE_HEAD_BYTES)];
    if bytes.len() < MIN_SAMPLED_BYTES || head.len() < 3 {
        return memmem::Finder::new(needle);
    }
    let sample = &bytes[bytes.len() / 2..][..SAMPLE_BYTES];
    let count = |(first, second): (usize, usize)| {
        let pairs = sample[first..].iter().zip(&sample[second..]);
        pairs.filter(|(one, other)| **one == head[first] && **other == head[second]).count()
    };
    let pairs = (0..head.len()).flat_map(|second| (0..second).map(move |first| (first, second)));
    let rarest = pairs.filter(|(first, second)| head[*first] != head[*second]).min_by_key(|pair| count(*pair));
    match rarest {
        Some((first, second)) => {
            let pair = RareBytePair([head[first], head[second]]);
            memmem::FinderBuilder::new().build_forward_with_ranker(pair, needle)
        }
        None => memmem::Finder::new(needle),
    }
}

struct RareBytePair([u8; 2]);

impl HeuristicFrequencyRank for RareBytePair {
    fn rank(&self, byte: u8) -> u8 {
        if self.0.contains(&byte) { 0 } else { u8::MAX }
    }
}

fn select_values(values: &BinaryArray, matches: impl Fn(&[u8]) -> bool) -> BooleanBuffer {
    let selected = BooleanBuffer::collect_bool(values.len(), |index| matches(values.value(index)));
    clear_nulls(selected, values.nulls())
}

fn clear_nulls(selected: BooleanBuffer, nulls: Option<&NullBuffer>) -> BooleanBuffer {
    match nulls {
        Some(nulls) if nulls.null_count() > 0 => &selected & nulls.inner(),
        _ => selected,
    }
}
