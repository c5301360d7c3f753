//! Keyword segments, compared with a scan of their full text.

use fixedbitset::FixedBitSet;
use proptest::prelude::*;
use strata_format::keywords::segment::{
    ClassTokens, KeywordCandidates, KeywordSegment, KeywordSegmentBuilder, KeywordSegmentLimits, LoadedSections,
    PostingBytes, RowTokens, SectionKind, SectionLengths, SegmentHeader, SegmentSection, TokenDictionary,
    probe_segment,
};
use strata_format::keywords::tokenizer::{TermQuery, TokenClass};
use strata_format::keywords::{KeywordIndexError, postings};
use strata_format::layout::TEXT_SEPARATOR;
use strata_types::leb128;

const TRUNCATED: KeywordIndexError = KeywordIndexError { part: "segment", cause: "it is truncated" };

/// Encodes a section like the builder, but without its checks.
fn pack(text: &[u8], numbers: &[u32]) -> Vec<u8> {
    let mut varints = Vec::new();
    numbers.iter().for_each(|number| leb128::write_varint(*number, &mut varints));
    let compress = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).expect("failed to compress");
    let [text_frame, numbers_frame] = [compress(text), compress(&varints)];
    let lengths = [text.len(), numbers.len(), text_frame.len()].map(|length| (length as u32).to_le_bytes());
    [lengths.as_flattened(), &text_frame, &numbers_frame].concat()
}

struct DecodedSegment {
    header: SegmentHeader,
    tokens: Vec<ClassTokens>,
    bytes: Vec<u8>,
}

impl DecodedSegment {
    fn from_segment(segment: &KeywordSegment) -> DecodedSegment {
        DecodedSegment::try_new(&segment.header, &segment.bytes).expect("failed to decode segment")
    }

    fn try_new(header: &SegmentHeader, bytes: &[u8]) -> Result<DecodedSegment, KeywordIndexError> {
        let tokens = TokenClass::ALL.map(|class| {
            let range = header.token_range(class);
            let bytes = bytes.get(range.start as usize..range.end as usize);
            ClassTokens::decode(header, class, bytes.ok_or(TRUNCATED)?)
        });
        let tokens = tokens.into_iter().collect::<Result<_, _>>()?;
        Ok(DecodedSegment { header: header.clone(), tokens, bytes: bytes.to_vec() })
    }

