//! The documents of one page of a version file, as a reader hands them out and the cache keeps them.

use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::serialized_reader::SerializedPageReader;
use strata_json::pretty_within;
use strata_store::{Result, StorageError};
use strata_types::limits::ENCODED_EXPANSION;

use super::fetched_range::FetchedRange;
use super::zstd_frame;

/// Largest page that is kept indented, in bytes: usual ones, and those of a few long documents.
const INDENTED_PAGE_BYTES: usize = 1 << 20;

/// Bytes that come from memory together: two lines of the processor's caches.
const FETCHED_BYTES: usize = 128;

/// Longer copies are foreseen by the processor: those of more than a page of memory.
const FORESEEN_BYTES: usize = 4 << 10;

/// The documents of one page, or some of them that follow each other. Clones share them.
#[derive(Clone, Debug)]
pub struct DocumentPage {
    documents: Arc<Documents>,
    first_row: usize,
    /// How many of the page come before it.
    skipped: usize,
    rows: usize,
}

#[derive(Clone, Debug)]
pub struct HeldDocuments {
    pub stored: DocumentPage,
    /// As elements of an indented array, where they are kept so, too, and were asked for.
    pub indented: Option<DocumentPage>,
}

/// A page that is there while others hold it.
#[derive(Default)]
pub(super) struct WeakPage(Weak<Documents>);

impl WeakPage {
    pub(super) fn page(&self) -> Option<DocumentPage> {
        self.0.upgrade().map(DocumentPage::whole)
    }

    pub(super) fn holders(&self) -> usize {
        self.0.strong_count()
    }
}

#[derive(Debug)]
struct Documents {
    first_row: usize,
    bytes: Bytes,
    /// Where each document lies in `bytes`.
    spans: Box<[(u32, u32)]>,
    /// How many documents have been indented for answers, since the page was last kept indented.
    indented: AtomicUsize,
}

impl Documents {
    fn new(first_row: usize, bytes: Bytes, spans: Vec<(u32, u32)>) -> Arc<Documents> {
        Arc::new(Documents { first_row, bytes, spans: spans.into(), indented: AtomicUsize::new(0) })
    }
}

impl DocumentPage {
    pub fn decode(
        column: &ColumnChunkMetaData,
        location: &PageLocation,
        rows: usize,
        run: &FetchedRange,
    ) -> Result<Self> {
        // Parquet's page reader reads a chunk from its start; a chunk of this one page makes it read just that. It
        // would make a compressor and a decompressor for each page.
        let compression = column.compression();
        let own = matches!(compression, Compression::ZSTD(_));
        let chunk = column
            .clone()
            .into_builder()
            .set_data_page_offset(location.offset)
            .set_dictionary_page_offset(None)
            .set_compression(if own { Compression::UNCOMPRESSED } else { compression })
            .set_total_compressed_size(i64::from(location.compressed_page_size))
            .build()?;
        let mut pages = SerializedPageReader::new(Arc::new(run.clone()), &chunk, rows, None)?;
        let damaged = |what: &str| StorageError::Layout(format!("a document page {what}"));
        let (mut bytes, count) = match pages.get_next_page()? {
            Some(Page::DataPage { buf, num_values, encoding: Encoding::PLAIN, .. }) => (buf, num_values as usize),
            _ => return Err(damaged("is not a plain data page")),
        };
        // Before memory is taken for them.
        if count != rows {
            return Err(StorageError::Layout(format!("it contains {count} documents instead of {rows}")));
        }
        if own {
            let most = usize::try_from(column.uncompressed_size()).unwrap_or_default();
            let size = zstd_frame::size(&bytes, most).ok_or_else(|| damaged("has an invalid size"))?;
            bytes = zstd_frame::decompress(&bytes, size).map_err(|_| damaged("cannot be decompressed"))?.into();
        }
        let mut spans = Vec::with_capacity(count);
        let mut at = 0_usize;
        for _ in 0..count {
            let length = bytes.get(at..at + 4).and_then(|prefix| <[u8; 4]>::try_from(prefix).ok());
            let length = u32::from_le_bytes(length.ok_or_else(|| damaged("is truncated"))?) as usize;
            at += 4;
            if bytes.len() - at < length {
                return Err(damaged("is truncated"));
            }
            spans.push((at as u32, (at + length) as u32));
            at += length;
        }
        let first_row = usize::try_from(location.first_row_index).map_err(|_| damaged("is misplaced"))?;
        Ok(DocumentPage::whole(Documents::new(first_row, bytes, spans)))
    }

    fn whole(documents: Arc<Documents>) -> DocumentPage {
        let first_row = documents.first_row;
        let rows = documents.spans.len();
        DocumentPage { documents, first_row, skipped: 0, rows }
    }

