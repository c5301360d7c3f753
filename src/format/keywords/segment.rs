//! Segments: the keyword index of several consecutive row groups, usually of all row groups of a file.
//!
//! A segment consists of token pages and their postings ([`super::token_page`]). Pages are in the order of classes and
//! tokens; dictionary pages precede row pages, and these precede hash pages. [`SegmentProbe`] searches the pages. A
//! reader does its own I/O between these steps:
//!
//! 1. Decode the pages that [`StoredSegment::required_pages`] lists, and [`SegmentProbe::search_page`] each of them, in
//!    ascending order.
//! 2. [`SegmentProbe::into_fragments`] returns the fragments to use, those with the fewest rows first.
//! 3. [`PageMatches::union_rows`] with the postings of each page, until few rows are left after a fragment.
//! 4. [`choose_verification`].

use std::ops::Range;
use std::sync::Arc;

use fixedbitset::FixedBitSet;
use memchr::memmem::Finder;

use super::KeywordIndexError;
use super::field_set::{FieldSet, FieldTable};
use super::hash_page::parse_hash_digits;
use super::postings::MAX_POSTING_ROWS;
use super::token_page::{MatchedToken, PageItem, PageKind, TokenPage};
use super::tokenizer::{TermQuery, TokenClass, TokenFragment};

#[derive(Clone, Debug)]
pub struct StoredSegment {
    pub row_groups: Range<usize>,
    pub rows: usize,
    pub fields: Arc<FieldTable>,
    pub pages: Arc<[StoredPage]>,
}

/// The location of a page and its postings in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPage {
    pub kind: PageKind,
    pub class: TokenClass,
    /// The fields in which the tokens occur.
    pub fields: FieldSet,
    /// The first token of a dictionary page, or the digits of the first entry of a hash page.
    pub first_token: Vec<u8>,
    pub offset: u64,
    pub bytes: u32,
    pub checksum: u32,
    pub postings_offset: u64,
    pub posting_bytes: u32,
}

impl StoredPage {
    /// Returns a page without postings whose location is not known yet.
    pub(super) fn unwritten(kind: PageKind, class: TokenClass, fields: FieldSet) -> StoredPage {
        let [bytes, checksum, posting_bytes] = [0; 3];
        let [offset, postings_offset] = [0; 2];
        let first_token = Vec::new();
        StoredPage { kind, class, fields, first_token, offset, bytes, checksum, postings_offset, posting_bytes }
    }

    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.bytes)
    }

    pub fn postings_range(&self) -> Range<u64> {
        self.postings_offset..self.postings_offset + u64::from(self.posting_bytes)
    }
}

impl StoredSegment {
    /// Whether the segment has at most [`MAX_POSTING_ROWS`] rows, and all its parts are in the file.
    pub fn is_valid(&self, file_bytes: u64) -> bool {
        let is_inside = |start: u64, bytes: u32| start.checked_add(bytes.into()).is_some_and(|end| end <= file_bytes);
        self.rows <= MAX_POSTING_ROWS
            && self.fields.is_valid()
            && self
                .pages
                .iter()
                .all(|page| is_inside(page.offset, page.bytes) && is_inside(page.postings_offset, page.posting_bytes))
    }

    /// Lists the pages in which tokens in the fields can match the query.
    pub fn required_pages(&self, query: &TermQuery, fields: FieldSet) -> Vec<usize> {
        let is_required = |number: usize| {
            self.pages.get(number).is_some_and(|page| page.fields.intersects(fields))
                && query.fragments().iter().any(|fragment| self.may_match_page(number, fragment))
        };
        (0..self.pages.len()).filter(|number| is_required(*number)).collect()
    }

