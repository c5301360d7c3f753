//! Predicates over the Arrow arrays of a row group.
//!
//! Lists are evaluated over their elements. A row matches if one of its elements matches.

use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanBufferBuilder, ListArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{Float64Type, Int32Type, Int64Type, UInt8Type};
use memchr::arch::all::packedpair::HeuristicFrequencyRank;
use memchr::memmem;
use strata_format::layout::ShreddedKind;
use strata_json::NumericValue;
use strata_types::request::{KeywordsMode, RangeBound};

use crate::scan::key_column::{bytes_at, remainder_at};

/// The elements of an indexed column: the values of a list array, or the array itself.
pub(super) struct Elements<'a> {
    pub(super) values: &'a ArrayRef,
    list: Option<&'a ListArray>,
}

impl<'a> Elements<'a> {
    pub(super) fn new(column: &'a ArrayRef) -> Elements<'a> {
        match column.as_list_opt::<i32>() {
            Some(list) => Elements { values: list.values(), list: Some(list) },
            None => Elements { values: column, list: None },
        }
    }

    /// Where the elements of each row begin, and where the last ones end. `None` if each row has one element.
    pub(super) fn offsets(&self) -> Option<&[i32]> {
        self.list.map(ListArray::value_offsets)
    }

    pub(super) fn elements_of(&self, row: usize) -> Range<usize> {
        match self.offsets() {
            Some(offsets) => offsets[row] as usize..offsets[row + 1] as usize,
            None => row..row + 1,
        }
    }

    pub(super) fn rows(&self, selected: BooleanBuffer) -> BooleanBuffer {
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
        self.texts(|values| select(values, |value| value == text))
    }

    pub(super) fn text_fits(&self, fits: &dyn Fn(&[u8]) -> bool) -> BooleanBuffer {
        self.texts(|values| select(values, fits))
    }

    pub(super) fn text_contains(&self, text: &[u8]) -> BooleanBuffer {
        self.texts(|values| contains(values, text))
    }

    /// Elements equal to a number, by double and remainder. A number without a remainder equals only its own text.
    pub(super) fn number_equals(&self, remainders: &Elements<'_>, number: &NumericValue) -> BooleanBuffer {
        let doubles = self.values.as_primitive::<Float64Type>();
        let (double, Some(remainder)) = (number.double(), number.remainder()) else {
            return BooleanBuffer::new_unset(doubles.len());
        };
        let remainders = remainders.values.as_primitive::<Int64Type>();
        let values = doubles.values();
        let equal = BooleanBuffer::collect_bool(values.len(), |index| values[index] == double);
        let equal = valid(equal, doubles.nulls());
        if remainder == 0 && remainders.null_count() == remainders.len() {
            return equal;
        }
        let fits = |index| equal.value(index) && remainder_at(remainders, index) == remainder;
        BooleanBuffer::collect_bool(values.len(), fits)
    }

    /// Elements on one side of a limit ([`NumericValue::double_and_side`]). A number without a remainder does not
    /// match.
    pub(super) fn number_within(
        &self,
        remainders: &Elements<'_>,
        bound: RangeBound,
        double_and_side: (f64, i128),
    ) -> BooleanBuffer {
        let (limit, side) = double_and_side;
        let doubles = self.values.as_primitive::<Float64Type>();
        let values = doubles.values();
        let remainders = remainders.values.as_primitive::<Int64Type>();
        let fitting = if remainders.null_count() < remainders.len() {
            let rest = |index| i128::from(remainder_at(remainders, index));
            BooleanBuffer::collect_bool(values.len(), |index| match values[index].partial_cmp(&limit) {
                Some(Ordering::Equal) => bound.admits(rest(index).cmp(&side)),
                Some(ordering) => bound.admits(ordering),
                None => false,
            })
        } else {
            // No number has a remainder, so all numbers with the limit's double are on one side of it.
            let with_limit = bound.admits(0_i128.cmp(&side));
            match (bound.is_lower(), with_limit) {
                (true, true) => BooleanBuffer::collect_bool(values.len(), |index| values[index] >= limit),
                (true, false) => BooleanBuffer::collect_bool(values.len(), |index| values[index] > limit),
                (false, true) => BooleanBuffer::collect_bool(values.len(), |index| values[index] <= limit),
                (false, false) => BooleanBuffer::collect_bool(values.len(), |index| values[index] < limit),
            }
        };
        valid(fitting, doubles.nulls())
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn nulls(&self) -> Option<BooleanBuffer> {
        self.values.nulls().filter(|nulls| nulls.null_count() > 0).map(|nulls| !nulls.inner())
    }

    pub(super) fn bytes_at(&self, element: usize) -> Option<&[u8]> {
        bytes_at(self.values, element)
    }

    pub(super) fn kind_is(&self, kind: ShreddedKind) -> BooleanBuffer {
        let kinds = self.values.as_primitive::<UInt8Type>().values();
        let wanted = kind as u8;
        BooleanBuffer::collect_bool(kinds.len(), |index| kinds[index] == wanted)
    }

    /// Evaluates the distinct texts of a dictionary, or all texts.
    fn texts(&self, evaluate: impl Fn(&BinaryArray) -> BooleanBuffer) -> BooleanBuffer {
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
            // The key of a null is undefined.
            _ => BooleanBuffer::collect_bool(keys.len(), |index| {
                let key = keys[index] as usize;
                key < matches.len() && matches.value(key)
            }),
        };
        valid(selected, dictionary.nulls())
    }
}

fn contains(values: &BinaryArray, needle: &[u8]) -> BooleanBuffer {
    if needle.is_empty() {
        return valid(BooleanBuffer::new_set(values.len()), values.nulls());
    }
    let mut rows = BooleanBufferBuilder::new(values.len());
    rows.append_n(values.len(), false);
    mark(values, 0..values.len(), &finder(values, needle), &mut rows);
    valid(rows.finish(), values.nulls())
}

/// A finder for these values. If there are many, it searches for the two bytes of the needle that occur together least
/// often in a sample, because bytes that are rare in general can be frequent here.
fn finder<'n>(values: &BinaryArray, needle: &'n [u8]) -> memmem::Finder<'n> {
    const MIN_BYTES: usize = 1 << 20;
    const SAMPLE_BYTES: usize = 16 << 10;
    /// Bytes of the needle that are considered.
    const HEAD_BYTES: usize = 8;
    let offsets = values.value_offsets();
    let bytes = &values.value_data()[offsets[0] as usize..offsets[values.len()] as usize];
    let head = &needle[..needle.len().min(HEAD_BYTES)];
    if bytes.len() < MIN_BYTES || head.len() < 3 {
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
            let pair = RarePair([head[first], head[second]]);
            memmem::FinderBuilder::new().build_forward_with_ranker(pair, needle)
        }
        None => memmem::Finder::new(needle),
    }
}

