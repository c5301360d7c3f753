//! The keyword index of a version file: which rows of a segment hold a needle, or may hold it.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use fixedbitset::FixedBitSet;
use futures::FutureExt;
use futures::future::try_join_all;
use strata_store::checksums::verify;
use strata_store::{Result, StorageError};

use super::file::FileReader;
use super::readahead::READ_AHEAD_BYTES;
use super::verification::Pace;
use crate::fetched_range::FetchedRange;
use crate::keywords::Damaged;
use crate::keywords::cut::{Class, Plan};
use crate::keywords::segment::{
    BLOCK_BYTES, Candidates, Entries, ListBytes, Part as SectionPart, Section, Sections, find,
};
use crate::keywords::stored::StoredSegment;
use crate::layout::SEARCH_COLUMN;
use crate::parts::{Part, PartKey};

/// So few rows of a segment need no further piece of their needle: verifying them costs less than more lists.
const ENOUGH: usize = 64;

/// So few bytes of the index are read, however short the search text is.
const FEW_BYTES: u64 = 8 * BLOCK_BYTES as u64;

/// A block of lists, and where it begins among the lists of its class.
type Block = (u32, Bytes);

impl FileReader {
    pub(crate) async fn keyword_candidates(&self, segment: usize, plan: &Plan) -> Result<Candidates> {
        let Some(stored) = self.footer.list.keywords.segments.get(segment) else { return Ok(Candidates::Scan) };
        let header = &stored.header;
        let row_groups = stored.row_groups.clone();
        let scan_bytes: u64 = row_groups.map(|row_group| self.column_bytes(row_group, &[SEARCH_COLUMN]).0).sum();
        let most_cold_bytes = scan_bytes.max(FEW_BYTES);
        let classes: Vec<Class> = header.classes_needed(plan).collect();
        if plan.pieces().is_empty() {
            return Ok(Candidates::Scan);
        }
        let mut entries: [Option<Arc<Entries>>; 3] = Default::default();
        let mut missing = Vec::new();
        for class in &classes {
            match self.file.cache.get(&self.entries_key(segment, *class)).await {
                Some(Part::Keywords(held)) => entries[*class as usize] = Some(held),
                _ => missing.push(*class),
            }
        }
        let mut cold_bytes = 0;
        if !missing.is_empty() {
            let ranges: Vec<Range<u64>> = missing.iter().map(|class| stored.entries_range(*class)).collect();
            cold_bytes = ranges.iter().map(|range| range.end - range.start).sum();
            if cold_bytes > most_cold_bytes {
                return Ok(Candidates::Scan);
            }
            // Some lie beside each other.
            self.file.fetch_ahead(ranges);
            let loading = missing.iter().map(|class| self.keyword_entries(segment, stored, *class));
            for (class, loaded) in missing.iter().zip(Box::pin(try_join_all(loading)).await?) {
                entries[*class as usize] = Some(loaded);
            }
        }
        let sections = Sections { entries: entries.each_ref().map(Option::as_deref), ..Sections::default() };
        let damaged = |error| self.blame_keywords(stored, damaged(error));
        let found = find(header, plan, &sections).map_err(damaged)?;
        let mut candidates: Option<FixedBitSet> = None;
        for piece in 0..found.pieces() {
            let mut lists: [Vec<Block>; 3] = Default::default();
            let mut missing: Vec<(Class, Vec<u32>)> = Vec::new();
            for class in &classes {
                let mut missing_blocks = Vec::new();
                for block in blocks(found.lists_needed(piece, *class, &sections)) {
                    match self.file.cache.get(&self.lists_key(segment, *class, block)).await {
                        Some(Part::KeywordLists(bytes)) => lists[*class as usize].push((block * BLOCK_BYTES, bytes)),
                        _ => missing_blocks.push(block),
                    }
                }
                if !missing_blocks.is_empty() {
                    cold_bytes += missing_blocks.len() as u64 * u64::from(BLOCK_BYTES);
                    missing.push((*class, missing_blocks));
                }
            }
            if cold_bytes > most_cold_bytes {
                break;
            }
            if !missing.is_empty() {
                let loading = missing.into_iter().map(async |(class, blocks)| match &entries[class as usize] {
                    Some(entries) => {
                        let blocks = self.keyword_lists(segment, stored, class, &entries.checksums, &blocks).await?;
                        Ok::<_, StorageError>((class, blocks))
                    }
                    None => Ok((class, Vec::new())),
                });
                for (class, blocks) in Box::pin(try_join_all(loading)).await? {
                    let lists = &mut lists[class as usize];
                    lists.extend(blocks);
                    lists.sort_unstable_by_key(|(start, _)| *start);
                }
            }
            let lists = lists.each_ref().map(|blocks| {
                blocks.iter().map(|(start, bytes)| ListBytes { start: *start, bytes }).collect::<Vec<_>>()
            });
            let sections = Sections { lists: lists.each_ref().map(Vec::as_slice), ..sections };
            candidates = found.narrow(candidates, piece, &sections).map_err(damaged)?;
            if candidates.as_ref().is_some_and(|rows| rows.count_ones(..) <= ENOUGH) {
                break;
            }
        }
        Ok(found.conclude(candidates))
    }

    fn entries_key(&self, segment: usize, class: Class) -> PartKey {
        PartKey::Keywords { file: self.footer.id, segment: segment as u32, class }
    }

