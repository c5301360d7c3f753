//! The pages of documents that reads took from the cache, by their places in the file. Finding one here costs a tenth
//! of a look-up in the cache: a page of scattered entities asks for a hundred.
//!
//! A slot keeps no page alive: what the cache drops is gone here, too. The cache learns of the use of a page from one
//! look-up in some ([`ASKS_CACHE`]), which is what it needs to tell pages that are used from others.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::{OnceLock, RwLock};

use super::document_page::{DocumentPage, WeakPage};

/// One look-up in so many is left to the cache. Not a power of two, nor a divisor of usual limits, so that requests
/// that are repeated do not always leave the same one.
const ASKS_CACHE: u32 = 19;

pub(super) const SLOT_BYTES: usize = size_of::<Slot>();

type Slot = RwLock<WeakPage>;

pub(super) struct PageTable {
    /// Of each row group, made when it is first read.
    row_groups: Box<[OnceLock<Box<[Slot]>>]>,
}

impl PageTable {
    pub(super) fn new(row_groups: usize) -> PageTable {
        PageTable { row_groups: (0..row_groups).map(|_| OnceLock::new()).collect() }
    }

    /// A page that is alive, most of the time.
    pub(super) fn page(&self, row_group: usize, page: usize) -> Option<DocumentPage> {
        if is_left_to_cache() { None } else { self.alive(row_group, page) }
    }

    pub(super) fn alive(&self, row_group: usize, page: usize) -> Option<DocumentPage> {
        // While another thread puts a page there, the cache tells.
        self.slot(row_group, page)?.try_read().ok()?.page()
    }

    fn slot(&self, row_group: usize, page: usize) -> Option<&Slot> {
        self.row_groups[row_group].get()?.get(page)
    }

    pub(super) fn keep(&self, row_group: usize, pages: usize, page: usize, kept: &DocumentPage) {
        let slots = self.row_groups[row_group].get_or_init(|| (0..pages).map(|_| Slot::default()).collect());
        if let Some(Ok(mut slot)) = slots.get(page).map(RwLock::try_write) {
            *slot = kept.downgrade();
        }
    }
}

/// Pages that are alive, most of the time; each is one of a row group, as [`PageTable::page`] finds it.
///
/// Taking a page changes its slot and its count, and the processor does not begin such a change before the one ahead of
/// it has its memory. So all of that memory is read first, which it does for many at once: a page of scattered
/// entities needs a hundred of each.
pub(super) fn pages<'a>(places: impl Iterator<Item = (&'a PageTable, usize, usize)>) -> Vec<Option<DocumentPage>> {
    let slots: Vec<Option<&Slot>> = places
        .map(|(slots, row_group, page)| if is_left_to_cache() { None } else { slots.slot(row_group, page) })
        .collect();
    // Read, and nothing else: the flag lies beside the lock.
    black_box(slots.iter().flatten().filter(|slot| slot.is_poisoned()).count());
    let held: Vec<_> = slots.iter().map(|slot| slot.and_then(|slot| slot.try_read().ok())).collect();
    black_box(held.iter().flatten().map(|slot| slot.holders()).fold(0, usize::wrapping_add));
    held.iter().map(|slot| slot.as_ref()?.page()).collect()
}

/// Whether this look-up of the thread is one that is left to the cache.
fn is_left_to_cache() -> bool {
    thread_local!(static LOOKUPS: Cell<u32> = const { Cell::new(0) });
    let lookups = LOOKUPS.get().wrapping_add(1);
    LOOKUPS.set(lookups);
    lookups.is_multiple_of(ASKS_CACHE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_is_weak_and_leaves_some_lookups_to_the_cache() {
        let slots = PageTable::new(2);
        assert!(slots.alive(1, 0).is_none());
        let page = DocumentPage::of_test(&[b"{}", b"[]"]);
        slots.keep(1, 3, 2, &page);
        assert!(slots.alive(0, 2).is_none() && slots.alive(1, 1).is_none() && slots.alive(1, 3).is_none());
        let found = (0..ASKS_CACHE * 5).filter(|_| slots.page(1, 2).is_some()).count();
        assert_eq!(found as u32, ASKS_CACHE * 5 - 5);
        assert_eq!(slots.alive(1, 2).expect("alive").document(1), b"[]");
        let places = [(&slots, 0, 2), (&slots, 1, 2), (&slots, 1, 1), (&slots, 1, 2), (&slots, 1, 3)];
        let many = pages(places.into_iter().cycle().take(ASKS_CACHE as usize * 5));
        let is_kept = |place: usize| matches!(place % 5, 1 | 3);
        assert!(many.iter().enumerate().all(|(place, page)| page.is_none() || is_kept(place)));
        // Of 38 that are kept, those are left to the cache that each 19th look-up of five in turn comes to.
        assert_eq!(many.iter().flatten().count() as u32, ASKS_CACHE * 2 - 2);
        assert!(many.iter().flatten().all(|page| page.document(1) == b"[]"));
        drop(many);
        drop(page);
        assert!(slots.alive(1, 2).is_none());
    }
}
