//! Reads the keyword index of a version file.
//!
//! A search reads as little as possible: first the tokens of the classes that the needle can match, then the posting
//! lists of its fragments, the most selective fragment first, until few rows are left. If more bytes of the index than
//! of the full-text column must be fetched, the column is scanned instead.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use fixedbitset::FixedBitSet;
use futures::FutureExt;
use futures::future::try_join_all;
use strata_store::checksums::verify_checksum;
use strata_store::{Result, StorageError};

use super::file_reader::FileReader;
use super::readahead::MAX_REQUEST_BYTES;
use super::verification::ReadThrottle;
use crate::cached_part::{CachedPart, PartKey};
use crate::fetched_range::FetchedRange;
use crate::keywords::KeywordIndexError;
use crate::keywords::segment::{
    ClassTokens, KeywordCandidates, LoadedSections, POSTING_BLOCK_BYTES, PostingBytes, SectionKind, SegmentProbe,
    SegmentSection, probe_segment,
};
use crate::keywords::segment_directory::StoredSegment;
use crate::keywords::tokenizer::{TermQuery, TokenClass};
use crate::layout::FULL_TEXT_COLUMN_INDEX;

/// An intersection of posting lists stops at this number of rows: verifying them is cheaper than reading more lists.
const STOP_INTERSECTING_ROWS: usize = 64;
/// A query may read this much of the keyword index even if the full-text column is smaller.
const MIN_INDEX_READ_BYTES: u64 = 8 * POSTING_BLOCK_BYTES as u64;

/// A block of a postings section: its offset in the posting lists of its token class, and its bytes.
type PostingBlock = (u32, Bytes);

impl FileReader {
    pub(crate) async fn keyword_candidates(&self, segment: usize, query: &TermQuery) -> Result<KeywordCandidates> {
        let stored = self.footer.extent_list.keyword_index.segments.get(segment);
        let Some(stored) = stored.filter(|_| !query.fragments().is_empty()) else { return Ok(KeywordCandidates::Scan) };
        let header = &stored.header;
        let row_groups = stored.row_groups.clone();
        let scan_bytes: u64 = row_groups
            .map(|row_group| self.total_column_sizes(row_group, &[FULL_TEXT_COLUMN_INDEX]).stored_bytes)
            .sum();
        let mut budget = ColdReadBudget { spent_bytes: 0, max_bytes: scan_bytes.max(MIN_INDEX_READ_BYTES) };
        let classes: Vec<TokenClass> = header.required_classes(query).collect();
        let tokens = self.read_tokens(segment, stored, &classes, &mut budget).await?;
        let Some(tokens) = tokens else { return Ok(KeywordCandidates::Scan) };
        let sections = LoadedSections { tokens: tokens.each_ref().map(Option::as_deref), ..LoadedSections::default() };
        let damaged = |error| self.report_keyword_damage(stored, invalid_index(error));
        let probe = probe_segment(header, query, &sections).map_err(damaged)?;
        let mut candidates: Option<FixedBitSet> = None;
        for fragment in 0..probe.fragment_count() {
            let FragmentPostings { cached: mut postings, missing } =
                self.find_cached_postings(segment, &classes, &probe, fragment, &sections).await;
            let missing_blocks: usize = missing.iter().map(|(_, blocks)| blocks.len()).sum();
            if !budget.try_spend(missing_blocks as u64 * u64::from(POSTING_BLOCK_BYTES)) {
                break;
            }
            if !missing.is_empty() {
                let loading = missing.into_iter().map(async |(class, blocks)| {
                    let Some(tokens) = &tokens[class as usize] else { return Ok((class, Vec::new())) };
                    let checksums = &tokens.posting_checksums;
                    let loaded = self.load_posting_blocks(segment, stored, class, checksums, &blocks).await?;
                    Ok::<_, StorageError>((class, loaded))
                });
                for (class, blocks) in Box::pin(try_join_all(loading)).await? {
                    let postings = &mut postings[class as usize];
                    postings.extend(blocks);
                    postings.sort_unstable_by_key(|(start, _)| *start);
                }
            }
            let postings = postings.each_ref().map(|blocks| {
                blocks.iter().map(|(start, bytes)| PostingBytes { start: *start, bytes }).collect::<Vec<_>>()
            });
            let sections = LoadedSections { postings: postings.each_ref().map(Vec::as_slice), ..sections };
            candidates = probe.intersect_fragment(candidates, fragment, &sections).map_err(damaged)?;
            if candidates.as_ref().is_some_and(|rows| rows.count_ones(..) <= STOP_INTERSECTING_ROWS) {
                break;
            }
        }
        Ok(probe.choose_verification(candidates))
    }

