//! The decoded parts of a version file that a reader hands out and the cache keeps.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use bytes::Bytes;
use parquet::bloom_filter::Sbbf;
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::StorageError;
use super::footer::Footer;
use super::keywords::cut::Class;
use super::keywords::segment::Entries;
use super::profile::PathIndex;

/// A run of a file's bytes under their own offsets, so that Parquet's readers may work on it.
#[derive(Clone, Debug)]
pub struct Run {
    /// Offset of the first byte in the file.
    pub start: u64,
    /// The bytes.
    pub bytes: Bytes,
}

impl Run {
    /// The bytes of a range of the file.
    pub(super) fn slice(&self, range: Range<u64>) -> parquet::errors::Result<Bytes> {
        let local = |offset: u64| offset.checked_sub(self.start).and_then(|local| usize::try_from(local).ok());
        match (local(range.start), local(range.end)) {
            (Some(start), Some(end)) if start <= end && end <= self.bytes.len() => Ok(self.bytes.slice(start..end)),
            _ => Err(parquet::errors::ParquetError::EOF(format!("bytes {range:?} were not fetched"))),
        }
    }
}

impl Length for Run {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for Run {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        Ok(bytes::Buf::reader(self.slice(start..self.len())?))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        self.slice(start..start + length as u64)
    }
}

/// The documents of one page.
#[derive(Clone, Debug)]
pub struct DocumentPage {
    /// Row of the first document within its row group.
    pub first_row: usize,
    bytes: Bytes,
    /// Where each document lies in `bytes`.
    spans: Arc<[(u32, u32)]>,
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
        Ok(DocumentPage { first_row, bytes, spans: spans.into() })
    }

    /// How many documents there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The document of a row of the row group that lies in this page.
    pub fn document(&self, row: usize) -> &[u8] {
        let (start, end) = self.spans[row - self.first_row];
        &self.bytes[start as usize..end as usize]
    }

    /// The rows of the row group that lie in this page.
    pub fn rows(&self) -> Range<usize> {
        self.first_row..self.first_row + self.spans.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.len() + 8 * self.spans.len() + size_of::<DocumentPage>()
    }
}

/// Which part of which file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PartKey {
    /// The footer of the file at this path.
    Footer(Arc<str>),
    /// Page `page` of the documents of a row group. The number is the file's ([`Footer::id`]).
    Documents {
        /// The file.
        file: u64,
        /// The row group.
        row_group: u32,
        /// The page.
        page: u32,
    },
    /// A column of a row group.
    Column {
        /// The file.
        file: u64,
        /// The row group.
        row_group: u32,
        /// The column.
        column: u32,
    },
    /// The bloom filter of a column of a row group.
    Bloom {
        /// The file.
        file: u64,
        /// The row group.
        row_group: u32,
        /// The column.
        column: u32,
    },
    /// The paths of the profile of a file.
    Paths {
        /// The file.
        file: u64,
    },
    /// The entries of a class in a segment of the keyword index.
    Keywords {
        /// The file.
        file: u64,
        /// The segment.
        segment: u32,
        /// The class.
        class: Class,
    },
    /// A block of the lists of a class in a segment of the keyword index.
    KeywordLists {
        /// The file.
        file: u64,
        /// The segment.
        segment: u32,
        /// The class.
        class: Class,
        /// The block.
        block: u32,
    },
}

/// One decoded part, as the cache keeps it. Clones share memory.
#[derive(Clone)]
pub enum Part {
    /// Footer, page index and layout.
    Footer(Arc<Footer>),
    /// A page of documents.
    Documents(DocumentPage),
    /// A column of a row group as an Arrow array.
    Column(ArrayRef),
    /// The bloom filter of a column of a row group, if it has one.
    Bloom(Option<Arc<Sbbf>>),
    /// The paths of the profile.
    Paths(Arc<PathIndex>),
    /// Entries of the keyword index.
    Keywords(Arc<Entries>),
    /// A block of lists of the keyword index, as stored.
    KeywordLists(Bytes),
}

impl Part {
    /// About how much memory the part takes.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Part::Footer(footer) => footer.memory_bytes(),
            Part::Documents(page) => page.memory_bytes(),
            Part::Column(array) => array.get_array_memory_size(),
            Part::Paths(paths) => 64 + paths.memory_bytes(),
            Part::Keywords(entries) => 64 + entries.memory_bytes(),
            Part::KeywordLists(bytes) => 64 + bytes.len(),
            Part::Bloom(bloom) => 64 + bloom.as_ref().map_or(0, |bloom| bloom.num_blocks() * 32),
        }
    }
}
