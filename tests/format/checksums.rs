//! Checksums of the parts of a file, and the footer checksum.

use strata_store::checksums::{FooterChecksum, StreamingChecksums, crc32};

#[test]
fn streaming_checksums_ignore_chunk_sizes() {
    let bytes: Vec<u8> = (0..=255).cycle().take(1_000).collect();
    for step in [1, 7, 100, 1_000] {
        let mut checksums = StreamingChecksums::default();
        for part in [4..100, 100..101, 101..500, 700..1_000] {
            checksums.expect_range(part);
        }
        bytes.chunks(step).for_each(|chunk| checksums.update(chunk));
        checksums.finish_row_group();
        // A part that is announced after a gap of unannounced bytes.
        bytes.chunks(step).for_each(|chunk| checksums.update(chunk));
        checksums.expect_range(2_000..2_500);
        bytes[..600].chunks(step).for_each(|chunk| checksums.update(chunk));
        checksums.finish_row_group();
        let parts = [&bytes[4..100], &bytes[100..101], &bytes[101..500], &bytes[700..]];
        let expected: String = parts.iter().map(|part| format!("{:08x}", crc32(part))).collect();
        let after = crc32(&bytes[..500]);
        assert_eq!(checksums.take_encoded(), format!("{expected}{after:08x}"), "{step}");
    }
}

#[test]
fn footer_checksum_covers_only_its_bytes() {
    let mut end = format!("strata.seal:not one{}strata 1.0", FooterChecksum::placeholder(77)).into_bytes();
    assert!(FooterChecksum::write_checksum(&mut end));
    let footer_checksum = FooterChecksum::find(&end).expect("failed to find footer checksum");
    assert_eq!((footer_checksum.covered_from, footer_checksum.matches(&end)), (77, true));
    for byte in 0..end.len() {
        let mut other = end.clone();
        other[byte] ^= 1;
        assert!(!FooterChecksum::find(&other).is_some_and(|found| found.matches(&other)), "byte {byte}");
    }
    assert!(!FooterChecksum::write_checksum(&mut b"strata.seal:00".to_vec()));
}
