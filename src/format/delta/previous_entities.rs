//! The entities of the previous version, by position and by hash.

use std::collections::VecDeque;

use arrow::array::AsArray;
use strata_json::EntityHash;
use strata_store::{Result, StorageError};
use tokio::runtime::Handle;

use super::Stop;
use crate::document_page::DocumentPage;
use crate::overlay::Extent;
use crate::reader::VersionReader;

/// Of larger versions, only the entities with certain hashes can be found by their hash.
pub(super) const MAX_INDEXED_ENTITIES: u64 = 8 << 20;
/// At least this many pages may be read out of order, or one in [`PAGES_PER_JUMP`] if these are more. A list in a
/// completely different order would otherwise decode a page for each entity.
const MIN_JUMPS: u64 = 1_024;
const PAGES_PER_JUMP: u64 = 4;

pub(super) struct PreviousEntities<'a> {
    reader: &'a VersionReader,
    runtime: &'a Handle,
    row_group: usize,
    /// Consecutive pages of the row group.
    pages: VecDeque<DocumentPage>,
    /// The row group and page after the last one that was read.
    next_page: (usize, usize),
    remaining_jumps: u64,
    /// The upper half of each number is the start of a hash, the lower half is a position.
    hashes: Option<Vec<u64>>,
}

impl<'a> PreviousEntities<'a> {
    pub(super) fn new(reader: &'a VersionReader, runtime: &'a Handle) -> PreviousEntities<'a> {
        let pages: usize = (0..reader.row_groups().len()).map(|row_group| reader.page_count(row_group)).sum();
        PreviousEntities {
            reader,
            runtime,
            row_group: 0,
            pages: VecDeque::new(),
            next_page: (0, 0),
            remaining_jumps: MIN_JUMPS.max(pages as u64 / PAGES_PER_JUMP),
            hashes: None,
        }
    }

    /// Returns the row at a position, which must exist.
    pub(super) fn row(&self, position: u64) -> Extent {
        self.reader.row_at(position)
    }

    /// Whether the entity at a position has this text. There is none after the end.
    pub(super) fn is_equal(&mut self, position: u64, document: &[u8]) -> Result<bool, Stop> {
        if position >= self.reader.entity_count() {
            return Ok(false);
        }
        let mut group = self.reader.row_groups()[self.row_group];
        if !group.contains(position) {
            self.pages.clear();
            self.row_group = self.reader.row_group_at(position);
            group = self.reader.row_groups()[self.row_group];
        }
        let row = (position - group.first_position) as usize;
        while self.pages.front().is_some_and(|page| page.rows().end <= row) {
            self.pages.pop_front();
        }
        if self.pages.front().is_none_or(|page| !page.rows().contains(&row)) {
            self.read_pages(row)?;
        }
        let page = self.pages.front().filter(|page| page.rows().contains(&row));
        let page = page.ok_or_else(|| StorageError::InvalidFile(format!("no page contains row {row}")))?;
        Ok(page.document(row) == document)
    }

    /// Reads the page with a row, and as many next pages as one request fetches if the row follows the last one.
    fn read_pages(&mut self, row: usize) -> Result<(), Stop> {
        let row_group = self.row_group;
        let page = self.reader.page_for_row(row_group, row);
        let pages = self.reader.page_count(row_group);
        let reader = self.reader;
        self.pages = if self.next_page == (row_group, page) {
            self.runtime.block_on(reader.read_document_pages(row_group, page..pages))?.into()
        } else if let Some(cached) = self.runtime.block_on(reader.cached_document_page(row_group, page)) {
            [cached].into()
        } else {
            self.remaining_jumps = self.remaining_jumps.checked_sub(1).ok_or(Stop::WriteWhole)?;
            [self.runtime.block_on(reader.read_document_page(row_group, page))?].into()
        };
        let next = page + self.pages.len();
        self.next_page = if next < pages { (row_group, next) } else { (row_group + 1, 0) };
        Ok(())
    }

    /// Returns at most `limit` positions of entities whose hash probably is `hash`: those from `near` on, or else the
    /// last ones before.
    pub(super) fn positions_of_hash(&mut self, hash: &EntityHash, near: u64, limit: usize) -> Result<Vec<u64>, Stop> {
        if self.hashes.is_none() {
            self.hashes = Some(self.index_hashes()?);
        }
        let hashes = self.hashes.as_deref().unwrap_or_default();
        let start = u64::from(hash_start(hash)) << 32;
        let same = &hashes[hashes.partition_point(|entry| *entry < start)..];
        let same = &same[..same.partition_point(|entry| *entry >> 32 == start >> 32)];
        let after = same.partition_point(|entry| *entry < start + near);
        let entries = same[after..].iter().chain(same[..after].iter().rev());
        Ok(entries.take(limit).map(|entry| entry & u64::from(u32::MAX)).collect())
    }

    fn index_hashes(&self) -> Result<Vec<u64>> {
        let entities = self.reader.entity_count();
        if entities > u64::from(u32::MAX) {
            return Ok(Vec::new());
        }
        // If only one in `divisor` entities is indexed, the others are found behind an indexed one.
        let divisor = entities.div_ceil(MAX_INDEXED_ENTITIES).max(1);
        let mut hashes = Vec::with_capacity((entities / divisor) as usize);
        for (row_group, group) in self.reader.row_groups().iter().enumerate() {
            let column = self.runtime.block_on(self.reader.read_entity_hashes(row_group))?;
            let column = column.as_fixed_size_binary_opt().ok_or_else(StorageError::undecodable)?;
            for (position, hash) in (group.first_position..).zip(column.iter()) {
                let start = hash_start(hash.unwrap_or_default());
                if u64::from(start) % divisor == 0 {
                    hashes.push(u64::from(start) << 32 | position);
                }
            }
        }
        hashes.sort_unstable();
        Ok(hashes)
    }
}

fn hash_start(hash: &[u8]) -> u32 {
    hash.first_chunk().map_or(0, |start| u32::from_be_bytes(*start))
}
