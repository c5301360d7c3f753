//! The columns of a version file beside the documents, by row group: values, bloom filters and statistics.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{ArrayRef, new_empty_array};
use futures::FutureExt;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::bloom_filter::Sbbf;

use super::file::FileReader;
use crate::storage::checksums::verify;
use crate::storage::footer::Footer;
use crate::storage::layout::ShreddedPart;
use crate::storage::outline::TextStatistics;
use crate::storage::parts::{Part, PartKey};
use crate::storage::run::Run;
use crate::storage::{Result, StorageError};

impl FileReader {
    pub(crate) async fn may_hold_text(&self, row_group: usize, shredded: usize, text: &[u8]) -> Result<bool> {
        let Some(index) = self.footer.layout.column_index(shredded, ShreddedPart::Text) else { return Ok(true) };
        let key = self.bloom_key(row_group, index);
        let load = async {
            let Some((range, checksum)) = self.footer.outline.bloom(row_group, index) else {
                return Ok(Part::Bloom(None));
            };
            self.bloom_missed(row_group);
            let start = range.start;
            let bytes = self.file.fetch(range).await?;
            verify(&bytes, checksum)?;
            let column = self.footer.chunk_metadata(row_group, index)?;
            let read = AssertUnwindSafe(|| Sbbf::read_from_column_chunk(&column, &Run { start, bytes }));
            let bloom = catch_unwind(read).map_err(|_| StorageError::undecodable())??;
            // A filter without blocks cannot be asked.
            match bloom {
                Some(bloom) if bloom.num_blocks() == 0 => Err(StorageError::undecodable()),
                bloom => Ok(Part::Bloom(bloom.map(Arc::new))),
            }
        };
        let load = load.map(|loaded| {
            let part = || format!("the bloom filter of column {index} of row group {row_group}");
            loaded.map_err(|error| self.file.blame_accelerator(&part(), error))
        });
        match self.file.cache.get_or_load(key, || load).await {
            Ok(Part::Bloom(Some(bloom))) => Ok(bloom.check(text)),
            Err(error) if !error.is_damage() => Err(error),
            _ => Ok(true),
        }
    }

    pub(crate) fn number_range(&self, row_group: usize, shredded: usize) -> Option<(f64, f64)> {
        let index = self.footer.layout.column_index(shredded, ShreddedPart::Number)?;
        self.footer.outline.doubles(row_group, index)
    }

    pub(crate) fn string_bounds(&self, row_group: usize, shredded: usize) -> Option<(&[u8], &[u8])> {
        let layout = &self.footer.layout;
        let statistics = |part| {
            let TextStatistics { values, bounds } =
                self.footer.outline.text_statistics(row_group, layout.column_index(shredded, part)?)?;
            Some((bounds, values))
        };
        // A string is its folded text, or it is among the exact ones.
        let (Some((min, max)), texts) = statistics(ShreddedPart::Text)? else { return None };
        if layout.column_index(shredded, ShreddedPart::Exact).is_none() {
            return Some((min, max));
        }
        match statistics(ShreddedPart::Exact)? {
            (_, Some(0)) => Some((min, max)),
            // All have an exact one, so that no folded one is a string.
            (Some(exact), exacts) if exacts.is_some() && exacts == texts => Some(exact),
            (Some((exact_min, exact_max)), _) => Some((min.min(exact_min), max.max(exact_max))),
            (None, _) => None,
        }
    }

    pub(crate) fn kind_range(&self, row_group: usize, shredded: usize) -> Option<(i32, i32)> {
        let index = self.footer.layout.column_index(shredded, ShreddedPart::Kind)?;
        self.footer.outline.integers(row_group, index)
    }

    pub(crate) fn shredded_bytes(&self, shredded: usize) -> u64 {
        let layout = &self.footer.layout;
        let parts = ShreddedPart::ALL.iter().filter_map(|part| layout.column_index(shredded, *part));
        let parts: Vec<usize> = parts.collect();
        let row_groups = 0..self.footer.outline.row_groups;
        let chunks = row_groups.flat_map(|row_group| parts.iter().map(move |part| (row_group, *part)));
        chunks.map(|(row_group, part)| u64::from(self.footer.outline.chunk(row_group, part).decompressed_bytes)).sum()
    }

    pub(super) fn column_key(&self, row_group: usize, column: usize) -> PartKey {
        PartKey::Column { file: self.footer.id, row_group: row_group as u32, column: column as u32 }
    }

    pub(super) fn bloom_key(&self, row_group: usize, column: usize) -> PartKey {
        PartKey::Bloom { file: self.footer.id, row_group: row_group as u32, column: column as u32 }
    }

    pub(super) fn bloom_range(&self, row_group: usize, column: usize) -> Option<Range<u64>> {
        self.footer.outline.bloom(row_group, column).map(|(range, _)| range)
    }

    pub(crate) async fn column(&self, row_group: usize, index: usize) -> Result<ArrayRef> {
        let key = self.column_key(row_group, index);
        let load = async {
            self.columns_missed(row_group, index);
            let range = self.footer.outline.chunk(row_group, index).range();
            let start = range.start;
            let bytes = self.file.fetch(range).await?;
            verify(&bytes, self.footer.outline.column_checksum(row_group, index))?;
            let run = Run { start, bytes };
            // Parquet's decoders trust some lengths inside of pages.
            let decode = AssertUnwindSafe(|| decode_column(&self.footer, row_group, index, run));
            catch_unwind(decode).unwrap_or_else(|_| Err(StorageError::undecodable())).map(Part::Column)
        };
        let load = load.map(|loaded| {
            let part = || format!("column {index} of row group {row_group}");
            loaded.map_err(|error| self.file.blame(&part(), error))
        });
        let loaded = self.file.cache.get_or_load(key, || load).await?;
        let Part::Column(array) = loaded else { return Err(StorageError::wrong_part()) };
        Ok(array)
    }
}

fn decode_column(footer: &Footer, row_group: usize, index: usize, run: Run) -> Result<ArrayRef> {
    let rows = footer.row_groups[row_group].rows;
    let metadata = footer.column_metadata(row_group, index)?;
    let mut batches =
        ParquetRecordBatchReaderBuilder::new_with_metadata(run, metadata).with_batch_size(rows).build()?;
    match batches.next() {
        Some(batch) => {
            let array = batch?.column(0).clone();
            if array.len() != rows {
                return Err(StorageError::Layout(format!("column {index} holds {} of {rows} rows", array.len())));
            }
            Ok(array)
        }
        None => Ok(new_empty_array(footer.data_type(index))),
    }
}
