//! Readahead: a document page that is not in memory is fetched together with the pages of the next documents.

use strata_format::reader::VersionReader;

use crate::fetch::pages::Pages;

/// Pages that are fetched together.
const MAX_PAGES: usize = 128;

/// Pages that are fetched together first if the first documents can be enough.
const MIN_PAGES: usize = 4;

pub(crate) struct DocumentPlace {
    pub(crate) row_group: usize,
    pub(crate) row: usize,
}

pub(crate) struct Readahead {
    /// Documents left whose pages have been requested.
    planned: usize,
    /// Pages of the next request. It doubles each time.
    pages: usize,
}

impl Readahead {
    pub(crate) fn new(may_end_early: bool) -> Readahead {
        Readahead { planned: 0, pages: if may_end_early { MIN_PAGES } else { MAX_PAGES } }
    }

    /// Must be called before each document, with the pages of its row group and the documents that follow.
    pub(crate) async fn reached<I: Iterator<Item = DocumentPlace>>(
        &mut self,
        reader: &VersionReader,
        pages: &mut Pages<'_>,
        document: DocumentPlace,
        following: impl FnOnce() -> I,
    ) {
        let is_resident = pages.are_at_hand(document.row).await;
        if self.planned > 0 {
            self.planned -= 1;
        } else if !is_resident {
            self.fetch(reader, &document, following());
        }
    }

    fn fetch(
        &mut self,
        reader: &VersionReader,
        document: &DocumentPlace,
        following: impl Iterator<Item = DocumentPlace>,
    ) {
        let page_of = |document: &DocumentPlace| (document.row_group, reader.page_of(document.row_group, document.row));
        let mut pages = vec![page_of(document)];
        for document in following {
            let page = page_of(&document);
            if pages.last() != Some(&page) {
                if pages.len() == self.pages {
                    break;
                }
                pages.push(page);
            }
            self.planned += 1;
        }
        self.pages = (self.pages * 2).min(MAX_PAGES);
        pages.sort_unstable();
        pages.dedup();
        reader.pages_ahead(&pages);
    }
}
