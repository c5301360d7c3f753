//! A token page: a part of a segment's tokens that is read as a whole. There are three kinds ([`PageKind`]):
//!
//! - A *dictionary page* has distinct tokens in ascending order. A token with one row has the number of this row.
//!   Each other token has a list of its rows in the postings of the page ([`super::postings`]). If it occurs in several
//!   fields, a list for each of them follows. Such a list contains numbers of rows in the token's list, not in the
//!   segment, so it is short.
//! - A *row page* has tokens of one field in the order of their rows: long tokens, which rarely repeat.
//! - A [hash page](super::hash_page) has the first digits of the hashes of one field.
//!
//! The first two are encoded as four 32-bit little-endian integers (the length of the text, the number of varints, the
//! length of the first frame, and the number of checksums), two Zstandard frames (the text and the LEB128 varints), and
//! the CRC-32 of each block of its postings. The text is a [`TEXT_SEPARATOR`] and the tokens, each followed by a
//! separator.
//!
//! | Page | Varints |
//! |---|---|
//! | dictionary | number of field sets and of tokens; the field sets as bits; row count of each token minus 1; index of each token's field set; the row of each token with one row; for each other token with several fields, the row count of each field |
//! | rows | number of rows; difference of each row from the row before; length of the tokens of each row |

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use fixedbitset::FixedBitSet;
use memchr::memmem::Finder;
use strata_store::checksums::crc32;
use strata_types::leb128;

use super::KeywordIndexError;
use super::delimited_text::DelimitedText;
use super::field_set::FieldSet;
use super::hash_page::HashPage;
use super::postings;
use crate::layout::TEXT_SEPARATOR;
use crate::zstd_frame;

/// Size in bytes of the blocks of posting lists. A block is read as a whole and has a checksum.
pub const POSTING_BLOCK_BYTES: u32 = 32 << 10;
/// Max text of a page. Only a single row's tokens can exceed it.
pub(super) const PAGE_TEXT_BYTES: usize = 512 << 10;
/// Max postings of a page, unless a single token needs more. A search of a page does not yield.
pub(super) const PAGE_POSTING_BYTES: usize = 4 << 20;
const MAX_PAGE_TEXT_BYTES: usize = 1 << 28;
/// Max integers of a page: a few for each byte of its text.
const MAX_PAGE_NUMBERS: usize = 1 << 28;
const PAGE_ZSTD_LEVEL: i32 = 3;
/// Max compression ratio of Zstandard. A frame that declares a larger size is rejected as damaged before an allocation.
const MAX_COMPRESSION_RATIO: usize = 1 << 16;
const PART_NAME: &str = "tokens";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    Dictionary,
    Rows,
    Hashes,
}

impl PageKind {
    pub(super) const ALL: [PageKind; 3] = [PageKind::Dictionary, PageKind::Rows, PageKind::Hashes];
}

/// Encodes a page. `None` if it is too large.
fn encode_page(text: &[u8], numbers: &[u32], postings: &[u8]) -> Option<Vec<u8>> {
    if text.len() > MAX_PAGE_TEXT_BYTES {
        return None;
    }
    let mut varints = Vec::with_capacity(numbers.len());
    numbers.iter().for_each(|number| leb128::write_varint(*number, &mut varints));
    let mut compressor = zstd::bulk::Compressor::new(PAGE_ZSTD_LEVEL).ok()?;
    let text_frame = compressor.compress(text).ok()?;
    let numbers_frame = compressor.compress(&varints).ok()?;
    let blocks = postings.chunks(POSTING_BLOCK_BYTES as usize);
    let lengths = [text.len(), numbers.len(), text_frame.len(), blocks.len()];
    let mut page = Vec::with_capacity(16 + text_frame.len() + numbers_frame.len() + 4 * blocks.len());
    page.extend(lengths.into_iter().flat_map(|length| (length as u32).to_le_bytes()));
    page.extend_from_slice(&text_frame);
    page.extend_from_slice(&numbers_frame);
    page.extend(blocks.flat_map(|block| crc32(block).to_le_bytes()));
    Some(page)
}

#[derive(Default)]
pub(super) struct DictionaryPageBuilder {
    text: Vec<u8>,
    field_sets: Vec<FieldSet>,
    row_counts: Vec<u32>,
    field_set_indexes: Vec<u32>,
    single_rows: Vec<u32>,
    field_row_counts: Vec<u32>,
    pub(super) postings: Vec<u8>,
}

