//! Whether a query was the only one while it ran. One that had all memory to itself, and needed more, will need more at
//! any other time, too.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many queries run, in the low half, and how many have ever begun, in the high half: both change at once.
#[derive(Debug, Default)]
pub(super) struct Company(AtomicU64);

/// A query that runs, until it is dropped.
pub(super) struct Member<'a> {
    company: &'a Company,
    was_alone: bool,
    begun_before: u32,
}

impl Company {
    pub(super) fn join(&self) -> Member<'_> {
        let before = self.0.fetch_add(1 << 32 | 1, Ordering::SeqCst);
        Member { company: self, was_alone: before as u32 == 0, begun_before: (before >> 32) as u32 }
    }
}

impl Member<'_> {
    /// Whether no other one has run since it began.
    pub(super) fn is_alone(&self) -> bool {
        let begun = (self.company.0.load(Ordering::SeqCst) >> 32) as u32;
        self.was_alone && begun == self.begun_before.wrapping_add(1)
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        self.company.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_alone_only_if_none_ran_beside_it() {
        let company = Company::default();
        let first = company.join();
        assert!(first.is_alone());
        let second = company.join();
        assert!(!first.is_alone() && !second.is_alone());
        drop(second);
        assert!(!first.is_alone(), "another one has run meanwhile");
        let third = company.join();
        drop(first);
        assert!(!third.is_alone(), "another one ran when it began");
        drop(third);
        assert!(company.join().is_alone());
    }
}
