//! The documents of a row group, page by page.

use std::collections::VecDeque;

use strata_format::document_page::DocumentPage;
use strata_format::reader::VersionReader;
use strata_store::StorageError;

/// The documents of ascending rows of a row group. Each page is fetched once.
pub struct Pages<'a> {
    reader: &'a VersionReader,
    row_group: usize,
    /// Pages below this number are fetched together.
    ahead: usize,
    current: Option<DocumentPage>,
    fetched: VecDeque<DocumentPage>,
    pub used: usize,
}

impl<'a> Pages<'a> {
    /// Documents of single rows.
    pub fn scattered(reader: &'a VersionReader, row_group: usize) -> Pages<'a> {
        Pages { reader, row_group, ahead: 0, current: None, fetched: VecDeque::new(), used: 0 }
    }

    /// Documents of most rows below `end`.
    pub fn contiguous(reader: &'a VersionReader, row_group: usize, end: usize) -> Pages<'a> {
        let ahead = if end == 0 { 0 } else { reader.page_of(row_group, end - 1) + 1 };
        Pages { ahead, ..Pages::scattered(reader, row_group) }
    }

    /// Documents of `wanted` rows below `end`: contiguous when they are as many as pages.
    pub fn of(reader: &'a VersionReader, row_group: usize, wanted: usize, end: usize) -> Pages<'a> {
        if wanted >= reader.page_count(row_group) {
            Pages::contiguous(reader, row_group, end)
        } else {
            Pages::scattered(reader, row_group)
        }
    }

    pub fn are_scattered(&self) -> bool {
        self.ahead == 0
    }

    /// Whether the page of a row is in memory. For single rows, this loads the page, so that the cache is asked once.
    pub async fn are_at_hand(&mut self, row: usize) -> bool {
        if self.holds(row) {
            return true;
        }
        let number = self.reader.page_of(self.row_group, row);
        if !self.are_scattered() {
            return self.reader.caches_page(self.row_group, number);
        }
        tokio::task::consume_budget().await;
        let Some(page) = self.reader.cached_documents(self.row_group, number).await else { return false };
        self.current = Some(page);
        self.used += 1;
        true
    }

    fn holds(&self, row: usize) -> bool {
        self.current.as_ref().is_some_and(|page| page.rows().contains(&row))
    }

    pub async fn document(&mut self, row: usize) -> Result<&[u8], StorageError> {
        if !self.holds(row) {
            // Boxed, because most calls find their document in the current page.
            self.current = Some(Box::pin(self.page_of(row)).await?);
            self.used += 1;
        }
        match &self.current {
            Some(page) => Ok(page.document(row)),
            None => Err(StorageError::Layout(format!("no page contains row {row}"))),
        }
    }

    async fn page_of(&mut self, row: usize) -> Result<DocumentPage, StorageError> {
        while let Some(page) = self.fetched.pop_front() {
            if page.rows().contains(&row) {
                return Ok(page);
            }
        }
        // Allows cancellation between pages, even if all pages are cached.
        tokio::task::consume_budget().await;
        let page = self.reader.page_of(self.row_group, row);
        if page + 1 >= self.ahead {
            return self.reader.documents(self.row_group, page).await;
        }
        self.fetched = self.reader.documents_ahead(self.row_group, page..self.ahead).await?.into();
        self.fetched.pop_front().ok_or_else(|| StorageError::Layout(format!("no page contains row {row}")))
    }
}
