//! Posting lists: encoding and decoding, and damaged lists, which are errors or contain other rows.

use fixedbitset::FixedBitSet;
use proptest::prelude::*;
use strata_format::keywords::postings::{encode_postings, encoded_posting_bytes, union_postings_into};

/// A number of rows, and a random subset of any density.
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
    fn encoded_list_decodes_to_its_rows((rows, list) in lists(), suffix in proptest::collection::vec(any::<u8>(), 0..12), set in any::<u64>()) {
        let mut bytes = vec![0xAB];
        encode_postings(&list, rows, &mut bytes);
        prop_assert_eq!(bytes.len() - 1, encoded_posting_bytes(list.len(), rows));
        prop_assert!(bytes.len() - 1 <= rows.div_ceil(8));
        bytes.extend(suffix);
        let mut union = FixedBitSet::with_capacity(rows);
        union_postings_into(&bytes[1..], list.len(), &mut union).expect("failed to decode list");
        let expected = bitmap(&list, rows);
        prop_assert_eq!(&union, &expected);
        let others: Vec<u32> = (0..rows as u32).filter(|row| set >> (row % 64) & 1 == 1).collect();
        let others = bitmap(&others, rows);
        let mut extended = others.clone();
        union_postings_into(&bytes[1..], list.len(), &mut extended).expect("failed to decode list");
        for row in 0..rows {
            prop_assert_eq!(extended.contains(row), others.contains(row) || expected.contains(row));
        }
    }

    #[test]
    fn damaged_list_is_an_error_or_other_rows(bytes in proptest::collection::vec(any::<u8>(), 0..400), rows in 0usize..3_000, count in any::<usize>(), small in any::<bool>()) {
        let count = if small { count % (rows + 2) } else { count };
        let mut to = FixedBitSet::with_capacity(rows);
        if union_postings_into(&bytes, count, &mut to).is_ok() {
            prop_assert!(to.ones().all(|row| row < rows));
        }
    }

    #[test]
    fn truncated_list_is_an_error((rows, list) in lists()) {
        let mut bytes = Vec::new();
        encode_postings(&list, rows, &mut bytes);
        if bytes.pop().is_some() {
            prop_assert!(union_postings_into(&bytes, list.len(), &mut FixedBitSet::with_capacity(rows)).is_err());
        }
    }
}

#[test]
fn lists_have_the_documented_bytes() {
    let check = |list: &[u32], rows, expected: &[u8]| {
        let mut bytes = Vec::new();
        encode_postings(list, rows, &mut bytes);
        assert_eq!(bytes, expected, "{list:?} of {rows}");
    };
    check(&[], 64, &[]);
    // Elias-Fano.
    check(&[5, 9, 40], 64, &[0x95, 0x38, 0x01]);
    // All rows.
    check(&[0, 1, 2], 3, &[]);
    // Complement: Elias-Fano of row 40.
    let others: Vec<u32> = (0..64).filter(|row| *row != 40).collect();
    check(&others, 64, &[0x68]);
    // Bitmap.
    check(&[0, 2, 3, 7], 8, &[0x8D]);
}

#[test]
fn list_size_follows_from_row_count() {
    let rows = 131_072;
    let check = |count, bytes| assert_eq!(encoded_posting_bytes(count, rows), bytes, "{count} rows");
    check(0, 0);
    check(1, 3);
    check(2, 5);
    check(10, 20);
    check(1_000, 1_128);
    check(20_000, 11_596);
    check(65_536, 16_384);
    check(131_071, 3);
    check(131_072, 0);
    // For no count, a list is larger than a bitmap.
    for count in (1..rows).step_by(97) {
        assert!(encoded_posting_bytes(count, rows) <= rows / 8);
    }
}

#[test]
fn short_lists_of_every_length_are_decoded() {
    for rows in 1..40usize {
        for count in 0..=rows {
            for from in [0, rows - count] {
                let list: Vec<u32> = (from as u32..(from + count) as u32).collect();
                let mut bytes = Vec::new();
                encode_postings(&list, rows, &mut bytes);
                let mut decoded = FixedBitSet::with_capacity(rows);
                union_postings_into(&bytes, count, &mut decoded).expect("failed to decode list");
                assert_eq!(decoded, bitmap(&list, rows), "{count} of {rows} from {from}");
            }
        }
    }
}
