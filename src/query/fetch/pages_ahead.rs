//! Pages of documents that are fetched ahead: those of the places of an answer that follow, in one wave.

use std::ops::Range;

use crate::query::fetch::selection::Positions;
use crate::storage::reader::VersionReader;

/// Pages that are fetched together.
const PAGES: usize = 64;

/// What was fetched ahead of the places of an answer.
#[derive(Default)]
pub(super) struct PagesAhead {
    /// The page of the last place.
    last: Option<(usize, usize)>,
    /// The place after the last one whose page was planned.
    planned: u64,
}

impl PagesAhead {
    /// Called with the places that are left, and row group and row of the first one. Where its page is not in the cache,
    /// the next pages are fetched with it.
    pub(super) fn reached(
        &mut self,
        reader: &VersionReader,
        positions: &Positions,
        places: Range<u64>,
        (row_group, row): (usize, usize),
    ) {
        if places.start < self.planned {
            return;
        }
        let page = (row_group, reader.page_of(row_group, row));
        if self.last.replace(page) == Some(page) || reader.caches_page(page.0, page.1) {
            return;
        }
        let mut pages = vec![page];
        let mut place = places.start + 1;
        while place < places.end && pages.len() < PAGES {
            let position = positions.at(place);
            let row_group = match pages.last() {
                Some((row_group, _)) if reader.row_groups()[*row_group].holds(position) => *row_group,
                _ => reader.row_group_of(position),
            };
            let row = (position - reader.row_groups()[row_group].first) as usize;
            let page = (row_group, reader.page_of(row_group, row));
            if pages.last() != Some(&page) {
                pages.push(page);
            }
            place += 1;
        }
        self.planned = place;
        pages.sort_unstable();
        pages.dedup();
        reader.pages_ahead(&pages);
    }
}
