//! Edits laid along the extents of a list.

use bytes::Bytes;
use strata_format::editing::extents::{ExtentBuilder, Item, laid_out, without_gaps};
use strata_format::editing::{Slot, Slots};
use strata_format::overlay::Extent;

const fn base(row_group: u32, start: u32, rows: u32) -> Extent {
    Extent { file: Extent::BASE, row_group, start, rows }
}

fn entity(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[test]
fn edits_split_the_extents_they_touch() {
    let own = Extent { file: Extent::DELTA, row_group: 0, start: 0, rows: 2 };
    let extents = [base(0, 0, 4), own, base(1, 3, 3)];
    let mut slots = Slots::new();
    slots.insert(0, Slot { inserts: vec![entity("a")], change: None });
    slots.insert(2, Slot { inserts: Vec::new(), change: Some(None) });
    slots.insert(5, Slot { inserts: vec![entity("b")], change: Some(Some(entity("c"))) });
    slots.insert(6, Slot { inserts: Vec::new(), change: Some(Some(entity("d"))) });
    slots.insert(9, Slot { inserts: vec![entity("e"), entity("f")], change: None });
    let rows = |extent, position, moves| Item::Rows { extent, position, moves };
    let stays = |row_group, start, count, position| rows(base(row_group, start, count), position, false);
    let items = laid_out(&extents, &slots);
    let expected = vec![
        Item::New(entity("a")),
        stays(0, 0, 2, 0),
        stays(0, 3, 1, 3),
        rows(Extent { rows: 1, ..own }, 4, true),
        Item::New(entity("b")),
        Item::New(entity("c")),
        Item::New(entity("d")),
        stays(1, 4, 2, 7),
        Item::New(entity("e")),
        Item::New(entity("f")),
    ];
    assert_eq!(items, expected);
    assert_eq!(without_gaps(items.clone(), 1), expected, "two neighbours of the base are no gap");
    let mut moved = expected;
    moved[7] = rows(base(1, 4, 2), 7, true);
    assert_eq!(without_gaps(items, 2), moved);
}

#[test]
fn consecutive_extents_are_merged() {
    let mut builder = ExtentBuilder::new(2);
    builder.add(base(0, 0, 2));
    builder.add(base(0, 2, 1));
    builder.own(5);
    builder.add(base(0, 4, 1));
    builder.own(5);
    builder.own(5);
    builder.add(base(1, 0, 7));
    let own = |row_group, start, rows| Extent { file: Extent::DELTA, row_group, start, rows };
    let expected = [base(0, 0, 3), own(0, 0, 1), base(0, 4, 1), own(0, 1, 1), own(1, 0, 1), base(1, 0, 7)];
    assert_eq!(builder.extents, expected);
}
