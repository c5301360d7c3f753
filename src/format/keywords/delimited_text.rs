//! Substring search in a text of consecutive items.

use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use memchr::memmem::Finder;

use super::trigram_index::TrigramIndex;
use crate::layout::TEXT_SEPARATOR;
use crate::substring_search::galloping_partition_point;

/// Number of searches before the trigram index is built. Building the index costs as much as some dozen searches.
const TRIGRAM_BUILD_THRESHOLD: u32 = 16;
/// Sizes of texts with a trigram index. A shorter text is scanned quickly, and a longer one takes too long to index.
const TRIGRAM_TEXT_BYTES: RangeInclusive<usize> = 1 << 14..=8 << 20;

/// A text that consists of items, each followed by a separator. The text also starts with a separator.
#[derive(Debug)]
pub(super) struct DelimitedText {
    text: Vec<u8>,
    item_ends: Vec<u32>,
    search_count: AtomicU32,
    trigram_index: OnceLock<TrigramIndex>,
}

impl DelimitedText {
    pub(super) fn new(text: Vec<u8>, item_ends: Vec<u32>) -> DelimitedText {
        DelimitedText { text, item_ends, search_count: AtomicU32::new(0), trigram_index: OnceLock::new() }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let trigrams =
            if TRIGRAM_TEXT_BYTES.contains(&self.text.len()) { TrigramIndex::memory_bytes(self.text.len()) } else { 0 };
        self.text.capacity() + self.item_ends.capacity() * size_of::<u32>() + trigrams
    }

    pub(super) fn for_each_match(&self, finder: &Finder<'_>, mut on_match: impl FnMut(usize)) {
        let DelimitedText { text, item_ends, .. } = self;
        let blocks = self.trigram_index().and_then(|trigrams| trigrams.candidate_blocks(finder.needle()));
        let find = |offset: usize| match &blocks {
            Some(blocks) => blocks.find(text, finder, offset),
            None => text.get(offset..).and_then(|from| finder.find(from)).map(|hit| offset + hit),
        };
        // If the needle starts with a separator, a match starts with the separator after the previous item.
        let lead = usize::from(finder.needle().first() == Some(&TEXT_SEPARATOR));
        let mut offset = 0;
        let mut item = 0;
        while let Some(hit) = find(offset) {
            item += item_ends
                .get(item..)
                .map_or(0, |item_ends| galloping_partition_point(item_ends, &((hit + lead) as u32)));
            let Some(end) = item_ends.get(item) else { return };
            on_match(item);
            offset = *end as usize - lead;
            item += 1;
        }
    }

    fn trigram_index(&self) -> Option<&TrigramIndex> {
        if !TRIGRAM_TEXT_BYTES.contains(&self.text.len()) {
            return None;
        }
        if self.trigram_index.get().is_none()
            && self.search_count.fetch_add(1, Ordering::Relaxed) < TRIGRAM_BUILD_THRESHOLD
        {
            return None;
        }
        Some(self.trigram_index.get_or_init(|| TrigramIndex::new(&self.text)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn search_finds_same_items_with_and_without_index(
            items in proptest::collection::vec(
                prop_oneof![9 => "[a-e]{1,9}[.-]{0,1}", 1 => "[ab]{30,90}"],
                4_000..5_000,
            ),
            short in "[a-e]{1,7}",
            part_of in proptest::option::of(any::<(prop::sample::Index, prop::sample::Index)>()),
            (starts, ends) in any::<(bool, bool)>(),
        ) {
            // The needle can be a suffix of an item, which can be longer than the blocks of the trigram index.
            let needle = part_of.map_or(short, |(item, start)| {
                let item = item.get(&items);
                item[start.index(item.len())..].to_owned()
            });
            let mut text = vec![TEXT_SEPARATOR];
            let mut item_ends = Vec::new();
            for item in &items {
                text.extend_from_slice(item.as_bytes());
                text.push(TEXT_SEPARATOR);
                item_ends.push(text.len() as u32);
            }
            let mut pattern = needle.clone().into_bytes();
            if starts {
                pattern.insert(0, TEXT_SEPARATOR);
            }
            if ends {
                pattern.push(TEXT_SEPARATOR);
            }
            let expected: Vec<usize> = items.iter().enumerate().filter(|(_, item)| match (starts, ends) {
                (false, false) => item.contains(&needle),
                (true, false) => item.starts_with(&needle),
                (false, true) => item.ends_with(&needle),
                (true, true) => **item == needle,
            }).map(|(number, _)| number).collect();
            let delimited_text = DelimitedText::new(text, item_ends);
            let finder = Finder::new(&pattern);
            for _ in 0..=TRIGRAM_BUILD_THRESHOLD + 1 {
                let mut matches = Vec::new();
                delimited_text.for_each_match(&finder, |item| matches.push(item));
                prop_assert_eq!(&matches, &expected);
            }
            prop_assert!(delimited_text.trigram_index.get().is_some());
        }
    }
}