/// Makes a finder search for these bytes of its needle.
struct RarePair([u8; 2]);

impl HeuristicFrequencyRank for RarePair {
    fn rank(&self, byte: u8) -> u8 {
        if self.0.contains(&byte) { 0 } else { u8::MAX }
    }
}

/// The rows whose text contains one of the words, or all of them. There is at least one word, and none is empty. A
/// block of rows is searched for all words, so that it stays in the cache of the processor.
pub(super) fn contains_words(search: &BinaryArray, words: &[Vec<u8>], mode: KeywordsMode) -> BooleanBuffer {
    /// Bytes of a block: less than the second-level cache of a core.
    const BLOCK_BYTES: usize = 128 << 10;
    if let [word] = words {
        return contains(search, word);
    }
    let finders: Vec<memmem::Finder<'_>> = words.iter().map(|word| finder(search, word)).collect();
    let offsets = search.value_offsets();
    let mut found = BooleanBufferBuilder::new(search.len());
    let mut start = 0;
    while start < search.len() {
        let until = offsets[start] as usize + BLOCK_BYTES;
        let end = start + offsets[start + 1..].partition_point(|end| *end as usize <= until).max(1);
        let rows = finders.iter().try_fold(None::<BooleanBuffer>, |rows, finder| {
            let mut hits = BooleanBufferBuilder::new(end - start);
            hits.append_n(end - start, false);
            mark(search, start..end, finder, &mut hits);
            let hits = hits.finish();
            let rows = match (rows, mode) {
                (None, _) => hits,
                (Some(rows), KeywordsMode::Or) => &rows | &hits,
                (Some(rows), KeywordsMode::And) => &rows & &hits,
            };
            let decided = mode == KeywordsMode::And && rows.count_set_bits() == 0;
            if decided { ControlFlow::Break(rows) } else { ControlFlow::Continue(Some(rows)) }
        });
        match rows {
            ControlFlow::Break(rows) | ControlFlow::Continue(Some(rows)) => found.append_buffer(&rows),
            ControlFlow::Continue(None) => found.append_n(end - start, false),
        }
        start = end;
    }
    valid(found.finish(), search.nulls())
}

