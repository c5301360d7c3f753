//! The keyword index. If the first byte is even, a needle and the full texts of rows follow, and the index must agree
//! with a scan. If it is odd, arbitrary tokens follow, and the reader must reject them or return existing rows.

use memchr::memmem;
use strata_format::keywords::KeywordIndexError;
use strata_format::keywords::segment::{
    ClassTokens, KeywordCandidates, KeywordSegmentBuilder, KeywordSegmentLimits, LoadedSections, PostingBytes,
    SectionKind, SectionLengths, SegmentHeader, SegmentSection, probe_segment,
};
use strata_format::keywords::tokenizer::{TermQuery, TokenClass};

pub fn check(bytes: &[u8]) {
    match bytes.split_first() {
        Some((mode, rest)) if mode % 2 == 0 => check_built_segment(*mode, rest),
        Some((mode, rest)) => check_arbitrary_tokens(*mode, rest),
        None => {}
    }
}

fn check_built_segment(mode: u8, bytes: &[u8]) {
    let (needle, rows) = match memchr::memchr(b'\n', bytes) {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[][..]),
    };
    let rows: Vec<Vec<u8>> = rows
        .split(|byte| *byte == b'\n')
        .map(|row| [&[0xFF], row, &[0xFF]].concat())
        .cycle()
        .take(1 + usize::from(mode))
        .collect();
    let limits =
        KeywordSegmentLimits { max_text_percent: u64::MAX >> 20, min_text_bytes: 0, ..KeywordSegmentLimits::default() };
    let mut builder = KeywordSegmentBuilder::new(limits);
    rows.iter().for_each(|row| builder.push_row(row));
    let segment = builder.finish().expect("failed to build the segment");
    let tokens = TokenClass::ALL.map(|class| {
        let range = segment.header.token_range(class);
        ClassTokens::decode(&segment.header, class, &segment.bytes[range.start as usize..range.end as usize])
            .expect("failed to decode the tokens")
    });
    let postings = TokenClass::ALL.map(|class| {
        let range = segment.header.section_range(SegmentSection { class, kind: SectionKind::Postings });
        &segment.bytes[range.start as usize..range.end as usize]
    });
    let expected: Vec<bool> = rows.iter().map(|row| memmem::find(row, needle).is_some()).collect();
    match candidates(&segment.header, &tokens, postings, needle).expect("failed to search the segment") {
        KeywordCandidates::Exact(found) => {
            (0..rows.len()).for_each(|row| assert_eq!(found.contains(row), expected[row]))
        }
        KeywordCandidates::Recheck(found) => {
            (0..rows.len()).for_each(|row| assert!(found.contains(row) || !expected[row]))
        }
        KeywordCandidates::Scan => {}
    }
}

fn check_arbitrary_tokens(mode: u8, bytes: &[u8]) {
    let Some((numbers, rest)) = bytes.split_first_chunk::<8>() else { return };
    let number = |at: usize| u32::from(u16::from_le_bytes([numbers[at], numbers[at + 1]]));
    let words = SectionLengths { dictionary: number(0), row_tokens: number(2), postings: number(4) };
    let header =
        SegmentHeader::try_new(number(6) as usize, [words, SectionLengths::default(), SectionLengths::default()])
            .expect("failed to create the header");
    let Ok(words) = ClassTokens::decode(&header, TokenClass::Words, rest) else { return };
    let empty = [TokenClass::Digits, TokenClass::Hexadecimal]
        .map(|class| ClassTokens::decode(&header, class, &[]).expect("failed to decode empty tokens"));
    let [digits, hexadecimal] = empty;
    let tokens = [words, digits, hexadecimal];
    let needle = [&b"a"[..], b"b c", b"-", b"1"][usize::from(mode / 2) % 4];
    if let Ok(KeywordCandidates::Exact(found) | KeywordCandidates::Recheck(found)) =
        candidates(&header, &tokens, [rest; 3], needle)
    {
        assert!(found.ones().all(|row| row < header.rows()));
    }
}

fn candidates(
    header: &SegmentHeader,
    tokens: &[ClassTokens; 3],
    postings: [&[u8]; 3],
    needle: &[u8],
) -> Result<KeywordCandidates, KeywordIndexError> {
    let postings = postings.map(|bytes| [PostingBytes { start: 0, bytes }]);
    let sections =
        LoadedSections { tokens: tokens.each_ref().map(Some), postings: postings.each_ref().map(|lists| &lists[..]) };
    let probe = probe_segment(header, &TermQuery::from_needle(needle), &sections)?;
    let mut candidates = None;
    for fragment in 0..probe.fragment_count() {
        candidates = probe.intersect_fragment(candidates, fragment, &sections)?;
    }
    Ok(probe.choose_verification(candidates))
}
