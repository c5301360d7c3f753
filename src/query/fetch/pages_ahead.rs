//! Pages of documents that are fetched ahead: those of the documents that follow, in one wave.

use strata_format::reader::VersionReader;

use crate::fetch::pages::Pages;

/// Pages that are fetched together.
const PAGES: usize = 128;

/// Pages that are fetched together first, where the first documents may be enough.
const FIRST_PAGES: usize = 4;

/// A document: its row group, and its row there.
pub(crate) type Place = (usize, usize);

/// What was fetched ahead of documents that are looked at one after another.
pub(crate) struct PagesAhead {
    /// Documents that are left of those whose pages were planned.
    planned: usize,
    pages: usize,
}

impl PagesAhead {
    /// Nothing is fetched yet. Where the first documents may be enough, few pages come first.
    pub(crate) fn new(may_end_early: bool) -> PagesAhead {
        PagesAhead { planned: 0, pages: if may_end_early { FIRST_PAGES } else { PAGES } }
    }

    /// Called with each document before it is looked at, the pages of its row group, and the documents that follow.
    /// Where its page is not at hand, the next pages are fetched with it.
    pub(crate) async fn reached<I: Iterator<Item = Place>>(
        &mut self,
        reader: &VersionReader,
        pages: &mut Pages<'_>,
        (row_group, row): Place,
        following: impl FnOnce() -> I,
    ) {
        let is_at_hand = pages.are_at_hand(row).await;
        if self.planned > 0 {
            self.planned -= 1;
        } else if !is_at_hand {
            self.plan(reader, (row_group, reader.page_of(row_group, row)), following());
        }
    }

    fn plan(&mut self, reader: &VersionReader, page: (usize, usize), following: impl Iterator<Item = Place>) {
        let mut pages = vec![page];
        for (row_group, row) in following {
            let page = (row_group, reader.page_of(row_group, row));
            if pages.last() != Some(&page) {
                if pages.len() == self.pages {
                    break;
                }
                pages.push(page);
            }
            self.planned += 1;
        }
        self.pages = (self.pages * 2).min(PAGES);
        pages.sort_unstable();
        pages.dedup();
        reader.pages_ahead(&pages);
    }
}
