//! Reads the keyword index of a version file.
//!
//! A search reads as little as possible: first the token pages that the needle can match, then the posting lists of its
//! fragments, the most selective fragment first, until few rows are left. If more bytes of the index than of the
//! documents must be fetched, the documents are scanned instead.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use fixedbitset::FixedBitSet;
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use memchr::memmem::Finder;
use strata_store::checksums::verify_checksum;
use strata_store::{Result, StorageError};
use tokio_util::task::AbortOnDropHandle;

use super::file_reader::FileReader;
use super::readahead::MAX_REQUEST_BYTES;
use super::verification::ReadThrottle;
use crate::cached_part::{CachedPart, PartKey};
use crate::fetched_range::FetchedRange;
use crate::keywords::field_set::FieldSet;
use crate::keywords::segment::{
    KeywordCandidates, PageMatches, PostingBytes, ProbedFragment, SegmentProbe, StoredPage, StoredSegment,
    choose_verification,
};
use crate::keywords::tokenizer::{TermQuery, TokenFragment};
use crate::keywords::{KeywordIndexError, POSTING_BLOCK_BYTES, TokenPage};
use crate::layout::{DOCUMENT_COLUMN_INDEX, ShreddedPart};
use crate::substring_search::for_each_row_containing;

/// An intersection of posting lists stops at this number of rows: verifying them is cheaper than reading more lists.
const STOP_INTERSECTING_ROWS: usize = 64;
/// A query may read this much of the keyword index even if the documents are smaller.
const MIN_INDEX_READ_BYTES: u64 = 8 * POSTING_BLOCK_BYTES as u64;
/// Parts of the index that are this close to each other are fetched with one request.
const MAX_GAP_BYTES: u64 = 4 * POSTING_BLOCK_BYTES as u64;
const MAX_CONCURRENT_REQUESTS: usize = 16;
/// Token pages are decoded to about ten times their size.
const MAX_PAGES_REQUEST_BYTES: u64 = 2 << 20;
const MAX_CONCURRENT_DECODERS: usize = 4;
/// A search holds about this many bytes of posting lists at a time.
const MAX_BATCH_POSTING_BYTES: u64 = 16 << 20;

/// A block of postings: the index of its [`PageMatches`], and its number in the page.
#[derive(Clone, Copy, Debug)]
struct BlockNumber {
    matches: usize,
    block: u32,
}

impl FileReader {
    pub(super) fn keyword_segment_count(&self) -> usize {
        self.footer.extent_list.keyword_index.segments.len()
    }

    pub(crate) async fn keyword_candidates(
        &self,
        segment: usize,
        query: &TermQuery,
        fields: FieldSet,
    ) -> Result<KeywordCandidates> {
        let stored = self.footer.extent_list.keyword_index.segments.get(segment);
        let Some(stored) = stored.filter(|_| !query.fragments().is_empty()) else { return Ok(KeywordCandidates::Scan) };
        let row_groups = stored.row_groups.clone();
        let scan_bytes: u64 =
            row_groups.map(|row_group| self.total_column_sizes(row_group, &[DOCUMENT_COLUMN_INDEX]).stored_bytes).sum();
        let mut budget = ColdReadBudget { spent_bytes: 0, max_bytes: scan_bytes.max(MIN_INDEX_READ_BYTES) };
        let mut probe = SegmentProbe::new(stored, query, fields);
        if !self
            .search_token_pages(segment, stored, stored.required_pages(query, fields), &mut probe, &mut budget)
            .await?
        {
            return Ok(KeywordCandidates::Scan);
        }
        let mut candidates: Option<FixedBitSet> = None;
        for fragment in probe.into_fragments() {
            let Some(mut rows) = self.find_rows(segment, stored, &fragment, &mut budget).await? else { break };
            if let Some(hexadecimal) = &fragment.hexadecimal
                && !self.union_column_rows(stored, hexadecimal, fields, &mut rows, &mut budget).await?
            {
                break;
            }
            if let Some(candidates) = &candidates {
                rows.intersect_with(candidates);
            }
            let count = rows.count_ones(..);
            candidates = Some(rows);
            if count <= STOP_INTERSECTING_ROWS {
                break;
            }
        }
        Ok(choose_verification(query, candidates))
    }

