//! Searches the sections of a segment for the fragments of a needle. A fragment is one substring search over the
//! dictionary and one over the row tokens; frequent searches use the [trigram index](super::trigram_index).

use std::ops::Range;

use fixedbitset::FixedBitSet;
use memchr::memmem::Finder;

use super::delimited_text::DelimitedText;
use super::section_layout::{SectionKind, SegmentHeader, SegmentSection, unpack_section};
use crate::keywords::KeywordIndexError;
use crate::keywords::postings::{self, MAX_POSTING_ROWS};
use crate::keywords::tokenizer::{TermQuery, TokenClass, TokenFragment};
use crate::layout::TEXT_SEPARATOR;

#[derive(Debug)]
pub struct ClassTokens {
    pub dictionary: TokenDictionary,
    pub row_tokens: RowTokens,
    pub posting_checksums: Vec<u32>,
}

impl ClassTokens {
    pub fn decode(header: &SegmentHeader, class: TokenClass, bytes: &[u8]) -> Result<ClassTokens, KeywordIndexError> {
        let start = header.token_range(class).start;
        let section = |kind| {
            let range = header.section_range(SegmentSection { class, kind });
            let bytes = bytes.get((range.start - start) as usize..(range.end - start) as usize);
            bytes.ok_or(KeywordIndexError::new("entries", "they are truncated"))
        };
        let checksums = section(SectionKind::Checksums)?.as_chunks::<4>().0;
        Ok(ClassTokens {
            dictionary: TokenDictionary::decode(header, class, section(SectionKind::Dictionary)?)?,
            row_tokens: RowTokens::decode(header, section(SectionKind::RowTokens)?)?,
            posting_checksums: checksums.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect(),
        })
    }

    pub fn memory_bytes(&self) -> usize {
        size_of::<ClassTokens>()
            + self.dictionary.memory_bytes()
            + self.row_tokens.0.memory_bytes()
            + self.posting_checksums.capacity() * size_of::<u32>()
    }
}

#[derive(Debug)]
pub struct TokenDictionary {
    text: DelimitedText,
    row_counts: Vec<u32>,
    posting_starts: Vec<u32>,
}

impl TokenDictionary {
    pub fn decode(
        header: &SegmentHeader,
        class: TokenClass,
        bytes: &[u8],
    ) -> Result<TokenDictionary, KeywordIndexError> {
        const PART_NAME: &str = "dictionary";
        let damaged = |cause| KeywordIndexError::new(PART_NAME, cause);
        let rows = header.rows();
        let (text, mut row_counts) = unpack_section(PART_NAME, bytes, super::section_layout::MAX_SECTION_TEXT_BYTES)?;
        if text.len() - 1 < row_counts.len() {
            return Err(damaged("it contains more row counts than entries"));
        }
        let mut token_ends = Vec::with_capacity(row_counts.len());
        let separators = memchr::memchr_iter(TEXT_SEPARATOR, &text).skip(1).take(row_counts.len() + 1);
        token_ends.extend(separators.map(|offset| offset as u32 + 1));
        if token_ends.len() != row_counts.len() {
            return Err(damaged("it contains different numbers of entries and row counts"));
        }
        let mut posting_starts = Vec::with_capacity(row_counts.len() + 1);
        let mut start = 0u32;
        posting_starts.push(start);
        for count in &mut row_counts {
            *count = count.saturating_add(2);
            if *count as usize > rows {
                return Err(damaged("an entry has more rows than the segment"));
            }
            let end = start.checked_add(postings::encoded_posting_bytes(*count as usize, rows) as u32);
            start = end.ok_or_else(|| damaged("its posting lists are too long"))?;
            posting_starts.push(start);
        }
        let postings = header.section_range(SegmentSection { class, kind: SectionKind::Postings });
        if postings.end - postings.start != u64::from(start) {
            return Err(damaged("its posting lists have the wrong length"));
        }
        Ok(TokenDictionary { text: DelimitedText::new(text, token_ends), row_counts, posting_starts })
    }

    pub fn memory_bytes(&self) -> usize {
        self.text.memory_bytes() + (self.row_counts.capacity() + self.posting_starts.capacity()) * size_of::<u32>()
    }

    fn posting_range(&self, token: u32) -> Option<(u32, Range<u32>)> {
        let token = token as usize;
        let start = self.posting_starts.get(token)?;
        let end = self.posting_starts.get(token + 1)?;
        Some((*self.row_counts.get(token)?, *start..*end))
    }
}

