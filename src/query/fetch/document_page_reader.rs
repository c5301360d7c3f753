//! Reads documents of a row group page by page.

use std::collections::VecDeque;

use strata_format::document_page::DocumentPage;
use strata_format::reader::VersionReader;
use strata_store::StorageError;

/// Reads the documents of ascending rows of a row group. Each page is fetched at most once.
pub struct DocumentPageReader<'a> {
    reader: &'a VersionReader,
    row_group: usize,
    contiguous_end_page: usize,
    current: Option<DocumentPage>,
    fetched: VecDeque<DocumentPage>,
    pub pages_read: usize,
}

impl<'a> DocumentPageReader<'a> {
    pub fn for_scattered_rows(reader: &'a VersionReader, row_group: usize) -> DocumentPageReader<'a> {
        let fetched = VecDeque::new();
        DocumentPageReader { reader, row_group, contiguous_end_page: 0, current: None, fetched, pages_read: 0 }
    }

    pub fn for_contiguous_rows(reader: &'a VersionReader, row_group: usize, end: usize) -> DocumentPageReader<'a> {
        let contiguous_end_page = if end == 0 { 0 } else { reader.page_for_row(row_group, end - 1) + 1 };
        DocumentPageReader { contiguous_end_page, ..DocumentPageReader::for_scattered_rows(reader, row_group) }
    }

    /// Creates a reader for `wanted` rows below row `end`. The rows count as contiguous if there are at least as many
    /// of them as document pages.
    pub fn for_rows(reader: &'a VersionReader, row_group: usize, wanted: usize, end: usize) -> DocumentPageReader<'a> {
        if wanted < reader.page_count(row_group) {
            return DocumentPageReader::for_scattered_rows(reader, row_group);
        }
        DocumentPageReader::for_contiguous_rows(reader, row_group, end)
    }

    pub fn is_scattered(&self) -> bool {
        self.contiguous_end_page == 0
    }

    /// Whether a row's document page is in memory. For scattered rows, also loads it, to avoid a second cache lookup.
    pub async fn is_row_resident(&mut self, row: usize) -> bool {
        if self.is_on_current_page(row) {
            return true;
        }
        let number = self.reader.page_for_row(self.row_group, row);
        if !self.is_scattered() {
            return self.reader.is_page_cached(self.row_group, number);
        }
        tokio::task::consume_budget().await;
        let Some(page) = self.reader.cached_document_page(self.row_group, number).await else { return false };
        self.current = Some(page);
        self.pages_read += 1;
        true
    }

    fn is_on_current_page(&self, row: usize) -> bool {
        self.current.as_ref().is_some_and(|page| page.rows().contains(&row))
    }

    pub async fn document(&mut self, row: usize) -> Result<&[u8], StorageError> {
        if !self.is_on_current_page(row) {
            // The future is boxed, because most calls find their document in the current page and do not need it.
            self.current = Some(Box::pin(self.fetch_page(row)).await?);
            self.pages_read += 1;
        }
        match &self.current {
            Some(page) => Ok(page.document(row)),
            None => Err(StorageError::InvalidFile(format!("no page contains row {row}"))),
        }
    }

    async fn fetch_page(&mut self, row: usize) -> Result<DocumentPage, StorageError> {
        while let Some(page) = self.fetched.pop_front() {
            if page.rows().contains(&row) {
                return Ok(page);
            }
        }
        // Yields between document pages, so that the query can be cancelled even if all pages are cached.
        tokio::task::consume_budget().await;
        let page = self.reader.page_for_row(self.row_group, row);
        if page + 1 >= self.contiguous_end_page {
            return self.reader.read_document_page(self.row_group, page).await;
        }
        self.fetched = self.reader.read_document_pages(self.row_group, page..self.contiguous_end_page).await?.into();
        self.fetched.pop_front().ok_or_else(|| StorageError::InvalidFile(format!("no page contains row {row}")))
    }
}
