//! The decoded documents of one page of a version file, in canonical form or indented for responses.

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
use strata_json::try_write_indented;
use strata_store::{Result, StorageError};
use strata_types::limits::MIN_ENCODED_EXPANSION;

use super::fetched_range::FetchedRange;
use super::zstd_frame;

/// Max bytes of a page that is cached in indented form. Only pages with a few long documents are larger.
const MAX_INDENTED_PAGE_BYTES: usize = 1 << 20;
const CPU_PREFETCH_STRIDE_BYTES: usize = 128;
/// Documents above this size, one memory page, are not prefetched, because the hardware prefetcher is good enough.
const MAX_CPU_PREFETCH_BYTES: usize = 4 << 10;

/// Consecutive documents of one page. Clones share the memory.
#[derive(Clone, Debug)]
pub struct DocumentPage {
    documents: Arc<PageDocuments>,
    first_row: usize,
    skipped_rows: usize,
    rows: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentForm {
    Stored,
    /// The documents are indented if the cache contains the indented page; otherwise, they are as stored.
    PreferIndented,
}

#[derive(Clone, Debug)]
pub struct ResidentPage {
    pub stored: DocumentPage,
    pub indented: Option<DocumentPage>,
}

#[derive(Default)]
pub(super) struct WeakDocumentPage(Weak<PageDocuments>);

impl WeakDocumentPage {
    pub(super) fn upgrade(&self) -> Option<DocumentPage> {
        self.0.upgrade().map(DocumentPage::from_documents)
    }

    pub(super) fn strong_count(&self) -> usize {
        self.0.strong_count()
    }
}

#[derive(Debug)]
struct PageDocuments {
    first_row: usize,
    bytes: Bytes,
    document_ranges: Box<[(u32, u32)]>,
    /// Number of the page's documents that responses have indented since the page was last cached in indented form.
    indented_count: AtomicUsize,
}

impl PageDocuments {
    fn new(first_row: usize, bytes: Bytes, document_ranges: Vec<(u32, u32)>) -> Arc<PageDocuments> {
        let document_ranges = document_ranges.into();
        Arc::new(PageDocuments { first_row, bytes, document_ranges, indented_count: AtomicUsize::new(0) })
    }
}

impl DocumentPage {
    /// Decodes one page of the document column. `rows` is the number of documents in the page.
    pub fn decode(
        column: &ColumnChunkMetaData,
        location: &PageLocation,
        rows: usize,
        fetched: &FetchedRange,
    ) -> Result<Self> {
        // The page reader of Parquet reads a whole column chunk, so the metadata is changed to a chunk of only this
        // page. `zstd_frame` decompresses the page, because the reader would allocate a decompressor for each page.
        let compression = column.compression();
        let is_zstd = matches!(compression, Compression::ZSTD(_));
        let chunk = column
            .clone()
            .into_builder()
            .set_data_page_offset(location.offset)
            .set_dictionary_page_offset(None)
            .set_compression(if is_zstd { Compression::UNCOMPRESSED } else { compression })
            .set_total_compressed_size(i64::from(location.compressed_page_size))
            .build()?;
        let mut pages = SerializedPageReader::new(Arc::new(fetched.clone()), &chunk, rows, None)?;
        let damaged = |what: &str| StorageError::InvalidFile(format!("a document page {what}"));
        let (mut bytes, count) = match pages.get_next_page()? {
            Some(Page::DataPage { buf, num_values, encoding: Encoding::PLAIN, .. }) => (buf, num_values as usize),
            _ => return Err(damaged("is not a plain data page")),
        };
        if count != rows {
            return Err(StorageError::InvalidFile(format!("it contains {count} documents instead of {rows}")));
        }
        if is_zstd {
            let max_bytes = usize::try_from(column.uncompressed_size()).unwrap_or_default();
            let size = zstd_frame::content_size(&bytes, max_bytes).ok_or_else(|| damaged("has an invalid size"))?;
            bytes = zstd_frame::decompress(&bytes, size).map_err(|_| damaged("cannot be decompressed"))?.into();
        }
        let document_ranges = parse_document_ranges(&bytes, count).ok_or_else(|| damaged("is truncated"))?;
        let first_row = usize::try_from(location.first_row_index).map_err(|_| damaged("is misplaced"))?;
        Ok(DocumentPage::from_documents(PageDocuments::new(first_row, bytes, document_ranges)))
    }

    fn from_documents(documents: Arc<PageDocuments>) -> DocumentPage {
        let first_row = documents.first_row;
        let rows = documents.document_ranges.len();
        DocumentPage { documents, first_row, skipped_rows: 0, rows }
    }

    /// Returns the documents in `rows` of the row group, as a page in which the row `rows.start` has the number
    /// `first_row`.
    pub(super) fn slice_rows(self, rows: &Range<usize>, first_row: usize) -> DocumentPage {
        let first = self.first_row.max(rows.start);
        let end = self.rows().end.min(rows.end).max(first);
        DocumentPage {
            first_row: first_row + (first - rows.start),
            skipped_rows: self.skipped_rows + (first - self.first_row),
            rows: end - first,
            documents: self.documents,
        }
    }