/// A segment's row tokens as a searchable text, in row order. An item of the text contains all row tokens of one row.
#[derive(Debug)]
pub struct RowTokens(DelimitedText);

impl RowTokens {
    pub fn decode(header: &SegmentHeader, bytes: &[u8]) -> Result<RowTokens, KeywordIndexError> {
        const PART_NAME: &str = "texts";
        let (text, mut row_ends) = unpack_section(PART_NAME, bytes, MAX_POSTING_ROWS)?;
        if row_ends.is_empty() {
            row_ends = vec![0; header.rows()];
        }
        let mut end = 1u32;
        for length in &mut row_ends {
            end = end.checked_add(*length).ok_or(KeywordIndexError::new(PART_NAME, "its rows are too long"))?;
            *length = end;
        }
        if row_ends.len() != header.rows() || end as usize != text.len() {
            return Err(KeywordIndexError::new(PART_NAME, "its rows have the wrong length"));
        }
        Ok(RowTokens(DelimitedText::new(text, row_ends)))
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct LoadedSections<'a> {
    pub tokens: [Option<&'a ClassTokens>; 3],
    pub postings: [&'a [PostingBytes<'a>]; 3],
}

impl<'a> LoadedSections<'a> {
    fn tokens_of_class(
        &self,
        header: &SegmentHeader,
        class: TokenClass,
    ) -> Result<Option<&'a ClassTokens>, KeywordIndexError> {
        match self.tokens[class as usize] {
            None if !header.token_range(class).is_empty() => {
                Err(KeywordIndexError::new("sections", "a required section was not read"))
            }
            tokens => Ok(tokens),
        }
    }
}

/// Consecutive bytes of a postings section. A posting list may continue in the next `PostingBytes` if there is no gap.
#[derive(Clone, Copy, Debug)]
pub struct PostingBytes<'a> {
    pub start: u32,
    pub bytes: &'a [u8],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeywordCandidates {
    Exact(FixedBitSet),
    /// The rows may match the needle; only their full text shows whether they do.
    Recheck(FixedBitSet),
    Scan,
}

#[derive(Debug)]
pub struct SegmentProbe<'h> {
    header: &'h SegmentHeader,
    is_exact: bool,
    /// The selective fragments of the needle, those with the fewest rows first.
    fragments: Vec<ProbedFragment>,
}

#[derive(Debug)]
struct ProbedFragment {
    fragment: TokenFragment,
    tokens: [Vec<u32>; 3],
    /// The sum of the row counts of the fragment's tokens. A row with several of these tokens counts several times.
    row_count: u64,
}

pub fn probe_segment<'h>(
    header: &'h SegmentHeader,
    query: &TermQuery,
    sections: &LoadedSections<'_>,
) -> Result<SegmentProbe<'h>, KeywordIndexError> {
    let is_exact = matches!(query, TermQuery::ExactFragment(_));
    let mut fragments = Vec::new();
    for fragment in query.fragments() {
        let pattern = fragment.delimited_pattern();
        let finder = Finder::new(&pattern);
        let mut probed = ProbedFragment { fragment: fragment.clone(), tokens: Default::default(), row_count: 0 };
        let mut max_row_count = 0;
        for class in TokenClass::ALL.into_iter().filter(|class| fragment.may_match_class(*class)) {
            let Some(ClassTokens { dictionary, .. }) = sections.tokens_of_class(header, class)? else { continue };
            dictionary.text.for_each_match(&finder, |token| {
                let count = dictionary.row_counts.get(token).copied().unwrap_or_default();
                max_row_count = max_row_count.max(count as usize);
                probed.row_count += u64::from(count);
                probed.tokens[class as usize].push(token as u32);
            });
        }
        // The posting list of a token that is in most rows is not worth reading.
        if is_exact || max_row_count <= header.rows() / 2 {
            fragments.push(probed);
        }
    }
    fragments.sort_by_key(|fragment| fragment.row_count);
    Ok(SegmentProbe { header, is_exact, fragments })
}

