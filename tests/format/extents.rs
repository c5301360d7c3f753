//! Application of edits to the extents of a list.

use bytes::Bytes;
use strata_format::editing::extents::{ExtentBuilder, OverlayItem, apply_edits, move_small_gaps_to_delta};
use strata_format::editing::{EditScript, PositionEdit};
use strata_format::overlay::Extent;

const fn base(row_group: u32, start: u32, rows: u32) -> Extent {
    Extent { file: 1, row_group, start, rows }
}

fn entity(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[test]
fn edits_split_the_extents_they_touch() {
    let delta = Extent { file: Extent::OWN, row_group: 0, start: 0, rows: 2 };
    let extents = [base(0, 0, 4), delta, base(1, 3, 3)];
    let mut script = EditScript::new();
    script.insert(0, PositionEdit { inserts: vec![entity("a")], change: None });
    script.insert(2, PositionEdit { inserts: Vec::new(), change: Some(None) });
    script.insert(5, PositionEdit { inserts: vec![entity("b")], change: Some(Some(entity("c"))) });
    script.insert(6, PositionEdit { inserts: Vec::new(), change: Some(Some(entity("d"))) });
    script.insert(9, PositionEdit { inserts: vec![entity("e"), entity("f")], change: None });
    let rows = |extent, position, moves_to_delta| OverlayItem::PreviousRows { extent, position, moves_to_delta };
    let base_rows = |row_group, start, count, position| rows(base(row_group, start, count), position, false);
    let items = apply_edits(extents, &script);
    let expected = vec![
        OverlayItem::NewDocument(entity("a")),
        base_rows(0, 0, 2, 0),
        base_rows(0, 3, 1, 3),
        rows(Extent { rows: 1, ..delta }, 4, true),
        OverlayItem::NewDocument(entity("b")),
        OverlayItem::NewDocument(entity("c")),
        OverlayItem::NewDocument(entity("d")),
        base_rows(1, 4, 2, 7),
        OverlayItem::NewDocument(entity("e")),
        OverlayItem::NewDocument(entity("f")),
    ];
    assert_eq!(items, expected);
    assert_eq!(move_small_gaps_to_delta(items.clone(), 1), expected, "two adjacent rows exceed the limit of one row");
    let mut moved = expected;
    moved[7] = rows(base(1, 4, 2), 7, true);
    assert_eq!(move_small_gaps_to_delta(items, 2), moved);
}

#[test]
fn consecutive_extents_are_merged() {
    let mut builder = ExtentBuilder::new(2);
    builder.push_extent(base(0, 0, 2));
    builder.push_extent(base(0, 2, 1));
    builder.push_own_row(5);
    builder.push_extent(base(0, 4, 1));
    builder.push_own_row(5);
    builder.push_own_row(5);
    builder.push_extent(base(1, 0, 7));
    let delta = |row_group, start, rows| Extent { file: Extent::OWN, row_group, start, rows };
    let expected = [base(0, 0, 3), delta(0, 0, 1), base(0, 4, 1), delta(0, 1, 1), delta(1, 0, 1), base(1, 0, 7)];
    assert_eq!(builder.extents, expected);
}
