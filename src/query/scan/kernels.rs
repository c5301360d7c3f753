//! Predicates over the Arrow arrays of a row group, as selections of its rows.
//!
//! A shredded column that fans out is evaluated over its elements; a row is selected when one of its elements is.

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

/// The elements of a shredded column: the array itself, or what a list array holds, and how to get back to rows.
pub(super) struct Elements<'a> {
    pub(super) values: &'a ArrayRef,
    list: Option<&'a ListArray>,
}

impl<'a> Elements<'a> {
    pub(super) fn of(column: &'a ArrayRef) -> Elements<'a> {
        match column.as_list_opt::<i32>() {
            Some(list) => Elements { values: list.values(), list: Some(list) },
            None => Elements { values: column, list: None },
        }
    }

    /// Where each row's elements begin, and where the last one's end; `None` where each row is its element.
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

    /// Elements whose number is `number`, by double and remainder. A number without remainder equals only its own text.
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

    /// Elements whose number lies on one side of a limit, of which the double and the side are given
    /// ([`NumericValue::double_and_side`]). A number without remainder fits none.
    pub(super) fn number_within(
        &self,
        remainders: &Elements<'_>,
        bound: RangeBound,
        (limit, side): (f64, i128),
    ) -> BooleanBuffer {
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
            // No number has a remainder: all of the limit's double are on one side of it.
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

    /// Evaluates over the distinct texts where the column is a dictionary, over all of them otherwise.
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
            // The key of a null may be anything.
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

/// A finder for values like these. Where there are many, it looks for the two bytes of the needle that stand together
/// least often in some of them: those that are rare in general may be frequent neighbours here.
fn finder<'n>(values: &BinaryArray, needle: &'n [u8]) -> memmem::Finder<'n> {
    /// Bytes below which any finder is good enough.
    const MANY_BYTES: usize = 1 << 20;
    const SAMPLE_BYTES: usize = 16 << 10;
    /// Bytes of the needle that are considered.
    const HEAD: usize = 8;
    let offsets = values.value_offsets();
    let bytes = &values.value_data()[offsets[0] as usize..offsets[values.len()] as usize];
    let head = &needle[..needle.len().min(HEAD)];
    if bytes.len() < MANY_BYTES || head.len() < 3 {
        return memmem::Finder::new(needle);
    }
    let sample = &bytes[bytes.len() / 2..][..SAMPLE_BYTES];
    let together = |(first, second): (usize, usize)| {
        let (one, other) = (&sample[first..], &sample[second..]);
        one.iter().zip(other).filter(|(one, other)| **one == head[first] && **other == head[second]).count()
    };
    let pairs = (0..head.len()).flat_map(|second| (0..second).map(move |first| (first, second)));
    let rarest = pairs.filter(|(first, second)| head[*first] != head[*second]).min_by_key(|pair| together(*pair));
    match rarest {
        Some((first, second)) => {
            let wanted = Wanted([head[first], head[second]]);
            memmem::FinderBuilder::new().build_forward_with_ranker(wanted, needle)
        }
        None => memmem::Finder::new(needle),
    }
}

/// Makes a finder look for these bytes of its needle.
struct Wanted([u8; 2]);

impl HeuristicFrequencyRank for Wanted {
    fn rank(&self, byte: u8) -> u8 {
        if self.0.contains(&byte) { 0 } else { u8::MAX }
    }
}

/// The rows whose search text contains one of the words, or all of them. There is a word, and none is empty.
///
/// The rows are gone through a stretch at a time, which stays in the processor's cache for all words.
pub(super) fn contains_words(search: &BinaryArray, words: &[Vec<u8>], mode: KeywordsMode) -> BooleanBuffer {
    /// Bytes of a stretch: less than the second-level cache of a core.
    const STRETCH_BYTES: usize = 128 << 10;
    if let [word] = words {
        return contains(search, word);
    }
    let finders: Vec<memmem::Finder<'_>> = words.iter().map(|word| finder(search, word)).collect();
    let offsets = search.value_offsets();
    let mut found = BooleanBufferBuilder::new(search.len());
    let mut start = 0;
    while start < search.len() {
        let until = offsets[start] as usize + STRETCH_BYTES;
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

/// Those of the rows whose search text contains one of the words, or all of them. Each row is looked at by itself.
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

/// Sets the bits of those of the rows that hold what the finder finds; the first row's bit is the first.
fn mark(values: &BinaryArray, rows: Range<usize>, finder: &memmem::Finder<'_>, bits: &mut BooleanBufferBuilder) {
    // One search over the contiguous values; a hit across a border is none, and the search goes on at the border.
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
            // The needle may begin again inside what was looked at.
            at = hit + 1;
        }
    }
}

/// How often `needle`, which is not empty, occurs in each value: without overlaps, from the left.
fn occurrences(values: &BinaryArray, needle: &[u8]) -> Vec<u32> {
    let mut counts = vec![0; values.len()];
    let offsets = values.value_offsets();
    let bytes = values.value_data();
    let end = offsets[values.len()] as usize;
    let finder = memmem::Finder::new(needle);
    let mut row = 0;
    let mut at = offsets[0] as usize;
    while let Some(hit) = finder.find(&bytes[at..end]) {
        let hit = at + hit;
        if offsets[row + 1] as usize <= hit {
            row += partition_ahead(&offsets[row + 1..], hit);
        }
        if hit + needle.len() <= offsets[row + 1] as usize {
            // What lies below a null is no value.
            counts[row] += u32::from(values.is_valid(row));
            at = hit + needle.len();
        } else {
            at = hit + 1;
        }
    }
    counts
}

/// The rows in whose search text `needle` occurs more often than in these shredded columns of them: it occurs
/// elsewhere, too.
///
/// No text holds the separator, so occurrences in the search text are those in the single texts.
pub(super) fn contains_besides(search: &BinaryArray, shredded_columns: &[ArrayRef], needle: &[u8]) -> BooleanBuffer {
    let mut counts = occurrences(search, needle);
    for shredded in shredded_columns {
        let elements = Elements::of(shredded);
        let mut subtract = |element_counts: &mut dyn Iterator<Item = u32>| match elements.list {
            None => counts.iter_mut().zip(element_counts).for_each(|(count, here)| *count = count.saturating_sub(here)),
            Some(list) => {
                for (count, row) in counts.iter_mut().zip(list.value_offsets().windows(2)) {
                    let here = element_counts.take((row[1] - row[0]) as usize).sum();
                    *count = count.saturating_sub(here);
                }
            }
        };
        match elements.values.as_dictionary_opt::<Int32Type>() {
            None => subtract(&mut occurrences(elements.values.as_binary::<i32>(), needle).into_iter()),
            Some(dictionary) => {
                let distinct = occurrences(dictionary.values().as_binary::<i32>(), needle);
                let keys = dictionary.keys();
                let of = |index: usize| if keys.is_valid(index) { distinct[keys.value(index) as usize] } else { 0 };
                subtract(&mut (0..keys.len()).map(of));
            }
        }
    }
    BooleanBuffer::collect_bool(counts.len(), |row| counts[row] > 0)
}

/// How many of the ascending `ends` are at most `position`, by doubling steps: hits are often near.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// Texts of few letters, so that words occur, overlap and cross borders; more than a stretch of them.
    fn texts(random: &mut StdRng, rows: usize) -> Vec<Vec<u8>> {
        let text = |random: &mut StdRng| {
            let length = random.random_range(0..200);
            (0..length).map(|_| b"aab\xFF"[random.random_range(0..4)]).collect()
        };
        (0..rows).map(|_| text(random)).collect()
    }

