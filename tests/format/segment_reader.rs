//! Segments of the keyword index against a scan of their texts.

use fixedbitset::FixedBitSet;
use proptest::prelude::*;
use strata_format::keywords::cut::{Class, Plan};
use strata_format::keywords::segment::{
    Candidates, Dictionary, Entries, Header, Lengths, ListBytes, Part, Section, Sections, Segment, SegmentBuilder,
    SegmentLimits, Texts, find,
};
use strata_format::keywords::{Damaged, postings};
use strata_format::layout::SEPARATOR;
use strata_types::leb128;

const TRUNCATED: Damaged = Damaged { part: "segment", cause: "it is truncated" };

/// Packs a text and numbers as a builder does, but without its checks.
fn pack(text: &[u8], numbers: &[u32]) -> Vec<u8> {
    let mut varints = Vec::new();
    numbers.iter().for_each(|number| leb128::write(*number, &mut varints));
    let [text_frame, numbers_frame] = [text, &varints].map(|bytes| zstd::bulk::compress(bytes, 1).expect("compressed"));
    let lengths = [text.len(), numbers.len(), text_frame.len()].map(|length| (length as u32).to_le_bytes());
    [lengths.as_flattened(), &text_frame, &numbers_frame].concat()
}

struct Opened {
    header: Header,
    entries: Vec<Entries>,
    bytes: Vec<u8>,
}

impl Opened {
    fn of(segment: &Segment) -> Opened {
        Opened::try_new(&segment.header, &segment.bytes).expect("a segment")
    }

    fn try_new(header: &Header, bytes: &[u8]) -> Result<Opened, Damaged> {
        let entries = Class::ALL.map(|class| {
            let range = header.entries_range(class);
            let bytes = bytes.get(range.start as usize..range.end as usize);
            Entries::decode(header, class, bytes.ok_or(TRUNCATED)?)
        });
        let entries = entries.into_iter().collect::<Result<_, _>>()?;
        Ok(Opened { header: header.clone(), entries, bytes: bytes.to_vec() })
    }

