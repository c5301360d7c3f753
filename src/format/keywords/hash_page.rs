//! A hash page: the first digits of the long hexadecimal tokens of one field, such as hashes, with their rows.
//!
//! Hashes rarely repeat, so they would make up most of a dictionary, although their text is in an indexed column
//! anyway. Some digits are enough to find the row of a whole hash. Other rows can have the same digits, so the rows of
//! a search are candidates. A search inside of a hash needs the column.
//!
//! Each entry is a number: the digits, followed by the row in as many bits as the rows of the segment need. For
//! example, in a segment with 1,000 rows, the token `00c0ffee12345678` of row 7 with 4 digits is `0x00c0 << 10 | 7`. A
//! page contains the number of entries (32 bits), the first entry, and the difference of the last entry from it (64
//! bits each, little-endian), and an Elias-Fano list ([`super::postings`]) of the differences from the first entry.

use std::ops::RangeInclusive;

use super::KeywordIndexError;
use super::postings::{EliasFanoLayout, decode_elias_fano, encode_elias_fano};

/// Tokens with fewer digits at their start are not on hash pages.
pub(super) const MAX_HASH_DIGITS: usize = 8;
const MIN_HASH_DIGITS: usize = 4;
/// The digits of a segment distinguish this many times its rows, so that few other rows have the same digits.
const VALUES_PER_ROW: usize = 16;
const MAX_PAGE_ENTRIES: usize = 32 << 10;
const HEADER_BYTES: usize = 20;
const PART_NAME: &str = "hashes";

/// The first [`MAX_HASH_DIGITS`] digits of a token, and its row in the lower half.
pub(super) type HashEntry = u64;

/// Returns the number of a token's first digits. `None` if they are not hexadecimal.
pub(super) fn parse_hash_digits(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0_u32, |number, digit| Some(number << 4 | char::from(*digit).to_digit(16)?))
}

/// Returns the number of digits that the entries of a segment have.
fn digits_of_segment(segment_rows: usize) -> usize {
    let values = segment_rows.saturating_mul(VALUES_PER_ROW);
    (MIN_HASH_DIGITS..MAX_HASH_DIGITS).find(|digits| 1 << (4 * digits) >= values).unwrap_or(MAX_HASH_DIGITS)
}

fn row_bits(segment_rows: usize) -> u32 {
    usize::BITS - segment_rows.saturating_sub(1).leading_zeros()
}

pub(super) struct HashPageBuilder {
    segment_rows: usize,
    entries: Vec<u64>,
}

impl HashPageBuilder {
    pub(super) fn new(segment_rows: usize) -> HashPageBuilder {
        HashPageBuilder { segment_rows, entries: Vec::new() }
    }

    /// Adds an entry. Entries must ascend.
    pub(super) fn push(&mut self, entry: HashEntry) {
        let digits = (entry >> 32) >> (4 * (MAX_HASH_DIGITS - digits_of_segment(self.segment_rows)));
        self.entries.push(digits << row_bits(self.segment_rows) | entry & u64::from(u32::MAX));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= MAX_PAGE_ENTRIES
    }

    /// Returns the digits of the first entry, and the encoded page, and removes all entries.
    pub(super) fn take_page(&mut self) -> (Vec<u8>, Vec<u8>) {
        // Rows with the same digits ascend only before the digits were cut.
        self.entries.sort_unstable();
        self.entries.dedup();
        let first = self.entries.first().copied().unwrap_or_default();
        let span = self.entries.last().map_or(0, |last| last - first);
        let digits = digits_of_segment(self.segment_rows);
        let first_digits = format!("{:0digits$x}", first >> row_bits(self.segment_rows)).into_bytes();
        let layout = EliasFanoLayout::new(self.entries.len(), span + 1);
        let mut page = Vec::with_capacity(HEADER_BYTES + layout.encoded_bytes() + 8);
        page.extend((self.entries.len() as u32).to_le_bytes());
        page.extend(first.to_le_bytes());
        page.extend(span.to_le_bytes());
        page.resize(HEADER_BYTES + layout.encoded_bytes() + 8, 0);
        encode_elias_fano(self.entries.drain(..).map(|entry| entry - first), layout, &mut page[HEADER_BYTES..]);
        page.truncate(HEADER_BYTES + layout.encoded_bytes());
        (first_digits, page)
    }
}

/// A decoded hash page.
#[derive(Debug)]
pub(super) struct HashPage {
    entries: Vec<u64>,
    row_bits: u32,
}

impl HashPage {
    pub(super) fn decode(segment_rows: usize, bytes: &[u8]) -> Result<HashPage, KeywordIndexError> {
        let damaged = |cause| KeywordIndexError::new(PART_NAME, cause);
        let row_bits = row_bits(segment_rows);
        let (count, rest) = bytes.split_first_chunk::<4>().ok_or_else(|| damaged("it is truncated"))?;
        let (first, rest) = rest.split_first_chunk::<8>().ok_or_else(|| damaged("it is truncated"))?;
        let (span, list) = rest.split_first_chunk::<8>().ok_or_else(|| damaged("it is truncated"))?;
        let count = u32::from_le_bytes(*count) as usize;
        let [first, span] = [first, span].map(|bytes| u64::from_le_bytes(*bytes));
        let last = first.checked_add(span).filter(|last| *last < 1 << (4 * MAX_HASH_DIGITS as u32 + row_bits));
        if last.is_none() || count == 0 || count > 8 * list.len() {
            return Err(damaged("its header is invalid"));
        }
        let layout = EliasFanoLayout::new(count, span + 1);
        if layout.encoded_bytes() != list.len() {
            return Err(damaged("its list has the wrong length"));
        }
        let mut entries = Vec::with_capacity(count);
        decode_elias_fano(list, layout, |difference| {
            let entry = first + difference;
            if (entry & ((1 << row_bits) - 1)) as usize >= segment_rows || entries.last().is_some_and(|e| *e >= entry) {
                return Err(damaged("a row does not exist or is not in order"));
            }
            entries.push(entry);
            Ok(())
        })?;
        Ok(HashPage { entries, row_bits })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u64>()
    }

    /// Lists the rows of the entries whose digits are in a range.
    pub(super) fn rows(&self, digits: &RangeInclusive<u32>) -> impl Iterator<Item = u32> {
        let start = self.entries.partition_point(|entry| entry >> self.row_bits < u64::from(*digits.start()));
        let rest = self.entries.get(start..).unwrap_or_default();
        let end = rest.partition_point(|entry| entry >> self.row_bits <= u64::from(*digits.end()));
        rest[..end].iter().map(|entry| (entry & ((1 << self.row_bits) - 1)) as u32)
    }
}
