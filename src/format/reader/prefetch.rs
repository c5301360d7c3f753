//! What is fetched ahead of a version file: parts that will be wanted, as far as the cache does not hold them.
//!
//! A reader that reads ahead ([`FileReader::reading_ahead`]) knows which columns will be wanted. Where one of them
//! is not in the cache, the others of the row group come with it, and those of the row groups that follow, if they are
//! wanted for sure; a bloom filter comes with those of the row groups that follow. Nothing is planned while parts are
//! found in the cache.

use std::ops::Range;
use std::sync::Arc;

use super::file::FileReader;
use super::object_file::ObjectFile;
use super::readahead::{READER_BYTES, ReadAhead, Wanted};
use crate::parts::PartKey;

/// Requests that one reader has under way ahead, to a store that is asked over a network,
const REMOTE_REQUESTS: usize = 128;

/// and to one in a directory, where each takes a thread.
const LOCAL_REQUESTS: usize = 8;

const PLANNED_BYTES: u64 = READER_BYTES / 4;

impl FileReader {
    pub(crate) fn reading_ahead(&self, wanted: Wanted) -> FileReader {
        let requests = if self.file.store.is_local() { LOCAL_REQUESTS } else { REMOTE_REQUESTS };
        let ahead = Some(Arc::new(ReadAhead::new(wanted, requests)));
        let file = ObjectFile { ahead, ..self.file.clone() };
        FileReader { file, footer: self.footer.clone() }
    }

    pub(crate) fn waits_for_store(&self) -> bool {
        self.file.ahead.as_ref().is_some_and(|ahead| ahead.is_waited_for())
    }

    pub(crate) fn pages_ahead(&self, pages: &[(usize, usize)]) {
        let missing = pages.iter().filter(|(row_group, page)| !self.caches_page(*row_group, *page));
        let ranges: Vec<Range<u64>> = missing.map(|(row_group, page)| self.page_range(*row_group, *page)).collect();
        self.file.fetch_ahead(ranges);
    }

    /// Called where a column is not in the cache: fetches what is wanted with it.
    pub(super) fn columns_missed(&self, row_group: usize, column: usize) {
        let Some(ahead) = self.file.ahead.as_ref().filter(|ahead| ahead.wanted.columns.contains(&column)) else {
            return;
        };
        let wanted = &ahead.wanted;
        let end = wanted.row_groups.end.min(row_group.saturating_add(wanted.columns_ahead.max(1)));
        let mut ranges = Vec::new();
        let mut bytes = 0;
        for row_group in (row_group..end).filter(|row_group| wanted.includes(*row_group)) {
            if bytes > PLANNED_BYTES || !ahead.planned().columns.insert(row_group) {
                break;
            }
            for column in &wanted.columns {
                if !self.file.cache.contains(&PartKey::column(self.footer.id, row_group, *column)) {
                    let range = self.footer.outline.chunk(row_group, *column).range();
                    bytes += range.end - range.start;
                    ranges.push(range);
                }
            }
        }
        self.file.fetch_ahead(ranges);
    }

    /// Called where a bloom filter is not in the cache: fetches those of the row groups that follow.
    pub(super) fn bloom_missed(&self, row_group: usize) {
        let Some(ahead) = &self.file.ahead else { return };
        let wanted = &ahead.wanted;
        let end = wanted.row_groups.end;
        let most = wanted.bloom_bytes.min(PLANNED_BYTES);
        if ahead.planned().blooms > row_group {
            return;
        }
        let mut ranges = Vec::new();
        let mut bytes = 0;
        let mut next = row_group;
        while next < end && bytes < most {
            for column in wanted.bloom_columns.iter().filter(|_| wanted.includes(next)) {
                if let Some((range, _)) = self.footer.outline.bloom(next, *column)
                    && !self.file.cache.contains(&self.bloom_key(next, *column))
                {
                    bytes += range.end - range.start;
                    ranges.push(range);
                }
            }
            next += 1;
        }
        ahead.planned().blooms = next;
        self.file.fetch_ahead(ranges);
    }
}