    fn lists_key(&self, segment: usize, class: Class, block: u32) -> PartKey {
        PartKey::KeywordLists { file: self.footer.id, segment: segment as u32, class, block }
    }

    fn blame_keywords(&self, stored: &StoredSegment, error: StorageError) -> StorageError {
        let Range { start, end } = stored.row_groups;
        self.file.blame_accelerator(&format!("the keyword index of row groups {start} to {end}"), error)
    }

    async fn keyword_entries(&self, segment: usize, stored: &StoredSegment, class: Class) -> Result<Arc<Entries>> {
        let load = async {
            let run = self.file.fetch_verified(stored.entries_range(class), stored.checksums[class as usize]).await?;
            let entries = Entries::decode(&stored.header, class, &run.bytes).map_err(damaged)?;
            Ok(Part::Keywords(Arc::new(entries)))
        };
        let load = load.map(|loaded| loaded.map_err(|error| self.blame_keywords(stored, error)));
        match self.file.cache.get_or_load(self.entries_key(segment, class), || load).await? {
            Part::Keywords(entries) => Ok(entries),
            _ => Err(StorageError::wrong_part()),
        }
    }

    /// Blocks of lists that are not in the cache. Neighbours come with one request.
    async fn keyword_lists(
        &self,
        segment: usize,
        stored: &StoredSegment,
        class: Class,
        checksums: &[u32],
        blocks: &[u32],
    ) -> Result<Vec<Block>> {
        let lists = stored.header.range(Section { class, part: SectionPart::Lists });
        let place = |block: u32| {
            let start = lists.start + u64::from(block) * u64::from(BLOCK_BYTES);
            stored.offset + start..stored.offset + lists.end.min(start + u64::from(BLOCK_BYTES))
        };
        let together = |one: &u32, other: &u32| other - one == 1 && !other.is_multiple_of(READ_AHEAD_BLOCKS);
        let place = &place;
        let loading = blocks.chunk_by(together).map(async |run| {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(Vec::new()) };
            let start = place(*first).start;
            let bytes = self.file.fetch(start..place(*last).end).await?;
            let run_of_bytes = FetchedRange { start, bytes };
            let mut blocks = Vec::with_capacity(run.len());
            for block in run {
                // A copy: a slice would keep all of the run in memory.
                let bytes = Bytes::copy_from_slice(&run_of_bytes.slice(place(*block))?);
                let expected = checksums.get(*block as usize).ok_or_else(StorageError::unverified)?;
                verify(&bytes, *expected)?;
                let key = self.lists_key(segment, class, *block);
                self.file.cache.insert(key, Part::KeywordLists(bytes.clone())).await;
                blocks.push((block * BLOCK_BYTES, bytes));
            }
            Ok::<_, StorageError>(blocks)
        });
        let loaded = try_join_all(loading).await.map_err(|error| self.blame_keywords(stored, error))?;
        Ok(loaded.into_iter().flatten().collect())
    }

    /// Every part of the keyword index with its checksum, in the order of the file: the entries of each class first,
    /// then, by what they say, the blocks of lists.
    pub(super) async fn verify_keywords(&self, pace: &mut dyn Pace) -> Result<()> {
        for stored in &self.footer.list.keywords.segments {
            for class in Class::ALL {
                self.verify_class(stored, class, pace).await.map_err(|error| self.blame_keywords(stored, error))?;
            }
        }
        Ok(())
    }

    async fn verify_class(&self, stored: &StoredSegment, class: Class, pace: &mut dyn Pace) -> Result<()> {
        let entries = stored.entries_range(class);
        if entries.is_empty() {
            return Ok(());
        }
        let FetchedRange { bytes, .. } =
            self.file.fetch_verified(entries.clone(), stored.checksums[class as usize]).await?;
        pace.spent(entries.end - entries.start).await;
        let sums = stored.header.range(Section { class, part: SectionPart::Checksums });
        let sums = bytes.slice(bytes.len() - (sums.end - sums.start) as usize..);
        let lists = stored.header.range(Section { class, part: SectionPart::Lists });
        let mut at = stored.offset + lists.start;
        let end = stored.offset + lists.end;
        let mut sums = sums.as_chunks::<4>().0.iter().map(|sum| u32::from_le_bytes(*sum));
        while at < end {
            let until = end.min(at + READ_AHEAD_BYTES);
            let bytes = self.file.fetch(at..until).await?;
            for block in bytes.chunks(BLOCK_BYTES as usize) {
                verify(block, sums.next().ok_or_else(StorageError::unverified)?)?;
            }
            pace.spent(until - at).await;
            at = until;
        }
        Ok(())
    }
}

const READ_AHEAD_BLOCKS: u32 = READ_AHEAD_BYTES as u32 / BLOCK_BYTES;

fn blocks(ranges: Vec<Range<u32>>) -> Vec<u32> {
    let mut blocks: Vec<u32> = Vec::new();
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        let first = range.start / BLOCK_BYTES;
        let from = blocks.last().map_or(first, |last| first.max(last + 1));
        blocks.extend(from..(range.end - 1) / BLOCK_BYTES + 1);
    }
    blocks
}

fn damaged(error: Damaged) -> StorageError {
    StorageError::Layout(error.to_string())
}