    /// Searches token pages, in the cache if possible. Returns false if fetching the others exceeds the budget.
    async fn search_token_pages(
        &self,
        segment: usize,
        stored: &StoredSegment,
        required: Vec<usize>,
        probe: &mut SegmentProbe<'_>,
        budget: &mut ColdReadBudget,
    ) -> Result<bool> {
        let mut cached = HashMap::new();
        let mut missing = Vec::new();
        for number in &required {
            match self.object_file.cache.get(&self.token_page_key(segment, *number)).await {
                Some(CachedPart::KeywordTokens(page)) => _ = cached.insert(*number, page),
                _ => missing.push(*number),
            }
        }
        if !budget.try_spend(missing.iter().map(|number| u64::from(stored.pages[*number].bytes)).sum()) {
            return Ok(false);
        }
        // Pages are searched in ascending order while later ones are fetched and decoded.
        let requests = coalesce(missing, MAX_PAGES_REQUEST_BYTES, |number| stored.pages[*number].range());
        let loading = requests.into_iter().map(|(range, numbers)| {
            let reader = self.clone();
            let load = async move { reader.load_pages(segment, range, numbers).await };
            AbortOnDropHandle::new(tokio::spawn(load)).map(|loaded| loaded.map_err(StorageError::from_join_error)?)
        });
        let mut loading = stream::iter(loading).buffered(MAX_CONCURRENT_DECODERS);
        let mut loaded: VecDeque<(usize, Arc<TokenPage>)> = VecDeque::new();
        for number in required {
            let page = match cached.remove(&number) {
                Some(page) => page,
                None => {
                    if loaded.is_empty() {
                        loaded.extend(loading.try_next().await?.unwrap_or_default());
                    }
                    let Some((_, page)) = loaded.pop_front() else { return Err(StorageError::wrong_part_kind()) };
                    page
                }
            };
            probe.search_page(number, &page);
            tokio::task::consume_budget().await;
        }
        Ok(true)
    }

    /// Fetches, decodes, and caches pages in a range of the file.
    async fn load_pages(
        &self,
        segment: usize,
        range: Range<u64>,
        numbers: Vec<usize>,
    ) -> Result<Vec<(usize, Arc<TokenPage>)>> {
        let Some(stored) = self.footer.extent_list.keyword_index.segments.get(segment) else { return Ok(Vec::new()) };
        let load = async {
            let fetched = FetchedRange { start: range.start, bytes: self.object_file.fetch(range).await? };
            let mut pages = Vec::with_capacity(numbers.len());
            for number in numbers {
                let page = &stored.pages[number];
                let bytes = fetched.slice(page.range())?;
                verify_checksum(&bytes, page.checksum)?;
                let decoded = TokenPage::decode(page.kind, stored.rows, page.posting_bytes, &bytes);
                let decoded = Arc::new(decoded.map_err(invalid_index)?);
                let part = CachedPart::KeywordTokens(decoded.clone());
                self.object_file.cache.insert_loaded(self.token_page_key(segment, number), part).await;
                pages.push((number, decoded));
                tokio::task::yield_now().await;
            }
            Ok(pages)
        };
        load.await.map_err(|error| self.report_keyword_damage(stored, error))
    }

