//! Whether a query was the only one while it ran. One that had all memory to itself, and needed more, will need more at
//! any other time, too.

use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(super) struct Company(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    running: u64,
    ever: u64,
}

/// A query that runs, until it is dropped.
pub(super) struct Member<'a> {
    company: &'a Company,
    was_alone: bool,
    number: u64,
}

impl Company {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Nothing panics between two changes that belong together.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn join(&self) -> Member<'_> {
        let mut counts = self.counts();
        counts.running += 1;
        counts.ever += 1;
        Member { company: self, was_alone: counts.running == 1, number: counts.ever }
    }
}

impl Member<'_> {
    /// Whether no other one has run since it began.
    pub(super) fn is_alone(&self) -> bool {
        self.was_alone && self.company.counts().ever == self.number
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        self.company.counts().running -= 1;
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