    fn may_match_page(&self, number: usize, fragment: &TokenFragment) -> bool {
        let Some(page) = self.pages.get(number) else { return false };
        if !fragment.may_match_class(page.class) {
            return false;
        }
        match page.kind {
            PageKind::Hashes => return self.may_match_hash_page(number, fragment),
            PageKind::Rows => return true,
            PageKind::Dictionary if !fragment.is_token_start() => return true,
            PageKind::Dictionary => {}
        }
        // All tokens that start with the fragment are between the fragment and its last continuation.
        let is_before_end = page.first_token <= fragment.bytes || page.first_token.starts_with(&fragment.bytes);
        let next = self.pages.get(number + 1);
        let next = next.filter(|next| (next.kind, next.class) == (page.kind, page.class));
        is_before_end && next.is_none_or(|next| next.first_token > fragment.bytes)
    }

    fn may_match_hash_page(&self, number: usize, fragment: &TokenFragment) -> bool {
        let Some(page) = self.pages.get(number) else { return false };
        let Some(digits) = fragment.hash_digits(page.first_token.len()) else { return false };
        // The next page can begin with the same digits.
        let next = self.pages.get(number + 1).filter(|next| (next.kind, next.fields) == (page.kind, page.fields));
        parse_hash_digits(&page.first_token).is_none_or(|first| first <= *digits.end())
            && next.and_then(|next| parse_hash_digits(&next.first_token)).is_none_or(|next| next >= *digits.start())
    }

    pub fn memory_bytes(&self) -> usize {
        let pages = self.pages.iter().map(|page| size_of::<StoredPage>() + page.first_token.capacity());
        size_of::<StoredSegment>() + pages.sum::<usize>() + self.fields.memory_bytes()
    }
}

/// Consecutive bytes of the postings of a page. A list may continue in the next `PostingBytes` if there is no gap.
#[derive(Clone, Copy, Debug)]
pub struct PostingBytes<'a> {
    pub start: u32,
    pub bytes: &'a [u8],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeywordCandidates {
    /// The rows with a token in the fields that contains the needle.
    Exact(FixedBitSet),
    /// The rows may match the needle; only their text shows whether they do.
    Recheck(FixedBitSet),
    Scan,
}

/// A search for the fragments of a query in the pages of a segment.
pub struct SegmentProbe<'q> {
    segment: &'q StoredSegment,
    fields: FieldSet,
    fragments: Vec<FragmentSearch<'q>>,
    is_exact: bool,
}

struct FragmentSearch<'q> {
    fragment: &'q TokenFragment,
    finder: Finder<'static>,
    found: ProbedFragment,
    max_row_count: u32,
}

/// The tokens that a fragment has matched.
#[derive(Debug, Default)]
pub struct ProbedFragment {
    /// The fragment if it can be inside of a long hexadecimal token, of which the index can have only the first digits
    /// ([`FieldTable`]).
    pub hexadecimal: Option<TokenFragment>,
    /// Rows that are known without postings.
    rows: Vec<u32>,
    /// The pages with tokens whose rows are in postings.
    pub pages: Vec<PageMatches>,
    /// The sum of the row counts of the fragment's tokens. A row with several of these tokens counts several times.
    row_count: u64,
}

/// The tokens of a page that a fragment has matched.
#[derive(Debug)]
pub struct PageMatches {
    /// The number of the page in its segment.
    pub page: usize,
    pub posting_checksums: Arc<[u32]>,
    segment_rows: usize,
    tokens: Vec<MatchedToken>,
}

