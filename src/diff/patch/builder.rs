//! Builds the patch of two versions, region by region in the order of the lists.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use futures::StreamExt;
use hashbrown::HashSet;
use sha2::{Digest, Sha256};
use strata_format::reader::{SharedRowRun, VersionReader};
use strata_json::EntityHash;
use strata_query::fetch::document_page_reader::DocumentPageReader;
use strata_query::tracked_vec::TrackedVec;
use strata_query::{QueryEngine, QueryError, tasks};
use strata_store::StorageError;

use super::{Hunk, PatchLimits, VersionPatch, alignment, anchors, rows_per_insert};
use crate::group_by_row_group;

/// A region without room for more entities is divided at anchors among about 1/4 as many samples of each version.
const SAMPLE_DIVISOR: u64 = 4;

/// Bytes per entity of a region: its hash, its entries in two sets of hashes, its position and the hash of its text.
const REGION_ENTITY_BYTES: usize = 112;

pub(super) async fn build_patch(
    engine: &QueryEngine,
    readers: [VersionReader; 2],
    PatchLimits { max_region_entities }: PatchLimits,
) -> Result<VersionPatch, QueryError> {
    let reservation = MemoryConsumer::new("patch").register(engine.task_context().memory_pool());
    let mut hunks = HunkBuilder { hunks: TrackedVec::new(&reservation), next: [0, 0], changed_rows: 0 };
    let mut builder = PatchBuilder {
        readers: &readers,
        cursors: readers.each_ref().map(HashCursor::new),
        threads: engine.threads(),
        reservation: &reservation,
        max_region_entities,
    };
    let ends = readers.each_ref().map(VersionReader::entity_count);
    let mut region_start = [0, 0];
    for run in builder.shared_rows() {
        builder
            .build_regions(
                [region_start[0]..run.first_positions[0], region_start[1]..run.first_positions[1]],
                &mut hunks,
            )
            .await?;
        hunks.push_equal(run.first_positions, run.rows)?;
        region_start = run.first_positions.map(|first| first + run.rows);
    }
    builder.build_regions([region_start[0]..ends[0], region_start[1]..ends[1]], &mut hunks).await?;
    hunks.push_equal(ends, 0)?;
    let (hunks, reservation) = hunks.hunks.into_parts();
    Ok(VersionPatch { hunks, rows_per_insert: rows_per_insert(&readers[1]), reservation: Some(reservation) })
}

struct PatchBuilder<'a> {
    readers: &'a [VersionReader; 2],
    /// Read the hashes of all regions, many of which can be in one row group.
    cursors: [HashCursor<'a>; 2],
    threads: usize,
    reservation: &'a MemoryReservation,
    max_region_entities: u64,
}

/// Rows of the old version and rows of the new version that are compared with each other.
#[derive(Clone, Debug)]
struct Region {
    rows: [Range<u64>; 2],
    division: Division,
}

/// The way in which a region that is too large is divided next.
#[derive(Clone, Copy, Debug)]
enum Division {
    /// Separate the common prefix and the common suffix.
    Trim,
    AtAnchors,
    /// For a region without anchors: as many rows of both versions as can be aligned at once come first.
    ByPosition,
}

impl Region {
    fn new(rows: [Range<u64>; 2]) -> Region {
        Region { rows, division: Division::Trim }
    }

    fn entity_count(&self) -> u64 {
        self.rows.iter().map(|rows| rows.end - rows.start).sum()
    }

    fn shorter_count(&self) -> u64 {
        self.rows.iter().map(|rows| rows.end - rows.start).min().unwrap_or_default()
    }
}