impl DictionaryPageBuilder {
    /// Adds a token with its rows, which are at least one, and its fields. `rows_of_field` writes the numbers of rows
    /// in `rows` that have the token in a field.
    pub(super) fn push(
        &mut self,
        token: &[u8],
        fields: FieldSet,
        rows: &[u32],
        segment_rows: usize,
        mut rows_of_field: impl FnMut(u8, &mut Vec<u32>),
    ) {
        if self.text.is_empty() {
            self.text.push(TEXT_SEPARATOR);
        }
        self.text.extend_from_slice(token);
        self.text.push(TEXT_SEPARATOR);
        let index = self.field_sets.iter().position(|set| *set == fields).unwrap_or_else(|| {
            self.field_sets.push(fields);
            self.field_sets.len() - 1
        });
        self.field_set_indexes.push(index as u32);
        self.row_counts.push(rows.len() as u32 - 1);
        if let [row] = rows {
            self.single_rows.push(*row);
            return;
        }
        postings::encode_postings(rows, segment_rows, &mut self.postings);
        if fields.len() > 1 {
            let mut numbers = Vec::new();
            for field in fields.iter() {
                numbers.clear();
                rows_of_field(field, &mut numbers);
                self.field_row_counts.push(numbers.len() as u32);
                postings::encode_postings(&numbers, rows.len(), &mut self.postings);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.text.len() >= PAGE_TEXT_BYTES || self.postings.len() >= PAGE_POSTING_BYTES
    }

    pub(super) fn first_token(&self) -> &[u8] {
        self.text.get(1..).and_then(|text| text.split(|byte| *byte == TEXT_SEPARATOR).next()).unwrap_or_default()
    }

    pub(super) fn fields(&self) -> FieldSet {
        self.field_sets.iter().copied().fold(FieldSet::EMPTY, FieldSet::union)
    }

    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let mut numbers = vec![self.field_sets.len() as u32, self.row_counts.len() as u32];
        numbers.extend(self.field_sets.iter().map(|set| set.bits()));
        numbers.extend_from_slice(&self.row_counts);
        numbers.extend_from_slice(&self.field_set_indexes);
        numbers.extend_from_slice(&self.single_rows);
        numbers.extend_from_slice(&self.field_row_counts);
        encode_page(&self.text, &numbers, &self.postings)
    }
}

#[derive(Default)]
pub(super) struct RowPageBuilder {
    text: Vec<u8>,
    rows: Vec<u32>,
    lengths: Vec<u32>,
    last_row: u32,
}

impl RowPageBuilder {
    /// Adds the tokens of a row, each followed by a separator. Rows must ascend.
    pub(super) fn push(&mut self, row: u32, tokens: &[u8]) {
        if self.text.is_empty() {
            self.text.push(TEXT_SEPARATOR);
        }
        self.text.extend_from_slice(tokens);
        self.rows.push(row - self.last_row);
        self.lengths.push(tokens.len() as u32);
        self.last_row = row;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.text.len() >= PAGE_TEXT_BYTES
    }

    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let numbers = [&[self.rows.len() as u32], self.rows.as_slice(), &self.lengths].concat();
        encode_page(&self.text, &numbers, &[])
    }
}

/// A decoded page. Searches return the numbers of its items: tokens of a dictionary page, or rows of a row page.
#[derive(Debug)]
pub struct TokenPage {
    text: DelimitedText,
    items: PageItems,
    pub posting_checksums: Arc<[u32]>,
}

#[derive(Debug)]
enum PageItems {
    Tokens { entries: Vec<DictionaryEntry>, field_row_counts: Vec<u32> },
    Rows(Vec<u32>),
    Hashes(HashPage),
}

#[derive(Clone, Copy, Debug)]
struct DictionaryEntry {
    fields: FieldSet,
    row_count: u32,
    /// The row of a token with one row, otherwise the start of its posting list.
    row_or_start: u32,
    /// The index of the first row count of a field.
    first_field_count: u32,
}

/// An item of a page that a search has found.
#[derive(Clone, Debug)]
pub(super) enum PageItem {
    Row(u32),
    Token(MatchedToken),
}