    /// Those documents of it that lie in these rows, which are counted from the first of these.
    pub(super) fn within(self, rows: &Range<usize>) -> DocumentPage {
        let first = self.first_row.max(rows.start);
        let end = self.rows().end.min(rows.end).max(first);
        DocumentPage {
            first_row: first - rows.start,
            skipped: self.skipped + (first - self.first_row),
            rows: end - first,
            documents: self.documents,
        }
    }

    /// Counts documents that an answer shows indented. Says once whether these are so many by now that indenting the
    /// whole page would have been less work.
    pub(super) fn is_often_indented(&self, documents: usize) -> bool {
        let Documents { indented, spans, .. } = &*self.documents;
        let often = 2 * spans.len();
        indented.fetch_add(documents, Ordering::Relaxed) + documents >= often
            && indented.swap(0, Ordering::Relaxed) >= often
    }

    /// The whole page with each document as an element of an indented array; `None` where an answer might refuse one of
    /// them, or the page is large.
    pub(super) fn indented(&self) -> Option<DocumentPage> {
        let Documents { first_row, bytes, spans, .. } = &*self.documents;
        if bytes.len() > INDENTED_PAGE_BYTES {
            return None;
        }
        let mut text = Vec::with_capacity(bytes.len() * 3 / 2);
        let mut indented = Vec::with_capacity(spans.len());
        for &(start, end) in spans {
            let document = &bytes[start as usize..end as usize];
            let start = text.len();
            let most_bytes = ENCODED_EXPANSION * document.len();
            if !pretty_within(document, 1, most_bytes, &mut text) || text.len() - start > most_bytes {
                return None;
            }
            indented.push((start as u32, text.len() as u32));
        }
        text.shrink_to_fit();
        Some(DocumentPage::whole(Documents::new(*first_row, text.into(), indented)))
    }

    pub fn len(&self) -> usize {
        self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    pub fn document(&self, row: usize) -> &[u8] {
        let Documents { bytes, spans, .. } = &*self.documents;
        let (start, end) = spans[row - self.first_row + self.skipped];
        &bytes[start as usize..end as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = &self.documents.bytes;
        self.spans().iter().map(|(start, end)| &bytes[*start as usize..*end as usize])
    }

    /// Bytes of the documents, and a few for each.
    pub fn document_bytes(&self) -> usize {
        let spans = self.spans();
        spans.first().zip(spans.last()).map_or(0, |((start, _), (_, end))| (end - start) as usize)
    }

    /// Reads where a row's document lies, so that the processor has it when it is asked for.
    pub(super) fn fetch_span(&self, row: usize) {
        black_box(self.documents.spans.get(row.wrapping_sub(self.first_row)).copied());
    }

    /// Reads a few short documents into the processor's caches, many pieces of memory at once: copying documents that
    /// lie here and there would wait for each of them. It foresees by itself what a longer copy needs.
    pub(super) fn fetch(&self) {
        let spans = self.spans();
        let Some(((start, _), (_, end))) = spans.first().zip(spans.last()) else { return };
        let bytes = &self.documents.bytes[*start as usize..*end as usize];
        if bytes.len() <= FORESEEN_BYTES {
            black_box(bytes.iter().step_by(FETCHED_BYTES).fold(0_u8, |sum, byte| sum ^ byte));
        }
    }

    fn spans(&self) -> &[(u32, u32)] {
        // Rows past the page are none.
        self.documents.spans.get(self.skipped..self.skipped + self.rows).unwrap_or_default()
    }

    pub fn rows(&self) -> Range<usize> {
        self.first_row..self.first_row + self.rows
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let Documents { bytes, spans, .. } = &*self.documents;
        bytes.len() + 8 * spans.len() + size_of::<Documents>() + size_of::<DocumentPage>()
    }

    /// The whole page, for as long as others hold it.
    pub(super) fn downgrade(&self) -> WeakPage {
        WeakPage(Arc::downgrade(&self.documents))
    }

    #[cfg(test)]
    pub(super) fn of_test(documents: &[&[u8]]) -> DocumentPage {
        let mut bytes = Vec::new();
        let mut spans = Vec::new();
        for document in documents {
            let start = bytes.len() as u32;
            bytes.extend_from_slice(document);
            spans.push((start, bytes.len() as u32));
        }
        DocumentPage::whole(Documents::new(0, bytes.into(), spans))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_page_is_not_indented() {
        let large = format!("\"{}\"", " ".repeat(INDENTED_PAGE_BYTES));
        assert!(DocumentPage::of_test(&[large.as_bytes()]).indented().is_none());
    }

    #[test]
    fn page_is_often_indented_after_twice_its_documents() {
        let page = DocumentPage::of_test(&[b"0", b"1", b"2"]);
        for _ in 0..2 {
            let said: Vec<bool> = (0..4).map(|_| page.clone().is_often_indented(2)).collect();
            assert_eq!(said, [false, false, true, false]);
            assert!(!page.is_often_indented(2) && page.is_often_indented(90));
        }
    }
}
