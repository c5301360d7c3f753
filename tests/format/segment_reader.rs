//! Keyword segments, compared with a scan of their full text.

use fixedbitset::FixedBitSet;
use proptest::prelude::*;
use strata_format::keywords::field_set::{FieldSet, MAX_FIELDS};
use strata_format::keywords::segment::{KeywordCandidates, StoredPage, StoredSegment};
use strata_format::keywords::tokenizer::{TermQuery, TokenClass};
use strata_format::keywords::{PageKind, TokenPage};
use strata_format::layout::TEXT_SEPARATOR;
use strata_testing::keywords::{FIELD_WITH_COLUMN, RowScalars, SegmentBytes, full_text};
use strata_types::leb128;

/// Encodes a page like the builder, but without its checks.
fn pack(text: &[u8], numbers: &[u32], checksums: usize) -> Vec<u8> {
    let mut varints = Vec::new();
    numbers.iter().for_each(|number| leb128::write_varint(*number, &mut varints));
    let compress = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).expect("failed to compress");
    let [text_frame, numbers_frame] = [compress(text), compress(&varints)];
    let lengths = [text.len(), numbers.len(), text_frame.len(), checksums].map(|length| (length as u32).to_le_bytes());
    [lengths.as_flattened(), &text_frame, &numbers_frame, &vec![0; 4 * checksums]].concat()
}

fn decode(kind: PageKind, rows: usize, posting_bytes: u32, text: &[u8], numbers: &[u32]) -> bool {
    TokenPage::decode(kind, rows, posting_bytes, &pack(text, numbers, usize::from(posting_bytes > 0))).is_ok()
}

fn build(rows: &[RowScalars]) -> SegmentBytes {
    SegmentBytes::build(rows, usize::MAX)
}

fn one_scalar(text: &str) -> RowScalars {
    vec![(0, text.as_bytes().to_vec())]
}

fn word() -> impl Strategy<Value = Vec<u8>> {
    let long = proptest::collection::vec(proptest::sample::select(&b"abc019-"[..]), 10..90);
    let short = proptest::collection::vec(proptest::sample::select(&b"aab01-/ z\xC3\xA4"[..]), 0..7);
    let fixed = proptest::sample::select(vec![
        &b"the "[..],
        b"https://",
        b"12ab34cd56ef78ab90",
        b"2018-02-07",
        b"c++",
        b"dead1",
    ]);
    prop_oneof![2 => short, 1 => long, 2 => fixed.prop_map(<[u8]>::to_vec)]
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(word(), 0..4).prop_map(|words| words.concat())
}

fn rows() -> impl Strategy<Value = Vec<RowScalars>> {
    let field = prop_oneof![0..3_u8, Just(MAX_FIELDS as u8 - 1)];
    let row = proptest::collection::vec((field, text()), 0..5);
    let rows = (proptest::collection::vec(row, 1..12), 1usize..30)
        .prop_map(|(rows, times)| rows.iter().cycle().take(rows.len() * times).cloned().collect::<Vec<_>>());
    (rows, proptest::collection::vec(hash(), 0..9)).prop_map(|(mut rows, hashes)| {
        // If there are hashes, each row has some in the field with a column.
        for (number, row) in rows.iter_mut().enumerate().filter(|_| !hashes.is_empty()) {
            let hashes = (0..3).map(|other| hashes[(number + other * other) % hashes.len()].clone());
            row.extend(hashes.map(|hash| (FIELD_WITH_COLUMN, hash)));
        }
        rows
    })
}

/// A hash, often with the same first digits as others, or a token that only resembles a hash.
fn hash() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof!["[0a]{4}[0-9a-f]{12,30}", "[01][ab]{15,20}", "[0-9a-f]{16}", "[0ab]{4,8}[.-][0-9a-f]{12,16}"]
        .prop_map(String::into_bytes)
}

/// A set of some fields of [`rows`].
fn fields() -> impl Strategy<Value = FieldSet> {
    let some = (1..16_u32).prop_map(|bits| FieldSet::from_bits(bits & 7 | (bits >> 3) << (MAX_FIELDS - 1)));
    prop_oneof![Just(FieldSet::ALL), some]
}

