//! Collects the tokens of consecutive rows, and encodes them as a sorted [run](super::run).
//!
//! 1. Tokenize each row ([`for_each_token`]), number the distinct tokens of each field, and store the token numbers row
//!    by row.
//! 2. In the end, sort the tokens, invert the rows, and encode both.
//!
//! Long tokens rarely repeat. They get no number, and their bytes are stored with their row.

use std::collections::BTreeMap;

use memchr::memchr_iter;
use strata_json::for_each_token;

use super::field_set::{FieldSet, OTHER_PATHS};
use super::hash_page::{HashEntry, MAX_HASH_DIGITS, parse_hash_digits};
use super::run::RunEncoder;
use super::token_table::{BatchToken, PROBE_BATCH, TokenEntry, TokenTable};
use super::tokenizer::TokenClass;
use crate::layout::TEXT_SEPARATOR;

const MAX_DICTIONARY_TOKEN_BYTES: usize = 64;
/// Hexadecimal tokens of at least this length, such as hashes, are stored with their row instead of in the dictionary.
/// Of some fields ([`FieldTable`](super::field_set::FieldTable)), only the first digits are stored.
const MIN_ROW_HEX_TOKEN_BYTES: usize = 16;
/// Max token numbers of a run. Their positions must fit into 32 bits.
const MAX_TOKEN_NUMBERS: usize = 1 << 30;

pub(super) fn is_long_hexadecimal(token: &[u8]) -> bool {
    token.len() >= MIN_ROW_HEX_TOKEN_BYTES && TokenClass::from_token(token) == TokenClass::Hexadecimal
}

#[derive(Default)]
pub(super) struct RunBuilder {
    hashes_in_columns: FieldSet,
    table: TokenTable,
    token_numbers: Vec<u32>,
    row_ends: Vec<u32>,
    long_tokens: BTreeMap<(TokenClass, u8), LongTokens>,
    long_token_bytes: usize,
    hashes: BTreeMap<u8, Vec<HashEntry>>,
    hash_count: usize,
    text_bytes: u64,
}

impl RunBuilder {
    /// Creates a builder that stores only the first digits of the long hexadecimal tokens of some fields.
    pub(super) fn new(hashes_in_columns: FieldSet) -> RunBuilder {
        RunBuilder { hashes_in_columns, ..RunBuilder::default() }
    }

    /// Adds the full text of a row. `fields` begins with the field of each of its scalars, which are removed.
    pub(super) fn push_row(&mut self, text: &[u8], fields: &mut impl Iterator<Item = u8>) {
        let row = self.row_ends.len() as u32;
        self.text_bytes += text.len() as u64;
        let RunBuilder {
            hashes_in_columns,
            table,
            token_numbers,
            row_ends,
            long_tokens,
            long_token_bytes,
            hashes,
            hash_count,
            ..
        } = self;
        let mut separators = memchr_iter(TEXT_SEPARATOR, text);
        let mut next_separator = separators.next();
        let mut field = OTHER_PATHS;
        let mut batch = [BatchToken::default(); PROBE_BATCH];
        let mut count = 0;
        for_each_token(text, |start, end| {
            // Each scalar follows a separator.
            while next_separator.is_some_and(|separator| separator < start) {
                field = fields.next().unwrap_or(OTHER_PATHS);
                next_separator = separators.next();
            }
            let (Some(from), length) = (text.get(start..), end - start) else { return };
            if length >= MIN_ROW_HEX_TOKEN_BYTES {
                let token = from.get(..length).unwrap_or_default();
                let class = TokenClass::from_token(token);
                if class == TokenClass::Hexadecimal
                    && hashes_in_columns.contains(field)
                    && let Some(digits) = token.first_chunk::<MAX_HASH_DIGITS>().and_then(|d| parse_hash_digits(d))
                {
                    *hash_count += 1;
                    hashes.entry(field).or_default().push(HashEntry::from(digits) << 32 | HashEntry::from(row));
                    return;
                }
                if length > MAX_DICTIONARY_TOKEN_BYTES || class == TokenClass::Hexadecimal {
                    *long_token_bytes += length;
                    long_tokens.entry((class, field)).or_default().push(token, row);
                    return;
                }
            }
            batch[count] = BatchToken { from, length, field };
            count += 1;
            if count == batch.len() {
                table.insert_batch(&batch, row, token_numbers);
                count = 0;
            }
        });
        table.insert_batch(&batch[..count], row, token_numbers);
        // Scalars after the last token have no tokens. The last separator ends the row.
        for _ in 1..next_separator.into_iter().chain(separators).count() {
            fields.next();
        }
        row_ends.push(token_numbers.len() as u32);
    }

