//! Reads the selected documents of a response, chunk by chunk.

use std::ops::{ControlFlow, Range};

use strata_format::document_page::{DocumentForm, ResidentPage};
use strata_format::reader::{PrefetchPlan, VersionReader};
use strata_store::StorageError;
use strata_store::unavailable::ResourceUnavailable;

use crate::fetch::document_page_reader::DocumentPageReader;
use crate::fetch::external_sort::ExternalDocumentSort;
use crate::fetch::readahead::{DocumentDemand, DocumentLocation, DocumentReadahead};
use crate::fetch::selection::{EntitySelection, SelectedPositions};
use crate::{QueryEngine, QueryError};

/// A part of a selection that is fetched and encoded at once: about [`SELECTION_CHUNK_BYTES`] of documents, by the mean
/// size of a document. If the documents are larger, or grow when encoded, only the first of them are encoded at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectionChunk {
    pub ordinals: Range<u64>,
}

pub const SELECTION_CHUNK_BYTES: u64 = 1 << 20;
/// Up to this many documents are fetched one by one if there is no disk space to sort them.
const MAX_UNSORTED_DOCUMENTS: usize = 1_000;
/// If at most this many scattered documents are selected, they are first looked up in the cache.
const MAX_RESIDENT_LOOKUPS: usize = 256;

pub fn selection_chunks(reader: &VersionReader, selected: u64) -> impl Iterator<Item = SelectionChunk> + Send + use<> {
    let layout = reader.layout();
    let mean = layout.document_bytes.checked_div(layout.entity_count).unwrap_or(1).max(1);
    let step = (SELECTION_CHUNK_BYTES / mean).clamp(1, 8_192);
    (0..selected.div_ceil(step)).map(move |n| SelectionChunk { ordinals: n * step..selected.min((n + 1) * step) })
}

pub struct SelectedDocuments {
    reader: VersionReader,
    selection: EntitySelection,
    external_order: Option<ExternalDocumentSort>,
}

pub struct ResidentDocuments(Vec<ResidentPage>);

