//! Edits laid along the pieces of a list.

use bytes::Bytes;

use super::{Slot, Slots};
use crate::edit::{Piece, Source};
use crate::writer::is_full_row_group;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Rows of a row group of the base, which stay there.
    Base { row_group: u32, start: u32, rows: u32, position: u64 },
    /// Entities of the list before, which move.
    Old { position: u64, rows: u32 },
    /// An entity that an edit brought.
    New(Bytes),
}

/// The parts of a list made of these pieces after edits.
pub fn laid_out(pieces: &[Piece], slots: &Slots) -> Vec<Item> {
    let mut items = Vec::new();
    let mut first = 0;
    for piece in pieces {
        let end = first + u64::from(piece.rows);
        let mut at = first;
        let stay = |items: &mut Vec<Item>, from: u64, to: u64| {
            let rows = (to - from) as u32;
            match piece.source {
                _ if rows == 0 => {}
                Source::Base => {
                    let start = piece.start + (from - first) as u32;
                    items.push(Item::Base { row_group: piece.row_group, start, rows, position: from });
                }
                Source::Own => items.push(Item::Old { position: from, rows }),
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
pub fn without_gaps(items: Vec<Item>, gap_rows: u32) -> Vec<Item> {
    let stays: Vec<bool> = items.iter().map(|item| matches!(item, Item::Base { .. })).collect();
    let is_own = |number: Option<usize>| number.and_then(|number| stays.get(number)).is_some_and(|stays| !stays);
    let moved = items.into_iter().enumerate().map(|(number, item)| match item {
        Item::Base { rows, position, .. }
            if rows <= gap_rows && is_own(number.checked_sub(1)) && is_own(Some(number + 1)) =>
        {
            Item::Old { position, rows }
        }
        item => item,
    });
    moved.collect()
}

pub fn own_rows(items: &[Item]) -> u64 {
    let own = items.iter().map(|item| match item {
        Item::Base { .. } => 0,
        Item::Old { rows, .. } => u64::from(*rows),
        Item::New(_) => 1,
    });
    own.sum()
}

#[derive(Default)]
pub struct PieceBuilder {
    pub pieces: Vec<Piece>,
    /// Most rows of a row group of own entities.
    most_rows: usize,
    /// The row group of the next own entity, and what it has so far.
    row_group: u32,
    rows: usize,
    bytes: usize,
}

impl PieceBuilder {
    pub fn new(most_rows: usize) -> PieceBuilder {
        PieceBuilder { most_rows, ..PieceBuilder::default() }
    }

    pub fn base(&mut self, row_group: u32, start: u32, rows: u32) {
        self.add(Piece { source: Source::Base, row_group, start, rows });
    }

    /// An own entity, whose document has so many bytes.
    pub fn own(&mut self, bytes: usize) {
        if is_full_row_group(self.rows, self.bytes, self.most_rows) {
            self.row_group += 1;
            (self.rows, self.bytes) = (0, 0);
        }
        self.add(Piece { source: Source::Own, row_group: self.row_group, start: self.rows as u32, rows: 1 });
        self.rows += 1;
        self.bytes += bytes;
    }

    fn add(&mut self, piece: Piece) {
        match self.pieces.last_mut() {
            Some(last)
                if last.source == piece.source
                    && last.row_group == piece.row_group
                    && last.start + last.rows == piece.start =>
            {
                last.rows += piece.rows;
            }
            _ => self.pieces.push(piece),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn base(row_group: u32, start: u32, rows: u32) -> Piece {
        Piece { source: Source::Base, row_group, start, rows }
    }

    fn entity(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn edits_cut_the_pieces_they_touch() {
        let own = Piece { source: Source::Own, row_group: 0, start: 0, rows: 2 };
        let pieces = [base(0, 0, 4), own, base(1, 3, 3)];
        let mut slots = Slots::new();
        slots.insert(0, Slot { inserts: vec![entity("a")], change: None });
        slots.insert(2, Slot { inserts: Vec::new(), change: Some(None) });
        slots.insert(5, Slot { inserts: vec![entity("b")], change: Some(Some(entity("c"))) });
        slots.insert(6, Slot { inserts: Vec::new(), change: Some(Some(entity("d"))) });
        slots.insert(9, Slot { inserts: vec![entity("e"), entity("f")], change: None });
        let stays = |row_group, start, rows, position| Item::Base { row_group, start, rows, position };
        let items = laid_out(&pieces, &slots);
        let expected = vec![
            Item::New(entity("a")),
            stays(0, 0, 2, 0),
            stays(0, 3, 1, 3),
            Item::Old { position: 4, rows: 1 },
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
        moved[7] = Item::Old { position: 7, rows: 2 };
        assert_eq!(without_gaps(items, 2), moved);
    }

    #[test]
    fn pieces_that_follow_each_other_are_one() {
        let mut builder = PieceBuilder { most_rows: 2, ..PieceBuilder::default() };
        builder.base(0, 0, 2);
        builder.base(0, 2, 1);
        builder.own(5);
        builder.base(0, 4, 1);
        builder.own(5);
        builder.own(5);
        builder.base(1, 0, 7);
        let own = |row_group, start, rows| Piece { source: Source::Own, row_group, start, rows };
        let expected = [base(0, 0, 3), own(0, 0, 1), base(0, 4, 1), own(0, 1, 1), own(1, 0, 1), base(1, 0, 7)];
        assert_eq!(builder.pieces, expected);
    }
}