struct Search {
    fields: FieldSet,
    max_rows: usize,
    part_bytes: u32,
}

fn check(segment: &SegmentBytes, rows: &[RowScalars], needle: &[u8], search: &Search) -> Result<(), TestCaseError> {
    let contains = |row: &RowScalars| {
        let searched: RowScalars = row.iter().filter(|(field, _)| search.fields.contains(*field)).cloned().collect();
        memchr::memmem::find(&full_text(&searched), needle).is_some()
    };
    let contains: Vec<bool> = rows.iter().map(contains).collect();
    let candidates = segment.candidates(needle, search.fields, search.max_rows, search.part_bytes);
    let candidates = candidates.expect("failed to search");
    match &candidates {
        KeywordCandidates::Exact(rows_found) => {
            let exact: Vec<bool> = (0..rows.len()).map(|row| rows_found.contains(row)).collect();
            prop_assert_eq!(exact, contains, "{:?}", String::from_utf8_lossy(needle));
        }
        KeywordCandidates::Recheck(rows_found) => {
            let missed = (0..rows.len()).find(|row| contains[*row] && !rows_found.contains(*row));
            prop_assert_eq!(missed, None, "{:?}", String::from_utf8_lossy(needle));
        }
        KeywordCandidates::Scan => {}
    }
    if matches!(TermQuery::from_needle(needle), TermQuery::ExactFragment(_)) {
        prop_assert!(matches!(candidates, KeywordCandidates::Exact(_)));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn candidates_agree_with_a_scan(
        rows in rows(),
        run_bytes in prop_oneof![Just(0), Just(200 << 10), Just(usize::MAX)],
        others in proptest::collection::vec(text(), 0..4),
        cuts in proptest::collection::vec((any::<(usize, usize, usize)>(), fields()), 12),
        max_rows in 0usize..4,
        part_bytes in 1..40_u32,
    ) {
        let segment = SegmentBytes::build(&rows, run_bytes);
        let search = |fields| Search { fields, max_rows, part_bytes };
        for needle in &others {
            check(&segment, &rows, needle, &search(FieldSet::ALL))?;
        }
        for ((row, from, length), fields) in cuts {
            let row = full_text(&rows[row % rows.len()]);
            let from = from % row.len();
            let length = 1 + length % 40;
            let part = &row[from..row.len().min(from + length)];
            // Needles with separators can contain whole strings and more.
            check(&segment, &rows, part, &search(fields))?;
            if let Some(inner) = part.split(|byte| *byte == TEXT_SEPARATOR).max_by_key(|inner| inner.len()) {
                check(&segment, &rows, inner, &search(fields))?;
            }
        }
    }

    #[test]
    fn number_of_runs_does_not_change_the_segment(rows in rows()) {
        let whole = build(&rows);
        let merged = SegmentBytes::build(&rows, 0);
        prop_assert_eq!(&merged.bytes, &whole.bytes);
        prop_assert_eq!(&merged.segment.pages, &whole.segment.pages);
    }

    #[test]
    fn damaged_segment_is_an_error_or_other_rows(rows in rows(), places in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..4), end in any::<usize>(), is_truncated in any::<bool>()) {
        let SegmentBytes { segment, mut bytes, columns } = build(&rows);
        let mut pages = segment.pages.to_vec();
        for (place, byte) in places {
            // Mostly lengths, and starts of parts.
            match (place % 4, bytes.len(), pages.len()) {
                (_, 0, _) | (_, _, 0) => {}
                (0, _, count) => {
                    let page = &mut pages[place / 4 % count];
                    match place / 16 % 3 {
                        0 => page.bytes ^= u32::from(byte),
                        1 => page.posting_bytes ^= u32::from(byte),
                        _ => page.postings_offset ^= u64::from(byte),
                    }
                }
                (1, _, count) => {
                    let start = pages[place / 4 % count].offset as usize;
                    let length = bytes.len();
                    bytes[(start + place / 16 % 30) % length] ^= byte;
                }
                (_, length, _) => bytes[place / 4 % length] ^= byte,
            }
        }
        if is_truncated {
            bytes.truncate(end % (bytes.len() + 1));
        }
        let damaged = SegmentBytes { segment: StoredSegment { pages: pages.into(), ..segment }, bytes, columns };
        for needle in [&b"a"[..], b"b", b"0", b"12", b"the ", b"z a", b"12ab34cd56ef", b"-"] {
            for fields in [FieldSet::ALL, FieldSet::single(1)] {
                let _ = damaged.candidates(needle, fields, 0, 16);
            }
        }
    }

    /// Valid frames with texts, numbers, and lists that a builder cannot write.
    #[test]
    fn inconsistent_pages_are_errors_or_other_rows(
        rows in 1usize..70,
        text in proptest::collection::vec(proptest::sample::select(&b"ab1\xFF\xFF -"[..]), 0..40),
        field_sets in proptest::collection::vec(0..8_u32, 1..4),
        numbers in proptest::collection::vec(0u32..9, 0..60),
        posting_bytes in 0..200_u32,
        lists in proptest::collection::vec(any::<u8>(), 200),
        kind in proptest::sample::select(&[PageKind::Dictionary, PageKind::Rows][..]),
    ) {
        let text = [&[TEXT_SEPARATOR], text.as_slice(), &[TEXT_SEPARATOR]].concat();
        let token_count = text.iter().filter(|byte| **byte == TEXT_SEPARATOR).count() - 1;
        let start = match kind {
            PageKind::Dictionary => [&[field_sets.len() as u32, token_count as u32], field_sets.as_slice()].concat(),
            PageKind::Rows | PageKind::Hashes => vec![numbers.len() as u32 / 2],
        };
        let page = pack(&text, &[start, numbers].concat(), usize::from(posting_bytes > 0));
        let page = StoredPage {
            kind,
            class: TokenClass::Words,
            fields: FieldSet::ALL,
            first_token: Vec::new(),
            offset: 200,
            bytes: page.len() as u32,
            checksum: 0,
            postings_offset: 0,
            posting_bytes,
        };
        let bytes = [lists, pack(&text, &[], 0)].concat();
        let segment = StoredSegment { pages: vec![page].into(), ..build(&vec![one_scalar("a"); rows]).segment };
        let damaged = SegmentBytes { segment, bytes, columns: Vec::new() };
        for needle in [&b"a"[..], b"1", b"-", b"a ", b" a", b" a ", b"ab a", b"b-a"] {
            if let Ok(KeywordCandidates::Exact(found) | KeywordCandidates::Recheck(found)) =
                damaged.candidates(needle, FieldSet::from_bits(3), 0, 64)
            {
                prop_assert!(found.ones().all(|row| row < rows));
            }
        }
    }

    #[test]
    fn pages_of_any_bytes_are_errors(bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
        for kind in [PageKind::Dictionary, PageKind::Rows, PageKind::Hashes] {
            prop_assert!(TokenPage::decode(kind, 3, 0, &bytes).is_err());
        }
    }
}

