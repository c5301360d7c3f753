//! Documents fetched last: of the selected entities alone, page by page.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};

use crate::query::fetch::reorder::Reordered;
use crate::query::fetch::selection::{Positions, Selection};
use crate::query::{Engine, QueryError};
use crate::storage::StorageError;
use crate::storage::parts::DocumentPage;
use crate::storage::reader::VersionReader;

/// The documents of ascending rows of one row group, each page fetched once.
pub struct Pages<'a> {
    reader: &'a VersionReader,
    row_group: usize,
    /// Pages before this one are worth fetching along with the one before them.
    ahead: usize,
    current: Option<DocumentPage>,
    fetched: VecDeque<DocumentPage>,
    used: usize,
}

impl<'a> Pages<'a> {
    /// Documents of single rows, here and there.
    pub fn scattered(reader: &'a VersionReader, row_group: usize) -> Pages<'a> {
        Pages { reader, row_group, ahead: 0, current: None, fetched: VecDeque::new(), used: 0 }
    }

    /// Documents of most rows below `end`.
    pub fn contiguous(reader: &'a VersionReader, row_group: usize, end: usize) -> Pages<'a> {
        let ahead = if end == 0 { 0 } else { reader.page_of(row_group, end - 1) + 1 };
        Pages { reader, row_group, ahead, current: None, fetched: VecDeque::new(), used: 0 }
    }

    /// Documents of `wanted` rows below `end`: contiguous when they are as many as pages.
    pub fn of(reader: &'a VersionReader, row_group: usize, wanted: usize, end: usize) -> Pages<'a> {
        if wanted >= reader.page_count(row_group) {
            Pages::contiguous(reader, row_group, end)
        } else {
            Pages::scattered(reader, row_group)
        }
    }

    /// The document of a row.
    ///
    /// # Errors
    /// When its page cannot be read.
    pub async fn document(&mut self, row: usize) -> Result<&[u8], StorageError> {
        let here = self.current.as_ref().is_some_and(|page| page.rows().contains(&row));
        if !here {
            self.current = Some(self.page_of(row).await?);
            self.used += 1;
        }
        match &self.current {
            Some(page) => Ok(page.document(row)),
            None => Err(StorageError::Layout(format!("row {row} has no page"))),
        }
    }

    /// How many pages documents were taken from.
    pub fn used(&self) -> usize {
        self.used
    }

    async fn page_of(&mut self, row: usize) -> Result<DocumentPage, StorageError> {
        while let Some(page) = self.fetched.pop_front() {
            if page.rows().contains(&row) {
                return Ok(page);
            }
        }
        // Cancelling takes effect between pages, even when nothing has to be waited for.
        tokio::task::consume_budget().await;
        let page = self.reader.page_of(self.row_group, row);
        if page + 1 >= self.ahead {
            return self.reader.documents(self.row_group, page).await;
        }
        self.fetched = self.reader.documents_ahead(self.row_group, page..self.ahead).await?.into();
        self.fetched.pop_front().ok_or_else(|| StorageError::Layout(format!("row {row} has no page")))
    }
}

/// A part of a selection that is fetched and encoded at once: about [`UNIT_BYTES`] of documents, as far as the mean of
/// all documents tells. Where they are larger, or grow when they are written, only the first of them are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Which of the selection's places, from 0.
    pub places: Range<u64>,
}

/// How many bytes of documents a unit should hold.
pub const UNIT_BYTES: u64 = 1 << 20;

/// Cuts a selection of `selected` entities into units, by the version's mean size of a document.
pub fn units(reader: &VersionReader, selected: u64) -> impl Iterator<Item = Unit> + Send + use<> {
    let layout = reader.layout();
    let mean = layout.document_bytes.checked_div(layout.entity_count).unwrap_or(1).max(1);
    let step = (UNIT_BYTES / mean).clamp(1, 8_192);
    (0..selected.div_ceil(step)).map(move |number| Unit { places: number * step..selected.min((number + 1) * step) })
}

/// The documents of a selection, in its order.
pub struct SelectedDocuments {
    reader: VersionReader,
    selection: Selection,
    /// Where they are many and in another order than the file's.
    reordered: Option<Reordered>,
}

impl SelectedDocuments {
    /// The documents of a selection. Where fetching them one by one would decode every page again and again, they are
    /// put in order by way of the disk first.
    ///
    /// # Errors
    /// [`QueryError::OutOfMemory`] when memory or disk has no room for that, others when the version cannot be read.
    pub async fn of(
        engine: &Engine,
        reader: VersionReader,
        selection: Selection,
    ) -> Result<SelectedDocuments, QueryError> {
        let reordered = match selection.positions() {
            Positions::List(positions) if scattered(&reader, positions) => {
                Some(Reordered::spill(engine, &reader, positions).await?)
            }
            _ => None,
        };
        Ok(SelectedDocuments { reader, selection, reordered })
    }

    /// The file that they come from.
    pub fn reader(&self) -> &VersionReader {
        &self.reader
    }

    /// How many they are.
    pub fn len(&self) -> u64 {
        self.selection.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.selection.is_empty()
    }

    /// Bytes of them on disk, where they were put in order by way of it.
    pub fn spilled_bytes(&self) -> Option<u64> {
        self.reordered.as_ref().map(Reordered::bytes)
    }

    /// The units to fetch them in.
    pub fn units(&self) -> impl Iterator<Item = Unit> + Send + use<> {
        units(&self.reader, self.selection.len())
    }

    /// Calls `each` with the documents of a unit, in order, until it breaks. Returns the place after the last one.
    ///
    /// # Errors
    /// When a page cannot be read.
    pub async fn for_each(
        &self,
        unit: &Unit,
        each: impl FnMut(&[u8]) -> ControlFlow<()> + Send,
    ) -> Result<u64, StorageError> {
        match &self.reordered {
            Some(reordered) => reordered.for_each(unit.places.clone(), each).await,
            None => for_each(&self.reader, self.selection.positions(), unit, each).await,
        }
    }
}

/// Whether fetching documents at these positions would decode pages more than twice each, on the whole.
fn scattered(reader: &VersionReader, positions: &[u64]) -> bool {
    let pages: usize = (0..reader.row_groups().len()).map(|row_group| reader.page_count(row_group)).sum();
    positions.len() > 2 * pages && !reader.caches_documents() && !positions.is_sorted()
}

/// Calls `each` with the documents of a unit, in the order of the selection, until it breaks. Returns the place after
/// the last one.
///
/// # Errors
/// When a page cannot be read.
pub async fn for_each(
    reader: &VersionReader,
    positions: &Positions,
    unit: &Unit,
    mut each: impl FnMut(&[u8]) -> ControlFlow<()> + Send,
) -> Result<u64, StorageError> {
    let mut pages: Option<(usize, Pages<'_>)> = None;
    let row_groups = reader.row_groups();
    for place in unit.places.clone() {
        let position = match positions {
            Positions::Range(range) => range.start + place,
            Positions::List(list) => list[place as usize],
        };
        let row_group = match &pages {
            Some((row_group, _)) if row_groups[*row_group].holds(position) => *row_group,
            _ => reader.row_group_of(position),
        };
        let row = (position - row_groups[row_group].first) as usize;
        if pages.as_ref().is_none_or(|(current, _)| *current != row_group) {
            let fresh = match positions {
                Positions::Range(_) => {
                    let left = (unit.places.end - place) as usize;
                    Pages::contiguous(reader, row_group, row_groups[row_group].rows.min(row + left))
                }
                Positions::List(_) => Pages::scattered(reader, row_group),
            };
            pages = Some((row_group, fresh));
        }
        if let Some((_, pages)) = &mut pages
            && each(pages.document(row).await?).is_break()
        {
            return Ok(place + 1);
        }
    }
    Ok(unit.places.end)
}
