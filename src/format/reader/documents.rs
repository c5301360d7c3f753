//! The documents of a version file, by page.

use std::ops::Range;

use parquet::file::page_index::offset_index::PageLocation;
use strata_store::checksums::verify_checksum;
use strata_store::{Result, StorageError};

use super::file_reader::FileReader;
use super::readahead::MAX_REQUEST_BYTES;
use crate::cached_part::{CachedPart, PartKey};
use crate::document_page::DocumentPage;
use crate::fetched_range::{FetchedRange, decode_catching_panics};
use crate::layout::DOCUMENT_COLUMN_INDEX;

/// Max bytes of documents that are decoded ahead, not counting the last page.
const MAX_DECODED_AHEAD_BYTES: u64 = 16 << 20;

impl FileReader {
    pub(crate) fn page_count(&self, row_group: usize) -> usize {
        self.footer.footer_index.page_count(row_group)
    }

    pub(crate) fn page_for_row(&self, row_group: usize, row: usize) -> usize {
        self.footer.footer_index.page_for_row(row_group, row)
    }

    pub(super) fn page_end_row(&self, row_group: usize, page: usize) -> usize {
        let rows = self.footer.extent_list.row_groups[row_group].rows;
        self.footer.footer_index.page_end_row(row_group, page).unwrap_or(rows)
    }

    pub(super) fn page_key(&self, row_group: usize, page: usize) -> PartKey {
        PartKey::Documents { file: self.footer.id, row_group: row_group as u32, page: page as u32 }
    }

    pub(super) fn page_range(&self, row_group: usize, page: usize) -> Range<u64> {
        page_byte_range(&self.footer.footer_index.page_location(row_group, page))
    }

    pub(crate) fn is_page_cached(&self, row_group: usize, page: usize) -> bool {
        self.object_file.cache.contains(&self.page_key(row_group, page))
    }

    pub(super) async fn peek_cached_page(&self, row_group: usize, page: usize) -> Option<DocumentPage> {
        let found = self.object_file.cache.peek(&self.page_key(row_group, page)).await?;
        self.store_in_page_table(row_group, page, found)
    }

    fn store_in_page_table(&self, row_group: usize, page: usize, part: CachedPart) -> Option<DocumentPage> {
        let CachedPart::Documents(document_page) = part else { return None };
        self.footer.page_table.insert(row_group, self.page_count(row_group), page, &document_page);
        Some(document_page)
    }

    /// Returns a page in indented form if it is cached, or if requests for it are frequent enough to cache it now.
    pub(super) async fn indented_page(
        &self,
        row_group: usize,
        page: usize,
        stored: &DocumentPage,
        requested_documents: usize,
    ) -> Option<DocumentPage> {
        let table = &self.footer.indented_table;
        let cache = &self.object_file.cache;
        let key = PartKey::IndentedDocuments { file: self.footer.id, row_group: row_group as u32, page: page as u32 };
        if let Some(indented) = table.get(row_group, page) {
            return Some(indented);
        }
        if let Some(indented) = table.get_live(row_group, page) {
            // This lookup only tells the cache that the page is used.
            cache.peek(&key).await;
            return Some(indented);
        }
        // If the cache has little free space, stored pages have priority: indented pages are rebuilt without a request.
        let has_free_space = cache.has_room_for(cache.capacity_bytes() / 4);
        if !stored.record_indented_and_check_threshold(requested_documents) || !has_free_space {
            return None;
        }
        let indented = stored.to_indented()?;
        cache.insert_derived(key, CachedPart::Documents(indented.clone())).await;
        table.insert(row_group, self.page_count(row_group), page, &indented);
        Some(indented)
    }

    pub(crate) async fn cached_document_page(&self, row_group: usize, page: usize) -> Option<DocumentPage> {
        let key = self.page_key(row_group, page);
        if let Some(cached) = self.footer.page_table.get(row_group, page) {
            self.object_file.cache.count_hit(&key, &CachedPart::Documents(cached.clone()));
            return Some(cached);
        }
        let part = self.object_file.cache.get(&key).await?;
        self.store_in_page_table(row_group, page, part)
    }