/// Valid frames with inconsistent contents, which the checks after decompression must reject.
#[test]
fn inconsistent_pages_are_rejected() {
    // A list of all three rows takes no bytes, and a list of two rows one byte. Both fields of a token have one row.
    let dictionary =
        |posting_bytes, text: &[u8], numbers: &[u32]| decode(PageKind::Dictionary, 3, posting_bytes, text, numbers);
    assert!(dictionary(1, b"\xFFa\xFFb\xFF", &[1, 2, 1, 1, 2, 0, 0]));
    assert!(dictionary(0, b"\xFFa\xFFb\xFF", &[2, 2, 1, 3, 0, 0, 0, 1, 2, 0]));
    assert!(!dictionary(1, b"\xFFa\xFFb\xFF", &[1, 2, 1, 1, 3, 0, 0]), "accepted too many rows");
    assert!(!dictionary(1, b"\xFFa\xFFb\xFF", &[1, 1, 1, 1, 0]), "accepted too few counts");
    assert!(!dictionary(1, b"\xFFa\xFFb\xFF", &[1, 3, 1, 1, 2, 2, 0, 0, 0]), "accepted too many counts");
    assert!(!dictionary(0, b"\xFFa\xFFb\xFF", &[1, 2, 1, 0, 0, 0, 0, 1, 3]), "accepted a row that does not exist");
    assert!(!dictionary(0, b"\xFFa\xFF", &[1, 1, 0, 0, 0, 1]), "accepted a token without fields");
    assert!(!dictionary(0, b"\xFFa\xFF", &[1, 1, 1, 0, 1, 1]), "accepted a field set that does not exist");
    assert!(!dictionary(0, b"\xFFa\xFF", &[1, 1, 1, 0, 0, 1, 7]), "accepted too many integers");
    assert!(!dictionary(0, b"\xFFa\xFFb", &[1, 1, 1, 0, 0, 1]), "accepted a missing last separator");
    assert!(!dictionary(0, b"a\xFF", &[1, 1, 1, 0, 0, 1]), "accepted a missing first separator");
    assert!(!dictionary(0, b"\xFFa\xFF", &[1, 1, 1, u32::MAX, 0]), "accepted a huge count");
    assert!(!dictionary(0, b"\xFFa\xFF", &[1, 1, 3, 2, 0, 4, 1]), "accepted a field with too many rows");
    let rows = |text: &[u8], numbers: &[u32]| decode(PageKind::Rows, 3, 0, text, numbers);
    assert!(rows(b"\xFFa\xFFb\xFF", &[2, 0, 2, 2, 2]));
    assert!(!rows(b"\xFFa\xFFb\xFF", &[2, 0, 0, 2, 2]), "accepted a row twice");
    assert!(!rows(b"\xFFa\xFFb\xFF", &[2, 1, 2, 2, 2]), "accepted a row that does not exist");
    assert!(!rows(b"\xFFa\xFFb\xFF", &[2, 0, 2, 2, 1]), "accepted a row that is too short");
    assert!(!rows(b"\xFFa\xFFb\xFF", &[2, 0, 2, 2, u32::MAX]), "accepted a row that is too long");
}

