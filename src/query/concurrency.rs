//! Whether a query ran with no other. A query that ran out of memory although it had all of it will fail again.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many queries run, in the low half, and how many have ever begun, in the high half: both change at once.
#[derive(Debug, Default)]
pub(super) struct ActiveQueries(AtomicU64);

/// A query that runs, until it is dropped.
pub(super) struct QueryGuard<'a> {
    queries: &'a ActiveQueries,
    began_alone: bool,
    begun_before: u32,
}

impl ActiveQueries {
    pub(super) fn begin(&self) -> QueryGuard<'_> {
        let before = self.0.fetch_add(1 << 32 | 1, Ordering::SeqCst);
        QueryGuard { queries: self, began_alone: before as u32 == 0, begun_before: (before >> 32) as u32 }
    }
}

impl QueryGuard<'_> {
    /// Whether no other query has run since this one began.
    pub(super) fn ran_exclusively(&self) -> bool {
        let begun = (self.queries.0.load(Ordering::SeqCst) >> 32) as u32;
        self.began_alone && begun == self.begun_before.wrapping_add(1)
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
        assert!(!first.ran_exclusively(), "another one has run since");
        let third = queries.begin();
        drop(first);
        assert!(!third.ran_exclusively(), "another one ran when it began");
        drop(third);
        assert!(queries.begin().ran_exclusively());
    }
}
