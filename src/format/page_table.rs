//! Weak table of the document pages in the cache, by their positions in the file. A lookup costs a tenth of a cache
//! lookup, and a page of scattered entities needs a hundred lookups.
//!
//! A slot does not keep its page alive: an evicted page disappears here, too. One of [`CACHE_LOOKUP_INTERVAL`] lookups
//! goes to the cache, which is enough for the cache to recognize used pages.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::OnceLock;

use parking_lot::RwLock;

use super::document_page::{DocumentPage, WeakDocumentPage};

/// One of this number of lookups goes to the cache. The prime does not divide usual limits, so that repeated requests
/// do not always send the same page to the cache.
const CACHE_LOOKUP_INTERVAL: u32 = 19;
pub(super) const PAGE_SLOT_BYTES: usize = size_of::<PageSlot>();
type PageSlot = RwLock<WeakDocumentPage>;

pub(super) struct PageTable {
    slots: Box<[OnceLock<Box<[PageSlot]>>]>,
}

impl PageTable {
    pub(super) fn new(row_groups: usize) -> PageTable {
        PageTable { slots: (0..row_groups).map(|_| OnceLock::new()).collect() }
    }

    /// Returns a page that is still in memory; `None` for each lookup that must go to the cache.
    pub(super) fn get(&self, row_group: usize, page: usize) -> Option<DocumentPage> {
        if next_lookup_bypasses_table() { None } else { self.get_live(row_group, page) }
    }

    pub(super) fn get_live(&self, row_group: usize, page: usize) -> Option<DocumentPage> {
        // If another thread is writing the slot of the page, the result is `None`, and the caller uses the cache.
        self.slot(row_group, page)?.try_read()?.upgrade()
    }

    fn slot(&self, row_group: usize, page: usize) -> Option<&PageSlot> {
        self.slots[row_group].get()?.get(page)
    }

    pub(super) fn insert(&self, row_group: usize, pages: usize, page: usize, document_page: &DocumentPage) {
        let slots = self.slots[row_group].get_or_init(|| (0..pages).map(|_| PageSlot::default()).collect());
        if let Some(Some(mut slot)) = slots.get(page).map(RwLock::try_write) {
            *slot = document_page.downgrade();
        }
    }
}

/// Like [`PageTable::get`], for many pages, each with its table, row group, and page number. Upgrading a weak pointer
/// modifies its slot and its count, which the processor does one after the other, so the function first loads all slots
/// and counts into the processor's caches in parallel.
pub(super) fn get_pages<'a>(
    locations: impl Iterator<Item = (&'a PageTable, usize, usize)>,
) -> Vec<Option<DocumentPage>> {
    let slots: Vec<Option<&PageSlot>> = locations
        .map(|(slots, row_group, page)| if next_lookup_bypasses_table() { None } else { slots.slot(row_group, page) })
        .collect();
    // Loading the locks also loads the slots, which are next to them.
    black_box(slots.iter().flatten().filter(|slot| slot.is_locked()).count());
    let guards: Vec<_> = slots.iter().map(|slot| slot.and_then(|slot| slot.try_read())).collect();
    black_box(guards.iter().flatten().map(|slot| slot.strong_count()).fold(0, usize::wrapping_add));
    guards.iter().map(|slot| slot.as_ref()?.upgrade()).collect()
}

fn next_lookup_bypasses_table() -> bool {
    thread_local!(static LOOKUP_COUNT: Cell<u32> = const { Cell::new(0) });
    let lookups = LOOKUP_COUNT.get().wrapping_add(1);
    LOOKUP_COUNT.set(lookups);
    lookups.is_multiple_of(CACHE_LOOKUP_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_weak_and_defers_some_lookups() {
        let table = PageTable::new(2);
        assert!(table.get_live(1, 0).is_none());
        let page = DocumentPage::for_test(&[b"{}", b"[]"]);
        table.insert(1, 3, 2, &page);
        assert!(table.get_live(0, 2).is_none() && table.get_live(1, 1).is_none() && table.get_live(1, 3).is_none());
        let found = (0..CACHE_LOOKUP_INTERVAL * 5).filter(|_| table.get(1, 2).is_some()).count();
        assert_eq!(found as u32, CACHE_LOOKUP_INTERVAL * 5 - 5);
        assert_eq!(table.get_live(1, 2).expect("failed to find page").document(1), b"[]");
        let locations = [(&table, 0, 2), (&table, 1, 2), (&table, 1, 1), (&table, 1, 2), (&table, 1, 3)];
        let pages = get_pages(locations.into_iter().cycle().take(CACHE_LOOKUP_INTERVAL as usize * 5));
        let is_cached = |index: usize| matches!(index % 5, 1 | 3);
        assert!(pages.iter().enumerate().all(|(index, page)| page.is_none() || is_cached(index)));
        // Every 19th lookup goes to the cache, which is the case for two of the 38 lookups of cached pages.
        assert_eq!(pages.iter().flatten().count() as u32, CACHE_LOOKUP_INTERVAL * 2 - 2);
        assert!(pages.iter().flatten().all(|page| page.document(1) == b"[]"));
        drop(pages);
        drop(page);
        assert!(table.get_live(1, 2).is_none());
    }
}
