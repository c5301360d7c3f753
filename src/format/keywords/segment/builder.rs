//! Builds a segment from the full-text column of its rows: [`KeywordSegmentBuilder::push_row`] for each row, in order,
//! and then [`KeywordSegmentBuilder::finish`].
//!
//! 1. Tokenize each row ([`for_each_token`]), number the distinct tokens, and store the token numbers row by row.
//! 2. In the end, sort the tokens with at least two rows, invert the rows, and write the sections.
//!
//! Long tokens rarely repeat. They get no number, and their bytes are stored with their row.

use strata_json::for_each_token;
use strata_store::checksums::crc32;

use super::section_layout::{
    MAX_SECTION_TEXT_BYTES, POSTING_BLOCK_BYTES, SectionKind, SectionLengths, SegmentHeader, SegmentSection,
    pack_section,
};
use super::token_table::{PROBE_BATCH, TokenEntry, TokenTable};
use crate::keywords::postings::{self, MAX_POSTING_ROWS};
use crate::keywords::tokenizer::TokenClass;
use crate::layout::TEXT_SEPARATOR;

const MAX_DICTIONARY_TOKEN_BYTES: usize = 64;
/// Hexadecimal tokens of at least this length, such as hashes, are stored with their row instead of in the dictionary.
const MIN_ROW_HEX_TOKEN_BYTES: usize = 16;

#[derive(Clone, Copy, Debug)]
pub struct KeywordSegmentLimits {
    pub max_rows: usize,
    /// The memory of a builder at which its keyword segment is full. At twice this size, the segment is discarded.
    pub max_memory_bytes: usize,
    pub max_text_percent: u64,
    /// Keyword segments with less full text are discarded, because a scan of the text is as fast.
    pub min_text_bytes: u64,
}

impl Default for KeywordSegmentLimits {
    fn default() -> KeywordSegmentLimits {
        KeywordSegmentLimits {
            max_rows: 131_072,
            max_memory_bytes: 128 << 20,
            max_text_percent: 50,
            min_text_bytes: 1 << 20,
        }
    }
}

pub struct KeywordSegment {
    pub header: SegmentHeader,
    pub bytes: Vec<u8>,
    pub checksums: [u32; 3],
}

#[derive(Default)]
pub struct KeywordSegmentBuilder {
    limits: KeywordSegmentLimits,
    table: TokenTable,
    token_numbers: Vec<u32>,
    row_ends: Vec<u32>,
    long_tokens: [LongTokens; 3],
    text_bytes: u64,
    is_abandoned: bool,
}

impl KeywordSegmentBuilder {
    pub fn new(limits: KeywordSegmentLimits) -> KeywordSegmentBuilder {
        KeywordSegmentBuilder { limits, ..KeywordSegmentBuilder::default() }
    }

    pub fn push_row(&mut self, text: &[u8]) {
        let row = self.row_ends.len() as u32;
        self.text_bytes += text.len() as u64;
        let KeywordSegmentBuilder { table, token_numbers, row_ends, long_tokens, is_abandoned, .. } = self;
        if *is_abandoned {
            return;
        }
        let mut batch: [(&[u8], usize); PROBE_BATCH] = [(&[], 0); PROBE_BATCH];
        let mut count = 0;
        for_each_token(text, |start, end| {
            let (Some(from), length) = (text.get(start..), end - start) else { return };
            if length >= MIN_ROW_HEX_TOKEN_BYTES {
                let token = from.get(..length).unwrap_or_default();
                let class = TokenClass::from_token(token);
                if length > MAX_DICTIONARY_TOKEN_BYTES || class == TokenClass::Hexadecimal {
                    long_tokens[class as usize].push(token, row);
                    return;
                }
            }
            batch[count] = (from, length);
            count += 1;
            if count == batch.len() {
                table.insert_batch(&batch, row, token_numbers);
                count = 0;
            }
        });
        table.insert_batch(&batch[..count], row, token_numbers);
        row_ends.push(token_numbers.len() as u32);
        let is_too_large = self.memory_bytes() > self.limits.max_memory_bytes.saturating_mul(2);
        if is_too_large || self.row_ends.len() >= MAX_POSTING_ROWS || self.token_numbers.len() > u32::MAX as usize / 2 {
            let limits = self.limits;
            let text_bytes = self.text_bytes;
            *self = KeywordSegmentBuilder { text_bytes, is_abandoned: true, ..KeywordSegmentBuilder::new(limits) };
        }
    }

