//! The pages of documents that reads took from the cache, by their places in the file. Finding one here costs a tenth
//! of a look-up in the cache: a page of scattered entities asks for a hundred.
//!
//! A slot keeps no page alive: what the cache drops is gone here, too. The cache learns of the use of a page from one
//! look-up in some ([`ASKS_CACHE`]), which is what it needs to tell pages that are used from others.

use std::cell::Cell;
use std::sync::{OnceLock, RwLock};

use super::document_page::{DocumentPage, WeakPage};

/// One look-up in so many is left to the cache. Not a power of two, nor a divisor of usual limits, so that requests
/// that are repeated do not always leave the same one.
const ASKS_CACHE: u32 = 19;

/// Bytes that each page of a file takes here.
pub(super) const SLOT_BYTES: usize = size_of::<Slot>();

type Slot = RwLock<WeakPage>;

/// The slots of a file.
pub(super) struct PageSlots {
    /// Of each row group, made when it is first read.
    row_groups: Box<[OnceLock<Box<[Slot]>>]>,
}

impl PageSlots {
    pub(super) fn new(row_groups: usize) -> PageSlots {
        PageSlots { row_groups: (0..row_groups).map(|_| OnceLock::new()).collect() }
    }

    /// A page that is alive, most of the time.
    pub(super) fn page(&self, row_group: usize, page: usize) -> Option<DocumentPage> {
        thread_local!(static LOOKUPS: Cell<u32> = const { Cell::new(0) });
        let lookups = LOOKUPS.get().wrapping_add(1);
        LOOKUPS.set(lookups);
        if lookups.is_multiple_of(ASKS_CACHE) { None } else { self.alive(row_group, page) }
    }

    /// A page that is alive.
    pub(super) fn alive(&self, row_group: usize, page: usize) -> Option<DocumentPage> {
        // While another thread puts a page there, the cache tells.
        self.row_groups[row_group].get()?.get(page)?.try_read().ok()?.page()
    }

    /// Keeps a page of a row group that has so many.
    pub(super) fn keep(&self, row_group: usize, pages: usize, page: usize, kept: &DocumentPage) {
        let slots = self.row_groups[row_group].get_or_init(|| (0..pages).map(|_| Slot::default()).collect());
        if let Some(Ok(mut slot)) = slots.get(page).map(RwLock::try_write) {
            *slot = kept.downgrade();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_keeps_no_page_alive_and_leaves_some_lookups_to_the_cache() {
        let slots = PageSlots::new(2);
        assert!(slots.alive(1, 0).is_none());
        let page = DocumentPage::of_test(&[b"{}", b"[]"]);
        slots.keep(1, 3, 2, &page);
        assert!(slots.alive(0, 2).is_none() && slots.alive(1, 1).is_none() && slots.alive(1, 3).is_none());
        let found = (0..ASKS_CACHE * 5).filter(|_| slots.page(1, 2).is_some()).count();
        assert_eq!(found as u32, ASKS_CACHE * 5 - 5);
        assert_eq!(slots.alive(1, 2).expect("alive").document(1), b"[]");
        drop(page);
        assert!(slots.alive(1, 2).is_none());
    }
}
