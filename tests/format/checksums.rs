//! Checksums of the parts of a file, and of its end.

use strata_store::checksums::{Seal, Tally, checksum};

#[test]
fn tally_sums_parts_whatever_the_chunks() {
    let bytes: Vec<u8> = (0..=255).cycle().take(1_000).collect();
    for step in [1, 7, 100, 1_000] {
        let mut tally = Tally::default();
        for part in [4..100, 100..101, 101..500, 700..1_000] {
            tally.expect(part);
        }
        bytes.chunks(step).for_each(|chunk| tally.update(chunk));
        tally.end_row_group(&[7]);
        // One that is announced when the bytes between it and the one before have passed.
        bytes.chunks(step).for_each(|chunk| tally.update(chunk));
        tally.expect(2_000..2_500);
        bytes[..600].chunks(step).for_each(|chunk| tally.update(chunk));
        tally.end_row_group(&[]);
        let parts = [&bytes[4..100], &bytes[100..101], &bytes[101..500], &bytes[700..]];
        let expected: String = parts.iter().map(|part| format!("{:08x}", checksum(part))).collect();
        let after = checksum(&bytes[..500]);
        assert_eq!(tally.text(), format!("{expected}00000007{after:08x}"), "{step}");
    }
}

#[test]
fn seal_verifies_only_its_bytes() {
    let mut end = format!("strata.seal:not one{}strata 1.0", Seal::unset(77)).into_bytes();
    assert!(Seal::set(&mut end));
    let seal = Seal::find(&end).expect("a seal");
    assert_eq!((seal.start, seal.verifies(&end)), (77, true));
    for at in 0..end.len() {
        let mut other = end.clone();
        other[at] ^= 1;
        assert!(!Seal::find(&other).is_some_and(|seal| seal.verifies(&other)), "byte {at}");
    }
    assert!(!Seal::set(&mut b"strata.seal:00".to_vec()));
}