    fn holds(text: &[u8], word: &[u8]) -> bool {
        text.windows(word.len()).any(|window| window == word)
    }

    #[test]
    fn words_are_found_as_one_by_one() {
        let random = &mut StdRng::seed_from_u64(1);
        // So many that the finders are fitted to them.
        let texts = texts(random, 16_000);
        let array = BinaryArray::from_iter_values(&texts);
        for words in [&["ab"][..], &["aa", "b"], &["bbbb", "abab", "aaaaaaa"], &["bab", "bab"]] {
            let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            for mode in [KeywordsMode::Or, KeywordsMode::And] {
                let found = contains_words(&array, &words, mode);
                for (row, text) in texts.iter().enumerate() {
                    let mut held = words.iter().map(|word| holds(text, word));
                    let expected = if mode == KeywordsMode::Or { held.any(|held| held) } else { held.all(|held| held) };
                    assert_eq!(found.value(row), expected, "{words:?} in row {row}");
                }
                let odd: Vec<usize> = rows_with_words(&array, (1..texts.len()).step_by(2), &words, mode);
                assert_eq!(odd, found.set_indices().filter(|row| row % 2 == 1).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn words_in_hidden_columns_do_not_count() {
        let random = &mut StdRng::seed_from_u64(2);
        // Each row: texts that are seen, and some that a list column or a plain column hides.
        let rows = 3_000;
        let clean = |texts: Vec<Vec<u8>>| -> Vec<Vec<u8>> {
            texts.into_iter().map(|text| text.into_iter().filter(|byte| *byte != 0xFF).take(12).collect()).collect()
        };
        let seen = clean(texts(random, rows));
        let plain = clean(texts(random, rows));
        let listed: Vec<Vec<Vec<u8>>> = (0..rows)
            .map(|_| {
                clean({
                    let count = random.random_range(0..3);
                    texts(random, count)
                })
            })
            .collect();
        let search: Vec<Vec<u8>> = (0..rows)
            .map(|row| {
                let all = [&seen[row], &plain[row]].into_iter().chain(&listed[row]);
                let mut text: Vec<u8> = all.flat_map(|text| [&[0xFF], text.as_slice()].concat()).collect();
                text.push(0xFF);
                text
            })
            .collect();
        let search = BinaryArray::from_iter_values(search);
        let mut list = arrow::array::ListBuilder::new(arrow::array::BinaryBuilder::new());
        for row in &listed {
            row.iter().for_each(|text| list.values().append_value(text));
            list.append(true);
        }
        let shredded_columns: [ArrayRef; 2] =
            [Arc::new(BinaryArray::from_iter_values(&plain)), Arc::new(list.finish())];
        for word in [&b"a"[..], b"ab", b"aa", b"bbb"] {
            let found = contains_besides(&search, &shredded_columns, word);
            for (row, text) in seen.iter().enumerate() {
                assert_eq!(found.value(row), holds(text, word), "{word:?} in row {row}");
            }
        }
    }
}
