//! Detects whether a query ran while no other query did. If it ran out of memory nevertheless, it needs more than the
//! limit, so a retry would fail, too.

use std::sync::atomic::{AtomicU64, Ordering};

/// Two counts in one atomic number, so that both change at once: the number of running queries in the low half, and of
/// all queries so far in the high half.
#[derive(Debug, Default)]
pub(super) struct ActiveQueries(AtomicU64);

pub(super) struct QueryGuard<'a> {
    queries: &'a ActiveQueries,
    exclusive_query_number: Option<u32>,
}

impl ActiveQueries {
    pub(super) fn begin(&self) -> QueryGuard<'_> {
        let before = self.0.fetch_add(1 << 32 | 1, Ordering::SeqCst);
        let number = ((before >> 32) as u32).wrapping_add(1);
        QueryGuard { queries: self, exclusive_query_number: (before as u32 == 0).then_some(number) }
    }
}

impl QueryGuard<'_> {
    pub(super) fn ran_exclusively(&self) -> bool {
        self.exclusive_query_number == Some((self.queries.0.load(Ordering::SeqCst) >> 32) as u32)
    }
}

impl Drop for QueryGuard<'_> {
    fn drop(&mut self) {
        self.queries.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_with_any_overlap_is_not_exclusive() {
        let queries = ActiveQueries::default();
        let first = queries.begin();
        assert!(first.ran_exclusively());
        let second = queries.begin();
        assert!(!first.ran_exclusively() && !second.ran_exclusively());
        drop(second);
        assert!(!first.ran_exclusively(), "another query has run");
        let third = queries.begin();
        drop(first);
        assert!(!third.ran_exclusively(), "another query was running");
        drop(third);
        assert!(queries.begin().ran_exclusively());
    }
}
