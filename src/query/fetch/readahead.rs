//! Readahead: fetches a document page that is not in memory together with the pages of the next documents.

use strata_format::reader::VersionReader;

use crate::fetch::document_page_reader::DocumentPageReader;

const MAX_READAHEAD_PAGES: usize = 128;
/// The size of the first request with [`DocumentDemand::Few`]. Each request doubles the size.
const MIN_READAHEAD_PAGES: usize = 4;

pub(crate) struct DocumentLocation {
    pub(crate) row_group: usize,
    pub(crate) row: usize,
}

/// How many of the following documents a caller is going to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentDemand {
    All,
    Few,
}

pub(crate) struct DocumentReadahead {
    planned_documents: usize,
    next_request_pages: usize,
}

impl DocumentReadahead {
    pub(crate) fn new(demand: DocumentDemand) -> DocumentReadahead {
        let next_request_pages = match demand {
            DocumentDemand::All => MAX_READAHEAD_PAGES,
            DocumentDemand::Few => MIN_READAHEAD_PAGES,
        };
        DocumentReadahead { planned_documents: 0, next_request_pages }
    }

    /// Fetches pages ahead. Must be called before each document, with its row group's reader and the next documents.
    pub(crate) async fn advance_to<I: Iterator<Item = DocumentLocation>>(
        &mut self,
        reader: &VersionReader,
        pages: &mut DocumentPageReader<'_>,
        document: DocumentLocation,
        following: impl FnOnce() -> I,
    ) {
        let is_resident = pages.is_row_resident(document.row).await;
        if self.planned_documents > 0 {
            self.planned_documents -= 1;
        } else if !is_resident {
            self.prefetch_following_pages(reader, &document, following());
        }
    }

    fn prefetch_following_pages(
        &mut self,
        reader: &VersionReader,
        document: &DocumentLocation,
        following: impl Iterator<Item = DocumentLocation>,
    ) {
        let page_of = |at: &DocumentLocation| (at.row_group, reader.page_for_row(at.row_group, at.row));
        let mut pages = vec![page_of(document)];
        for document in following {
            let page = page_of(&document);
            if pages.last() != Some(&page) {
                if pages.len() == self.next_request_pages {
                    break;
                }
                pages.push(page);
            }
            self.planned_documents += 1;
        }
        self.next_request_pages = (self.next_request_pages * 2).min(MAX_READAHEAD_PAGES);
        pages.sort_unstable();
        pages.dedup();
        reader.prefetch_pages(&pages);
    }
}