    pub fn is_full(&self) -> bool {
        self.is_abandoned
            || self.row_ends.len() >= self.limits.max_rows
            || self.memory_bytes() >= self.limits.max_memory_bytes
    }

    pub fn memory_bytes(&self) -> usize {
        let long = self
            .long_tokens
            .iter()
            .map(|long| 2 * long.bytes.capacity() + long.ends.capacity() * size_of::<(u32, usize)>());
        let numbers =
            (self.token_numbers.capacity() + self.token_numbers.len() + self.row_ends.capacity()) * size_of::<u32>();
        self.table.memory_bytes() + numbers + long.sum::<usize>()
    }

    /// Encodes the keyword segment; `None` if it is too large, has too little full text, or was abandoned.
    pub fn finish(self) -> Option<KeywordSegment> {
        if self.is_abandoned || self.text_bytes < self.limits.min_text_bytes {
            return None;
        }
        let sections = self.pack_sections()?;
        let header = SegmentHeader::try_new(self.row_ends.len(), sections.lengths()?).ok()?;
        let bytes = SegmentSection::ALL.map(|section| sections.get(section.class, section.kind)).concat();
        let mut checksums = [0; 3];
        for (checksum, class) in checksums.iter_mut().zip(TokenClass::ALL) {
            let range = header.token_range(class);
            *checksum = crc32(bytes.get(range.start as usize..range.end as usize)?);
        }
        Some(KeywordSegment { header, bytes, checksums })
    }

    fn pack_sections(&self) -> Option<PackedSections> {
        let token_postings = self.collect_postings();
        let max_bytes = self.text_bytes.saturating_mul(self.limits.max_text_percent) / 100;
        let mut bytes = 0;
        let mut sections = PackedSections::default();
        for kind in [SectionKind::Postings, SectionKind::Checksums, SectionKind::Dictionary, SectionKind::RowTokens] {
            for class in TokenClass::ALL {
                let section = match kind {
                    SectionKind::Postings => self.pack_postings(class, &token_postings)?,
                    SectionKind::Checksums => {
                        let blocks = sections.get(class, SectionKind::Postings).chunks(POSTING_BLOCK_BYTES as usize);
                        blocks.flat_map(|block| crc32(block).to_le_bytes()).collect()
                    }
                    SectionKind::Dictionary => self.pack_dictionary(class, &token_postings)?,
                    SectionKind::RowTokens => self.pack_row_tokens(class)?,
                };
                bytes += section.len() as u64;
                if bytes > max_bytes {
                    return None;
                }
                sections.0[class as usize][kind as usize] = section;
            }
        }
        Some(sections)
    }

    fn collect_postings(&self) -> TokenPostings {
        let tokens = &self.table.tokens;
        let mut sorted: Vec<(&TokenEntry, u32)> =
            tokens.iter().zip(0..).filter(|(token, _)| token.row_count > 1).collect();
        sorted.sort_unstable_by(|(a, _), (b, _)| self.table.compare(a, b));
        let token_numbers: Vec<u32> = sorted.into_iter().map(|(_, number)| number).collect();
        let mut next = vec![u32::MAX; tokens.len()];
        let mut start = 0;
        for number in &token_numbers {
            if let (Some(next), Some(token)) = (next.get_mut(*number as usize), tokens.get(*number as usize)) {
                *next = start;
                start += token.row_count;
            }
        }
        let mut rows = vec![0; start as usize];
        for (row, token_numbers) in self.token_numbers_by_row() {
            for number in token_numbers {
                if let Some(next) = next.get_mut(*number as usize)
                    && let Some(to) = rows.get_mut(*next as usize)
                {
                    *to = row;
                    *next += 1;
                }
            }
        }
        TokenPostings { token_numbers, rows }
    }