#[test]
fn query_requires_only_pages_with_its_tokens() {
    let rows = [
        vec![(0, b"word 12 a1b2 only".to_vec()), (2, b"0123456789abcdef0123".to_vec())],
        one_scalar("word 12 a1b2"),
        one_scalar("none"),
    ];
    let SegmentBytes { segment, .. } = build(&rows);
    let required = |needle: &[u8], fields| {
        let pages = segment.required_pages(&TermQuery::from_needle(needle), fields);
        pages.into_iter().map(|page| (segment.pages[page].kind, segment.pages[page].class)).collect::<Vec<_>>()
    };
    let words = (PageKind::Dictionary, TokenClass::Words);
    let hexadecimal = (PageKind::Dictionary, TokenClass::Hexadecimal);
    assert_eq!(required(b"word", FieldSet::ALL), [words]);
    assert_eq!(required(b"deadbeef", FieldSet::single(0)), [words, hexadecimal]);
    let all =
        [words, (PageKind::Dictionary, TokenClass::Digits), hexadecimal, (PageKind::Rows, TokenClass::Hexadecimal)];
    assert_eq!(required(b"12", FieldSet::ALL), all);
    assert_eq!(required(b"12", FieldSet::single(2)), all[3..]);
    assert_eq!(required(b" ", FieldSet::ALL), []);
}