/// A token with a posting list.
#[derive(Clone, Debug)]
pub(super) struct MatchedToken {
    pub(super) row_count: u32,
    start: u32,
    /// The ranks of rows that have the token in a searched field: the row count and start of each list. `None` if all
    /// rows have the token in a searched field.
    field_lists: Option<Box<[FieldList]>>,
}

#[derive(Clone, Copy, Debug)]
struct FieldList {
    row_count: u32,
    start: u32,
}

impl MatchedToken {
    /// Returns the bytes of the postings that are needed to find the rows of the token in the searched fields.
    pub(super) fn posting_range(&self, segment_rows: usize) -> Range<u32> {
        let rows = self.row_count as usize;
        let end = self.start + postings::encoded_posting_bytes(rows, segment_rows) as u32;
        let list_end =
            |list: &FieldList| list.start + postings::encoded_posting_bytes(list.row_count as usize, rows) as u32;
        let last = self.field_lists.as_ref().and_then(|lists| lists.last());
        self.start..last.map_or(end, |list| end.max(list_end(list)))
    }

    /// Adds the rows of the token in the searched fields to `to`. `bytes` begins with the bytes of `posting_range`.
    pub(super) fn union_rows(&self, bytes: &[u8], to: &mut FixedBitSet) -> Result<(), KeywordIndexError> {
        let row_count = self.row_count as usize;
        let Some(lists) = &self.field_lists else { return postings::union_postings_into(bytes, row_count, to) };
        let mut selected = FixedBitSet::with_capacity(row_count);
        for list in lists {
            let bytes = bytes.get((list.start - self.start) as usize..).unwrap_or_default();
            postings::union_postings_into(bytes, list.row_count as usize, &mut selected)?;
        }
        let mut rows = FixedBitSet::with_capacity(to.len());
        postings::union_postings_into(bytes, row_count, &mut rows)?;
        for (number, row) in rows.ones().enumerate() {
            if selected.contains(number) {
                to.insert(row);
            }
        }
        Ok(())
    }
}

impl TokenPage {
    /// Decodes a page of a segment with `segment_rows` rows, and `posting_bytes` bytes of postings.
    pub fn decode(
        kind: PageKind,
        segment_rows: usize,
        posting_bytes: u32,
        bytes: &[u8],
    ) -> Result<TokenPage, KeywordIndexError> {
        let is_dictionary = match kind {
            PageKind::Dictionary => true,
            PageKind::Rows => false,
            PageKind::Hashes => {
                let text = DelimitedText::new(Vec::new(), Vec::new());
                let items = PageItems::Hashes(HashPage::decode(segment_rows, bytes)?);
                return Ok(TokenPage { text, items, posting_checksums: [].into() });
            }
        };
        let PageParts { text, numbers, posting_checksums } = decode_page(bytes)?;
        if posting_checksums.len() != posting_bytes.div_ceil(POSTING_BLOCK_BYTES) as usize {
            return Err(damaged("it contains the wrong number of checksums"));
        }
        let mut numbers = Numbers(&numbers);
        let (ends, items) = match is_dictionary {
            true => decode_dictionary(&text, &mut numbers, segment_rows, posting_bytes)?,
            false => decode_rows(&text, &mut numbers, segment_rows)?,
        };
        if !numbers.0.is_empty() {
            return Err(damaged("it contains too many integers"));
        }
        Ok(TokenPage { text: DelimitedText::new(text, ends), items, posting_checksums })
    }

    pub fn memory_bytes(&self) -> usize {
        let items = match &self.items {
            PageItems::Tokens { entries, field_row_counts } => {
                entries.capacity() * size_of::<DictionaryEntry>() + field_row_counts.capacity() * size_of::<u32>()
            }
            PageItems::Rows(rows) => rows.capacity() * size_of::<u32>(),
            PageItems::Hashes(page) => page.memory_bytes(),
        };
        size_of::<TokenPage>() + self.text.memory_bytes() + items + size_of_val(&*self.posting_checksums)
    }

    /// Calls `on_match` with each item that matches in one of the fields.
    pub(super) fn for_each_match(
        &self,
        finder: &Finder<'_>,
        fields: FieldSet,
        segment_rows: usize,
        mut on_match: impl FnMut(PageItem),
    ) {
        self.text.for_each_match(finder, |item| match &self.items {
            PageItems::Rows(rows) => _ = rows.get(item).map(|row| on_match(PageItem::Row(*row))),
            PageItems::Hashes(_) => {}
            PageItems::Tokens { entries, field_row_counts } => {
                if let Some(entry) = entries.get(item).filter(|entry| entry.fields.intersects(fields)) {
                    on_match(match entry.row_count {
                        1 => PageItem::Row(entry.row_or_start),
                        _ => PageItem::Token(entry.matched_token(fields, field_row_counts, segment_rows)),
                    });
                }
            }
        });
    }

