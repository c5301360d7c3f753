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

/// The documents of one page, or some of them that follow each other. Clones share them.
#[derive(Clone, Debug)]
pub struct DocumentPage {
    documents: Arc<Documents>,
    /// Row of the first one.
    first_row: usize,
    /// How many of the page come before it.
    skipped: usize,
    rows: usize,
}

/// A page that is there while others hold it.
#[derive(Default)]
pub(super) struct WeakPage(Weak<Documents>);

impl WeakPage {
    /// The page, if it is there still.
    pub(super) fn page(&self) -> Option<DocumentPage> {
        self.0.upgrade().map(DocumentPage::whole)
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
        Ok(DocumentPage::whole(Arc::new(Documents { first_row, bytes, spans: spans.into() })))
    }

    fn whole(documents: Arc<Documents>) -> DocumentPage {
        let (first_row, rows) = (documents.first_row, documents.spans.len());
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

    /// How many documents there are.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The document of a row of the row group that lies in this page.
    pub fn document(&self, row: usize) -> &[u8] {
        let Documents { bytes, spans, .. } = &*self.documents;
        let (start, end) = spans[row - self.first_row + self.skipped];
        &bytes[start as usize..end as usize]
    }

    /// All documents, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = &self.documents.bytes;
        self.spans().iter().map(|(start, end)| &bytes[*start as usize..*end as usize])
    }

    /// Bytes of the documents, and a few for each.
    pub fn document_bytes(&self) -> usize {
        let spans = self.spans();
        spans.first().zip(spans.last()).map_or(0, |((start, _), (_, end))| (end - start) as usize)
    }

    fn spans(&self) -> &[(u32, u32)] {
        // Rows past the page are none.
        self.documents.spans.get(self.skipped..self.skipped + self.rows).unwrap_or_default()
    }

    /// The rows of the row group that lie in this page.
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

    /// A page of these documents.
    #[cfg(test)]
    pub(super) fn of_test(documents: &[&[u8]]) -> DocumentPage {
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        for document in documents {
            let start = bytes.len() as u32;
            bytes.extend_from_slice(document);
            spans.push((start, bytes.len() as u32));
        }
        DocumentPage::whole(Arc::new(Documents { first_row: 0, bytes: bytes.into(), spans: spans.into() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_page_counts_its_rows_from_where_it_begins() {
        let page = DocumentPage::of_test(&[b"0", b"1", b"2", b"3", b"4"]);
        for (rows, expected, texts) in [
            (0..5, 0..5, &[b"0", b"1", b"2", b"3", b"4"][..]),
            (2..4, 0..2, &[b"2", b"3"]),
            (3..90, 0..2, &[b"3", b"4"]),
            (7..9, 0..0, &[]),
        ] {
            let part = page.clone().within(&rows);
            assert_eq!((part.rows(), part.len(), part.is_empty()), (expected.clone(), texts.len(), texts.is_empty()));
            let found: Vec<&[u8]> = expected.map(|row| part.document(row)).collect();
            assert_eq!(found, texts.iter().map(|text| &text[..]).collect::<Vec<_>>());
            assert_eq!((part.iter().collect::<Vec<_>>(), part.document_bytes()), (found, texts.len()));
        }
        // A part of a part.
        let part = page.clone().within(&(1..5)).within(&(2..3));
        assert_eq!((part.rows(), part.document(0)), (0..1, &b"3"[..]));
        assert_eq!(part.memory_bytes(), page.memory_bytes());
    }
}
