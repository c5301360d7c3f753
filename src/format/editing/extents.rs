//! Edits laid along the extents of a list.

use bytes::Bytes;

use super::slots::{Slot, Slots};
use crate::overlay::Extent;
use crate::writer::is_full_row_group;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Rows of the list before, the first of them at this position. They stay in the base, or move to the new file.
    Rows {
        extent: Extent,
        position: u64,
        moves: bool,
    },
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