    fn token_numbers_by_row(&self) -> impl Iterator<Item = (u32, &[u32])> {
        let mut start = 0;
        self.row_ends.iter().enumerate().map(move |(row, end)| {
            let numbers = self.token_numbers.get(start..*end as usize).unwrap_or_default();
            start = *end as usize;
            (row as u32, numbers)
        })
    }

    fn pack_postings(&self, class: TokenClass, token_postings: &TokenPostings) -> Option<Vec<u8>> {
        let mut packed = Vec::new();
        let mut rest = token_postings.rows.as_slice();
        for number in &token_postings.token_numbers {
            let token = self.table.tokens.get(*number as usize)?;
            let (rows, others) = rest.split_at_checked(token.row_count as usize)?;
            if token.class == class {
                postings::encode_postings(rows, self.row_ends.len(), &mut packed);
            }
            rest = others;
        }
        Some(packed)
    }

    fn pack_dictionary(&self, class: TokenClass, token_postings: &TokenPostings) -> Option<Vec<u8>> {
        let tokens = &self.table.tokens;
        let listed_tokens = token_postings.token_numbers.iter().filter_map(|number| tokens.get(*number as usize));
        let mut text = vec![TEXT_SEPARATOR];
        let mut counts = Vec::new();
        for token in listed_tokens.filter(|token| token.class == class) {
            self.table.append_token_bytes(token, &mut text);
            text.push(TEXT_SEPARATOR);
            counts.push(token.row_count - 2);
        }
        pack_section(SectionKind::Dictionary, &text, counts.into_iter())
    }

    fn pack_row_tokens(&self, class: TokenClass) -> Option<Vec<u8>> {
        let tokens = &self.table.tokens;
        let long = self.long_tokens.get(class as usize)?;
        let mut long_rows = long.ends.iter().peekable();
        let mut long_start = 0;
        let mut text = vec![TEXT_SEPARATOR];
        let mut lengths = Vec::with_capacity(self.row_ends.len());
        for (row, numbers) in self.token_numbers_by_row() {
            let start = text.len();
            for token in numbers.iter().filter_map(|number| tokens.get(*number as usize)) {
                if token.row_count == 1 && token.class == class {
                    self.table.append_token_bytes(token, &mut text);
                    text.push(TEXT_SEPARATOR);
                }
            }
            if let Some((_, end)) = long_rows.next_if(|(long_row, _)| *long_row == row) {
                text.extend_from_slice(long.bytes.get(long_start..*end)?);
                long_start = *end;
            }
            if text.len() > MAX_SECTION_TEXT_BYTES {
                return None;
            }
            lengths.push((text.len() - start) as u32);
        }
        pack_section(SectionKind::RowTokens, &text, lengths.into_iter())
    }
}

/// Tokens that are stored with their row, in row order. Each item of `ends` is a row and the end of its tokens.
#[derive(Default)]
struct LongTokens {
    bytes: Vec<u8>,
    ends: Vec<(u32, usize)>,
}

impl LongTokens {
    fn push(&mut self, token: &[u8], row: u32) {
        self.bytes.extend_from_slice(token);
        self.bytes.push(TEXT_SEPARATOR);
        match self.ends.last_mut() {
            Some((last, end)) if *last == row => *end = self.bytes.len(),
            _ => self.ends.push((row, self.bytes.len())),
        }
    }
}

/// The tokens of the dictionary, sorted, and the rows of each of them, one list after the other.
struct TokenPostings {
    token_numbers: Vec<u32>,
    rows: Vec<u32>,
}

#[derive(Default)]
struct PackedSections([[Vec<u8>; 4]; 3]);

impl PackedSections {
    fn get(&self, class: TokenClass, kind: SectionKind) -> &[u8] {
        &self.0[class as usize][kind as usize]
    }

    fn lengths(&self) -> Option<[SectionLengths; 3]> {
        let mut lengths = [SectionLengths::default(); 3];
        for (lengths, class) in lengths.iter_mut().zip(TokenClass::ALL) {
            let length = |kind| u32::try_from(self.get(class, kind).len()).ok();
            *lengths = SectionLengths {
                dictionary: length(SectionKind::Dictionary)?,
                row_tokens: length(SectionKind::RowTokens)?,
                postings: length(SectionKind::Postings)?,
            };
        }
        Some(lengths)
    }
}