#[derive(Clone, Copy, Debug)]
pub enum DocumentRef<'d> {
    Stored(&'d [u8]),
    Indented(&'d [u8]),
}

impl ResidentDocuments {
    /// Calls `each` with the documents, in order, until `each` breaks. Returns the number of calls.
    pub fn for_each(&self, mut each: impl FnMut(DocumentRef<'_>) -> ControlFlow<()>) -> u64 {
        let mut count = 0;
        let mut count_and_call = |document_ref: DocumentRef<'_>| {
            count += 1;
            each(document_ref)
        };
        for ResidentPage { stored, indented } in &self.0 {
            let flow = match indented {
                Some(indented) => indented.iter().try_for_each(|text| count_and_call(DocumentRef::Indented(text))),
                None => stored.iter().try_for_each(|document| count_and_call(DocumentRef::Stored(document))),
            };
            if flow.is_break() {
                break;
            }
        }
        count
    }
}

impl SelectedDocuments {
    /// Opens the documents of a selection, sorted on disk first if single fetches would decode pages repeatedly.
    pub async fn open(
        engine: &QueryEngine,
        reader: VersionReader,
        selection: EntitySelection,
    ) -> Result<SelectedDocuments, QueryError> {
        let external_order = match selection.positions() {
            SelectedPositions::List(positions) if should_sort_on_disk(&reader, positions) => {
                match Box::pin(ExternalDocumentSort::spill(engine, &reader, positions)).await {
                    Ok(external_order) => Some(external_order),
                    // If the disk is full, a small response is read without sorting, which only takes longer.
                    Err(error)
                        if positions.len() <= MAX_UNSORTED_DOCUMENTS
                            && ResourceUnavailable::from_error(&error) == Some(ResourceUnavailable::DiskFull) =>
                    {
                        None
                    }
                    Err(error) => return Err(error),
                }
            }
            _ => None,
        };
        Ok(SelectedDocuments { reader, selection, external_order })
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
    pub fn is_whole_version(&self) -> bool {
        *self.selection.positions() == SelectedPositions::Range(0..self.reader.entity_count())
    }

    pub fn spilled_bytes(&self) -> Option<u64> {
        self.external_order.as_ref().map(ExternalDocumentSort::spilled_bytes)
    }

    pub fn chunks(&self) -> impl Iterator<Item = SelectionChunk> + Send + use<> {
        selection_chunks(&self.reader, self.selection.len())
    }

    /// Returns all documents if they are in memory and have at most `max_bytes`.
    pub async fn try_resident(&self, max_bytes: usize, form: DocumentForm) -> Option<ResidentDocuments> {
        let parts = match self.selection.positions() {
            SelectedPositions::Range(range) => {
                let whole_range = std::iter::once(range.clone());
                self.reader.try_resident_documents(whole_range, max_bytes, form).await
            }
            SelectedPositions::List(positions) if positions.len() <= MAX_RESIDENT_LOOKUPS => {
                let single_rows = positions.iter().map(|position| *position..position + 1);
                self.reader.try_resident_documents(single_rows, max_bytes, form).await
            }
            SelectedPositions::List(_) => None,
        };
        parts.map(ResidentDocuments)
    }

    /// Like [`for_each_document`], but reads documents that were sorted on disk from the sorted file.
    pub async fn for_each(
        &self,
        chunk: &SelectionChunk,
        each: impl FnMut(&[u8]) -> ControlFlow<()> + Send,
    ) -> Result<u64, StorageError> {
        match &self.external_order {
            Some(external_order) => Box::pin(external_order.for_each(chunk.ordinals.clone(), each)).await,
            None => for_each_document(&self.reader, self.selection.positions(), chunk, each).await,
        }
    }
}

/// Whether fetching the documents one by one would decode each page more than twice on average.
fn should_sort_on_disk(reader: &VersionReader, positions: &[u64]) -> bool {
    let pages: usize = (0..reader.row_groups().len()).map(|row_group| reader.page_count(row_group)).sum();
    positions.len() > 2 * pages && !reader.can_cache_documents() && !positions.is_sorted()
}

/// Calls `each` with the documents of a chunk, in order, until it breaks. Returns the ordinal after the last call.
pub async fn for_each_document(
    reader: &VersionReader,
    positions: &SelectedPositions,
    chunk: &SelectionChunk,
    mut each: impl FnMut(&[u8]) -> ControlFlow<()> + Send,
) -> Result<u64, StorageError> {
    let row_groups = reader.row_groups();
    // The pages of a contiguous range in one row group are fetched together even without readahead.
    let is_contiguous = chunk.ordinals.is_empty()
        || matches!(positions, SelectedPositions::Range(_))
            && row_groups[reader.row_group_at(positions.position_at(chunk.ordinals.start))]
                .contains(positions.position_at(chunk.ordinals.end - 1));
    let readahead_reader = (!is_contiguous).then(|| reader.with_readahead(PrefetchPlan::default()));
    let mut readahead = readahead_reader.is_some().then(|| DocumentReadahead::new(DocumentDemand::All));
    let reader = readahead_reader.as_ref().unwrap_or(reader);
    let mut pages: Option<(usize, DocumentPageReader<'_>)> = None;
    let locate = |ordinal: u64| {
        let position = positions.position_at(ordinal);
        let row_group = reader.row_group_at(position);
        DocumentLocation { row_group, row: (position - row_groups[row_group].first_position) as usize }
    };
    for ordinal in chunk.ordinals.clone() {
        let position = positions.position_at(ordinal);
        let row_group = match &pages {
            Some((row_group, _)) if row_groups[*row_group].contains(position) => *row_group,
            _ => reader.row_group_at(position),
        };
        let row = (position - row_groups[row_group].first_position) as usize;
        if pages.as_ref().is_none_or(|(current, _)| *current != row_group) {
            let page_reader = match positions {
                SelectedPositions::Range(_) => {
                    let left = (chunk.ordinals.end - ordinal) as usize;
                    let end = row_groups[row_group].rows.min(row + left);
                    DocumentPageReader::for_contiguous_rows(reader, row_group, end)
                }
                SelectedPositions::List(_) => DocumentPageReader::for_scattered_rows(reader, row_group),
            };
            pages = Some((row_group, page_reader));
        }
        let Some((_, pages)) = &mut pages else { continue };
        if let Some(readahead) = &mut readahead {
            let following = || (ordinal + 1..chunk.ordinals.end).map(locate);
            readahead.advance_to(reader, pages, DocumentLocation { row_group, row }, following).await;
        }
        if each(pages.document(row).await?).is_break() {
            return Ok(ordinal + 1);
        }
    }
    Ok(chunk.ordinals.end)
}
