//! The list of an edited file: its pieces, each a row group to readers, and where each lies.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use strata_store::{Result, StorageError};

use super::edit::{Edit, Piece, Source};
use super::footer::{Footer, NEXT_ID, RowGroup};
use super::keywords::stored::KeywordIndex;
use super::layout::ShreddedColumn;
use super::shapes::stored::ShapeIndex;

/// The pieces of an edited list. All readers of the list share it.
pub struct PieceList {
    /// A number that no file has: what is made of pieces is kept under it.
    pub(super) id: u64,
    pub(super) base: Arc<Footer>,
    pub(super) pieces: Vec<Piece>,
    pub(super) row_groups: Vec<RowGroup>,
    pub(super) keywords: KeywordIndex,
    pub(super) shapes: ShapeIndex,
}

impl PieceList {
    pub fn memory_bytes(&self) -> usize {
        self.pieces.len() * (size_of::<Piece>() + size_of::<RowGroup>())
            + self.keywords.memory_bytes()
            + self.shapes.memory_bytes()
            + size_of::<PieceList>()
    }

    pub(super) fn of(own: &Footer, base: Arc<Footer>, edit: &Edit) -> Result<PieceList> {
        let damaged = |what: &str| Err(StorageError::Layout(what.to_owned()));
        if base.layout.edit.is_some() {
            return damaged("its base is also an edited file");
        }
        if base.layout.content_sha256 != edit.base.content_sha256 {
            return damaged("its base is not the file that this edited file was created from");
        }
        // They may have been retired since.
        let mut columns = own.layout.shredded_columns.iter().zip(&base.layout.shredded_columns);
        let are_equal = columns.all(|(own, base)| *own == ShreddedColumn { retired: own.retired, ..base.clone() });
        if !are_equal || own.layout.shredded_columns.len() != base.layout.shredded_columns.len() {
            return damaged("its base has different columns");
        }
        let rows: Vec<usize> = base.row_groups.iter().map(|row_group| row_group.rows).collect();
        edit.check(Source::Base, &rows)?;
        let footer = |piece: &Piece| match piece.source {
            Source::Base => &*base,
            Source::Own => own,
        };
        let segments = [&base.keywords, &own.keywords].map(|index| &index.segments[..]).concat();
        let mut keywords = KeywordIndex { segments, ..KeywordIndex::default() };
        let (mut row_groups, mut first) = (Vec::with_capacity(edit.pieces.len()), 0);
        for piece in &edit.pieces {
            row_groups.push(RowGroup { first, rows: piece.rows as usize });
            first += u64::from(piece.rows);
            // The segments of the file itself come after those of its base.
            let before = if piece.source == Source::Own { base.keywords.segments.len() } else { 0 };
            let place = footer(piece).keywords.place_of(piece.row_group as usize);
            keywords.rows += place.map_or(0, |_| u64::from(piece.rows));
            keywords.places.push(place.map(|(segment, start)| (before + segment, start + piece.start as usize)));
        }
        let shapes = edit.pieces.iter().map(|piece| footer(piece).shapes.get(piece.row_group as usize).cloned());
        let shapes = ShapeIndex { row_groups: shapes.collect() };
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let pieces = edit.pieces.clone();
        Ok(PieceList { id, base, pieces, row_groups, keywords, shapes })
    }
}
