//! Edits laid along the extents of a list.

use bytes::Bytes;

use super::{Slot, Slots};
use crate::overlay::Extent;
use crate::writer::is_full_row_group;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Rows of the list before, the first of them at this position. They stay in the base, or move to the new file.
    Rows { extent: Extent, position: u64, moves: bool },
    /// An entity that an edit brought.
    New(Bytes),
}

/// The parts of a list made of these extents after edits.
pub fn laid_out(extents: &[Extent], slots: &Slots) -> Vec<Item> {
    let mut items = Vec::new();
    let mut first = 0;
    for extent in extents {
        let end = first + u64::from(extent.rows);
        let mut at = first;
        let stay = |items: &mut Vec<Item>, from: u64, to: u64| {
            let start = extent.start + (from - first) as u32;
            let extent = Extent { start, rows: (to - from) as u32, ..*extent };
            if extent.rows > 0 {
                items.push(Item::Rows { extent, position: from, moves: extent.file == Extent::DELTA });
            }
        };
        for (position, Slot { inserts, change }) in slots.range(first..end) {
            stay(&mut items, at, *position);
            at = *position;
            items.extend(inserts.iter().cloned().map(Item::New));
            if let Some(entity) = change {
                items.extend(entity.iter().cloned().map(Item::New));
                at += 1;
            }
        }
        stay(&mut items, at, end);
        first = end;
    }
    let behind = slots.range(first..).flat_map(|(_, slot)| slot.inserts.iter().cloned());
    items.extend(behind.map(Item::New));
    items
}

/// The same, with so few rows of the base moved that lie between others that do not stay.
pub fn without_gaps(mut items: Vec<Item>, gap_rows: u32) -> Vec<Item> {
    let stay: Vec<bool> = items.iter().map(|item| matches!(item, Item::Rows { moves: false, .. })).collect();
    for (item, stay) in items.iter_mut().skip(1).zip(stay.windows(3)) {
        if let Item::Rows { extent, moves, .. } = item {
            *moves |= extent.rows <= gap_rows && !stay[0] && !stay[2];
        }
    }
    items
}

pub fn own_rows(items: &[Item]) -> u64 {
    let own = items.iter().map(|item| match item {
        Item::Rows { moves: false, .. } => 0,
        Item::Rows { extent, .. } => u64::from(extent.rows),
        Item::New(_) => 1,
    });
    own.sum()
}

#[derive(Default)]
pub struct ExtentBuilder {
    pub extents: Vec<Extent>,
    /// Most rows of a row group of own entities.
    most_rows: usize,
    /// The row group of the next own entity, and what it has so far.
    row_group: u32,
    rows: usize,
    bytes: usize,
}

impl ExtentBuilder {
    pub fn new(most_rows: usize) -> ExtentBuilder {
        ExtentBuilder { most_rows, ..ExtentBuilder::default() }
    }

    /// An own entity, whose document has so many bytes.
    pub fn own(&mut self, bytes: usize) {
        if is_full_row_group(self.rows, self.bytes, self.most_rows) {
            self.row_group += 1;
            (self.rows, self.bytes) = (0, 0);
        }
        self.add(Extent { file: Extent::DELTA, row_group: self.row_group, start: self.rows as u32, rows: 1 });
        self.rows += 1;
        self.bytes += bytes;
    }

    pub fn add(&mut self, extent: Extent) {
        match self.extents.last_mut() {
            Some(last)
                if last.file == extent.file
                    && last.row_group == extent.row_group
                    && last.start + last.rows == extent.start =>
            {
                last.rows += extent.rows;
            }
            _ => self.extents.push(extent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut builder = ExtentBuilder { most_rows: 2, ..ExtentBuilder::default() };
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
}
