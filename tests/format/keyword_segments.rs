//! Keyword segments: which row groups they cover, and how the footer lists them.

use arrow::array::BinaryArray;
use strata_format::keywords::indexer::KeywordIndexer;
use strata_format::keywords::segment::{KeywordSegment, KeywordSegmentBuilder, KeywordSegmentLimits};
use strata_format::keywords::segment_directory::KeywordIndex;
use strata_format::keywords::tokenizer::TokenClass;

fn texts(rows: &[&str]) -> BinaryArray {
    BinaryArray::from_iter_values(rows.iter().map(|row| row.as_bytes()))
}

#[test]
fn segments_end_with_row_groups() {
    let limits = KeywordSegmentLimits {
        max_rows: 3,
        max_text_percent: 1_000_000,
        min_text_bytes: 0,
        ..KeywordSegmentLimits::default()
    };
    let mut indexer = KeywordIndexer::new(limits);
    let row_groups = [&["a b", "b"][..], &["c"], &["a", "b", "c", "d"], &["a"]];
    let segments = row_groups
        .map(|rows| indexer.add_row_group(&texts(rows)).map(|last| (last.row_groups, last.segment.header.rows())));
    assert_eq!(segments, [None, Some((0..2, 3)), Some((2..3, 4)), None]);
    let last = indexer.finish_segment().map(|last| (last.row_groups, last.segment.header.rows()));
    assert_eq!(last, Some((3..4, 1)));
    assert!(indexer.finish_segment().is_none());
}

#[test]
fn indexer_stops_if_first_segment_is_discarded() {
    let small =
        "a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a";
    let check = |rows: [&str; 3], expected: [bool; 3]| {
        let limits = KeywordSegmentLimits {
            max_rows: 1,
            max_text_percent: 50,
            min_text_bytes: 0,
            ..KeywordSegmentLimits::default()
        };
        let mut indexer = KeywordIndexer::new(limits);
        assert_eq!(rows.map(|row| indexer.add_row_group(&texts(&[row])).is_some()), expected);
    };
    check(["abcdef", small, small], [false, false, false]);
    check([small, "abcdef", small], [true, false, true]);
}

fn segment(rows: usize) -> KeywordSegment {
    let limits =
        KeywordSegmentLimits { max_text_percent: 1_000_000, min_text_bytes: 0, ..KeywordSegmentLimits::default() };
    let mut builder = KeywordSegmentBuilder::new(limits);
    (0..rows).for_each(|row| builder.push_row(format!("\u{1}word {row}").as_bytes()));
    builder.finish().expect("failed to build segment")
}

#[test]
fn keyword_index_survives_encoding() {
    let mut index = KeywordIndex::default();
    let first = segment(5);
    let second = segment(3);
    let bytes = [&first, &second].map(|segment| segment.header.total_bytes());
    index.add_segment(4, 0..2, first);
    index.add_segment(1_000, 3..4, second);
    let text = index.encode().expect("failed to encode index");
    let size = 1_000 + bytes[1];
    let read = KeywordIndex::parse(&text, &[3, 2, 7, 3, 1], size).expect("failed to parse index");
    assert_eq!(read.encode().expect("failed to encode index again"), text);
    assert_eq!(
        [0, 1, 2, 3, 4, 5].map(|row_group| read.segment_and_first_row(row_group)),
        [Some((0, 0)), Some((0, 3)), None, Some((1, 0)), None, None]
    );
    assert_eq!((read.indexed_rows, read.segments[0].token_range(TokenClass::Words).start), (8, 4));

    // Too large for the file, missing row groups, too many rows, overlapping segments, and invalid JSON.
    assert!(KeywordIndex::parse(&text, &[3, 2, 7, 3, 1], size - 1).is_err());
    assert!(KeywordIndex::parse(&text, &[3, 2, 7], size).is_err());
    assert!(KeywordIndex::parse(&text, &[1 << 23, 2, 7, 3, 1], size).is_err());
    assert!(KeywordIndex::parse(&text.replace("\"row_group\":3", "\"row_group\":1"), &[3; 5], size).is_err());
    assert!(KeywordIndex::parse("{", &[3; 5], size).is_err());
    // An unknown format results in an empty index.
    let later = text.replace("\"format\":1", "\"format\":2");
    assert!(KeywordIndex::parse(&later, &[3; 5], size).expect("failed to parse other format").is_empty());
}