    pub(crate) async fn read_document_page(&self, row_group: usize, page: usize) -> Result<DocumentPage> {
        if let Some(cached) = self.cached_document_page(row_group, page).await {
            return Ok(cached);
        }
        let load = || async {
            let Range { start, end } = self.page_range(row_group, page);
            let bytes = self.object_file.fetch(start..end).await;
            let bytes = bytes.map_err(|error| self.report_page_damage(row_group, page, error))?;
            self.decode_page(row_group, page, &FetchedRange { start, bytes }).map(CachedPart::Documents)
        };
        let part = self.object_file.cache.get_or_load(self.page_key(row_group, page), load).await?;
        self.store_in_page_table(row_group, page, part).ok_or_else(StorageError::wrong_part_kind)
    }

    pub(crate) async fn read_document_pages(&self, row_group: usize, pages: Range<usize>) -> Result<Vec<DocumentPage>> {
        let mut document_pages = Vec::new();
        let mut decoded_bytes = 0;
        for page in pages.clone() {
            match self.object_file.cache.get(&self.page_key(row_group, page)).await {
                Some(CachedPart::Documents(page)) if decoded_bytes < MAX_DECODED_AHEAD_BYTES => {
                    decoded_bytes += page.memory_bytes() as u64;
                    document_pages.push(page);
                }
                _ => break,
            }
        }
        if !document_pages.is_empty() || pages.is_empty() {
            return Ok(document_pages);
        }
        let Range { start, mut end } = self.page_range(row_group, pages.start);
        let column = self.footer.footer_index.chunk(row_group, DOCUMENT_COLUMN_INDEX);
        // If pages are compressed well, a request must fetch less, because its decoded bytes are limited, too.
        let expansion = column.decompressed_bytes.max(1) / column.stored_bytes.max(1);
        let max_bytes = MAX_REQUEST_BYTES.min(MAX_DECODED_AHEAD_BYTES / u64::from(expansion.max(1)));
        let mut fitting = 1;
        for range in pages.clone().skip(1).map(|page| self.page_range(row_group, page)) {
            if range.end > start + max_bytes {
                break;
            }
            end = range.end;
            fitting += 1;
        }
        let bytes = self.object_file.fetch(start..end).await;
        let bytes = bytes.map_err(|error| self.report_page_damage(row_group, pages.start, error))?;
        let fetched = FetchedRange { start, bytes };
        for page in pages.start..pages.start + fitting {
            let decoded = self.decode_page(row_group, page, &fetched)?;
            let part = CachedPart::Documents(decoded.clone());
            self.object_file.cache.insert_loaded(self.page_key(row_group, page), part).await;
            decoded_bytes += decoded.memory_bytes() as u64;
            document_pages.push(decoded);
            if decoded_bytes >= MAX_DECODED_AHEAD_BYTES {
                break;
            }
        }
        Ok(document_pages)
    }

    fn decode_page(&self, row_group: usize, page: usize, fetched: &FetchedRange) -> Result<DocumentPage> {
        let location = self.footer.footer_index.page_location(row_group, page);
        let rows = self.page_end_row(row_group, page) - location.first_row_index as usize;
        let decode = || {
            let bytes = fetched.slice(page_byte_range(&location))?;
            verify_checksum(&bytes, self.footer.footer_index.page_checksum(row_group, page))?;
            let column = self.footer.chunk_metadata(row_group, DOCUMENT_COLUMN_INDEX)?;
            decode_catching_panics(|| DocumentPage::decode(&column, &location, rows, fetched))
        };
        decode().map_err(|error| self.report_page_damage(row_group, page, error))
    }

    fn report_page_damage(&self, row_group: usize, page: usize, error: StorageError) -> StorageError {
        self.object_file.report_damage(&format!("document page {page} of row group {row_group}"), error)
    }
}

fn page_byte_range(page: &PageLocation) -> Range<u64> {
    let start = page.offset as u64;
    start..start + page.compressed_page_size as u64
}
