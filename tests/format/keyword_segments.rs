//! Keyword segments: which row groups they cover, and how the footer lists them.

use std::sync::Arc;

use strata_format::keywords::field_set::{FieldSet, FieldTable, OTHER_PATHS};
use strata_format::keywords::indexer::KeywordSegmentLimits;
use strata_format::keywords::segment_directory::KeywordIndex;
use strata_testing::keywords::{RowScalars, indexer, row_group_text, write_segments};

fn row(text: &str) -> RowScalars {
    vec![(0, text.as_bytes().to_vec())]
}

fn limits(max_rows: usize, max_text_percent: u64) -> KeywordSegmentLimits {
    KeywordSegmentLimits { max_rows, max_text_percent, min_text_bytes: 0, ..KeywordSegmentLimits::default() }
}

#[test]
fn segments_end_with_row_groups() {
    let mut indexer = indexer(limits(3, 1_000_000));
    for rows in [&["a b", "b"][..], &["c"], &["a", "b", "c", "d"], &["a"]] {
        let rows: Vec<RowScalars> = rows.iter().map(|text| row(text)).collect();
        indexer.add_row_group(&row_group_text(&rows)).expect("failed to index row group");
    }
    let segments = indexer.finish();
    let found: Vec<_> = segments.iter().map(|segment| (segment.row_groups.clone(), segment.rows)).collect();
    assert_eq!(found, [(0..2, 3), (2..3, 4), (3..4, 1)]);
}

#[test]
fn index_is_omitted_if_first_run_is_too_large() {
    let small = "a ".repeat(100);
    let check = |rows: [&str; 3], expected: usize| {
        let mut indexer = indexer(limits(1, 50));
        for text in rows {
            indexer.add_row_group(&row_group_text(&[row(text)])).expect("failed to index row group");
        }
        assert_eq!(indexer.finish().len(), expected);
    };
    check(["abcdef", &small, &small], 0);
    check([&small, "abcdef", &small], 3);
}

#[test]
fn versions_with_little_text_have_no_index() {
    let segments = |min_text_bytes| {
        let mut indexer = indexer(KeywordSegmentLimits { min_text_bytes, ..limits(10, 1_000_000) });
        indexer.add_row_group(&row_group_text(&[row("some text")])).expect("failed to index row group");
        indexer.finish().len()
    };
    assert_eq!((segments(11), segments(12)), (1, 0));
}

#[test]
fn keyword_index_survives_encoding() {
    let mut indexer = indexer(limits(3, 1_000_000));
    for rows in [3, 2, 7] {
        let rows: Vec<RowScalars> = (0..rows).map(|number| row(&format!("word {number}"))).collect();
        indexer.add_row_group(&row_group_text(&rows)).expect("failed to index row group");
    }
    let (mut segments, bytes) = write_segments(indexer.finish());
    let fields = FieldTable::new(vec![vec!["a".to_owned(), "b.c".to_owned()], vec!["d".to_owned()]]);
    segments.iter_mut().for_each(|segment| segment.fields = Arc::new(fields.clone()));
    let mut index = KeywordIndex::default();
    index.segments = segments;
    let text = index.encode(&fields).expect("failed to encode index");
    let size = bytes.len() as u64;
    let rows = [3, 2, 7, 3];
    let read = KeywordIndex::parse(&text, &rows, size).expect("failed to parse index");
    assert_eq!(read.encode(&fields).expect("failed to encode index again"), text);
    assert_eq!(
        [0, 1, 2, 3, 4].map(|row_group| read.segment_and_first_row(row_group)),
        [Some((0, 0)), Some((1, 0)), Some((1, 2)), None, None]
    );
    assert_eq!((read.indexed_rows, read.segments[0].pages.clone()), (12, index.segments[0].pages.clone()));
    let find = |keys: &[&str]| {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        read.segments[0].fields.find(&keys)
    };
    assert_eq!((find(&["a", "b.c"]), find(&["d"]), find(&["a"])), (1, 2, OTHER_PATHS));

    // Too large for the file, missing row groups, too many rows, overlapping segments, and invalid JSON.
    assert!(KeywordIndex::parse(&text, &rows, size - 1).is_err());
    assert!(KeywordIndex::parse(&text, &[3, 2], size).is_err());
    assert!(KeywordIndex::parse(&text, &[1 << 25, 2, 7, 3], size).is_err());
    assert!(KeywordIndex::parse(&text.replace("\"row_group\":1", "\"row_group\":0"), &rows, size).is_err());
    assert!(KeywordIndex::parse("{", &rows, size).is_err());
    // An unknown format results in an empty index.
    let later = text.replace("\"format\":1", "\"format\":2");
    assert!(KeywordIndex::parse(&later, &rows, size).expect("failed to parse other format").is_empty());
}

#[test]
fn table_has_fields_for_first_paths() {
    let paths: Vec<Vec<String>> = (0..40).map(|number| vec![format!("path{number}")]).collect();
    let table = FieldTable::new(paths);
    let find = |number: usize| table.find(&[format!("path{number}")]);
    assert_eq!([find(0), find(30), find(31), find(99)], [1, 31, OTHER_PATHS, OTHER_PATHS]);
    assert!(table.fields().all(|(_, field)| FieldSet::ALL.contains(field)));
}
