//! Encodes a patch as JSON Lines, one edit per line (docs/reference/changes.md).
//!
//! ```json
//! {"position":1,"set":{"id":"X"}}
//! {"position":2,"insert":[{"id":"Y"}]}
//! {"position":4,"remove":true}
//! ```
//!
//! Positions refer to the old version. The rows of a hunk are first replaced one by one; then the remaining old rows
//! are removed, or the remaining new rows inserted. So an edit at a position follows the inserts at this position.

use std::io::Write;
use std::ops::Range;

use strata_format::reader::VersionReader;
use strata_query::fetch::document_page_reader::DocumentPageReader;
use strata_store::StorageError;

use super::{Hunk, VersionPatch};

/// Appends the edits of the changed rows with these ordinals, until `out` has grown by `max_bytes`. A part of an insert
/// is continued by the next call. Returns the ordinal after the last row.
pub async fn write_edits(
    patch: &VersionPatch,
    new: &VersionReader,
    ordinals: Range<u64>,
    max_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<u64, StorageError> {
    let start = out.len();
    let mut next = ordinals.start;
    let mut entities = EntityReader { reader: new, row_group: 0, end_row: 0, pages: None };
    let first = patch.hunks.partition_point(|hunk| hunk.first_ordinal + hunk.changed_rows() <= next);
    for hunk in &patch.hunks[first..] {
        let end = ordinals.end.min(hunk.first_ordinal + hunk.changed_rows());
        while next < end {
            if out.len() - start >= max_bytes {
                return Ok(next);
            }
            let edit = RowEdit::new(hunk, next - hunk.first_ordinal, patch.rows_per_insert);
            edit.write_before(out);
            if let Some(position) = edit.entity() {
                let end = hunk.new + (end - hunk.first_ordinal).min(u64::from(hunk.new_rows));
                out.extend_from_slice(entities.read(position, end).await?);
            }
            edit.write_after(out);
            next += 1;
        }
    }
    Ok(next)
}

/// The edit of one row. `insert` can be a part of an edit with several entities.
enum RowEdit {
    Set { position: u64, entity: u64 },
    Remove { position: u64 },
    Insert { position: u64, entity: u64, is_first: bool, is_last: bool },
}

impl RowEdit {
    fn new(hunk: &Hunk, index: u64, rows_per_insert: u64) -> RowEdit {
        let position = hunk.old + index;
        let entity = hunk.new + index;
        match (index < u64::from(hunk.old_rows), index < u64::from(hunk.new_rows)) {
            (true, true) => RowEdit::Set { position, entity },
            (true, false) => RowEdit::Remove { position },
            (false, _) => {
                let inserted = index - u64::from(hunk.old_rows);
                let next = inserted + 1;
                RowEdit::Insert {
                    position: hunk.old + u64::from(hunk.old_rows),
                    entity,
                    is_first: inserted.is_multiple_of(rows_per_insert.max(1)),
                    is_last: next == hunk.inserted_rows() || next.is_multiple_of(rows_per_insert.max(1)),
                }
            }
        }
    }

    fn entity(&self) -> Option<u64> {
        match self {
            RowEdit::Set { entity, .. } | RowEdit::Insert { entity, .. } => Some(*entity),
            RowEdit::Remove { .. } => None,
        }
    }

    // Writing to memory does not fail.
    fn write_before(&self, out: &mut Vec<u8>) {
        let _ = match self {
            RowEdit::Set { position, .. } => write!(out, r#"{{"position":{position},"set":"#),
            RowEdit::Remove { position } => write!(out, r#"{{"position":{position},"remove":true"#),
            RowEdit::Insert { position, is_first: true, .. } => write!(out, r#"{{"position":{position},"insert":["#),
            RowEdit::Insert { is_first: false, .. } => write!(out, ","),
        };
    }

    fn write_after(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self {
            RowEdit::Set { .. } | RowEdit::Remove { .. } => b"}\n",
            RowEdit::Insert { is_last: true, .. } => b"]}\n",
            RowEdit::Insert { is_last: false, .. } => b"",
        });
    }
}

/// Reads entities at ascending positions. Keeps the current document pages.
struct EntityReader<'a> {
    reader: &'a VersionReader,
    row_group: usize,
    /// The row after the last one whose pages the current page reader reads together.
    end_row: usize,
    pages: Option<DocumentPageReader<'a>>,
}

impl EntityReader<'_> {
    /// Reads an entity. The caller will then read all entities before `end`, so that their pages are read together.
    async fn read(&mut self, position: u64, end: u64) -> Result<&[u8], StorageError> {
        let row_groups = self.reader.row_groups();
        let is_current = self.pages.is_some() && row_groups[self.row_group].contains(position);
        if !is_current {
            self.row_group = self.reader.row_group_at(position);
        }
        let group = row_groups[self.row_group];
        let row = (position - group.first_position) as usize;
        let end_row = group.rows.min((end - group.first_position) as usize);
        let page = |row| self.reader.page_for_row(self.row_group, row);
        let pages = match self.pages.take() {
            Some(pages) if is_current && (row < self.end_row || page(row) == page(end_row - 1)) => pages,
            _ => {
                self.end_row = end_row;
                DocumentPageReader::for_contiguous_rows(self.reader, self.row_group, end_row)
            }
        };
        self.pages.insert(pages).document(row).await
    }
}