    /// Returns the rows of a segment that match a fragment. `None` if fetching the postings exceeds the budget.
    async fn find_rows(
        &self,
        segment: usize,
        stored: &StoredSegment,
        fragment: &ProbedFragment,
        budget: &mut ColdReadBudget,
    ) -> Result<Option<FixedBitSet>> {
        let mut rows = fragment.row_set(stored.rows);
        let mut rest = fragment.pages.as_slice();
        while !rest.is_empty() {
            // As many pages as fit into memory.
            let mut bytes = 0;
            let fits = |matches: &&PageMatches| {
                let needed: u64 =
                    matches.required_postings().iter().map(|range| u64::from(range.end - range.start)).sum();
                bytes += needed;
                bytes <= MAX_BATCH_POSTING_BYTES
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (batch, others) = rest.split_at(count);
            rest = others;
            let Some(postings) = self.read_postings(segment, stored, batch, budget).await? else { return Ok(None) };
            for (matches, blocks) in batch.iter().zip(&postings) {
                let blocks: Vec<PostingBytes<'_>> =
                    blocks.iter().map(|(start, bytes)| PostingBytes { start: *start, bytes }).collect();
                matches
                    .union_rows(&blocks, &mut rows)
                    .map_err(|error| self.report_keyword_damage(stored, invalid_index(error)))?;
                tokio::task::yield_now().await;
            }
        }
        Ok(Some(rows))
    }

    /// Adds the rows in which a token of an indexed column matches, because the index has only the first digits of
    /// hashes.
    /// Returns false if fetching the columns exceeds the budget.
    async fn union_column_rows(
        &self,
        stored: &StoredSegment,
        fragment: &TokenFragment,
        fields: FieldSet,
        rows: &mut FixedBitSet,
        budget: &mut ColdReadBudget,
    ) -> Result<bool> {
        let in_columns = stored.fields.hashes_in_columns.intersection(fields);
        let layout = &self.footer.layout;
        let columns = stored.fields.fields().filter(|(_, field)| in_columns.contains(*field)).map(|(keys, _)| {
            let number = layout.shredded_columns.iter().position(|shredded| shredded.keys == keys)?;
            let column = layout.column_index(number, ShreddedPart::Text)?;
            Some((column, layout.shredded_columns[number].needs_folding))
        });
        let missing = || StorageError::InvalidFile("the keyword index refers to a missing column".to_owned());
        let columns: Option<Vec<(usize, bool)>> = columns.collect();
        let columns = columns.ok_or_else(|| self.report_keyword_damage(stored, missing()))?;
        let chunks: Vec<(usize, (usize, bool))> = stored
            .row_groups
            .clone()
            .flat_map(|row_group| columns.iter().map(move |column| (row_group, *column)))
            .collect();
        let mut missing_bytes = 0;
        for (row_group, (column, _)) in &chunks {
            if !self.object_file.cache.contains(&PartKey::column(self.footer.id, *row_group, *column)) {
                missing_bytes += self.total_column_sizes(*row_group, &[*column]).stored_bytes;
            }
        }
        if !budget.try_spend(missing_bytes) {
            return Ok(false);
        }
        let searching = chunks.into_iter().map(|(row_group, (column, needs_folding))| {
            let reader = self.clone();
            let fragment = fragment.clone();
            let search = async move {
                let column = match needs_folding {
                    true => reader.read_folded_column(row_group, column).await?,
                    false => reader.read_column(row_group, column).await?,
                };
                let mut rows = Vec::new();
                let matches = |text: &[u8]| fragment.matches_token_of(text);
                for_each_row_containing(&column, &Finder::new(&fragment.bytes), matches, |row| rows.push(row));
                Ok::<_, StorageError>((row_group, rows))
            };
            AbortOnDropHandle::new(tokio::spawn(search)).map(|found| found.map_err(StorageError::from_join_error)?)
        });
        let mut searching = stream::iter(searching).buffered(MAX_CONCURRENT_REQUESTS);
        let mut start = 0;
        let mut next = stored.row_groups.start;
        while let Some((row_group, found)) = searching.try_next().await? {
            while next < row_group {
                start += self.footer.extent_list.row_groups[next].rows;
                next += 1;
            }
            found.into_iter().for_each(|row| rows.insert(start + row));
        }
        Ok(true)
    }

    /// Returns the posting blocks that pages need: their start in the postings of the page, and their bytes. `None` if
    /// fetching them exceeds the budget.
    async fn read_postings(
        &self,
        segment: usize,
        stored: &StoredSegment,
        batch: &[PageMatches],
        budget: &mut ColdReadBudget,
    ) -> Result<Option<Vec<Vec<(u32, Bytes)>>>> {
        let mut postings: Vec<Vec<(u32, Bytes)>> = vec![Vec::new(); batch.len()];
        let mut missing = Vec::new();
        for (number, matches) in batch.iter().enumerate() {
            for block in posting_blocks_covering(matches.required_postings()) {
                match self.object_file.cache.get(&self.posting_block_key(segment, matches.page, block)).await {
                    Some(CachedPart::KeywordPostings(bytes)) => {
                        postings[number].push((block * POSTING_BLOCK_BYTES, bytes))
                    }
                    _ => missing.push(BlockNumber { matches: number, block }),
                }
            }
        }
        let block_range = |block: &BlockNumber| block_range(&stored.pages[batch[block.matches].page], block.block);
        if !budget.try_spend(missing.iter().map(|block| block_range(block).end - block_range(block).start).sum()) {
            return Ok(None);
        }
        let loading = coalesce(missing, MAX_REQUEST_BYTES, block_range).into_iter().map(async |(range, blocks)| {
            let fetched = FetchedRange { start: range.start, bytes: self.object_file.fetch(range).await? };
            let mut loaded = Vec::with_capacity(blocks.len());
            for block in blocks {
                let matches = &batch[block.matches];
                // The block is copied, because a slice would keep all fetched bytes in memory.
                let bytes = Bytes::copy_from_slice(&fetched.slice(block_range(&block))?);
                let expected = matches.posting_checksums.get(block.block as usize);
                verify_checksum(&bytes, *expected.ok_or_else(StorageError::checksum_mismatch)?)?;
                let key = self.posting_block_key(segment, matches.page, block.block);
                self.object_file.cache.insert_loaded(key, CachedPart::KeywordPostings(bytes.clone())).await;
                loaded.push((block, bytes));
            }
            Ok::<_, StorageError>(loaded)
        });
        let loaded: Result<Vec<_>> = stream::iter(loading).buffered(MAX_CONCURRENT_REQUESTS).try_collect().await;
        let loaded = loaded.map_err(|error| self.report_keyword_damage(stored, error))?;
        for (block, bytes) in loaded.into_iter().flatten() {
            postings[block.matches].push((block.block * POSTING_BLOCK_BYTES, bytes));
        }
        postings.iter_mut().for_each(|blocks| blocks.sort_unstable_by_key(|(start, _)| *start));
        Ok(Some(postings))
    }

    fn token_page_key(&self, segment: usize, page: usize) -> PartKey {
        PartKey::KeywordTokens { file: self.footer.id, segment: segment as u32, page: page as u32 }
    }

    fn posting_block_key(&self, segment: usize, page: usize, block: u32) -> PartKey {
        PartKey::KeywordPostings { file: self.footer.id, segment: segment as u32, page: page as u32, block }
    }

    fn report_keyword_damage(&self, stored: &StoredSegment, error: StorageError) -> StorageError {
        let Range { start, end } = stored.row_groups;
        self.object_file.report_index_damage(&format!("the keyword index of row groups {start} to {end}"), error)
    }

    pub(super) async fn verify_keyword_index(&self, throttle: &mut dyn ReadThrottle) -> Result<()> {
        for stored in &self.footer.extent_list.keyword_index.segments {
            for page in &*stored.pages {
                let verified = self.verify_page(stored, page, throttle).await;
                verified.map_err(|error| self.report_keyword_damage(stored, error))?;
            }
        }
        Ok(())
    }

    async fn verify_page(
        &self,
        stored: &StoredSegment,
        page: &StoredPage,
        throttle: &mut dyn ReadThrottle,
    ) -> Result<()> {
        let fetched = self.object_file.fetch_verified(page.range(), page.checksum).await?;
        throttle.throttle(page.bytes.into()).await;
        let decoded = TokenPage::decode(page.kind, stored.rows, page.posting_bytes, &fetched.bytes);
        let decoded = decoded.map_err(invalid_index)?;
        let mut checksums = decoded.posting_checksums.iter();
        let Range { start: mut offset, end } = page.postings_range();
        while offset < end {
            let until = end.min(offset + MAX_REQUEST_BYTES);
            let bytes = self.object_file.fetch(offset..until).await?;
            for block in bytes.chunks(POSTING_BLOCK_BYTES as usize) {
                verify_checksum(block, *checksums.next().ok_or_else(StorageError::checksum_mismatch)?)?;
            }
            throttle.throttle(until - offset).await;
            offset = until;
        }
        Ok(())
    }
}

/// Limit of the bytes that a search fetches from the index. Beyond it, a scan of the documents is cheaper.
struct ColdReadBudget {
    spent_bytes: u64,
    max_bytes: u64,
}

impl ColdReadBudget {
    fn try_spend(&mut self, bytes: u64) -> bool {
        self.spent_bytes += bytes;
        self.spent_bytes <= self.max_bytes
    }
}

fn block_range(page: &StoredPage, block: u32) -> Range<u64> {
    let postings = page.postings_range();
    let start = postings.start + u64::from(block) * u64::from(POSTING_BLOCK_BYTES);
    start..postings.end.min(start + u64::from(POSTING_BLOCK_BYTES))
}

fn posting_blocks_covering(ranges: Vec<Range<u32>>) -> Vec<u32> {
    let mut blocks: Vec<u32> = Vec::new();
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        let first = range.start / POSTING_BLOCK_BYTES;
        let from = blocks.last().map_or(first, |last| first.max(last + 1));
        blocks.extend(from..(range.end - 1) / POSTING_BLOCK_BYTES + 1);
    }
    blocks
}

/// Groups parts with ranges in ascending order, so that one request can fetch each group. Returns the ranges to fetch.
fn coalesce<T>(parts: Vec<T>, max_bytes: u64, range_of: impl Fn(&T) -> Range<u64>) -> Vec<(Range<u64>, Vec<T>)> {
    let mut requests: Vec<(Range<u64>, Vec<T>)> = Vec::new();
    for part in parts {
        let range = range_of(&part);
        match requests.last_mut() {
            Some((last, parts))
                if range.start >= last.end
                    && range.start - last.end <= MAX_GAP_BYTES
                    && range.end - last.start <= max_bytes =>
            {
                last.end = range.end;
                parts.push(part);
            }
            _ => requests.push((range, vec![part])),
        }
    }
    requests
}

fn invalid_index(error: KeywordIndexError) -> StorageError {
    StorageError::InvalidFile(error.to_string())
}