/// A fragment at the start of a token needs only the pages that can have tokens with this start.
#[test]
fn start_of_token_needs_few_pages() {
    let rows: Vec<RowScalars> = (0..60_000).map(|row| one_scalar(&format!("w{row:05}continueduntillong"))).collect();
    let segment = build(&rows);
    assert!(segment.segment.pages.len() > 1);
    let required = |needle: &[u8]| segment.segment.required_pages(&TermQuery::from_needle(needle), FieldSet::ALL).len();
    assert_eq!(required(b"w04321"), segment.segment.pages.len());
    assert_eq!(required(b" w04321"), 1);
    for row in [0, 4_321, 30_000, 59_999] {
        let needle = format!(" w{row:05}");
        let found = segment.candidates(needle.as_bytes(), FieldSet::ALL, 0, 1 << 20).expect("failed to search");
        assert_eq!(found, KeywordCandidates::Recheck(bitmap(60_000, &[row])), "{needle}");
    }
}

/// A whole hash needs one page, even if hashes have the same first digits, and the start of a hash those with the
/// start.
#[test]
fn hash_needs_one_page() {
    let hash = |row: usize| format!("{:08x}{row:023x}f", (row as u32 / 2).wrapping_mul(0x9E37_79B9));
    let rows: Vec<RowScalars> = (0..100_000).map(|row| vec![(FIELD_WITH_COLUMN, hash(row).into_bytes())]).collect();
    let segment = build(&rows);
    let pages: Vec<_> = segment.segment.pages.iter().map(|page| (page.kind, page.fields)).collect();
    assert_eq!(pages, [(PageKind::Hashes, FieldSet::single(FIELD_WITH_COLUMN)); 4]);
    assert!(segment.bytes.len() < 4 * rows.len(), "{} bytes", segment.bytes.len());
    let found = |needle: &str| {
        let needle: Vec<u8> = needle.bytes().map(|byte| if byte == b' ' { TEXT_SEPARATOR } else { byte }).collect();
        let required = segment.segment.required_pages(&TermQuery::from_needle(&needle), FieldSet::ALL).len();
        match segment.candidates(&needle, FieldSet::ALL, 0, 1 << 20).expect("failed to search") {
            KeywordCandidates::Recheck(rows) => (required, rows.ones().collect::<Vec<_>>()),
            other => panic!("{other:?}"),
        }
    };
    for row in [0, 4_321, 50_000, 99_999] {
        let (required, rows) = found(&format!(" {} ", hash(row)));
        assert!(required <= 2 && rows.contains(&row) && rows.len() < 9, "{row}: {required} pages, {rows:?}");
    }
    let (required, rows) = found(" 00");
    let expected: Vec<usize> = (0..100_000).filter(|row| hash(*row).starts_with("00")).collect();
    assert_eq!((required, rows), (1, expected));
}

/// Pages with lists that a builder cannot write.
#[test]
fn inconsistent_hash_pages_are_rejected() {
    let decode = |rows: usize, count: u32, first: u64, span: u64, list: &[u8]| {
        let page = [&count.to_le_bytes()[..], &first.to_le_bytes(), &span.to_le_bytes(), list].concat();
        TokenPage::decode(PageKind::Hashes, rows, 0, &page).is_ok()
    };
    // Three rows take two bits. Entries 5 and 6 (digits 1, rows 1 and 2): differences 0 and 1 in unary.
    assert!(decode(3, 2, 5, 1, &[0b101]));
    assert!(!decode(3, 2, 5, 1, &[0b011]), "accepted an entry twice");
    assert!(!decode(3, 2, 6, 1, &[0b101]), "accepted a row that does not exist");
    assert!(!decode(3, 2, 5, 1, &[0b001]), "accepted a list that is too short");
    assert!(!decode(3, 2, 5, 1, &[0b101, 0]), "accepted a list of the wrong length");
    assert!(!decode(3, 0, 5, 0, &[]), "accepted a page without entries");
    assert!(!decode(3, 1, 1 << 40, 0, &[1]), "accepted too many digits");
    assert!(!decode(3, 1, u64::MAX, 1, &[1]), "accepted an overflow");
    assert!(!decode(3, u32::MAX, 5, 1, &[0b101]), "accepted a huge count");
}

#[test]
fn segment_without_tokens_matches_nothing() {
    let segment = build(&[Vec::new()]);
    assert_eq!(segment.bytes.len(), 0);
    assert_eq!(segment.candidates(b"a", FieldSet::ALL, 0, 1), Ok(KeywordCandidates::Exact(bitmap(1, &[]))));
    assert_eq!(segment.candidates(b" ", FieldSet::ALL, 0, 1), Ok(KeywordCandidates::Scan));
}