    /// Lists the rows of a hash page whose token starts with digits in a range.
    pub(super) fn hash_rows(&self, digits: &RangeInclusive<u32>) -> impl Iterator<Item = u32> {
        let page = if let PageItems::Hashes(page) = &self.items { Some(page) } else { None };
        page.into_iter().flat_map(|page| page.rows(digits))
    }
}

impl DictionaryEntry {
    fn matched_token(&self, fields: FieldSet, field_row_counts: &[u32], segment_rows: usize) -> MatchedToken {
        let mut token = MatchedToken { row_count: self.row_count, start: self.row_or_start, field_lists: None };
        if self.fields.is_subset(fields) {
            return token;
        }
        let rows = self.row_count as usize;
        let mut start = token.posting_range(segment_rows).end;
        let counts = field_row_counts.get(self.first_field_count as usize..).unwrap_or_default();
        let lists = self.fields.iter().zip(counts).filter_map(|(field, row_count)| {
            let list = FieldList { row_count: *row_count, start };
            start += postings::encoded_posting_bytes(*row_count as usize, rows) as u32;
            fields.contains(field).then_some(list)
        });
        token.field_lists = Some(lists.collect());
        token
    }
}

/// The integers of a page that have not been read yet.
struct Numbers<'a>(&'a [u32]);

impl<'a> Numbers<'a> {
    fn next(&mut self) -> Result<usize, KeywordIndexError> {
        self.take(1)?.first().map(|number| *number as usize).ok_or_else(|| damaged("it contains too few integers"))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u32], KeywordIndexError> {
        let split = self.0.split_at_checked(count).ok_or_else(|| damaged("it contains too few integers"))?;
        self.0 = split.1;
        Ok(split.0)
    }
}

fn decode_dictionary(
    text: &[u8],
    numbers: &mut Numbers<'_>,
    segment_rows: usize,
    posting_bytes: u32,
) -> Result<(Vec<u32>, PageItems), KeywordIndexError> {
    let field_set_count = numbers.next()?;
    let token_count = numbers.next()?;
    let field_sets = numbers.take(field_set_count)?;
    let row_counts = numbers.take(token_count)?;
    let field_set_indexes = numbers.take(token_count)?;
    let mut single_rows = numbers.take(row_counts.iter().filter(|count| **count == 0).count())?.iter();
    let field_row_counts = std::mem::take(&mut numbers.0);
    let separators = memchr::memchr_iter(TEXT_SEPARATOR, text).skip(1).take(token_count + 1);
    let ends: Vec<u32> = separators.map(|offset| offset as u32 + 1).collect();
    if ends.len() != token_count {
        return Err(damaged("it contains different numbers of tokens and row counts"));
    }
    let mut entries = Vec::with_capacity(token_count);
    let mut start = 0_u32;
    let mut next_field_count = 0;
    for (count, index) in row_counts.iter().zip(field_set_indexes) {
        let row_count = count.saturating_add(1);
        let bits = field_sets.get(*index as usize).filter(|bits| **bits != 0);
        let fields = FieldSet::from_bits(*bits.ok_or_else(|| damaged("a token has no fields"))?);
        if row_count as usize > segment_rows {
            return Err(damaged("a token has more rows than the segment"));
        }
        if row_count == 1 {
            let row = single_rows.next().filter(|row| (**row as usize) < segment_rows);
            let row_or_start = *row.ok_or_else(|| damaged("a token has a row that does not exist"))?;
            entries.push(DictionaryEntry { fields, row_count, row_or_start, first_field_count: 0 });
            continue;
        }
        let first_field_count = next_field_count as u32;
        entries.push(DictionaryEntry { fields, row_count, row_or_start: start, first_field_count });
        let mut bytes = postings::encoded_posting_bytes(row_count as usize, segment_rows);
        if fields.len() > 1 {
            let counts = field_row_counts.get(next_field_count..next_field_count + fields.len());
            for count in counts.ok_or_else(|| damaged("it contains too few integers"))? {
                if *count == 0 || *count > row_count {
                    return Err(damaged("a field of a token has an invalid row count"));
                }
                bytes += postings::encoded_posting_bytes(*count as usize, row_count as usize);
            }
            next_field_count += fields.len();
        }
        let end = u32::try_from(bytes).ok().and_then(|bytes| start.checked_add(bytes));
        start = end.ok_or_else(|| damaged("its posting lists are too long"))?;
    }
    if start != posting_bytes || next_field_count != field_row_counts.len() {
        return Err(damaged("its posting lists have the wrong length"));
    }
    Ok((ends, PageItems::Tokens { entries, field_row_counts: field_row_counts.to_vec() }))
}

