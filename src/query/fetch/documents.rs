//! Documents fetched last: of the selected entities alone, page by page.

use std::ops::{ControlFlow, Range};

use strata_format::document_page::HeldDocuments;
use strata_format::reader::{VersionReader, Wanted};
use strata_store::StorageError;
use strata_store::shortage::Shortage;

use crate::fetch::pages::Pages;
use crate::fetch::pages_ahead::PagesAhead;
use crate::fetch::reorder::Reordered;
use crate::fetch::selection::{Positions, Selection};
use crate::{Engine, QueryError};

/// A part of a selection that is fetched and encoded at once: about [`UNIT_BYTES`] of documents, as far as the mean of
/// all documents tells. Where they are larger, or grow when they are written, only the first of them are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Which of the selection's places, from 0.
    pub places: Range<u64>,
}

pub const UNIT_BYTES: u64 = 1 << 20;

/// Selected documents that are as well fetched one by one where the disk has no room to put them in order.
const PAGE: usize = 1_000;

/// Documents here and there that are looked for in memory before they are given.
const AT_HAND: usize = 256;

/// Cuts a selection of `selected` entities into units, by the version's mean size of a document.
pub fn units(reader: &VersionReader, selected: u64) -> impl Iterator<Item = Unit> + Send + use<> {
    let layout = reader.layout();
    let mean = layout.document_bytes.checked_div(layout.entity_count).unwrap_or(1).max(1);
    let step = (UNIT_BYTES / mean).clamp(1, 8_192);
    (0..selected.div_ceil(step)).map(move |number| Unit { places: number * step..selected.min((number + 1) * step) })
}

pub struct SelectedDocuments {
    reader: VersionReader,
    selection: Selection,
    /// Where they are many and in another order than the file's.
    reordered: Option<Reordered>,
}

/// All documents of a selection, which are in memory while this is there. Giving them waits for nothing, and takes
/// about as long as copying them.
pub struct AtHand(Vec<HeldDocuments>);

#[derive(Clone, Copy, Debug)]
pub enum Held<'d> {
    Stored(&'d [u8]),
    /// As an element of an indented array.
    Indented(&'d [u8]),
}

impl AtHand {
    /// Calls `each` with the documents, in order, until it breaks. Returns the place after the last one.
    pub fn for_each(&self, mut each: impl FnMut(Held<'_>) -> ControlFlow<()>) -> u64 {
        let mut place = 0;
        let mut counted = |held: Held<'_>| {
            place += 1;
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
        place
    }
}

impl SelectedDocuments {
    /// The documents of a selection. Where fetching them one by one would decode every page again and again, they are
    /// put in order by way of the disk first.
    ///
    /// # Errors
    /// [`QueryError::OutOfMemory`], [`QueryError::OutOfDisk`] and [`QueryError::TooMuchDisk`] when memory or disk has
    /// no room for that, others when the version cannot be read.
    pub async fn of(
        engine: &Engine,
        reader: VersionReader,
        selection: Selection,
    ) -> Result<SelectedDocuments, QueryError> {
        let reordered = match selection.positions() {
            Positions::List(positions) if scattered(&reader, positions) => {
                match Box::pin(Reordered::spill(engine, &reader, positions)).await {
                    Ok(reordered) => Some(reordered),
                    // A page needs no disk, only more time.
                    Err(error) if positions.len() <= PAGE && Shortage::of(&error) == Some(Shortage::DiskFull) => None,
                    Err(error) => return Err(error),
                }
            }
            _ => None,
        };
        Ok(SelectedDocuments { reader, selection, reordered })
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

    /// Whether they are those of all entities, in the order of the file.
    pub fn are_all(&self) -> bool {
        *self.selection.positions() == Positions::Range(0..self.reader.entity_count())
    }

    /// Bytes of them on disk, where they were put in order by way of it.
    pub fn spilled_bytes(&self) -> Option<u64> {
        self.reordered.as_ref().map(Reordered::bytes)
    }

    pub fn units(&self) -> impl Iterator<Item = Unit> + Send + use<> {
        units(&self.reader, self.selection.len())
    }

    /// All of them, if they are in memory and have at most so many bytes; those here and there, if they are few. If
    /// they are wanted indented, those come so that are kept so.
    pub async fn at_hand(&self, most_bytes: usize, indented: bool) -> Option<AtHand> {
        let parts = match self.selection.positions() {
            Positions::Range(range) => {
                let all = std::iter::once(range.clone());
                self.reader.documents_at_hand(all, most_bytes, indented).await
            }
            Positions::List(positions) if positions.len() <= AT_HAND => {
                let each = positions.iter().map(|position| *position..position + 1);
                self.reader.documents_at_hand(each, most_bytes, indented).await
            }
            Positions::List(_) => None,
        };
        parts.map(AtHand)
    }

    /// Calls `each` with the documents of a unit, in order, until it breaks. Returns the place after the last one.
    pub async fn for_each(
        &self,
        unit: &Unit,
        each: impl FnMut(&[u8]) -> ControlFlow<()> + Send,
    ) -> Result<u64, StorageError> {
        match &self.reordered {
            Some(reordered) => Box::pin(reordered.for_each(unit.places.clone(), each)).await,
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
pub async fn for_each(
    reader: &VersionReader,
    positions: &Positions,
    unit: &Unit,
    mut each: impl FnMut(&[u8]) -> ControlFlow<()> + Send,
) -> Result<u64, StorageError> {
    let row_groups = reader.row_groups();
    // Neighbours come with one request by themselves.
    let is_together = unit.places.is_empty()
        || matches!(positions, Positions::Range(_))
            && row_groups[reader.row_group_of(positions.at(unit.places.start))]
                .holds(positions.at(unit.places.end - 1));
    let reading_ahead = (!is_together).then(|| reader.reading_ahead(Wanted::default()));
    let mut ahead = reading_ahead.is_some().then(|| PagesAhead::new(false));
    let reader = reading_ahead.as_ref().unwrap_or(reader);
    let mut pages: Option<(usize, Pages<'_>)> = None;
    let row_of = |place: u64| {
        let position = positions.at(place);
        let row_group = reader.row_group_of(position);
        (row_group, (position - row_groups[row_group].first) as usize)
    };
    for place in unit.places.clone() {
        let position = positions.at(place);
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
            let following = || (place + 1..unit.places.end).map(row_of);
            ahead.reached(reader, pages, (row_group, row), following).await;
        }
        if each(pages.document(row).await?).is_break() {
            return Ok(place + 1);
        }
    }
    Ok(unit.places.end)
}