impl PatchBuilder<'_> {
    /// Returns the rows that both versions store in the same row of the same file, if they are at least half of the
    /// longer version. If they are fewer, their order is perhaps not the order of most unchanged entities.
    fn shared_rows(&self) -> Vec<SharedRowRun> {
        let shared = self.readers[0].shared_rows(&self.readers[1]);
        let shared_count: u64 = shared.iter().map(|run| run.rows).sum();
        let entity_count = self.readers.iter().map(VersionReader::entity_count).max().unwrap_or_default();
        if shared_count * 2 >= entity_count { shared } else { Vec::new() }
    }

    /// Finds the equal entities of a region, which is divided if it is too large.
    async fn build_regions(&mut self, rows: [Range<u64>; 2], hunks: &mut HunkBuilder) -> Result<(), QueryError> {
        let mut open = vec![Region::new(rows)];
        while let Some(region) = open.pop() {
            if region.rows.iter().any(Range::is_empty) {
                continue;
            }
            if region.entity_count() <= self.max_region_entities {
                self.align_ranges(region.rows.map(|rows| [rows, 0..0]), hunks).await?;
                continue;
            }
            // The last region of the list is the next one.
            let first_new = open.len();
            match region.division {
                Division::Trim => self.trim(region.rows, &mut open).await?,
                Division::AtAnchors => self.divide_at_anchors(region.rows, &mut open).await?,
                Division::ByPosition if region.shorter_count() <= self.max_region_entities / 2 => {
                    self.align_ranges(region.rows.map(|rows| self.head_and_tail(rows)), hunks).await?;
                }
                Division::ByPosition => self.divide_by_position(region.rows, &mut open),
            }
            open[first_new..].reverse();
        }
        Ok(())
    }

    /// Separates the common prefix and suffix by canonical hashes.
    async fn trim(&mut self, rows: [Range<u64>; 2], regions: &mut Vec<Region>) -> Result<(), QueryError> {
        let shorter = rows.iter().map(|rows| rows.end - rows.start).min().unwrap_or_default();
        let cursors = &mut self.cursors;
        let mut prefix = 0;
        while prefix < shorter && are_equal(cursors, rows.each_ref().map(|rows| rows.start + prefix)).await? {
            prefix += 1;
        }
        let mut suffix = 0;
        while suffix < shorter - prefix && are_equal(cursors, rows.each_ref().map(|rows| rows.end - 1 - suffix)).await?
        {
            suffix += 1;
        }
        self.push_equal_length(rows.each_ref().map(|rows| rows.start..rows.start + prefix), regions);
        let middle = rows.each_ref().map(|rows| rows.start + prefix..rows.end - suffix);
        regions.push(Region { rows: middle, division: Division::AtAnchors });
        self.push_equal_length(rows.each_ref().map(|rows| rows.end - suffix..rows.end), regions);
        Ok(())
    }

    /// Pushes regions for rows of which the canonical hashes are equal one by one.
    fn push_equal_length(&self, [mut old, mut new]: [Range<u64>; 2], regions: &mut Vec<Region>) {
        while !old.is_empty() {
            let rows = (self.max_region_entities / 2).min(old.end - old.start);
            regions.push(Region::new([old.start..old.start + rows, new.start..new.start + rows]));
            old.start += rows;
            new.start += rows;
        }
    }

    async fn divide_at_anchors(
        &self,
        [mut old, mut new]: [Range<u64>; 2],
        regions: &mut Vec<Region>,
    ) -> Result<(), QueryError> {
        let max_samples = self.max_region_entities / SAMPLE_DIVISOR;
        let anchors =
            anchors::find_anchors(self.readers, &[old.clone(), new.clone()], max_samples, self.reservation).await?;
        let division = if anchors.is_empty() { Division::ByPosition } else { Division::Trim };
        for [old_anchor, new_anchor] in anchors {
            regions.push(Region::new([old.start..old_anchor, new.start..new_anchor]));
            old.start = old_anchor;
            new.start = new_anchor;
        }
        regions.push(Region { rows: [old, new], division });
        Ok(())
    }

    /// Separates as many rows of both versions as can be aligned at once.
    fn divide_by_position(&self, [old, new]: [Range<u64>; 2], regions: &mut Vec<Region>) {
        let rows = self.max_region_entities / 2;
        regions.push(Region::new([old.start..old.start + rows, new.start..new.start + rows]));
        let rest = [old.start + rows..old.end, new.start + rows..new.end];
        regions.push(Region { rows: rest, division: Division::ByPosition });
    }

    /// Returns the first and the last rows of a range, together at most half of a region.
    fn head_and_tail(&self, rows: Range<u64>) -> [Range<u64>; 2] {
        if rows.end - rows.start <= self.max_region_entities / 2 {
            return [rows, 0..0];
        }
        let count = self.max_region_entities / 4;
        [rows.start..rows.start + count, rows.end - count..rows.end]
    }

    /// Finds the equal entities among two ranges of rows of each version.
    async fn align_ranges(&mut self, rows: [[Range<u64>; 2]; 2], hunks: &mut HunkBuilder) -> Result<(), QueryError> {
        let memory = self.reservation.new_empty();
        let entity_count: u64 = rows.iter().flatten().map(|rows| rows.end - rows.start).sum();
        memory.try_grow(entity_count as usize * REGION_ENTITY_BYTES)?;
        let candidates = self.find_candidates(&rows).await?;
        let text_hashes = self.hash_texts(&candidates).await?;
        for pair in alignment::align(&text_hashes[0], &text_hashes[1], self.reservation).await? {
            hunks.push_equal([0, 1].map(|side: usize| candidates[side][pair[side] as usize]), 1)?;
        }
        Ok(())
    }

    /// Returns the positions of the entities whose canonical hash occurs in both versions.
    async fn find_candidates(&mut self, rows: &[[Range<u64>; 2]; 2]) -> Result<[Vec<u64>; 2], QueryError> {
        let mut hashes: [Vec<(u64, EntityHash)>; 2] = Default::default();
        for (side, cursor) in self.cursors.iter_mut().enumerate() {
            for position in rows[side].iter().cloned().flatten() {
                hashes[side].push((position, cursor.hash_at(position).await?));
            }
        }
        let old: HashSet<&EntityHash> = hashes[0].iter().map(|(_, hash)| hash).collect();
        let new: Vec<_> = hashes[1].iter().filter(|(_, hash)| old.contains(hash)).collect();
        let common: HashSet<&EntityHash> = new.iter().map(|(_, hash)| hash).collect();
        let old = hashes[0].iter().filter(|(_, hash)| common.contains(hash)).map(|(position, _)| *position);
        Ok([old.collect(), new.iter().map(|(position, _)| *position).collect()])
    }

    /// Returns the hashes of the stored texts at some positions of both versions.
    async fn hash_texts(&self, positions: &[Vec<u64>; 2]) -> Result<[Vec<EntityHash>; 2], QueryError> {
        let mut reads = Vec::new();
        for (side, reader) in self.readers.iter().enumerate() {
            for (row_group, range) in group_by_row_group(reader, &positions[side], |position| *position) {
                let first = reader.row_groups()[row_group].first_position;
                let rows: Vec<usize> =
                    positions[side][range].iter().map(|position| (position - first) as usize).collect();
                let reader = reader.clone();
                reads.push(async move { Ok((side, hash_row_texts(&reader, row_group, &rows).await?)) });
            }
        }
        let mut text_hashes = positions.each_ref().map(|positions| Vec::with_capacity(positions.len()));
        let mut done = tasks::run_in_order(reads.into_iter(), self.threads);
        while let Some(read) = done.next().await {
            let (side, hashes) = read?;
            text_hashes[side].extend(hashes);
        }
        Ok(text_hashes)
    }
}