    /// Counts the documents of the page that a response indents. Returns `true` once when indenting the whole page
    /// would have been less work.
    pub(super) fn record_indented_and_check_threshold(&self, documents: usize) -> bool {
        let threshold = 2 * self.documents.document_ranges.len();
        let indented_count = &self.documents.indented_count;
        indented_count.fetch_add(documents, Ordering::Relaxed) + documents >= threshold
            && indented_count.swap(0, Ordering::Relaxed) >= threshold
    }

    /// Returns the page as elements of an indented array. Returns `None` for a large page, or if an indented document
    /// could exceed the limit of a response.
    pub(super) fn to_indented(&self) -> Option<DocumentPage> {
        let PageDocuments { first_row, bytes, document_ranges, .. } = &*self.documents;
        if bytes.len() > MAX_INDENTED_PAGE_BYTES {
            return None;
        }
        let mut text = Vec::with_capacity(bytes.len() * 3 / 2);
        let mut indented = Vec::with_capacity(document_ranges.len());
        for &(start, end) in document_ranges {
            let document = &bytes[start as usize..end as usize];
            let start = text.len();
            let max_bytes = MIN_ENCODED_EXPANSION * document.len();
            if !try_write_indented(document, 1, max_bytes, &mut text) || text.len() - start > max_bytes {
                return None;
            }
            indented.push((start as u32, text.len() as u32));
        }
        text.shrink_to_fit();
        Some(DocumentPage::from_documents(PageDocuments::new(*first_row, text.into(), indented)))
    }

    pub fn len(&self) -> usize {
        self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// # Panics
    /// If `row` is not in [`DocumentPage::rows`].
    pub fn document(&self, row: usize) -> &[u8] {
        let PageDocuments { bytes, document_ranges, .. } = &*self.documents;
        let (start, end) = document_ranges[row - self.first_row + self.skipped_rows];
        &bytes[start as usize..end as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = &self.documents.bytes;
        self.document_ranges().iter().map(|(start, end)| &bytes[*start as usize..*end as usize])
    }

    pub fn document_bytes(&self) -> usize {
        let ranges = self.document_ranges();
        ranges.first().zip(ranges.last()).map_or(0, |((start, _), (_, end))| (end - start) as usize)
    }

    pub(super) fn cpu_prefetch_range(&self, row: usize) {
        black_box(self.documents.document_ranges.get(row.wrapping_sub(self.first_row)).copied());
    }

    /// Loads a few short documents into the processor's caches in parallel, which is faster than copying one by one.
    pub(super) fn cpu_prefetch_documents(&self) {
        let ranges = self.document_ranges();
        let Some(((start, _), (_, end))) = ranges.first().zip(ranges.last()) else { return };
        let bytes = &self.documents.bytes[*start as usize..*end as usize];
        if bytes.len() <= MAX_CPU_PREFETCH_BYTES {
            black_box(bytes.iter().step_by(CPU_PREFETCH_STRIDE_BYTES).fold(0_u8, |sum, byte| sum ^ byte));
        }
    }

    fn document_ranges(&self) -> &[(u32, u32)] {
        self.documents.document_ranges.get(self.skipped_rows..self.skipped_rows + self.rows).unwrap_or_default()
    }

    pub fn rows(&self) -> Range<usize> {
        self.first_row..self.first_row + self.rows
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let PageDocuments { bytes, document_ranges, .. } = &*self.documents;
        bytes.len() + 8 * document_ranges.len() + size_of::<PageDocuments>() + size_of::<DocumentPage>()
    }

    pub(super) fn downgrade(&self) -> WeakDocumentPage {
        WeakDocumentPage(Arc::downgrade(&self.documents))
    }

    #[cfg(test)]
    pub(super) fn for_test(documents: &[&[u8]]) -> DocumentPage {
        let mut bytes = Vec::new();
        let mut document_ranges = Vec::new();
        for document in documents {
            let start = bytes.len() as u32;
            bytes.extend_from_slice(document);
            document_ranges.push((start, bytes.len() as u32));
        }
        DocumentPage::from_documents(PageDocuments::new(0, bytes.into(), document_ranges))
    }
}

/// Returns the byte ranges of the documents in a page with the encoding PLAIN, in which a length precedes each
/// document. Returns `None` if a document ends after the page.
fn parse_document_ranges(page: &[u8], count: usize) -> Option<Vec<(u32, u32)>> {
    let mut document_ranges = Vec::with_capacity(count);
    let mut offset = 0_usize;
    for _ in 0..count {
        let length = u32::from_le_bytes(page.get(offset..offset + 4)?.try_into().ok()?) as usize;
        offset += 4;
        if page.len() - offset < length {
            return None;
        }
        document_ranges.push((offset as u32, (offset + length) as u32));
        offset += length;
    }
    Some(document_ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_follow_their_lengths() {
        let check = |page: &[u8], count, expected: Option<&[(u32, u32)]>| {
            assert_eq!(parse_document_ranges(page, count).as_deref(), expected, "{page:?}");
        };
        check(b"", 0, Some(&[]));
        check(b"\x02\0\0\0{}\0\0\0\0", 2, Some(&[(4, 6), (10, 10)]));
        check(b"\x02\0\0\0{", 1, None);
        check(b"\x02\0\0\0{}\0\0\0", 2, None);
    }

    #[test]
    fn large_page_is_not_indented() {
        let large = format!("\"{}\"", " ".repeat(MAX_INDENTED_PAGE_BYTES));
        assert!(DocumentPage::for_test(&[large.as_bytes()]).to_indented().is_none());
    }
}