/// Like [`contains_words`], for single rows.
pub(super) fn rows_with_words(
    search: &BinaryArray,
    rows: impl Iterator<Item = usize>,
    words: &[Vec<u8>],
    mode: KeywordsMode,
) -> Vec<usize> {
    let finders: Vec<memmem::Finder<'_>> = words.iter().map(memmem::Finder::new).collect();
    let holds = |row: &usize| {
        let text = search.value(*row);
        let mut held = finders.iter().map(|finder| finder.find(text).is_some());
        match mode {
            KeywordsMode::Or => held.any(|held| held),
            KeywordsMode::And => held.all(|held| held),
        }
    };
    rows.filter(holds).collect()
}

/// Sets the bits of the rows that contain a match. The first bit is that of the first row.
fn mark(values: &BinaryArray, rows: Range<usize>, finder: &memmem::Finder<'_>, bits: &mut BooleanBufferBuilder) {
    // One search over the contiguous values. A hit across a border is not a match.
    let ends = &values.value_offsets()[rows.start + 1..=rows.end];
    let bytes = &values.value_data()[..ends.last().map_or(0, |end| *end as usize)];
    let mut row = 0;
    let mut at = values.value_offsets()[rows.start] as usize;
    while row < ends.len()
        && let Some(hit) = finder.find(&bytes[at..])
    {
        let hit = at + hit;
        if ends[row] as usize <= hit {
            row += partition_ahead(&ends[row..], hit);
        }
        let border = ends[row] as usize;
        if hit + finder.needle().len() <= border {
            bits.set_bit(row, true);
            at = border;
            row += 1;
        } else {
            // A match can begin within the hit.
            at = hit + 1;
        }
    }
}

/// The number of ascending `ends` that are at most `position`, by doubling steps, because hits are often near.
fn partition_ahead(ends: &[i32], position: usize) -> usize {
    let mut step = 1;
    while step < ends.len() && ends[step] as usize <= position {
        step *= 2;
    }
    let from = step / 2;
    from + ends[from..ends.len().min(step + 1)].partition_point(|end| *end as usize <= position)
}

fn select(values: &BinaryArray, matches: impl Fn(&[u8]) -> bool) -> BooleanBuffer {
    let selected = BooleanBuffer::collect_bool(values.len(), |index| matches(values.value(index)));
    valid(selected, values.nulls())
}

fn valid(selected: BooleanBuffer, nulls: Option<&NullBuffer>) -> BooleanBuffer {
    match nulls {
        Some(nulls) if nulls.null_count() > 0 => &selected & nulls.inner(),
        _ => selected,
    }
}
