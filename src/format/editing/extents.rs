//! Applies edits to the extents of an entity list. An extent is a range of rows in a base file or in the delta file.

use bytes::Bytes;

use super::edit_script::{EditScript, PositionEdit};
use crate::overlay::Extent;
use crate::writer::is_full_row_group;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverlayItem {
    /// Rows of the list before the edit, starting at `position`. They stay in a base file or move to the delta file.
    PreviousRows {
        extent: Extent,
        position: u64,
        moves_to_delta: bool,
    },
    NewDocument(Bytes),
}

/// Applies edits to extents. Rows of the file [`Extent::OWN`], which the new delta file replaces, move to it.
pub fn apply_edits(extents: impl IntoIterator<Item = Extent>, script: &EditScript) -> Vec<OverlayItem> {
    let mut items = Vec::new();
    let mut first = 0;
    for extent in extents {
        let end = first + u64::from(extent.rows);
        let mut next = first;
        let push_rows = |items: &mut Vec<OverlayItem>, from: u64, to: u64| {
            let start = extent.start + (from - first) as u32;
            let extent = Extent { start, rows: (to - from) as u32, ..extent };
            if extent.rows > 0 {
                let moves_to_delta = extent.file == Extent::OWN;
                items.push(OverlayItem::PreviousRows { extent, position: from, moves_to_delta });
            }
        };
        for (position, PositionEdit { inserts, change }) in script.range(first..end) {
            push_rows(&mut items, next, *position);
            next = *position;
            items.extend(inserts.iter().cloned().map(OverlayItem::NewDocument));
            if let Some(entity) = change {
                items.extend(entity.iter().cloned().map(OverlayItem::NewDocument));
                next += 1;
            }
        }
        push_rows(&mut items, next, end);
        first = end;
    }
    let appended = script.range(first..).flat_map(|(_, edit)| edit.inserts.iter().cloned());
    items.extend(appended.map(OverlayItem::NewDocument));
    items
}

/// Moves runs of at most `max_gap_rows` rows of bases to the delta file if the rows before and after them are there.
pub fn move_small_gaps_to_delta(mut items: Vec<OverlayItem>, max_gap_rows: u32) -> Vec<OverlayItem> {
    let stays: Vec<bool> =
        items.iter().map(|item| matches!(item, OverlayItem::PreviousRows { moves_to_delta: false, .. })).collect();
    for (item, stays) in items.iter_mut().skip(1).zip(stays.windows(3)) {
        if let OverlayItem::PreviousRows { extent, moves_to_delta, .. } = item {
            *moves_to_delta |= extent.rows <= max_gap_rows && !stays[0] && !stays[2];
        }
    }
    items
}

pub fn count_delta_rows(items: &[OverlayItem]) -> u64 {
    let rows = items.iter().map(|item| match item {
        OverlayItem::PreviousRows { moves_to_delta: false, .. } => 0,
        OverlayItem::PreviousRows { extent, .. } => u64::from(extent.rows),
        OverlayItem::NewDocument(_) => 1,
    });
    rows.sum()
}

/// Builds the extents of a delta version.
#[derive(Default)]
pub struct ExtentBuilder {
    pub extents: Vec<Extent>,
    max_rows: usize,
    /// Row group of the delta file that gets the next entity. `rows` and `bytes` count the entities in this row group.
    row_group: u32,
    rows: usize,
    bytes: usize,
}

impl ExtentBuilder {
    pub fn new(max_rows: usize) -> ExtentBuilder {
        ExtentBuilder { max_rows, ..ExtentBuilder::default() }
    }

    /// Adds a row of the delta file, with a document of `bytes`.
    pub fn push_own_row(&mut self, bytes: usize) {
        if is_full_row_group(self.rows, self.bytes, self.max_rows) {
            self.row_group += 1;
            self.rows = 0;
            self.bytes = 0;
        }
        self.push_extent(Extent { file: Extent::OWN, row_group: self.row_group, start: self.rows as u32, rows: 1 });
        self.rows += 1;
        self.bytes += bytes;
    }

    pub fn push_extent(&mut self, extent: Extent) {
        let start = (extent.file, extent.row_group, extent.start);
        match self.extents.last_mut() {
            Some(last) if (last.file, last.row_group, last.start + last.rows) == start => last.rows += extent.rows,
            _ => self.extents.push(extent),
        }
    }
}
