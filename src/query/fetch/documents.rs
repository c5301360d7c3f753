//! Late materialization: reads only the documents of the selected entities, page by page.

use std::ops::{ControlFlow, Range};

use strata_format::document_page::HeldDocuments;
use strata_format::reader::{VersionReader, Wanted};
use strata_store::StorageError;
use strata_store::shortage::Shortage;

use crate::fetch::external_order::ExternalOrder;
use crate::fetch::pages::Pages;
use crate::fetch::readahead::{DocumentPlace, Readahead};
use crate::fetch::selection::{Positions, Selection};
use crate::{Engine, QueryError};

/// A part of a selection that is fetched and encoded at once: about [`UNIT_BYTES`] of documents, by the mean size of a
/// document. If the documents are larger, or grow when they are encoded, only the first of them are encoded at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Indexes of the selection.
    pub places: Range<u64>,
}

pub const UNIT_BYTES: u64 = 1 << 20;

/// Up to this many documents are fetched one by one if the disk has no room to sort them.
const MAX_UNSORTED: usize = 1_000;

/// Up to this many single documents are looked up in memory before they are read.
const MAX_RESIDENT: usize = 256;

/// Divides a selection of `selected` entities into units.
pub fn units(reader: &VersionReader, selected: u64) -> impl Iterator<Item = Unit> + Send + use<> {
    let layout = reader.layout();
    let mean = layout.document_bytes.checked_div(layout.entity_count).unwrap_or(1).max(1);
    let step = (UNIT_BYTES / mean).clamp(1, 8_192);
    (0..selected.div_ceil(step)).map(move |number| Unit { places: number * step..selected.min((number + 1) * step) })
}

pub struct SelectedDocuments {
    reader: VersionReader,
    selection: Selection,
    /// The documents on disk, if they are many and in another order than the file.
    sorted: Option<ExternalOrder>,
}

/// All documents of a selection, in memory.
pub struct AtHand(Vec<HeldDocuments>);