impl SegmentProbe<'_> {
    pub fn fragment_count(&self) -> usize {
        self.fragments.len()
    }

    pub fn required_postings(
        &self,
        fragment: usize,
        class: TokenClass,
        sections: &LoadedSections<'_>,
    ) -> Vec<Range<u32>> {
        let Some(ClassTokens { dictionary, .. }) = sections.tokens[class as usize] else { return Vec::new() };
        let Some(fragment) = self.fragments.get(fragment) else { return Vec::new() };
        let mut needed: Vec<Range<u32>> = Vec::new();
        for (_, range) in fragment.tokens[class as usize].iter().filter_map(|token| dictionary.posting_range(*token)) {
            match needed.last_mut() {
                _ if range.start == range.end => {}
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => needed.push(range),
            }
        }
        needed
    }

    /// Removes the candidate rows that do not contain a fragment. `None` stands for all rows of the segment.
    pub fn intersect_fragment(
        &self,
        candidates: Option<FixedBitSet>,
        fragment: usize,
        sections: &LoadedSections<'_>,
    ) -> Result<Option<FixedBitSet>, KeywordIndexError> {
        let Some(fragment) = self.fragments.get(fragment) else { return Ok(candidates) };
        let mut rows = fragment.row_set(sections, self.header)?;
        if let Some(candidates) = &candidates {
            rows.intersect_with(candidates);
        }
        Ok(Some(rows))
    }

    pub fn choose_verification(&self, candidates: Option<FixedBitSet>) -> KeywordCandidates {
        match candidates {
            None => KeywordCandidates::Scan,
            Some(rows) if self.is_exact || rows.is_clear() => KeywordCandidates::Exact(rows),
            Some(rows) if rows.count_ones(..) > self.header.rows() / 2 => KeywordCandidates::Scan,
            Some(rows) => KeywordCandidates::Recheck(rows),
        }
    }
}

impl ProbedFragment {
    fn row_set(&self, sections: &LoadedSections<'_>, header: &SegmentHeader) -> Result<FixedBitSet, KeywordIndexError> {
        let mut to = FixedBitSet::with_capacity(header.rows());
        let pattern = self.fragment.delimited_pattern();
        let finder = Finder::new(&pattern);
        for class in TokenClass::ALL.into_iter().filter(|class| self.fragment.may_match_class(*class)) {
            let Some(ClassTokens { dictionary, row_tokens, .. }) = sections.tokens_of_class(header, class)? else {
                continue;
            };
            let index = class as usize;
            union_postings(dictionary, &self.tokens[index], sections.postings[index], &mut to)?;
            let mut rows_exist = true;
            row_tokens.0.for_each_match(&finder, |row| match row < to.len() {
                true => to.insert(row),
                false => rows_exist = false,
            });
            if !rows_exist {
                return Err(KeywordIndexError::new("texts", "it contains rows that do not exist"));
            }
        }
        Ok(to)
    }
}

fn union_postings(
    dictionary: &TokenDictionary,
    tokens: &[u32],
    loaded: &[PostingBytes<'_>],
    to: &mut FixedBitSet,
) -> Result<(), KeywordIndexError> {
    let truncated = || KeywordIndexError::new("lists", "they are truncated or were not read");
    let mut lists = PostingBytesCursor { rest: loaded, joined: Vec::new() };
    for token in tokens {
        let (count, range) = dictionary.posting_range(*token).ok_or_else(truncated)?;
        let bytes: &[u8] = if range.is_empty() { &[] } else { lists.bytes_at(&range).ok_or_else(truncated)? };
        postings::union_postings_into(bytes, count as usize, to)?;
    }
    Ok(())
}

/// Cursor over the posting lists in loaded bytes. Lists must be requested in ascending order.
struct PostingBytesCursor<'a> {
    rest: &'a [PostingBytes<'a>],
    joined: Vec<u8>,
}

impl PostingBytesCursor<'_> {
    /// Returns the loaded bytes from the start of `range`. They are shorter than the range only if its end was not
    /// loaded. `None` if its start was not loaded.
    fn bytes_at(&mut self, range: &Range<u32>) -> Option<&[u8]> {
        while let [_, next, ..] = self.rest
            && next.start <= range.start
        {
            self.rest = &self.rest[1..];
        }
        let (first, following) = self.rest.split_first()?;
        let offset = range.start.checked_sub(first.start)?;
        let here = first.bytes.get(offset as usize..)?;
        if here.len() >= range.len() {
            return Some(here);
        }
        let joined = &mut self.joined;
        joined.clear();
        joined.extend_from_slice(here);
        for next in following {
            if joined.len() >= range.len() || u64::from(range.start) + joined.len() as u64 != u64::from(next.start) {
                break;
            }
            joined.extend_from_slice(next.bytes);
        }
        Some(joined)
    }
}