/// Fields with many rows of a token are bitmaps while they are merged.
#[test]
fn frequent_token_in_several_fields_has_rows_of_each() {
    let rows: Vec<RowScalars> = (0..150_000_u32)
        .map(|row| {
            let mut scalars = vec![(1, b"all".to_vec())];
            scalars.extend((row % 2 == 0).then(|| (2, b"all".to_vec())));
            scalars.extend((row % 1_000 == 0).then(|| (3, b"all".to_vec())));
            scalars
        })
        .collect();
    for run_bytes in [1 << 20, usize::MAX] {
        let segment = SegmentBytes::build(&rows, run_bytes);
        for (field, step) in [(1, 1), (2, 2), (3, 1_000)] {
            let expected: FixedBitSet = (0..rows.len()).filter(|row| row % step == 0).collect();
            let found = segment.candidates(b"al", FieldSet::single(field), 0, 1 << 20).expect("failed to search");
            let KeywordCandidates::Exact(found) = found else { panic!("{found:?}") };
            assert!(found.ones().eq(expected.ones()), "field {field}");
        }
    }
}

/// One in three rows has each of two words, and one in nine has them next to each other in each order.
fn thirds() -> Vec<RowScalars> {
    let row = |row: u32| match row % 9 {
        0 => "all left right",
        3 => "all right left",
        6 => "all left, right",
        _ => "all",
    };
    (0..900).map(|number| one_scalar(row(number))).collect()
}

fn bitmap(rows: usize, found: &[usize]) -> FixedBitSet {
    let mut bitmap = FixedBitSet::with_capacity(rows);
    found.iter().for_each(|row| bitmap.insert(*row));
    bitmap
}

/// The example of [`strata_format::keywords`].
#[test]
fn needles_find_the_documented_rows() {
    let mut texts = vec!["red car", "red bus", "carpet"];
    texts.resize(1_000, "");
    let segment = build(&texts.into_iter().map(one_scalar).collect::<Vec<_>>());
    let check = |needle: &str, expected| {
        assert_eq!(segment.candidates(needle.as_bytes(), FieldSet::ALL, 0, 1 << 20), Ok(expected), "{needle}")
    };
    check("re", KeywordCandidates::Exact(bitmap(1_000, &[0, 1])));
    check("car", KeywordCandidates::Exact(bitmap(1_000, &[0, 2])));
    check("d c", KeywordCandidates::Recheck(bitmap(1_000, &[0])));
    check("blue", KeywordCandidates::Exact(bitmap(1_000, &[])));
}

#[test]
fn unselective_needle_is_scanned() {
    let segment = build(&thirds());
    let candidates = |needle: &[u8], max_rows| segment.candidates(needle, FieldSet::ALL, max_rows, 1 << 20);
    assert_eq!(candidates(b" all", 0), Ok(KeywordCandidates::Scan));
    // A needle with a single fragment is always exact.
    assert_eq!(candidates(b"all", 0), Ok(KeywordCandidates::Exact((0..900).collect())));
    // An unselective fragment is ignored if another one is selective.
    let Ok(KeywordCandidates::Recheck(found)) = candidates(b"all right", 0) else { panic!("no candidates") };
    assert_eq!(found.count_ones(..), 300);
    // Two thirds of these rows have the token `left`.
    let Ok(KeywordCandidates::Recheck(found)) = candidates(b"left right", 0) else { panic!("no candidates") };
    assert_eq!(found.count_ones(..), 200);
    // No further fragment is used after one that leaves few enough rows.
    let Ok(KeywordCandidates::Recheck(found)) = candidates(b"left, right", 100) else { panic!("no candidates") };
    assert_eq!(found.count_ones(..), 100);
    assert_eq!(candidates(b"left) right", 0), Ok(KeywordCandidates::Exact(FixedBitSet::with_capacity(900))));
}