    fn candidates(&self, needle: &[u8], max_rows: usize) -> Result<KeywordCandidates, KeywordIndexError> {
        let query = TermQuery::from_needle(needle);
        let mut sections = LoadedSections::default();
        for class in self.header.required_classes(&query) {
            sections.tokens[class as usize] = Some(&self.tokens[class as usize]);
        }
        let probe = probe_segment(&self.header, &query, &sections)?;
        let mut candidates = None;
        for fragment in 0..probe.fragment_count() {
            let mut postings: [Vec<PostingBytes<'_>>; 3] = Default::default();
            for class in TokenClass::ALL {
                let all = self.header.section_range(SegmentSection { class, kind: SectionKind::Postings });
                // Exactly the needed bytes, in several parts.
                for range in probe.required_postings(fragment, class, &sections) {
                    for start in range.clone().step_by(1 + max_rows * 3) {
                        let end = range.end.min(start + 1 + max_rows as u32 * 3);
                        let range = (all.start + u64::from(start)) as usize..(all.start + u64::from(end)) as usize;
                        let bytes = self.bytes.get(range).ok_or(TRUNCATED)?;
                        postings[class as usize].push(PostingBytes { start, bytes });
                    }
                }
            }
            let sections = LoadedSections { postings: [&postings[0], &postings[1], &postings[2]], ..sections };
            candidates = probe.intersect_fragment(candidates, fragment, &sections)?;
            if candidates.as_ref().is_some_and(|rows| rows.count_ones(..) <= max_rows) {
                break;
            }
        }
        Ok(probe.choose_verification(candidates))
    }
}

fn full_text(texts: &[Vec<u8>]) -> Vec<u8> {
    let mut text = vec![TEXT_SEPARATOR];
    for scalar in texts {
        text.extend(scalar.iter().filter(|byte| **byte != TEXT_SEPARATOR));
        text.push(TEXT_SEPARATOR);
    }
    text
}

fn build(rows: &[Vec<u8>]) -> KeywordSegment {
    let limits =
        KeywordSegmentLimits { max_text_percent: 1_000_000, min_text_bytes: 0, ..KeywordSegmentLimits::default() };
    let mut builder = KeywordSegmentBuilder::new(limits);
    rows.iter().for_each(|row| builder.push_row(row));
    builder.finish().expect("failed to build segment")
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

fn rows() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let row = proptest::collection::vec(text(), 0..4).prop_map(|texts| full_text(&texts));
    (proptest::collection::vec(row, 1..12), 1usize..30)
        .prop_map(|(rows, times)| rows.iter().cycle().take(rows.len() * times).cloned().collect())
}

fn check(segment: &DecodedSegment, rows: &[Vec<u8>], needle: &[u8], max_rows: usize) -> Result<(), TestCaseError> {
    let contains: Vec<bool> = rows.iter().map(|row| memchr::memmem::find(row, needle).is_some()).collect();
    let candidates = segment.candidates(needle, max_rows).expect("failed to search");
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
    fn candidates_agree_with_a_scan(rows in rows(), others in proptest::collection::vec(text(), 0..4), cuts in proptest::collection::vec(any::<(usize, usize, usize)>(), 12), max_rows in 0usize..4) {
        let segment = DecodedSegment::from_segment(&build(&rows));
        for needle in &others {
            check(&segment, &rows, needle, max_rows)?;
        }
        for (row, from, length) in cuts {
            let row = &rows[row % rows.len()];
            let from = from % row.len();
            let length = 1 + length % 20;
            let part = &row[from..row.len().min(from + length)];
            // Needles with separators can contain whole strings and more.
            check(&segment, &rows, part, max_rows)?;
            if let Some(inner) = part.split(|byte| *byte == TEXT_SEPARATOR).max_by_key(|inner| inner.len()) {
                check(&segment, &rows, inner, max_rows)?;
            }
        }
    }

    #[test]
    fn damaged_segment_is_an_error_or_other_rows(rows in rows(), places in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..4), end in any::<usize>(), is_truncated in any::<bool>()) {
        let KeywordSegment { header, mut bytes, .. } = build(&rows);
        let mut lengths = *header.section_lengths();
        for (place, byte) in places {
            // Mostly lengths, and starts of sections.
            match (place % 4, bytes.len()) {
                (0, _) => {
                    let length = &mut lengths[place / 4 % 3];
                    let length = [&mut length.dictionary, &mut length.row_tokens, &mut length.postings].into_iter().nth(place / 12 % 3);
                    length.into_iter().for_each(|length| *length ^= u32::from(byte));
                }
                (_, 0) => {}
                (1, length) => bytes[place / 4 % length.min(30)] ^= byte,
                (_, length) => bytes[place / 4 % length] ^= byte,
            }
        }
        if is_truncated {
            bytes.truncate(end % (bytes.len() + 1));
        }
        let header = SegmentHeader::try_new(rows.len(), lengths).expect("failed to create header");
        if let Ok(segment) = DecodedSegment::try_new(&header, &bytes) {
            for needle in [&b"a"[..], b"b", b"0", b"12", b"the ", b"z a", b"12ab34cd56ef", b"-"] {
                let _ = segment.candidates(needle, 0);
            }
        }
    }

    /// Valid frames with texts, numbers, and lists that a builder cannot write.
    #[test]
    fn inconsistent_sections_are_errors_or_other_rows(rows in 0usize..70, text in proptest::collection::vec(proptest::sample::select(&b"ab1\xFF\xFF -"[..]), 0..40), numbers in proptest::collection::vec(0u32..9, 0..20), fit in any::<bool>(), lists in proptest::collection::vec(any::<u8>(), 0..200)) {
        let text = [&[TEXT_SEPARATOR], text.as_slice(), &[TEXT_SEPARATOR]].concat();
        let token_count = text.iter().filter(|byte| **byte == TEXT_SEPARATOR).count() - 1;
        let mut counts = numbers.clone();
        let mut lengths = numbers;
        if fit {
            // Satisfies the checks of the decoders: one count per token, and rows that cover the text.
            counts.resize(token_count, 0);
            lengths.resize(rows, 0);
            let mut remaining = text.len() as u32 - 1;
            lengths.iter_mut().for_each(|length| {
                *length = remaining.min(*length);
                remaining -= *length;
            });
            lengths.last_mut().into_iter().for_each(|length| *length += remaining);
        }
        let needed: usize = counts.iter().map(|count| postings::encoded_posting_bytes(*count as usize + 2, rows)).sum();
        let words = SectionLengths { dictionary: 1, row_tokens: 1, postings: needed as u32 };
        let header = SegmentHeader::try_new(rows, [words, SectionLengths::default(), SectionLengths::default()]).expect("failed to create header");
        let dictionary = TokenDictionary::decode(&header, TokenClass::Words, &pack(&text, &counts));
        let row_tokens = RowTokens::decode(&header, &pack(&text, &lengths));
        if let (Ok(dictionary), Ok(row_tokens)) = (dictionary, row_tokens) {
            let postings = [PostingBytes { start: 0, bytes: &lists }];
            let mut sections = LoadedSections::default();
            let tokens = ClassTokens { dictionary, row_tokens, posting_checksums: Vec::new() };
            sections.tokens[0] = Some(&tokens);
            sections.postings[0] = &postings;
            for needle in [&b"a"[..], b"1", b"-", b"a ", b" a", b" a ", b"ab a", b"b-a"] {
                let probe = probe_segment(&header, &TermQuery::from_needle(needle), &sections).expect("failed to probe");
                for fragment in 0..probe.fragment_count() {
                    if let Ok(Some(candidates)) = probe.intersect_fragment(None, fragment, &sections) {
                        prop_assert!(candidates.ones().all(|row| row < rows));
                    }
                }
            }
        }
    }