    /// Returns the tokens of these classes, from the cache if possible. `None` if fetching them exceeds the budget.
    async fn read_tokens(
        &self,
        segment: usize,
        stored: &StoredSegment,
        classes: &[TokenClass],
        budget: &mut ColdReadBudget,
    ) -> Result<Option<[Option<Arc<ClassTokens>>; 3]>> {
        let mut tokens: [Option<Arc<ClassTokens>>; 3] = Default::default();
        let mut missing = Vec::new();
        for class in classes {
            match self.object_file.cache.get(&self.tokens_key(segment, *class)).await {
                Some(CachedPart::KeywordTokens(loaded)) => tokens[*class as usize] = Some(loaded),
                _ => missing.push(*class),
            }
        }
        if missing.is_empty() {
            return Ok(Some(tokens));
        }
        let ranges: Vec<Range<u64>> = missing.iter().map(|class| stored.token_range(*class)).collect();
        if !budget.try_spend(ranges.iter().map(|range| range.end - range.start).sum()) {
            return Ok(None);
        }
        self.object_file.fetch_ahead(ranges);
        let loading = missing.iter().map(|class| self.load_tokens(segment, stored, *class));
        for (class, loaded) in missing.iter().zip(Box::pin(try_join_all(loading)).await?) {
            tokens[*class as usize] = Some(loaded);
        }
        Ok(Some(tokens))
    }

    async fn find_cached_postings(
        &self,
        segment: usize,
        classes: &[TokenClass],
        probe: &SegmentProbe<'_>,
        fragment: usize,
        sections: &LoadedSections<'_>,
    ) -> FragmentPostings {
        let mut found = FragmentPostings::default();
        for class in classes {
            let mut missing_blocks = Vec::new();
            for block in posting_blocks_covering(probe.required_postings(fragment, *class, sections)) {
                match self.object_file.cache.get(&self.posting_block_key(segment, *class, block)).await {
                    Some(CachedPart::KeywordPostings(bytes)) => {
                        found.cached[*class as usize].push((block * POSTING_BLOCK_BYTES, bytes))
                    }
                    _ => missing_blocks.push(block),
                }
            }
            if !missing_blocks.is_empty() {
                found.missing.push((*class, missing_blocks));
            }
        }
        found
    }

    fn tokens_key(&self, segment: usize, class: TokenClass) -> PartKey {
        PartKey::KeywordTokens { file: self.footer.id, segment: segment as u32, class }
    }

    fn posting_block_key(&self, segment: usize, class: TokenClass, block: u32) -> PartKey {
        PartKey::KeywordPostings { file: self.footer.id, segment: segment as u32, class, block }
    }

    fn report_keyword_damage(&self, stored: &StoredSegment, error: StorageError) -> StorageError {
        let Range { start, end } = stored.row_groups;
        self.object_file.report_index_damage(&format!("the keyword index of row groups {start} to {end}"), error)
    }

    async fn load_tokens(&self, segment: usize, stored: &StoredSegment, class: TokenClass) -> Result<Arc<ClassTokens>> {
        let load = async {
            let fetched =
                self.object_file.fetch_verified(stored.token_range(class), stored.checksums[class as usize]).await?;
            let tokens = ClassTokens::decode(&stored.header, class, &fetched.bytes).map_err(invalid_index)?;
            Ok(CachedPart::KeywordTokens(Arc::new(tokens)))
        };
        let load = load.map(|loaded| loaded.map_err(|error| self.report_keyword_damage(stored, error)));
        let loaded = self.object_file.cache.get_or_load(self.tokens_key(segment, class), || load).await?;
        let CachedPart::KeywordTokens(tokens) = loaded else { return Err(StorageError::wrong_part_kind()) };
        Ok(tokens)
    }