#[derive(Clone, Copy, Debug)]
pub enum Held<'d> {
    Stored(&'d [u8]),
    /// Formatted as an element of an indented array.
    Indented(&'d [u8]),
}

impl AtHand {
    /// Calls `each` with the documents, in order, until it breaks. Returns the number of calls.
    pub fn for_each(&self, mut each: impl FnMut(Held<'_>) -> ControlFlow<()>) -> u64 {
        let mut count = 0;
        let mut counted = |held: Held<'_>| {
            count += 1;
            each(held)
        };
        for HeldDocuments { stored, indented } in &self.0 {
            let flow = match indented {
                Some(indented) => indented.iter().try_for_each(|text| counted(Held::Indented(text))),
                None => stored.iter().try_for_each(|document| counted(Held::Stored(document))),
            };
            if flow.is_break() {
                break;
            }
        }
        count
    }
}

impl SelectedDocuments {
    /// The documents of a selection. They are sorted on disk first if fetching them one by one would decode pages
    /// repeatedly.
    ///
    /// # Errors
    /// [`QueryError`], if there is not enough memory or disk space to sort, or if the version cannot be read.
    pub async fn of(
        engine: &Engine,
        reader: VersionReader,
        selection: Selection,
    ) -> Result<SelectedDocuments, QueryError> {
        let sorted = match selection.positions() {
            Positions::List(positions) if is_scattered(&reader, positions) => {
                match Box::pin(ExternalOrder::spill(engine, &reader, positions)).await {
                    Ok(sorted) => Some(sorted),
                    // A page of documents only takes longer without the disk.
                    Err(error)
                        if positions.len() <= MAX_UNSORTED && Shortage::of(&error) == Some(Shortage::DiskFull) =>
                    {
                        None
                    }
                    Err(error) => return Err(error),
                }
            }
            _ => None,
        };
        Ok(SelectedDocuments { reader, selection, sorted })
    }

    pub fn reader(&self) -> &VersionReader {
        &self.reader
    }

    pub fn len(&self) -> u64 {
        self.selection.len()
    }

    pub fn is_empty(&self) -> bool {
        self.selection.is_empty()
    }

    /// Whether all entities are selected, in the order of the file.
    pub fn are_all(&self) -> bool {
        *self.selection.positions() == Positions::Range(0..self.reader.entity_count())
    }

    /// The size of the documents that were sorted on disk, in bytes.
    pub fn spilled_bytes(&self) -> Option<u64> {
        self.sorted.as_ref().map(ExternalOrder::bytes)
    }

    pub fn units(&self) -> impl Iterator<Item = Unit> + Send + use<> {
        units(&self.reader, self.selection.len())
    }

    /// All documents, if they are in memory and have at most `most_bytes`. With `indented`, documents are indented if
    /// the cache contains them in that form.
    pub async fn at_hand(&self, most_bytes: usize, indented: bool) -> Option<AtHand> {
        let parts = match self.selection.positions() {
            Positions::Range(range) => {
                let all = std::iter::once(range.clone());
                self.reader.documents_at_hand(all, most_bytes, indented).await
            }
            Positions::List(positions) if positions.len() <= MAX_RESIDENT => {
                let each = positions.iter().map(|position| *position..position + 1);
                self.reader.documents_at_hand(each, most_bytes, indented).await
            }
            Positions::List(_) => None,
        };
        parts.map(AtHand)
    }

    /// See [`for_each`].
    pub async fn for_each(
        &self,
        unit: &Unit,
        each: impl FnMut(&[u8]) -> ControlFlow<()> + Send,
    ) -> Result<u64, StorageError> {
        match &self.sorted {
            Some(sorted) => Box::pin(sorted.for_each(unit.places.clone(), each)).await,
            None => for_each(&self.reader, self.selection.positions(), unit, each).await,
        }
    }
}

/// Whether fetching the documents one by one would decode each page more than twice on average.
fn is_scattered(reader: &VersionReader, positions: &[u64]) -> bool {
    let pages: usize = (0..reader.row_groups().len()).map(|row_group| reader.page_count(row_group)).sum();
    positions.len() > 2 * pages && !reader.caches_documents() && !positions.is_sorted()
}

/// Calls `each` with the documents of a unit, in order, until it breaks. Returns the index after the last call.
pub async fn for_each(
    reader: &VersionReader,
    positions: &Positions,
    unit: &Unit,
    mut each: impl FnMut(&[u8]) -> ControlFlow<()> + Send,
) -> Result<u64, StorageError> {
    let row_groups = reader.row_groups();
    // The pages of a contiguous range in one row group are fetched together anyway.
    let is_together = unit.places.is_empty()
        || matches!(positions, Positions::Range(_))
            && row_groups[reader.row_group_of(positions.get(unit.places.start))]
                .holds(positions.get(unit.places.end - 1));
    let reading_ahead = (!is_together).then(|| reader.reading_ahead(Wanted::default()));
    let mut ahead = reading_ahead.is_some().then(|| Readahead::new(false));
    let reader = reading_ahead.as_ref().unwrap_or(reader);
    let mut pages: Option<(usize, Pages<'_>)> = None;
    let document_place = |place: u64| {
        let position = positions.get(place);
        let row_group = reader.row_group_of(position);
        DocumentPlace { row_group, row: (position - row_groups[row_group].first) as usize }
    };
    for place in unit.places.clone() {
        let position = positions.get(place);
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
        let Some((_, pages)) = &mut pages else { continue };
        if let Some(ahead) = &mut ahead {
            let following = || (place + 1..unit.places.end).map(document_place);
            ahead.reached(reader, pages, DocumentPlace { row_group, row }, following).await;
        }
        if each(pages.document(row).await?).is_break() {
            return Ok(place + 1);
        }
    }
    Ok(unit.places.end)
}