    #[test]
    fn sections_of_any_bytes_are_errors(bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
        let header = build(&[full_text(&[])]).header;
        prop_assert!(TokenDictionary::decode(&header, TokenClass::Words, &bytes).is_err());
        prop_assert!(RowTokens::decode(&header, &bytes).is_err());
    }
}

/// Valid frames with inconsistent contents, which the checks after decompression must reject.
#[test]
fn inconsistent_sections_are_rejected() {
    // A list of all three rows takes no bytes, and a list of two rows one byte.
    let words = SectionLengths { postings: 1, ..SectionLengths::default() };
    let header = SegmentHeader::try_new(3, [words, SectionLengths::default(), SectionLengths::default()])
        .expect("failed to create header");
    let dictionary =
        |text: &[u8], counts: &[u32]| TokenDictionary::decode(&header, TokenClass::Words, &pack(text, counts)).is_ok();
    assert!(dictionary(b"\xFFa\xFFb\xFF", &[0, 1]));
    assert!(!dictionary(b"\xFFa\xFFb\xFF", &[0, 2]), "accepted too many rows");
    assert!(!dictionary(b"\xFFa\xFFb\xFF", &[0]), "accepted too few counts");
    assert!(!dictionary(b"\xFFa\xFFb\xFF", &[0, 0, 0]), "accepted too many counts");
    assert!(!dictionary(b"\xFFa\xFFb", &[0]), "accepted a missing last separator");
    assert!(!dictionary(b"a\xFF", &[0]), "accepted a missing first separator");
    assert!(!dictionary(b"\xFFa\xFF", &[u32::MAX]), "accepted a huge count");
    let row_tokens = |text: &[u8], lengths: &[u32]| RowTokens::decode(&header, &pack(text, lengths)).is_ok();
    assert!(row_tokens(b"\xFFa\xFFb\xFF", &[2, 0, 2]));
    assert!(!row_tokens(b"\xFFa\xFFb\xFF", &[2, 2]), "accepted too few rows");
    assert!(!row_tokens(b"\xFFa\xFFb\xFF", &[2, 0, 1]), "accepted a row that is too short");
    assert!(!row_tokens(b"\xFFa\xFFb\xFF", &[2, u32::MAX, 3]), "accepted rows that are too long");
}

#[test]
fn query_requires_only_sections_of_its_classes() {
    let row = |text: &str| full_text(&[text.as_bytes().to_vec()]);
    let rows = [row("word 12 a1b2 only"), row("word 12 a1b2"), row("none"), row("0123456789abcdef0123")];
    let KeywordSegment { header, bytes, .. } = build(&rows);
    assert_eq!(header.total_bytes(), bytes.len() as u64);
    let required_classes =
        |needle: &str| header.required_classes(&TermQuery::from_needle(needle.as_bytes())).collect::<Vec<_>>();
    assert_eq!(required_classes("word"), [TokenClass::Words]);
    assert_eq!(required_classes("deadbeef"), [TokenClass::Words, TokenClass::Hexadecimal]);
    assert_eq!(required_classes("12"), TokenClass::ALL);
    assert_eq!(required_classes(" "), []);
}

#[test]
fn builder_over_memory_limit_discards_segment() {
    let limits = KeywordSegmentLimits {
        max_rows: 100,
        max_memory_bytes: 200 << 10,
        max_text_percent: 1_000_000,
        min_text_bytes: 0,
    };
    let mut builder = KeywordSegmentBuilder::new(limits);
    let mut full = None;
    for row in 0..20_000u32 {
        builder.push_row(&full_text(&[format!("x{row} y{row} z{row}").into_bytes()]));
        assert!(builder.memory_bytes() < 410 << 10);
        if builder.is_full() {
            full.get_or_insert(row);
        }
    }
    assert_eq!(full, Some(99));
    assert!(builder.finish().is_none());
}

