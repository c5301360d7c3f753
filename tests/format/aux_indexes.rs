//! Auxiliary indexes: sort orders, first entities of groups, and hash indexes.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::buffer::BooleanBuffer;
use strata_format::aux_index::{ColumnSortIndex, GroupRepresentatives, SortIndexCursor};
use strata_format::hash_index::{HashIndex, HashIndexEntry, IndexedValue, SeededValueHasher};
use strata_json::SortDirection;

#[test]
fn sort_index_cursor_keeps_ties_in_both_orders() {
    // No value for multiples of 7, otherwise 1 for multiples of 5, 3 for even positions, and 2.
    let value = |position: u32| match position {
        position if position % 7 == 0 => None,
        position if position % 5 == 0 => Some(1),
        position if position % 2 == 0 => Some(3),
        _ => Some(2),
    };
    let mut positions: Vec<u32> = (0..200).collect();
    positions.sort_by_key(|position| (value(*position).is_none(), value(*position)));
    let value_count = positions.iter().filter(|position| value(**position).is_some()).count();
    let mut value_starts = vec![0_u64; 200_usize.div_ceil(64)];
    for index in 0..value_count {
        if index == 0 || value(positions[index]) != value(positions[index - 1]) {
            value_starts[index / 64] |= 1 << (index % 64);
        }
    }
    let sort_index =
        Arc::new(ColumnSortIndex { positions: positions.clone(), value_starts, value_count, has_empty_string: false });
    assert_eq!(SortIndexCursor::new(sort_index.clone(), SortDirection::Ascending).collect::<Vec<_>>(), positions);
    let mut reversed: Vec<u32> = (0..200).collect();
    reversed.sort_by_key(|position| (value(*position).is_none(), std::cmp::Reverse(value(*position))));
    assert_eq!(SortIndexCursor::new(sort_index, SortDirection::Descending).collect::<Vec<_>>(), reversed);
    let none = Arc::new(ColumnSortIndex {
        positions: vec![0, 1],
        value_starts: vec![0],
        value_count: 0,
        has_empty_string: false,
    });
    assert_eq!(SortIndexCursor::new(none, SortDirection::Descending).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn group_representatives_support_skip_and_ranges() {
    for every in [1, 3, 1_000] {
        let bits = BooleanBuffer::collect_bool(200_000, |position| position % every == 0);
        let all: Vec<u64> = (0..200_000).step_by(every).collect();
        let representatives = GroupRepresentatives::from_bits(bits);
        assert_eq!(matches!(representatives, GroupRepresentatives::Positions(_)), every == 1_000);
        assert_eq!(representatives.count(), all.len());
        assert_eq!(representatives.skip_and_take(0, usize::MAX), all);
        assert!(representatives.skip_and_take(all.len(), 7).is_empty());
        for (skip, limit) in [(0, 0), (0, 3), (150, 40), (all.len() - 2, 9)] {
            let end = (skip + limit).min(all.len());
            assert_eq!(representatives.skip_and_take(skip, limit), all[skip..end], "{every} {skip} {limit}");
        }
        let expected: Vec<u64> = all.iter().copied().filter(|position| (999..77_001).contains(position)).collect();
        assert_eq!(representatives.positions_in(999..77_001), expected);
        assert_eq!(representatives.positions_in(199_999..300_000).len(), usize::from(every == 1));
    }
}

async fn index(values: &[Vec<u8>]) -> HashIndex {
    let hasher = SeededValueHasher::default();
    let hash = |value: &Vec<u8>| hasher.hash(IndexedValue::Text(value));
    let entries: Vec<HashIndexEntry> =
        values.iter().map(hash).zip(0..).map(|(value, position)| HashIndexEntry { value, position }).collect();
    HashIndex::build(hasher, &entries, async || {}).await
}

#[tokio::test]
async fn hash_index_returns_all_matches_and_few_others() {
    for count in [0, 1, 2, 3, 1_000, 200_000_u32] {
        let values: Vec<Vec<u8>> =
            (0..count).map(|position| format!("value {}", position % 5_000).into_bytes()).collect();
        let index = index(&values).await;
        let mut candidate_count = 0;
        for number in (0..5_000).step_by(97) {
            let result = index.candidates(IndexedValue::Text(format!("value {number}").as_bytes()));
            let candidates = result.positions;
            let values: HashSet<u32> = candidates.iter().map(|position| position % 5_000).collect();
            assert_eq!(result.is_single_value, values.len() <= 1, "{number} of {count}");
            assert!(candidates.is_sorted());
            candidate_count += candidates.len();
            let matching: Vec<u32> = (number..count).step_by(5_000).collect();
            assert!(matching.iter().all(|position| candidates.binary_search(position).is_ok()), "{number} of {count}");
        }
        assert!(candidate_count <= 2 * (count as usize / 97) + 200, "{candidate_count} of {count}");
    }
}

#[test]
fn equal_numbers_have_one_hash() {
    let hasher = SeededValueHasher::default();
    let hash = |double, remainder| hasher.hash(IndexedValue::Number(double, remainder));
    assert_eq!(hash(0.0, 0), hash(-0.0, 0));
    assert_ne!(hash(1.0, 0), hash(1.0, 1));
}
