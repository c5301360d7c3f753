//! A text that is cut into stretches, and the stretches that hold a needle.

use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use memchr::memmem::Finder;

use super::grams::Grams;
use crate::layout::SEPARATOR;

/// Searches after which [`Grams`] are made: making them costs about as much as some tens.
const SEARCHES: u32 = 16;

/// Texts of so many bytes have [`Grams`]: shorter ones are looked through at once, longer ones would take long.
const GRAMS_OF: RangeInclusive<usize> = 1 << 14..=8 << 20;

/// A text that begins with a separator. Its first stretch begins behind it, and each other where the one before it
/// ends, behind a separator.
#[derive(Debug)]
pub(super) struct SearchedText {
    text: Vec<u8>,
    ends: Vec<u32>,
    searches: AtomicU32,
    grams: OnceLock<Grams>,
}

impl SearchedText {
    pub(super) fn new(text: Vec<u8>, ends: Vec<u32>) -> SearchedText {
        SearchedText { text, ends, searches: AtomicU32::new(0), grams: OnceLock::new() }
    }

    /// Memory that it takes, with what it will take when it is searched often.
    pub(super) fn memory_bytes(&self) -> usize {
        let grams = if GRAMS_OF.contains(&self.text.len()) { Grams::memory_bytes(self.text.len()) } else { 0 };
        self.text.capacity() + self.ends.capacity() * size_of::<u32>() + grams
    }

    /// Calls `found` for each stretch that holds what the finder finds, ascending.
    pub(super) fn visit(&self, finder: &Finder<'_>, mut found: impl FnMut(usize)) {
        let SearchedText { text, ends, .. } = self;
        let blocks = self.grams().and_then(|grams| grams.blocks(finder.needle()));
        let find = |at: usize| match &blocks {
            Some(blocks) => blocks.find(text, finder, at),
            None => text.get(at..).and_then(|from| finder.find(from)).map(|hit| at + hit),
        };
        // A pattern that begins with a separator begins with that of the entry before.
        let lead = usize::from(finder.needle().first() == Some(&SEPARATOR));
        let mut at = 0;
        let mut stretch = 0;
        while let Some(hit) = find(at) {
            stretch += ends.get(stretch..).map_or(0, |ends| partition_ahead(ends, hit + lead));
            let Some(end) = ends.get(stretch) else { return };
            found(stretch);
            at = *end as usize - lead;
            stretch += 1;
        }
    }

    /// What tells where to look, once that has paid.
    fn grams(&self) -> Option<&Grams> {
        if !GRAMS_OF.contains(&self.text.len()) {
            return None;
        }
        if self.grams.get().is_none() && self.searches.fetch_add(1, Ordering::Relaxed) < SEARCHES {
            return None;
        }
        Some(self.grams.get_or_init(|| Grams::new(&self.text)))
    }
}

/// How many of the ascending `ends` are at most `position`, by doubling steps: hits are often near.
fn partition_ahead(ends: &[u32], position: usize) -> usize {
    let mut step = 1;
    while ends.get(step).is_some_and(|end| *end as usize <= position) {
        step *= 2;
    }
    let from = step / 2;
    let near = ends.get(from..ends.len().min(step + 1)).unwrap_or_default();
    from + near.partition_point(|end| *end as usize <= position)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The same stretches before and after grams are made, which are those of a naive twin.
        #[test]
        fn found_stretches_contain_the_needle(
            entries in proptest::collection::vec(
                prop_oneof![9 => "[a-e]{1,9}[.-]{0,1}", 1 => "[ab]{30,90}"],
                4_000..5_000,
            ),
            short in "[a-e]{1,7}",
            part_of in proptest::option::of(any::<(prop::sample::Index, prop::sample::Index)>()),
            (starts, ends) in any::<(bool, bool)>(),
        ) {
            // A needle of an entry can be longer than the blocks of its first bytes tell.
            let needle = part_of.map_or(short, |(entry, start)| {
                let entry = entry.get(&entries);
                entry[start.index(entry.len())..].to_owned()
            });
            let mut text = vec![SEPARATOR];
            let mut places = Vec::new();
            for entry in &entries {
                text.extend_from_slice(entry.as_bytes());
                text.push(SEPARATOR);
                places.push(text.len() as u32);
            }
            let mut pattern = needle.clone().into_bytes();
            if starts {
                pattern.insert(0, SEPARATOR);
            }
            if ends {
                pattern.push(SEPARATOR);
            }
            let expected: Vec<usize> = entries.iter().enumerate().filter(|(_, entry)| match (starts, ends) {
                (false, false) => entry.contains(&needle),
                (true, false) => entry.starts_with(&needle),
                (false, true) => entry.ends_with(&needle),
                (true, true) => **entry == needle,
            }).map(|(number, _)| number).collect();
            let searched = SearchedText::new(text, places);
            let finder = Finder::new(&pattern);
            for _ in 0..=SEARCHES + 1 {
                let mut found = Vec::new();
                searched.visit(&finder, |stretch| found.push(stretch));
                prop_assert_eq!(&found, &expected);
            }
            prop_assert!(searched.grams.get().is_some());
        }
    }
}