    async fn load_posting_blocks(
        &self,
        segment: usize,
        stored: &StoredSegment,
        class: TokenClass,
        checksums: &[u32],
        blocks: &[u32],
    ) -> Result<Vec<PostingBlock>> {
        let section = stored.header.section_range(SegmentSection { class, kind: SectionKind::Postings });
        let block_range = |block: u32| {
            let start = section.start + u64::from(block) * u64::from(POSTING_BLOCK_BYTES);
            stored.offset + start..stored.offset + section.end.min(start + u64::from(POSTING_BLOCK_BYTES))
        };
        let are_adjacent = |left: &u32, right: &u32| right - left == 1 && !right.is_multiple_of(BLOCKS_PER_REQUEST);
        let block_range = &block_range;
        let loading = blocks.chunk_by(are_adjacent).map(async |run| {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(Vec::new()) };
            let start = block_range(*first).start;
            let bytes = self.object_file.fetch(start..block_range(*last).end).await?;
            let fetched = FetchedRange { start, bytes };
            let mut blocks = Vec::with_capacity(run.len());
            for block in run {
                // The block is copied, because a slice would keep all fetched bytes in memory.
                let bytes = Bytes::copy_from_slice(&fetched.slice(block_range(*block))?);
                let expected = checksums.get(*block as usize).ok_or_else(StorageError::checksum_mismatch)?;
                verify_checksum(&bytes, *expected)?;
                let key = self.posting_block_key(segment, class, *block);
                self.object_file.cache.insert_loaded(key, CachedPart::KeywordPostings(bytes.clone())).await;
                blocks.push((block * POSTING_BLOCK_BYTES, bytes));
            }
            Ok::<_, StorageError>(blocks)
        });
        let loaded = try_join_all(loading).await.map_err(|error| self.report_keyword_damage(stored, error))?;
        Ok(loaded.into_iter().flatten().collect())
    }

    pub(super) async fn verify_keyword_index(&self, throttle: &mut dyn ReadThrottle) -> Result<()> {
        for stored in &self.footer.extent_list.keyword_index.segments {
            for class in TokenClass::ALL {
                let verified = self.verify_token_class(stored, class, throttle).await;
                verified.map_err(|error| self.report_keyword_damage(stored, error))?;
            }
        }
        Ok(())
    }

    async fn verify_token_class(
        &self,
        stored: &StoredSegment,
        class: TokenClass,
        throttle: &mut dyn ReadThrottle,
    ) -> Result<()> {
        let token_range = stored.token_range(class);
        if token_range.is_empty() {
            return Ok(());
        }
        let FetchedRange { bytes, .. } =
            self.object_file.fetch_verified(token_range.clone(), stored.checksums[class as usize]).await?;
        throttle.throttle(token_range.end - token_range.start).await;
        let checksums = stored.header.section_range(SegmentSection { class, kind: SectionKind::Checksums });
        let checksums = bytes.slice(bytes.len() - (checksums.end - checksums.start) as usize..);
        let postings = stored.header.section_range(SegmentSection { class, kind: SectionKind::Postings });
        let mut offset = stored.offset + postings.start;
        let end = stored.offset + postings.end;
        let mut checksums = checksums.as_chunks::<4>().0.iter().map(|checksum| u32::from_le_bytes(*checksum));
        while offset < end {
            let until = end.min(offset + MAX_REQUEST_BYTES);
            let bytes = self.object_file.fetch(offset..until).await?;
            for block in bytes.chunks(POSTING_BLOCK_BYTES as usize) {
                verify_checksum(block, checksums.next().ok_or_else(StorageError::checksum_mismatch)?)?;
            }
            throttle.throttle(until - offset).await;
            offset = until;
        }
        Ok(())
    }
}

/// Limit of the bytes that a search fetches from the index. Beyond it, a scan of the full-text column is cheaper.
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

#[derive(Default)]
struct FragmentPostings {
    cached: [Vec<PostingBlock>; 3],
    missing: Vec<(TokenClass, Vec<u32>)>,
}

const BLOCKS_PER_REQUEST: u32 = MAX_REQUEST_BYTES as u32 / POSTING_BLOCK_BYTES;

fn posting_blocks_covering(ranges: Vec<Range<u32>>) -> Vec<u32> {
    let mut blocks: Vec<u32> = Vec::new();
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        let first = range.start / POSTING_BLOCK_BYTES;
        let from = blocks.last().map_or(first, |last| first.max(last + 1));
        blocks.extend(from..(range.end - 1) / POSTING_BLOCK_BYTES + 1);
    }
    blocks
}

fn invalid_index(error: KeywordIndexError) -> StorageError {
    StorageError::InvalidFile(error.to_string())
}