    pub(super) fn rows(&self) -> usize {
        self.row_ends.len()
    }

    pub(super) fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    pub(super) fn is_full(&self, max_memory_bytes: usize) -> bool {
        self.memory_bytes() >= max_memory_bytes || self.token_numbers.len() > MAX_TOKEN_NUMBERS
    }

    fn memory_bytes(&self) -> usize {
        let numbers =
            (self.token_numbers.capacity() + self.token_numbers.len() + self.row_ends.capacity()) * size_of::<u32>();
        self.table.memory_bytes() + numbers + 2 * (self.long_token_bytes + self.hash_count * size_of::<HashEntry>())
    }

    /// Encodes the run. A run without rows is empty.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let postings = self.collect_postings();
        let mut encoder = RunEncoder::default();
        let mut rest = postings.rows.as_slice();
        let mut bytes = Vec::new();
        let tokens = postings.token_numbers.iter().filter_map(|number| self.table.tokens.get(*number as usize));
        let tokens: Vec<&TokenEntry> = tokens.collect();
        for same in tokens.chunk_by(|left, right| left.class == right.class && self.table.compare(left, right).is_eq())
        {
            let Some(first) = same.first() else { continue };
            bytes.clear();
            self.table.append_token_bytes(first, &mut bytes);
            encoder.begin_token(&bytes, same.len());
            for token in same {
                let (rows, others) = rest.split_at(token.row_count as usize);
                encoder.push_field(token.field, rows);
                rest = others;
            }
        }
        encoder.end_tokens();
        for ((class, field), long) in &self.long_tokens {
            encoder.push_row_tokens(*class, *field, long.rows());
        }
        encoder.end_row_tokens();
        for (field, entries) in &mut self.hashes {
            entries.sort_unstable();
            encoder.push_hashes(*field, entries);
        }
        encoder.finish()
    }

    fn collect_postings(&self) -> TokenPostings {
        let tokens = &self.table.tokens;
        let mut sorted: Vec<(&TokenEntry, u32)> = tokens.iter().zip(0..).collect();
        sorted.sort_unstable_by(|(a, _), (b, _)| {
            a.class.cmp(&b.class).then_with(|| self.table.compare(a, b)).then_with(|| a.field.cmp(&b.field))
        });
        let token_numbers: Vec<u32> = sorted.into_iter().map(|(_, number)| number).collect();
        let mut next = vec![0; tokens.len()];
        let mut start = 0;
        for number in &token_numbers {
            if let (Some(next), Some(token)) = (next.get_mut(*number as usize), tokens.get(*number as usize)) {
                *next = start;
                start += token.row_count;
            }
        }
        let mut rows = vec![0; start as usize];
        let mut begin = 0;
        for (row, end) in self.row_ends.iter().enumerate() {
            for number in self.token_numbers.get(begin..*end as usize).unwrap_or_default() {
                if let Some(next) = next.get_mut(*number as usize)
                    && let Some(to) = rows.get_mut(*next as usize)
                {
                    *to = row as u32;
                    *next += 1;
                }
            }
            begin = *end as usize;
        }
        TokenPostings { token_numbers, rows }
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

    fn rows(&self) -> impl ExactSizeIterator<Item = (u32, &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |(row, end)| {
            let bytes = self.bytes.get(start..*end).unwrap_or_default();
            start = *end;
            (*row, bytes)
        })
    }
}

/// The tokens, sorted by class, bytes, and field, and the rows of each of them, one list after the other.
struct TokenPostings {
    token_numbers: Vec<u32>,
    rows: Vec<u32>,
}
