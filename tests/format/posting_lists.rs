//! Posting lists: whatever is encoded is decoded, and damage is an error or other rows.

use fixedbitset::FixedBitSet;
use proptest::prelude::*;
use strata_format::keywords::postings::{encode, encoded_bytes, union_into};

/// Rows, and some of them at any density.
fn lists() -> impl Strategy<Value = (usize, Vec<u32>)> {
    (1usize..3_000, 0u32..=1_000, any::<u64>()).prop_map(|(rows, share, seed)| {
        let mut state = seed | 1;
        let list = (0..rows as u32).filter(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % 1_000 < u64::from(share)
        });
        (rows, list.collect())
    })
}

fn bitmap(list: &[u32], rows: usize) -> FixedBitSet {
    let mut bitmap = FixedBitSet::with_capacity(rows);
    list.iter().for_each(|row| bitmap.insert(*row as usize));
    bitmap
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn encoded_list_is_decoded((rows, list) in lists(), behind in proptest::collection::vec(any::<u8>(), 0..12), set in any::<u64>()) {
        let mut bytes = vec![0xAB];
        encode(&list, rows, &mut bytes);
        prop_assert_eq!(bytes.len() - 1, encoded_bytes(list.len(), rows));
        prop_assert!(bytes.len() - 1 <= rows.div_ceil(8));
        bytes.extend(behind);
        let mut union = FixedBitSet::with_capacity(rows);
        union_into(&bytes[1..], list.len(), &mut union).expect("a list");
        let expected = bitmap(&list, rows);
        prop_assert_eq!(&union, &expected);
        let others: Vec<u32> = (0..rows as u32).filter(|row| set >> (row % 64) & 1 == 1).collect();
        let others = bitmap(&others, rows);
        let mut more = others.clone();
        union_into(&bytes[1..], list.len(), &mut more).expect("a list");
        for row in 0..rows {
            prop_assert_eq!(more.contains(row), others.contains(row) || expected.contains(row));
        }
    }

    #[test]
    fn damaged_list_is_an_error_or_other_rows(bytes in proptest::collection::vec(any::<u8>(), 0..400), rows in 0usize..3_000, count in any::<usize>(), small in any::<bool>()) {
        let count = if small { count % (rows + 2) } else { count };
        let mut to = FixedBitSet::with_capacity(rows);
        if union_into(&bytes, count, &mut to).is_ok() {
            prop_assert!(to.ones().all(|row| row < rows));
        }
    }

    #[test]
    fn truncated_list_is_an_error((rows, list) in lists()) {
        let mut bytes = Vec::new();
        encode(&list, rows, &mut bytes);
        if bytes.pop().is_some() {
            prop_assert!(union_into(&bytes, list.len(), &mut FixedBitSet::with_capacity(rows)).is_err());
        }
    }
}

#[test]
fn list_size_follows_from_row_count() {
    let rows = 131_072;
    let check = |count, bytes| assert_eq!(encoded_bytes(count, rows), bytes, "{count} rows");
    check(0, 0);
    check(1, 3);
    check(2, 5);
    check(10, 20);
    check(1_000, 1_128);
    check(20_000, 11_596);
    check(65_536, 16_384);
    check(131_071, 3);
    check(131_072, 0);
    // At every count no more than a bitmap, and no longer than the complement.
    for count in (1..rows).step_by(97) {
        assert!(encoded_bytes(count, rows) <= rows / 8);
    }
}

#[test]
fn short_lists_of_every_length_are_decoded() {
    for rows in 1..40usize {
        for count in 0..=rows {
            for from in [0, rows - count] {
                let list: Vec<u32> = (from as u32..(from + count) as u32).collect();
                let mut bytes = Vec::new();
                encode(&list, rows, &mut bytes);
                let mut decoded = FixedBitSet::with_capacity(rows);
                union_into(&bytes, count, &mut decoded).expect("a list");
                assert_eq!(decoded, bitmap(&list, rows), "{count} of {rows} from {from}");
            }
        }
    }
}
