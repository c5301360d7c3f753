//! Auxiliary indexes: sort orders, first entities of groups, and hash indexes.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::buffer::BooleanBuffer;
use strata_format::aux_index::{ColumnOrder, Firsts, OrderCursor};
use strata_format::hash_index::{Entry, HashIndex, IndexedValue, ValueHasher};

#[test]
fn order_is_walked_both_ways_and_keeps_ties() {
    // Values of positions 0 to 199: 3 for the even ones, 1 for those that 5 divides, and none for every 7th.
    let value = |position: u32| match position {
        position if position % 7 == 0 => None,
        position if position % 5 == 0 => Some(1),
        position if position % 2 == 0 => Some(3),
        _ => Some(2),
    };
    let mut positions: Vec<u32> = (0..200).collect();
    positions.sort_by_key(|position| (value(*position).is_none(), value(*position)));
    let sortable = positions.iter().filter(|position| value(**position).is_some()).count();
    let mut starts = vec![0_u64; 200_usize.div_ceil(64)];
    for place in 0..sortable {
        if place == 0 || value(positions[place]) != value(positions[place - 1]) {
            starts[place / 64] |= 1 << (place % 64);
        }
    }
    let order = Arc::new(ColumnOrder { positions: positions.clone(), starts, sortable, holds_empty: false });
    assert_eq!(OrderCursor::new(order.clone(), false).collect::<Vec<_>>(), positions);
    let mut reversed: Vec<u32> = (0..200).collect();
    reversed.sort_by_key(|position| (value(*position).is_none(), std::cmp::Reverse(value(*position))));
    assert_eq!(OrderCursor::new(order, true).collect::<Vec<_>>(), reversed);
    let none = Arc::new(ColumnOrder { positions: vec![0, 1], starts: vec![0], sortable: 0, holds_empty: false });
    assert_eq!(OrderCursor::new(none, true).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn first_entities_are_found_by_place_and_by_position() {
    for every in [1, 3, 1_000] {
        let bits = BooleanBuffer::collect_bool(200_000, |position| position % every == 0);
        let all: Vec<u64> = (0..200_000).step_by(every).collect();
        let firsts = Firsts::of(bits);
        assert_eq!(matches!(firsts, Firsts::List(_)), every == 1_000);
        assert_eq!(firsts.count(), all.len());
        assert_eq!(firsts.window(0, usize::MAX), all);
        assert!(firsts.window(all.len(), 7).is_empty());
        for (skip, most) in [(0, 0), (0, 3), (150, 40), (all.len() - 2, 9)] {
            let end = (skip + most).min(all.len());
            assert_eq!(firsts.window(skip, most), all[skip..end], "{every} {skip} {most}");
        }
        let among: Vec<u64> = all.iter().copied().filter(|position| (999..77_001).contains(position)).collect();
        assert_eq!(firsts.within(999..77_001), among);
        assert_eq!(firsts.within(199_999..300_000).len(), usize::from(every == 1));
    }
}

async fn index(values: &[Vec<u8>]) -> HashIndex {
    let hasher = ValueHasher::default();
    let hash = |value: &Vec<u8>| hasher.hash(IndexedValue::Text(value));
    let entries: Vec<Entry> =
        values.iter().map(hash).zip(0..).map(|(value, position)| Entry { value, position }).collect();
    HashIndex::build(hasher, &entries, async || {}).await
}

#[tokio::test]
async fn hash_index_lists_all_holders_and_few_others() {
    for count in [0, 1, 2, 3, 1_000, 200_000_u32] {
        let values: Vec<Vec<u8>> = (0..count).map(|at| format!("value {}", at % 5_000).into_bytes()).collect();
        let index = index(&values).await;
        let mut listed = 0;
        for number in (0..5_000).step_by(97) {
            let found = index.candidates(IndexedValue::Text(format!("value {number}").as_bytes()));
            let candidates = found.positions;
            let values: HashSet<u32> = candidates.iter().map(|position| position % 5_000).collect();
            assert_eq!(found.are_of_one_value, values.len() <= 1, "{number} of {count}");
            assert!(candidates.is_sorted());
            listed += candidates.len();
            let holding: Vec<u32> = (number..count).step_by(5_000).collect();
            assert!(holding.iter().all(|position| candidates.binary_search(position).is_ok()), "{number} of {count}");
        }
        assert!(listed <= 2 * (count as usize / 97) + 200, "{listed} of {count}");
    }
}

#[test]
fn equal_numbers_have_one_hash() {
    let hasher = ValueHasher::default();
    let hash = |double, remainder| hasher.hash(IndexedValue::Number(double, remainder));
    assert_eq!(hash(0.0, 0), hash(-0.0, 0));
    assert_ne!(hash(1.0, 0), hash(1.0, 1));
}
