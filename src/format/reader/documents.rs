//! The documents of a version file, by page.

use std::ops::Range;

use parquet::file::page_index::offset_index::PageLocation;
use strata_store::checksums::verify;
use strata_store::{Result, StorageError};

use super::file::FileReader;
use super::readahead::READ_AHEAD_BYTES;
use crate::document_page::DocumentPage;
use crate::fetched_range::{FetchedRange, decode};
use crate::layout::DOCUMENT_COLUMN;
use crate::parts::{Part, PartKey};

/// Most bytes of documents that are decoded ahead, besides the last page.
const DECODED_AHEAD_BYTES: u64 = 16 << 20;

impl FileReader {
    pub(crate) fn page_count(&self, row_group: usize) -> usize {
        self.footer.outline.page_count(row_group)
    }

    pub(crate) fn page_of(&self, row_group: usize, row: usize) -> usize {
        self.footer.outline.page_of(row_group, row)
    }

    pub(super) fn page_end(&self, row_group: usize, page: usize) -> usize {
        self.footer.outline.page_end(row_group, page).unwrap_or(self.footer.list.row_groups[row_group].rows)
    }

    pub(super) fn page_key(&self, row_group: usize, page: usize) -> PartKey {
        PartKey::Documents { file: self.footer.id, row_group: row_group as u32, page: page as u32 }
    }

    pub(super) fn page_range(&self, row_group: usize, page: usize) -> Range<u64> {
        range_of(&self.footer.outline.page(row_group, page))
    }

    pub(crate) fn caches_page(&self, row_group: usize, page: usize) -> bool {
        self.file.cache.contains(&self.page_key(row_group, page))
    }

    /// A page that the cache holds. The metrics count no look-up.
    pub(super) async fn page_in_cache(&self, row_group: usize, page: usize) -> Option<DocumentPage> {
        let found = self.file.cache.peek(&self.page_key(row_group, page)).await?;
        self.put_in_slot(row_group, page, found)
    }

    /// Makes a page that came out of the cache one that its slot finds; `None` if it is another part.
    fn put_in_slot(&self, row_group: usize, page: usize, found: Part) -> Option<DocumentPage> {
        let Part::Documents(found) = found else { return None };
        self.footer.page_table.keep(row_group, self.page_count(row_group), page, &found);
        Some(found)
    }

    /// The documents of a page in memory, indented: if they are kept so, or have been asked for so often that they are
    /// from now on. So many of them are wanted. The metrics count no look-up.
    pub(super) async fn indented_page(
        &self,
        row_group: usize,
        page: usize,
        stored: &DocumentPage,
        wanted: usize,
    ) -> Option<DocumentPage> {
        let slots = &self.footer.indented_table;
        let cache = &self.file.cache;
        let key = PartKey::Indented { file: self.footer.id, row_group: row_group as u32, page: page as u32 };
        if let Some(kept) = slots.page(row_group, page) {
            return Some(kept);
        }
        if let Some(kept) = slots.alive(row_group, page) {
            // The cache learns of its use.
            cache.peek(&key).await;
            return Some(kept);
        }
        // Where room is scarce, stored pages need it more: they take longer to make.
        let is_roomy = cache.has_room_for(cache.capacity_bytes() / 4);
        if !stored.is_often_indented(wanted) || !is_roomy {
            return None;
        }
        let made = stored.indented()?;
        cache.keep(key, Part::Documents(made.clone())).await;
        slots.keep(row_group, self.page_count(row_group), page, &made);
        Some(made)
    }

    pub(crate) async fn cached_documents(&self, row_group: usize, page: usize) -> Option<DocumentPage> {
        let key = self.page_key(row_group, page);
        if let Some(held) = self.footer.page_table.page(row_group, page) {
            self.file.cache.found_elsewhere(&key, &Part::Documents(held.clone()));
            return Some(held);
        }
        let found = self.file.cache.get(&key).await?;
        self.put_in_slot(row_group, page, found)
    }

    pub(crate) async fn documents(&self, row_group: usize, page: usize) -> Result<DocumentPage> {
        if let Some(held) = self.cached_documents(row_group, page).await {
            return Ok(held);
        }
        let load = || async {
            let Range { start, end } = self.page_range(row_group, page);
            let bytes = self.file.fetch(start..end).await.map_err(|error| self.blame_page(row_group, page, error))?;
            self.decode_page(row_group, page, &FetchedRange { start, bytes }).map(Part::Documents)
        };
        let found = self.file.cache.get_or_load(self.page_key(row_group, page), load).await?;
        self.put_in_slot(row_group, page, found).ok_or_else(StorageError::wrong_part)
    }

    pub(crate) async fn documents_ahead(&self, row_group: usize, pages: Range<usize>) -> Result<Vec<DocumentPage>> {
        let mut found = Vec::new();
        let mut decoded_bytes = 0;
        for page in pages.clone() {
            match self.file.cache.get(&self.page_key(row_group, page)).await {
                Some(Part::Documents(page)) if decoded_bytes < DECODED_AHEAD_BYTES => {
                    decoded_bytes += page.memory_bytes() as u64;
                    found.push(page);
                }
                _ => break,
            }
        }
        if !found.is_empty() || pages.is_empty() {
            return Ok(found);
        }
        let Range { start, mut end } = self.page_range(row_group, pages.start);
        let column = self.footer.outline.chunk(row_group, DOCUMENT_COLUMN);
        // What compresses well becomes much more than is fetched.
        let expansion = column.decompressed_bytes.max(1) / column.stored_bytes.max(1);
        let most = READ_AHEAD_BYTES.min(DECODED_AHEAD_BYTES / u64::from(expansion.max(1)));
        let mut fitting = 1;
        for range in pages.clone().skip(1).map(|page| self.page_range(row_group, page)) {
            if range.end > start + most {
                break;
            }
            (end, fitting) = (range.end, fitting + 1);
        }
        let bytes = self.file.fetch(start..end).await;
        let bytes = bytes.map_err(|error| self.blame_page(row_group, pages.start, error))?;
        let run = FetchedRange { start, bytes };
        for page in pages.start..pages.start + fitting {
            let decoded = self.decode_page(row_group, page, &run)?;
            self.file.cache.insert(self.page_key(row_group, page), Part::Documents(decoded.clone())).await;
            decoded_bytes += decoded.memory_bytes() as u64;
            found.push(decoded);
            if decoded_bytes >= DECODED_AHEAD_BYTES {
                break;
            }
        }
        Ok(found)
    }

    fn decode_page(&self, row_group: usize, page: usize, run: &FetchedRange) -> Result<DocumentPage> {
        let location = self.footer.outline.page(row_group, page);
        let rows = self.page_end(row_group, page) - location.first_row_index as usize;
        let verified = || {
            let bytes = run.slice(range_of(&location))?;
            verify(&bytes, self.footer.outline.page_checksum(row_group, page))?;
            let column = self.footer.chunk_metadata(row_group, DOCUMENT_COLUMN)?;
            decode(|| DocumentPage::decode(&column, &location, rows, run))
        };
        verified().map_err(|error| self.blame_page(row_group, page, error))
    }

    fn blame_page(&self, row_group: usize, page: usize, error: StorageError) -> StorageError {
        self.file.blame(&format!("document page {page} of row group {row_group}"), error)
    }
}

fn range_of(page: &PageLocation) -> Range<u64> {
    let start = page.offset as u64;
    start..start + page.compressed_page_size as u64
}
