//! The keyword index. If the first byte is even, a needle and the full texts of rows follow, and the index must agree
//! with a scan. If it is odd, an arbitrary page follows, and the reader must reject it or return existing rows.

use super::segments::{RowScalars, SegmentBytes, full_text};
use memchr::memmem;
use strata_format::keywords::PageKind;
use strata_format::keywords::field_set::FieldSet;
use strata_format::keywords::segment::{KeywordCandidates, StoredPage, StoredSegment};
use strata_format::keywords::tokenizer::TokenClass;

pub fn check(bytes: &[u8]) {
    match bytes.split_first() {
        Some((mode, rest)) if mode % 2 == 0 => check_built_segment(*mode, rest),
        Some((mode, rest)) => check_arbitrary_page(*mode, rest),
        None => {}
    }
}

/// Rows are separated by line feeds, and the scalars of a row by 0xFF. Fields alternate.
fn check_built_segment(mode: u8, bytes: &[u8]) {
    let (needle, rows) = match memchr::memchr(b'\n', bytes) {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[][..]),
    };
    let scalars = |row: &[u8]| -> RowScalars {
        row.split(|byte| *byte == 0xFF)
            .zip([0, 1, 2].into_iter().cycle())
            .map(|(text, field)| (field, text.to_vec()))
            .collect()
    };
    let rows: Vec<RowScalars> =
        rows.split(|byte| *byte == b'\n').map(scalars).cycle().take(1 + usize::from(mode)).collect();
    let segment = SegmentBytes::build(&rows, if mode.is_multiple_of(4) { 0 } else { usize::MAX });
    for fields in [FieldSet::ALL, FieldSet::single(1), FieldSet::from_bits(6)] {
        let contains = |row: &RowScalars| {
            let searched: RowScalars = row.iter().filter(|(field, _)| fields.contains(*field)).cloned().collect();
            memmem::find(&full_text(&searched), needle).is_some()
        };
        match segment.candidates(needle, fields, 0, 1 << 20).expect("failed to search the segment") {
            KeywordCandidates::Exact(found) => {
                rows.iter().enumerate().for_each(|(number, row)| assert_eq!(found.contains(number), contains(row)))
            }
            KeywordCandidates::Recheck(found) => {
                rows.iter().enumerate().for_each(|(number, row)| assert!(found.contains(number) || !contains(row)))
            }
            KeywordCandidates::Scan => {}
        }
    }
}

fn check_arbitrary_page(mode: u8, bytes: &[u8]) {
    let Some((numbers, rest)) = bytes.split_first_chunk::<4>() else { return };
    let number = |at: usize| u32::from(u16::from_le_bytes([numbers[at], numbers[at + 1]]));
    let kind = [PageKind::Dictionary, PageKind::Rows, PageKind::Hashes][usize::from(mode) % 3];
    let is_hashes = kind == PageKind::Hashes;
    let page = StoredPage {
        kind,
        class: if is_hashes { TokenClass::Hexadecimal } else { TokenClass::Words },
        fields: FieldSet::ALL,
        first_token: if is_hashes { b"0000".to_vec() } else { Vec::new() },
        offset: 0,
        bytes: rest.len() as u32,
        checksum: 0,
        postings_offset: 0,
        posting_bytes: number(0),
    };
    let rows = number(2) as usize;
    let segment = StoredSegment { row_groups: 0..1, rows, fields: Default::default(), pages: vec![page].into() };
    let segment = SegmentBytes { segment, bytes: rest.to_vec(), columns: Vec::new() };
    let needle = [&b"a"[..], b"b c", b"-", b"1", b" 00", b" 0000c0ffee0000c0"][usize::from(mode / 4) % 6];
    for fields in [FieldSet::ALL, FieldSet::single(1)] {
        if let Ok(KeywordCandidates::Exact(found) | KeywordCandidates::Recheck(found)) =
            segment.candidates(needle, fields, 0, 1 << 20)
        {
            assert!(found.ones().all(|row| row < rows));
        }
    }
}
