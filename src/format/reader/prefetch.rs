//! Prefetching of parts of a version file.
//!
//! A reader with readahead ([`FileReader::with_readahead`]) knows the columns that a query needs. If one of them is not
//! cached, the reader also fetches the other columns, and those of the next row groups that the query certainly needs.

use std::ops::Range;
use std::sync::Arc;

use super::file_reader::FileReader;
use super::object_file::ObjectFile;
use super::readahead::{FileReadahead, MAX_READER_BYTES, PrefetchPlan};
use crate::cached_part::PartKey;

/// Max concurrent requests of one reader for prefetching. A request to a local store occupies a thread.
const MAX_REMOTE_REQUESTS: usize = 128;
const MAX_LOCAL_REQUESTS: usize = 8;
const MAX_PREFETCH_BYTES: u64 = MAX_READER_BYTES / 4;

impl FileReader {
    pub(crate) fn with_readahead(&self, plan: PrefetchPlan) -> FileReader {
        let requests = if self.object_file.store.is_local() { MAX_LOCAL_REQUESTS } else { MAX_REMOTE_REQUESTS };
        let readahead = Some(Arc::new(FileReadahead::new(plan, requests)));
        let object_file = ObjectFile { readahead, ..self.object_file.clone() };
        FileReader { object_file, footer: self.footer.clone() }
    }

    pub(crate) fn is_waiting_for_store(&self) -> bool {
        self.object_file.readahead.as_ref().is_some_and(|readahead| readahead.has_waiters())
    }

    pub(crate) fn prefetch_pages(&self, pages: &[(usize, usize)]) {
        let missing = pages.iter().filter(|(row_group, page)| !self.is_page_cached(*row_group, *page));
        let ranges: Vec<Range<u64>> = missing.map(|(row_group, page)| self.page_range(*row_group, *page)).collect();
        self.object_file.fetch_ahead(ranges);
    }

    pub(super) fn prefetch_planned_columns(&self, row_group: usize, missed_column: usize) {
        let readahead = self.object_file.readahead.as_ref();
        let Some(readahead) = readahead.filter(|readahead| readahead.plan.columns.contains(&missed_column)) else {
            return;
        };
        let plan = &readahead.plan;
        let next: Vec<usize> = match &plan.scan_order {
            Some(order) => order.iter().copied().skip_while(|number| *number != row_group).collect(),
            None => (row_group..plan.row_groups.end).collect(),
        };
        let mut ranges = Vec::new();
        let mut bytes = 0;
        for row_group in next.into_iter().take(plan.row_groups_ahead.max(1)) {
            if bytes > MAX_PREFETCH_BYTES || !readahead.prefetched_row_groups.lock().insert(row_group) {
                break;
            }
            for column in &plan.columns {
                if !self.object_file.cache.contains(&PartKey::column(self.footer.id, row_group, *column)) {
                    let range = self.footer.footer_index.chunk(row_group, *column).range();
                    bytes += range.end - range.start;
                    ranges.push(range);
                }
            }
        }
        self.object_file.fetch_ahead(ranges);
    }
}
