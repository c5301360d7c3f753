//! The documents of one page of a version file, as a reader hands them out and the cache keeps them.

use std::ops::Range;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::serialized_reader::SerializedPageReader;

use super::StorageError;
use super::run::Run;

/// The documents of one page. Clones share them.
#[derive(Clone, Debug)]
pub struct DocumentPage(Arc<Documents>);

/// A page that is there while others hold it.
#[derive(Default)]
pub(super) struct WeakPage(Weak<Documents>);

impl WeakPage {
    /// The page, if it is there still.
    pub(super) fn page(&self) -> Option<DocumentPage> {
        self.0.upgrade().map(DocumentPage)
    }
}

#[derive(Debug)]
struct Documents {
    /// Row of the first one within its row group.
    first_row: usize,
    bytes: Bytes,
    /// Where each document lies in `bytes`.
    spans: Box<[(u32, u32)]>,
}

impl DocumentPage {
    /// Decodes the page at `location` out of `run`.
    ///
    /// # Errors
    /// When the page is damaged or not written by [`super::writer`].
    pub fn decode(
        column: &ColumnChunkMetaData,
        location: &PageLocation,
        rows: usize,
        run: &Run,
    ) -> Result<DocumentPage, StorageError> {
        // Parquet's page reader reads a chunk from its start; a chunk of this one page makes it read just that.
        let chunk = column
            .clone()
            .into_builder()
            .set_data_page_offset(location.offset)
            .set_dictionary_page_offset(None)
            .set_total_compressed_size(i64::from(location.compressed_page_size))
            .build()?;
        let mut pages = SerializedPageReader::new(Arc::new(run.clone()), &chunk, rows, None)?;
        let damaged = |what: &str| StorageError::Layout(format!("a page of documents {what}"));
        let (bytes, count) = match pages.get_next_page()? {
            Some(Page::DataPage { buf, num_values, encoding: parquet::basic::Encoding::PLAIN, .. }) => {
                (buf, num_values as usize)
            }
            _ => return Err(damaged("is not a plain data page")),
        };
        // Before memory is taken for them.
        if count != rows {
            return Err(StorageError::Layout(format!("it holds {count} of {rows} documents")));
        }
        let mut spans = Vec::with_capacity(count);
        let mut at = 0_usize;
        for _ in 0..count {
            let length = bytes.get(at..at + 4).and_then(|prefix| <[u8; 4]>::try_from(prefix).ok());
            let length = u32::from_le_bytes(length.ok_or_else(|| damaged("is cut"))?) as usize;
            at += 4;
            if bytes.len() - at < length {
                return Err(damaged("is cut"));
            }
            spans.push((at as u32, (at + length) as u32));
            at += length;
        }
        let first_row = usize::try_from(location.first_row_index).map_err(|_| damaged("has no place"))?;
        Ok(DocumentPage(Arc::new(Documents { first_row, bytes, spans: spans.into() })))
    }

    /// How many documents there are.
    pub fn len(&self) -> usize {
        self.0.spans.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.spans.is_empty()
    }

    /// The document of a row of the row group that lies in this page.
    pub fn document(&self, row: usize) -> &[u8] {
        let Documents { first_row, bytes, spans } = &*self.0;
        let (start, end) = spans[row - first_row];
        &bytes[start as usize..end as usize]
    }

    /// The rows of the row group that lie in this page.
    pub fn rows(&self) -> Range<usize> {
        self.0.first_row..self.0.first_row + self.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.0.bytes.len() + 8 * self.len() + size_of::<Documents>() + size_of::<DocumentPage>()
    }

    /// The same page, for as long as others hold it.
    pub(super) fn downgrade(&self) -> WeakPage {
        WeakPage(Arc::downgrade(&self.0))
    }

    /// A page of these documents.
    #[cfg(test)]
    pub(super) fn of_test(documents: &[&[u8]]) -> DocumentPage {
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        for document in documents {
            let start = bytes.len() as u32;
            bytes.extend_from_slice(document);
            spans.push((start, bytes.len() as u32));
        }
        DocumentPage(Arc::new(Documents { first_row: 0, bytes: bytes.into(), spans: spans.into() }))
    }
}