impl<'q> SegmentProbe<'q> {
    pub fn new(segment: &'q StoredSegment, query: &'q TermQuery, fields: FieldSet) -> SegmentProbe<'q> {
        let search = |fragment: &'q TokenFragment| FragmentSearch {
            fragment,
            finder: Finder::new(&fragment.delimited_pattern()).into_owned(),
            found: ProbedFragment {
                hexadecimal: (fragment.may_match_class(TokenClass::Hexadecimal) && !fragment.is_token_start())
                    .then(|| fragment.clone()),
                ..ProbedFragment::default()
            },
            max_row_count: 1,
        };
        let fragments = query.fragments().iter().map(search).collect();
        SegmentProbe { segment, fields, fragments, is_exact: matches!(query, TermQuery::ExactFragment(_)) }
    }

    pub fn search_page(&mut self, number: usize, page: &TokenPage) {
        for search in &mut self.fragments {
            if !self.segment.may_match_page(number, search.fragment) {
                continue;
            }
            let found = &mut search.found;
            let digits = self.segment.pages.get(number).filter(|page| page.kind == PageKind::Hashes);
            if let Some(digits) = digits.and_then(|page| search.fragment.hash_digits(page.first_token.len())) {
                let before = found.rows.len();
                found.rows.extend(page.hash_rows(&digits));
                found.row_count += (found.rows.len() - before) as u64;
                continue;
            }
            let mut tokens = Vec::new();
            page.for_each_match(&search.finder, self.fields, self.segment.rows, |item| match item {
                PageItem::Row(row) => {
                    found.row_count += 1;
                    found.rows.push(row);
                }
                PageItem::Token(token) => {
                    search.max_row_count = search.max_row_count.max(token.row_count);
                    found.row_count += u64::from(token.row_count);
                    tokens.push(token);
                }
            });
            if !tokens.is_empty() {
                let posting_checksums = page.posting_checksums.clone();
                found.pages.push(PageMatches {
                    page: number,
                    posting_checksums,
                    segment_rows: self.segment.rows,
                    tokens,
                });
            }
        }
    }

    /// Returns the selective fragments of the needle, those with the fewest rows first.
    pub fn into_fragments(self) -> Vec<ProbedFragment> {
        // The posting list of a token that is in most rows is not worth reading.
        let max_rows = if self.is_exact { usize::MAX } else { self.segment.rows / 2 };
        let is_selective = |search: &FragmentSearch<'_>| search.max_row_count as usize <= max_rows;
        let mut fragments: Vec<ProbedFragment> =
            self.fragments.into_iter().filter(is_selective).map(|search| search.found).collect();
        fragments.sort_by_key(|fragment| fragment.row_count);
        fragments
    }
}

impl ProbedFragment {
    /// Returns the rows that are known without postings, in a segment with `segment_rows` rows.
    pub fn row_set(&self, segment_rows: usize) -> FixedBitSet {
        let mut rows = FixedBitSet::with_capacity(segment_rows);
        self.rows.iter().for_each(|row| rows.insert(*row as usize));
        rows
    }
}

impl PageMatches {
    /// Lists the byte ranges of the postings that are needed, in ascending order.
    pub fn required_postings(&self) -> Vec<Range<u32>> {
        let mut needed: Vec<Range<u32>> = Vec::new();
        for range in self.tokens.iter().map(|token| token.posting_range(self.segment_rows)) {
            match needed.last_mut() {
                _ if range.start == range.end => {}
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => needed.push(range),
            }
        }
        needed
    }

    /// Adds the rows of the matched tokens to `rows`. `postings` has the required postings.
    pub fn union_rows(&self, postings: &[PostingBytes<'_>], rows: &mut FixedBitSet) -> Result<(), KeywordIndexError> {
        let truncated = || KeywordIndexError::new("lists", "they are truncated or were not read");
        let mut lists = PostingBytesCursor { rest: postings, joined: Vec::new() };
        for token in &self.tokens {
            let range = token.posting_range(self.segment_rows);
            let bytes: &[u8] = if range.is_empty() { &[] } else { lists.bytes_at(&range).ok_or_else(truncated)? };
            token.union_rows(bytes, rows)?;
        }
        Ok(())
    }
}

/// Decides how the candidates for a query are verified. `None` stands for all rows.
pub fn choose_verification(query: &TermQuery, candidates: Option<FixedBitSet>) -> KeywordCandidates {
    match candidates {
        None => KeywordCandidates::Scan,
        Some(rows) if rows.is_clear() || matches!(query, TermQuery::ExactFragment(_)) => KeywordCandidates::Exact(rows),
        Some(rows) if rows.count_ones(..) > rows.len() / 2 => KeywordCandidates::Scan,
        Some(rows) => KeywordCandidates::Recheck(rows),
    }
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