async fn hash_row_texts(
    reader: &VersionReader,
    row_group: usize,
    rows: &[usize],
) -> Result<Vec<EntityHash>, StorageError> {
    let end = rows.last().map_or(0, |row| row + 1);
    let mut pages = DocumentPageReader::for_rows(reader, row_group, rows.len(), end);
    let mut hashes = Vec::with_capacity(rows.len());
    for row in rows {
        hashes.push(strata_json::truncate_sha256(Sha256::new_with_prefix(pages.document(*row).await?)));
    }
    Ok(hashes)
}

async fn are_equal(cursors: &mut [HashCursor<'_>; 2], [old, new]: [u64; 2]) -> Result<bool, StorageError> {
    Ok(cursors[0].hash_at(old).await? == cursors[1].hash_at(new).await?)
}

/// Reads canonical hashes of entities by position. Keeps the hashes of one row group.
pub(super) struct HashCursor<'a> {
    reader: &'a VersionReader,
    rows: Range<u64>,
    hashes: Option<ArrayRef>,
}

impl<'a> HashCursor<'a> {
    pub(super) fn new(reader: &'a VersionReader) -> HashCursor<'a> {
        HashCursor { reader, rows: 0..0, hashes: None }
    }

    pub(super) async fn hash_at(&mut self, position: u64) -> Result<EntityHash, StorageError> {
        if !self.rows.contains(&position) {
            // Boxed, because most calls find the hashes in memory and do not need this future.
            Box::pin(self.load(position)).await?;
        }
        let row = (position - self.rows.start) as usize;
        let hashes = self.hashes.as_ref().and_then(|hashes| hashes.as_fixed_size_binary_opt());
        let hash =
            hashes.filter(|hashes| row < hashes.len()).and_then(|hashes| hashes.value(row).first_chunk().copied());
        hash.ok_or_else(|| StorageError::InvalidFile("a hash is truncated".to_owned()))
    }

    async fn load(&mut self, position: u64) -> Result<(), StorageError> {
        // Reading cached hashes does not wait, so this is the point at which the computation can be canceled.
        tokio::task::yield_now().await;
        let row_group = self.reader.row_group_at(position);
        let group = self.reader.row_groups()[row_group];
        self.hashes = Some(self.reader.read_entity_hashes(row_group).await?);
        self.rows = group.first_position..group.first_position + group.rows as u64;
        Ok(())
    }
}

/// Collects the hunks between equal entities, which must be pushed in the order of the lists.
struct HunkBuilder {
    hunks: TrackedVec<Hunk>,
    next: [u64; 2],
    changed_rows: u64,
}

impl HunkBuilder {
    fn push_equal(&mut self, first: [u64; 2], rows: u64) -> Result<(), QueryError> {
        // A hunk has at most 2^32 - 1 rows.
        while self.next != first {
            let missing = [0, 1].map(|side: usize| u32::try_from(first[side] - self.next[side]).unwrap_or(u32::MAX));
            let [old, new] = self.next;
            let hunk = Hunk { first_ordinal: self.changed_rows, old, new, old_rows: missing[0], new_rows: missing[1] };
            self.hunks.try_push(hunk)?;
            self.changed_rows += hunk.changed_rows();
            self.next = [old + u64::from(missing[0]), new + u64::from(missing[1])];
        }
        self.next = first.map(|position| position + rows);
        Ok(())
    }
}
