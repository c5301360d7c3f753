//! The segments of a file: made of its row groups, and listed in its footer.

use arrow::array::BinaryArray;
use strata_format::keywords::cut::Class;
use strata_format::keywords::indexing::Indexer;
use strata_format::keywords::segment::{Segment, SegmentBuilder, SegmentLimits};
use strata_format::keywords::stored::KeywordIndex;

fn texts(rows: &[&str]) -> BinaryArray {
    BinaryArray::from_iter_values(rows.iter().map(|row| row.as_bytes()))
}

#[test]
fn segments_end_with_row_groups() {
    let limits = SegmentLimits { rows: 3, share_percent: 1_000_000, text_bytes: 0, ..SegmentLimits::default() };
    let mut indexer = Indexer::new(limits);
    let row_groups = [&["a b", "b"][..], &["c"], &["a", "b", "c", "d"], &["a"]];
    let found =
        row_groups.map(|rows| indexer.add(&texts(rows)).map(|found| (found.row_groups, found.segment.header.rows())));
    assert_eq!(found, [None, Some((0..2, 3)), Some((2..3, 4)), None]);
    assert_eq!(indexer.end().map(|found| (found.row_groups, found.segment.header.rows())), Some((3..4, 1)));
    assert!(indexer.end().is_none());
}

#[test]
fn indexer_stops_if_the_first_segment_is_left_out() {
    let small =
        "a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a";
    let check = |rows: [&str; 3], expected: [bool; 3]| {
        let limits = SegmentLimits { rows: 1, share_percent: 50, text_bytes: 0, ..SegmentLimits::default() };
        let mut indexer = Indexer::new(limits);
        assert_eq!(rows.map(|row| indexer.add(&texts(&[row])).is_some()), expected);
    };
    check(["abcdef", small, small], [false, false, false]);
    check([small, "abcdef", small], [true, false, true]);
}

fn segment(rows: usize) -> Segment {
    let limits = SegmentLimits { share_percent: 1_000_000, text_bytes: 0, ..SegmentLimits::default() };
    let mut builder = SegmentBuilder::new(limits);
    (0..rows).for_each(|row| builder.push(format!("\u{1}word {row}").as_bytes()));
    builder.finish().expect("a segment")
}

#[test]
fn keyword_index_written_is_read() {
    let mut index = KeywordIndex::default();
    let (one, other) = (segment(5), segment(3));
    let bytes = [&one, &other].map(|segment| segment.header.bytes());
    index.add(4, 0..2, one);
    index.add(1_000, 3..4, other);
    let text = index.encode().expect("a text");
    let size = 1_000 + bytes[1];
    let read = KeywordIndex::parse(&text, &[3, 2, 7, 3, 1], size).expect("an index");
    assert_eq!(read.encode().expect("a text"), text);
    assert_eq!(
        [0, 1, 2, 3, 4, 5].map(|row_group| read.place_of(row_group)),
        [Some((0, 0)), Some((0, 3)), None, Some((1, 0)), None, None]
    );
    assert_eq!((read.rows, read.segments[0].entries_range(Class::Words).start), (8, 4));

    // Too large for the file, for row groups that there are not, for rows that no segment has; and out of order.
    assert!(KeywordIndex::parse(&text, &[3, 2, 7, 3, 1], size - 1).is_err());
    assert!(KeywordIndex::parse(&text, &[3, 2, 7], size).is_err());
    assert!(KeywordIndex::parse(&text, &[1 << 23, 2, 7, 3, 1], size).is_err());
    assert!(KeywordIndex::parse(&text.replace("\"row_group\":3", "\"row_group\":1"), &[3; 5], size).is_err());
    assert!(KeywordIndex::parse("{", &[3; 5], size).is_err());
    // Another format is not for this reader.
    let later = text.replace("\"format\":1", "\"format\":2");
    assert!(KeywordIndex::parse(&later, &[3; 5], size).expect("none").is_empty());
}