fn decode_rows(
    text: &[u8],
    numbers: &mut Numbers<'_>,
    segment_rows: usize,
) -> Result<(Vec<u32>, PageItems), KeywordIndexError> {
    let count = numbers.next()?;
    let differences = numbers.take(count)?;
    let lengths = numbers.take(count)?;
    let mut rows = Vec::with_capacity(count);
    let mut ends = Vec::with_capacity(count);
    let mut row = 0_u32;
    let mut end = 1_u32;
    for (difference, length) in differences.iter().zip(lengths) {
        row = row.saturating_add(*difference);
        end = end.saturating_add(*length);
        rows.push(row);
        ends.push(end);
    }
    let is_ascending = differences.iter().skip(1).all(|difference| *difference > 0);
    if !is_ascending || rows.last().is_some_and(|row| *row as usize >= segment_rows) || end as usize != text.len() {
        return Err(damaged("it contains rows that do not exist"));
    }
    Ok((ends, PageItems::Rows(rows)))
}

struct PageParts {
    text: Vec<u8>,
    numbers: Vec<u32>,
    posting_checksums: Arc<[u32]>,
}

fn decode_page(bytes: &[u8]) -> Result<PageParts, KeywordIndexError> {
    let (lengths, rest) = bytes.split_first_chunk::<16>().ok_or_else(|| damaged("it is truncated"))?;
    let lengths = lengths.as_chunks::<4>().0;
    let [text_bytes, count, frame_bytes, checksum_count] =
        [0, 1, 2, 3].map(|index| u32::from_le_bytes(lengths[index]) as usize);
    let (text_frame, rest) = rest.split_at_checked(frame_bytes).ok_or_else(|| damaged("it is truncated"))?;
    let numbers_bytes = rest.len().checked_sub(4 * checksum_count).ok_or_else(|| damaged("it is truncated"))?;
    let (numbers_frame, checksums) = rest.split_at(numbers_bytes);
    if text_bytes > MAX_PAGE_TEXT_BYTES || count > MAX_PAGE_NUMBERS {
        return Err(damaged("it is too large"));
    }
    let decompress = |frame: &[u8], max_bytes: usize| {
        // A Zstandard frame's size is checked first, because `decompress` allocates the declared size.
        let size =
            zstd_frame::content_size(frame, max_bytes).filter(|size| size / MAX_COMPRESSION_RATIO <= frame.len());
        let size = size.ok_or_else(|| damaged("the size of a frame is invalid"))?;
        zstd_frame::decompress(frame, size).map_err(|_| damaged("it cannot be decompressed"))
    };
    let text = decompress(text_frame, text_bytes)?;
    if text.len() != text_bytes || text.first() != Some(&TEXT_SEPARATOR) || text.last() != Some(&TEXT_SEPARATOR) {
        return Err(damaged("its text is invalid"));
    }
    let numbers = decode_varints(&decompress(numbers_frame, count * 5)?, count)?;
    let posting_checksums = checksums.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    Ok(PageParts { text, numbers, posting_checksums })
}

fn decode_varints(mut bytes: &[u8], count: usize) -> Result<Vec<u32>, KeywordIndexError> {
    if bytes.len() < count {
        return Err(damaged("it contains the wrong number of integers"));
    }
    let mut numbers = Vec::with_capacity(count);
    for _ in 0..count {
        numbers
            .push(leb128::read_varint_u32(&mut bytes).ok_or_else(|| damaged("an integer is truncated or too large"))?);
    }
    if bytes.is_empty() { Ok(numbers) } else { Err(damaged("it contains the wrong number of integers")) }
}

fn damaged(cause: &'static str) -> KeywordIndexError {
    KeywordIndexError::new(PART_NAME, cause)
}