#[test]
fn segment_over_size_limit_is_discarded() {
    let rows: Vec<Vec<u8>> = (0..1_000u32).map(|row| full_text(&[format!("{row:x} z{row}").into_bytes()])).collect();
    let build = |max_text_percent, min_text_bytes| {
        let limits = KeywordSegmentLimits { max_text_percent, min_text_bytes, ..KeywordSegmentLimits::default() };
        let mut builder = KeywordSegmentBuilder::new(limits);
        rows.iter().for_each(|row| builder.push_row(row));
        builder.finish()
    };
    assert!(build(1, 0).is_none());
    assert!(build(200, 1 << 20).is_none());
    let segment = build(200, 1 << 10).expect("failed to build segment");
    assert!(segment.bytes.len() < rows.iter().map(Vec::len).sum::<usize>() * 2);
}

#[test]
fn equal_rows_result_in_equal_bytes() {
    let rows: Vec<Vec<u8>> = (0..500u32).map(|row| full_text(&[format!("{} {row}", row % 7).into_bytes()])).collect();
    let first = build(&rows);
    let second = build(&rows);
    assert_eq!((first.bytes, first.checksums), (second.bytes, second.checksums));
}

#[test]
fn segment_without_rows_matches_nothing() {
    let segment = DecodedSegment::from_segment(&build(&[]));
    assert_eq!(segment.bytes.len(), 0);
    assert_eq!(segment.candidates(b"a", 0), Ok(KeywordCandidates::Exact(FixedBitSet::with_capacity(0))));
    assert_eq!(segment.candidates(b" ", 0), Ok(KeywordCandidates::Scan));
}

/// One in three rows has each of two words, and one in nine has them next to each other in each order.
fn thirds() -> Vec<Vec<u8>> {
    let row = |row: u32| match row % 9 {
        0 => "all left right".to_owned(),
        3 => "all right left".to_owned(),
        6 => "all left, right".to_owned(),
        _ => "all".to_owned(),
    };
    (0..900).map(|number| full_text(&[row(number).into_bytes()])).collect()
}

/// The example of [`strata_format::keywords`].
#[test]
fn needles_find_the_documented_rows() {
    let mut texts = vec!["red car", "red bus", "carpet"];
    texts.resize(1_000, "");
    let rows: Vec<Vec<u8>> = texts.into_iter().map(|text| full_text(&[text.as_bytes().to_vec()])).collect();
    let segment = DecodedSegment::from_segment(&build(&rows));
    let bitmap = |rows: &[usize]| {
        let mut bitmap = FixedBitSet::with_capacity(1_000);
        rows.iter().for_each(|row| bitmap.insert(*row));
        bitmap
    };
    let check = |needle: &str, expected| assert_eq!(segment.candidates(needle.as_bytes(), 0), Ok(expected), "{needle}");
    check("re", KeywordCandidates::Exact(bitmap(&[0, 1])));
    check("car", KeywordCandidates::Exact(bitmap(&[0, 2])));
    check("d c", KeywordCandidates::Recheck(bitmap(&[0])));
    check("blue", KeywordCandidates::Exact(bitmap(&[])));
}

#[test]
fn unselective_needle_is_scanned() {
    let segment = DecodedSegment::from_segment(&build(&thirds()));
    assert_eq!(segment.candidates(b" all", 0), Ok(KeywordCandidates::Scan));
    // A needle with a single fragment is always exact.
    assert_eq!(segment.candidates(b"all", 0), Ok(KeywordCandidates::Exact((0..900).collect())));
    // An unselective fragment is ignored if another one is selective.
    let Ok(KeywordCandidates::Recheck(found)) = segment.candidates(b"all right", 0) else { panic!("no candidates") };
    assert_eq!(found.count_ones(..), 300);
    // Two thirds of these rows have the token `left`.
    let Ok(KeywordCandidates::Recheck(found)) = segment.candidates(b"left right", 0) else { panic!("no candidates") };
    assert_eq!(found.count_ones(..), 200);
    // No further fragment is used after one that leaves few enough rows.
    let Ok(KeywordCandidates::Recheck(found)) = segment.candidates(b"left, right", 100) else {
        panic!("no candidates")
    };
    assert_eq!(found.count_ones(..), 100);
    assert_eq!(segment.candidates(b"left) right", 0), Ok(KeywordCandidates::Exact(FixedBitSet::with_capacity(900))));
}

#[test]
fn missing_sections_are_rejected() {
    let segment = DecodedSegment::from_segment(&build(&thirds()));
    let query = TermQuery::from_needle(b"left");
    assert!(probe_segment(&segment.header, &query, &LoadedSections::default()).is_err());
    let words = TokenClass::Words as usize;
    let mut sections = LoadedSections::default();
    sections.tokens[words] = Some(&segment.tokens[words]);
    let probe = probe_segment(&segment.header, &query, &sections).expect("failed to probe");
    assert!(probe.intersect_fragment(None, 0, &sections).is_err(), "accepted missing posting lists");
}