    fn candidates(&self, needle: &[u8], enough: usize) -> Result<Candidates, Damaged> {
        let plan = Plan::of(needle);
        let mut sections = Sections::default();
        for class in self.header.classes_needed(&plan) {
            sections.entries[class as usize] = Some(&self.entries[class as usize]);
        }
        let found = find(&self.header, &plan, &sections)?;
        let mut candidates = None;
        for piece in 0..found.pieces() {
            let mut lists: [Vec<ListBytes<'_>>; 3] = Default::default();
            for class in Class::ALL {
                let all = self.header.range(Section { class, part: Part::Lists });
                // Not a byte more than what is needed, in pieces.
                for range in found.lists_needed(piece, class, &sections) {
                    for start in range.clone().step_by(1 + enough * 3) {
                        let end = range.end.min(start + 1 + enough as u32 * 3);
                        let place = (all.start + u64::from(start)) as usize..(all.start + u64::from(end)) as usize;
                        let bytes = self.bytes.get(place).ok_or(TRUNCATED)?;
                        lists[class as usize].push(ListBytes { start, bytes });
                    }
                }
            }
            let sections = Sections { lists: [&lists[0], &lists[1], &lists[2]], ..sections };
            candidates = found.narrow(candidates, piece, &sections)?;
            if candidates.as_ref().is_some_and(|rows| rows.count_ones(..) <= enough) {
                break;
            }
        }
        Ok(found.conclude(candidates))
    }
}

fn search_text(texts: &[Vec<u8>]) -> Vec<u8> {
    let mut text = vec![SEPARATOR];
    for one in texts {
        text.extend(one.iter().filter(|byte| **byte != SEPARATOR));
        text.push(SEPARATOR);
    }
    text
}

fn build(rows: &[Vec<u8>]) -> Segment {
    let limits = SegmentLimits { share_percent: 1_000_000, text_bytes: 0, ..SegmentLimits::default() };
    let mut builder = SegmentBuilder::new(limits);
    rows.iter().for_each(|row| builder.push(row));
    builder.finish().expect("a segment")
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
    let row = proptest::collection::vec(text(), 0..4).prop_map(|texts| search_text(&texts));
    (proptest::collection::vec(row, 1..12), 1usize..30)
        .prop_map(|(rows, times)| rows.iter().cycle().take(rows.len() * times).cloned().collect())
}

fn check(segment: &Opened, rows: &[Vec<u8>], needle: &[u8], enough: usize) -> Result<(), TestCaseError> {
    let holds: Vec<bool> = rows.iter().map(|row| memchr::memmem::find(row, needle).is_some()).collect();
    let candidates = segment.candidates(needle, enough).expect("candidates");
    match &candidates {
        Candidates::Exact(found) => {
            let found: Vec<bool> = (0..rows.len()).map(|row| found.contains(row)).collect();
            prop_assert_eq!(found, holds, "{:?}", String::from_utf8_lossy(needle));
        }
        Candidates::Candidates(found) => {
            let missed = (0..rows.len()).find(|row| holds[*row] && !found.contains(*row));
            prop_assert_eq!(missed, None, "{:?}", String::from_utf8_lossy(needle));
        }
        Candidates::Scan => {}
    }
    if matches!(Plan::of(needle), Plan::Exact(_)) {
        prop_assert!(matches!(candidates, Candidates::Exact(_)));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn candidates_are_those_of_a_scan(rows in rows(), others in proptest::collection::vec(text(), 0..4), cuts in proptest::collection::vec(any::<(usize, usize, usize)>(), 12), enough in 0usize..4) {
        let segment = Opened::of(&build(&rows));
        for needle in &others {
            check(&segment, &rows, needle, enough)?;
        }
        for (row, from, length) in cuts {
            let row = &rows[row % rows.len()];
            let from = from % row.len();
            let length = 1 + length % 20;
            let part = &row[from..row.len().min(from + length)];
            // Also needles with separators: whole texts, and even more.
            check(&segment, &rows, part, enough)?;
            if let Some(inner) = part.split(|byte| *byte == SEPARATOR).max_by_key(|inner| inner.len()) {
                check(&segment, &rows, inner, enough)?;
            }
        }
    }

    #[test]
    fn damaged_segment_is_an_error_or_other_rows(rows in rows(), places in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..4), end in any::<usize>(), cut in any::<bool>()) {
        let Segment { header, mut bytes, .. } = build(&rows);
        let mut lengths = *header.lengths();
        for (place, byte) in places {
            // The lengths and the beginnings of sections are of most interest.
            match (place % 4, bytes.len()) {
                (0, _) => {
                    let length = &mut lengths[place / 4 % 3];
                    let length = [&mut length.dictionary, &mut length.texts, &mut length.lists].into_iter().nth(place / 12 % 3);
                    length.into_iter().for_each(|length| *length ^= u32::from(byte));
                }
                (_, 0) => {}
                (1, length) => bytes[place / 4 % length.min(30)] ^= byte,
                (_, length) => bytes[place / 4 % length] ^= byte,
            }
        }
        if cut {
            bytes.truncate(end % (bytes.len() + 1));
        }
        let header = Header::try_new(rows.len(), lengths).expect("a header");
        if let Ok(segment) = Opened::try_new(&header, &bytes) {
            for needle in [&b"a"[..], b"b", b"0", b"12", b"the ", b"z a", b"12ab34cd56ef", b"-"] {
                let _ = segment.candidates(needle, 0);
            }
        }
    }

    /// Frames that are intact, with texts, numbers and lists that no builder writes.
    #[test]
    fn inconsistent_sections_are_errors_or_other_rows(rows in 0usize..70, text in proptest::collection::vec(proptest::sample::select(&b"ab1\xFF\xFF -"[..]), 0..40), numbers in proptest::collection::vec(0u32..9, 0..20), fit in any::<bool>(), lists in proptest::collection::vec(any::<u8>(), 0..200)) {
        let text = [&[SEPARATOR], text.as_slice(), &[SEPARATOR]].concat();
        let entries = text.iter().filter(|byte| **byte == SEPARATOR).count() - 1;
        let mut counts = numbers.clone();
        let mut lengths = numbers;
        if fit {
            // What decoders compare is right: as many counts as entries, and rows that make up the text.
            counts.resize(entries, 0);
            lengths.resize(rows, 0);
            let mut left = text.len() as u32 - 1;
            lengths.iter_mut().for_each(|length| {
                *length = left.min(*length);
                left -= *length;
            });
            lengths.last_mut().into_iter().for_each(|length| *length += left);
        }
        let needed: usize = counts.iter().map(|count| postings::encoded_bytes(*count as usize + 2, rows)).sum();
        let words = Lengths { dictionary: 1, texts: 1, lists: needed as u32 };
        let header = Header::try_new(rows, [words, Lengths::default(), Lengths::default()]).expect("a header");
        let dictionary = Dictionary::decode(&header, Class::Words, &pack(&text, &counts));
        let texts = Texts::decode(&header, &pack(&text, &lengths));
        if let (Ok(dictionary), Ok(texts)) = (dictionary, texts) {
            let lists = [ListBytes { start: 0, bytes: &lists }];
            let mut sections = Sections::default();
            let entries = Entries { dictionary, texts, checksums: Vec::new() };
            sections.entries[0] = Some(&entries);
            sections.lists[0] = &lists;
            for needle in [&b"a"[..], b"1", b"-", b"a ", b" a", b" a ", b"ab a", b"b-a"] {
                let found = find(&header, &Plan::of(needle), &sections).expect("sections");
                for piece in 0..found.pieces() {
                    if let Ok(Some(found)) = found.narrow(None, piece, &sections) {
                        prop_assert!(found.ones().all(|row| row < rows));
                    }
                }
            }
        }
    }

    #[test]
    fn sections_of_any_bytes_are_errors(bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
        let header = build(&[search_text(&[])]).header;
        prop_assert!(Dictionary::decode(&header, Class::Words, &bytes).is_err());
        prop_assert!(Texts::decode(&header, &bytes).is_err());
    }
}

/// Packed numbers and text that are damaged behind valid frames: the checks behind decompression.
#[test]
fn packed_inconsistencies_are_errors() {
    // Lists of all three rows have no bytes, those of two have one.
    let words = Lengths { lists: 1, ..Lengths::default() };
    let header = Header::try_new(3, [words, Lengths::default(), Lengths::default()]).expect("a header");
    let dictionary =
        |text: &[u8], counts: &[u32]| Dictionary::decode(&header, Class::Words, &pack(text, counts)).is_ok();
    assert!(dictionary(b"\xFFa\xFFb\xFF", &[0, 1]));
    assert!(!dictionary(b"\xFFa\xFFb\xFF", &[0, 2]), "more rows than there are");
    assert!(!dictionary(b"\xFFa\xFFb\xFF", &[0]), "fewer counts");
    assert!(!dictionary(b"\xFFa\xFFb\xFF", &[0, 0, 0]), "more counts");
    assert!(!dictionary(b"\xFFa\xFFb", &[0]), "no end");
    assert!(!dictionary(b"a\xFF", &[0]), "no start");
    assert!(!dictionary(b"\xFFa\xFF", &[u32::MAX]), "a count too large");
    let texts = |text: &[u8], lengths: &[u32]| Texts::decode(&header, &pack(text, lengths)).is_ok();
    assert!(texts(b"\xFFa\xFFb\xFF", &[2, 0, 2]));
    assert!(!texts(b"\xFFa\xFFb\xFF", &[2, 2]), "fewer rows");
    assert!(!texts(b"\xFFa\xFFb\xFF", &[2, 0, 1]), "a row too short");
    assert!(!texts(b"\xFFa\xFFb\xFF", &[2, u32::MAX, 3]), "rows too long");
}

#[test]
fn plan_needs_only_sections_of_its_classes() {
    let row = |text: &str| search_text(&[text.as_bytes().to_vec()]);
    let rows = [row("word 12 a1b2 only"), row("word 12 a1b2"), row("none"), row("0123456789abcdef0123")];
    let Segment { header, bytes, .. } = build(&rows);
    assert_eq!(header.bytes(), bytes.len() as u64);
    let needed = |needle: &str| header.classes_needed(&Plan::of(needle.as_bytes())).collect::<Vec<_>>();
    assert_eq!(needed("word"), [Class::Words]);
    assert_eq!(needed("deadbeef"), [Class::Words, Class::Hexadecimal]);
    assert_eq!(needed("12"), Class::ALL);
    assert_eq!(needed(" "), []);
}

#[test]
fn builder_over_its_memory_limit_gives_up() {
    let limits = SegmentLimits { rows: 100, memory_bytes: 200 << 10, share_percent: 1_000_000, text_bytes: 0 };
    let mut builder = SegmentBuilder::new(limits);
    let mut full = None;
    for row in 0..20_000u32 {
        builder.push(&search_text(&[format!("x{row} y{row} z{row}").into_bytes()]));
        assert!(builder.memory_bytes() < 410 << 10);
        if builder.is_full() {
            full.get_or_insert(row);
        }
    }
    assert_eq!(full, Some(99));
    assert!(builder.finish().is_none());
}

#[test]
fn segment_over_its_share_is_left_out() {
    let rows: Vec<Vec<u8>> = (0..1_000u32).map(|row| search_text(&[format!("{row:x} z{row}").into_bytes()])).collect();
    let build = |share_percent, text_bytes| {
        let limits = SegmentLimits { share_percent, text_bytes, ..SegmentLimits::default() };
        let mut builder = SegmentBuilder::new(limits);
        rows.iter().for_each(|row| builder.push(row));
        builder.finish()
    };
    assert!(build(1, 0).is_none());
    assert!(build(200, 1 << 20).is_none());
    let segment = build(200, 1 << 10).expect("a segment");
    assert!(segment.bytes.len() < rows.iter().map(Vec::len).sum::<usize>() * 2);
}

#[test]
fn same_rows_give_the_same_bytes() {
    let rows: Vec<Vec<u8>> = (0..500u32).map(|row| search_text(&[format!("{} {row}", row % 7).into_bytes()])).collect();
    let [one, other] = [build(&rows), build(&rows)];
    assert_eq!((one.bytes, one.checksums), (other.bytes, other.checksums));
}

#[test]
fn segment_without_rows_matches_nothing() {
    let segment = Opened::of(&build(&[]));
    assert_eq!(segment.bytes.len(), 0);
    assert_eq!(segment.candidates(b"a", 0), Ok(Candidates::Exact(FixedBitSet::with_capacity(0))));
    assert_eq!(segment.candidates(b" ", 0), Ok(Candidates::Scan));
}

/// Rows of which every third has each of two words, side by side in every ninth.
fn thirds() -> Vec<Vec<u8>> {
    let row = |row: u32| match row % 9 {
        0 => "all left right".to_owned(),
        3 => "all right left".to_owned(),
        6 => "all left, right".to_owned(),
        _ => "all".to_owned(),
    };
    (0..900).map(|number| search_text(&[row(number).into_bytes()])).collect()
}

#[test]
fn needle_of_most_rows_is_scanned() {
    let segment = Opened::of(&build(&thirds()));
    assert_eq!(segment.candidates(b" all", 0), Ok(Candidates::Scan));
    // But not if one byte search over the entries settles it.
    assert_eq!(segment.candidates(b"all", 0), Ok(Candidates::Exact((0..900).collect())));
    // A piece of most rows does not count, the other does.
    let Ok(Candidates::Candidates(found)) = segment.candidates(b"all right", 0) else { panic!("no candidates") };
    assert_eq!(found.count_ones(..), 300);
    // `left` is an entry of two thirds of them.
    let Ok(Candidates::Candidates(found)) = segment.candidates(b"left right", 0) else { panic!("no candidates") };
    assert_eq!(found.count_ones(..), 200);
    // The first piece that leaves few enough is the last.
    let Ok(Candidates::Candidates(found)) = segment.candidates(b"left, right", 100) else { panic!("no candidates") };
    assert_eq!(found.count_ones(..), 100);
    assert_eq!(segment.candidates(b"left) right", 0), Ok(Candidates::Exact(FixedBitSet::with_capacity(900))));
}

#[test]
fn missing_sections_are_an_error() {
    let segment = Opened::of(&build(&thirds()));
    let plan = Plan::of(b"left");
    assert!(find(&segment.header, &plan, &Sections::default()).is_err());
    let words = Class::Words as usize;
    let mut sections = Sections::default();
    sections.entries[words] = Some(&segment.entries[words]);
    let found = find(&segment.header, &plan, &sections).expect("entries");
    assert!(found.narrow(None, 0, &sections).is_err(), "the lists were not read");
}
