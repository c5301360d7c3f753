//! The columns of a version file except the documents, by row group: values, bloom filters, and statistics. Statistics
//! cost no request, because they are in the footer index.

use std::sync::Arc;

use arrow::array::{ArrayRef, new_empty_array};
use futures::FutureExt;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::bloom_filter::Sbbf;
use strata_store::{Result, StorageError};

use super::extents::{ExtentLocation, TotalColumnSizes};
use super::file_reader::FileReader;
use super::version_reader::VersionReader;
use crate::cached_part::{CachedPart, PartKey};
use crate::fetched_range::{FetchedRange, decode_catching_panics};
use crate::footer::FileFooter;
use crate::layout::{ShreddedKind, ShreddedPart};

impl VersionReader {
    /// Returns `false` only if no string of the row group equals `text`. A damaged filter is reported and ignored.
    pub async fn bloom_may_contain(&self, row_group: usize, shredded: usize, text: &[u8]) -> Result<bool> {
        let Some(index) = self.layout().column_index(shredded, ShreddedPart::Text) else { return Ok(true) };
        let ExtentLocation { reader, row_group, .. } = self.locate_extent(row_group);
        let FileReader { object_file, footer } = reader;
        let load = async {
            let Some((range, checksum)) = footer.footer_index.bloom_range(row_group, index) else {
                return Ok(CachedPart::BloomFilter(None));
            };
            reader.prefetch_blooms(row_group);
            let fetched = object_file.fetch_verified(range, checksum).await?;
            let column = footer.chunk_metadata(row_group, index)?;
            let bloom = decode_catching_panics(|| Ok(Sbbf::read_from_column_chunk(&column, &fetched)?))?;
            // A bloom filter without blocks would panic when it is used.
            match bloom {
                Some(bloom) if bloom.num_blocks() == 0 => Err(StorageError::undecodable()),
                bloom => Ok(CachedPart::BloomFilter(bloom.map(Arc::new))),
            }
        };
        let part = || format!("the bloom filter of column {index} of row group {row_group}");
        let load = load.map(|loaded| loaded.map_err(|error| object_file.report_index_damage(&part(), error)));
        match object_file.cache.get_or_load(reader.bloom_key(row_group, index), || load).await {
            Ok(CachedPart::BloomFilter(Some(bloom))) => Ok(bloom.check(text)),
            Err(error) if !error.is_file_damage() => Err(error),
            _ => Ok(true),
        }
    }

    pub fn number_range(&self, row_group: usize, shredded: usize) -> Option<(f64, f64)> {
        let index = self.layout().column_index(shredded, ShreddedPart::Number)?;
        let ExtentLocation { reader, row_group, .. } = self.locate_extent(row_group);
        reader.footer.footer_index.chunk_details(row_group, index).double_range
    }

    /// Returns inclusive bounds of an indexed column's exact strings in code point order, if the footer has bounds.
    pub fn string_bounds(&self, row_group: usize, shredded: usize) -> Option<(&[u8], &[u8])> {
        let layout = self.layout();
        let ExtentLocation { reader, row_group, .. } = self.locate_extent(row_group);
        let footer_index = &reader.footer.footer_index;
        let statistics = |part| {
            let index = layout.column_index(shredded, part)?;
            let details = footer_index.chunk_details(row_group, index);
            let values =
                details.null_count.map(|nulls| footer_index.chunk(row_group, index).values.saturating_sub(nulls));
            details.has_string_statistics.then_some((details.string_bounds, values))
        };
        // A string equals its folded text, unless the `exact` column contains the string.
        let (Some((min, max)), texts) = statistics(ShreddedPart::Text)? else { return None };
        if layout.column_index(shredded, ShreddedPart::Exact).is_none() {
            return Some((min, max));
        }
        match statistics(ShreddedPart::Exact)? {
            (_, Some(0)) => Some((min, max)),
            // All strings are in the `exact` column, so the bounds of the folded texts are irrelevant.
            (Some(exact), exact_texts) if exact_texts.is_some() && exact_texts == texts => Some(exact),
            (Some((exact_min, exact_max)), _) => Some((min.min(exact_min), max.max(exact_max))),
            (None, _) => None,
        }
    }

    pub fn may_have_null(&self, row_group: usize, shredded: usize) -> bool {
        self.kind_range(row_group, shredded).is_none_or(|(min, _)| min == ShreddedKind::Null as i32)
    }

    pub fn kind_range(&self, row_group: usize, shredded: usize) -> Option<(i32, i32)> {
        let index = self.layout().column_index(shredded, ShreddedPart::Kind)?;
        let ExtentLocation { reader, row_group, .. } = self.locate_extent(row_group);
        reader.footer.footer_index.chunk_details(row_group, index).integer_range
    }

    /// Returns the number of elements of an indexed column, slightly more if lists are empty.
    pub fn shredded_element_count(&self, shredded: usize) -> u64 {
        let Some(index) = self.layout().column_index(shredded, ShreddedPart::Text) else { return 0 };
        let elements = |row_group| {
            let location = self.locate_extent(row_group);
            location.scale_to_extent(location.reader.footer.footer_index.chunk(location.row_group, index).values.into())
        };
        (0..self.row_groups().len()).map(elements).sum()
    }

    pub fn shredded_uncompressed_bytes(&self, shredded: usize) -> u64 {
        let columns = self.column_indices(shredded, &ShreddedPart::ALL);
        let row_groups = self
            .files
            .iter()
            .flat_map(|file| (0..file.footer.footer_index.row_groups).map(move |number| (file, number)));
        row_groups.map(|(file, number)| file.total_column_sizes(number, &columns).decompressed_bytes).sum()
    }
}

impl FileReader {
    pub(super) fn total_column_sizes(&self, row_group: usize, columns: &[usize]) -> TotalColumnSizes {
        let mut sizes = TotalColumnSizes { stored_bytes: 0, decompressed_bytes: 0 };
        for chunk in columns.iter().map(|column| self.footer.footer_index.chunk(row_group, *column)) {
            sizes.stored_bytes += u64::from(chunk.stored_bytes);
            sizes.decompressed_bytes += u64::from(chunk.decompressed_bytes);
        }
        sizes
    }

    pub(super) fn bloom_key(&self, row_group: usize, column: usize) -> PartKey {
        PartKey::BloomFilter { file: self.footer.id, row_group: row_group as u32, column: column as u32 }
    }

    pub(crate) async fn read_column(&self, row_group: usize, index: usize) -> Result<ArrayRef> {
        let load = async {
            self.prefetch_planned_columns(row_group, index);
            let chunk = self.footer.footer_index.chunk(row_group, index);
            let fetched = self.object_file.fetch_verified(chunk.range(), chunk.checksum).await?;
            decode_catching_panics(|| decode_column(&self.footer, row_group, index, fetched)).map(CachedPart::Column)
        };
        let part = || format!("column {index} of row group {row_group}");
        let load = load.map(|loaded| loaded.map_err(|error| self.object_file.report_damage(&part(), error)));
        let loaded =
            self.object_file.cache.get_or_load(PartKey::column(self.footer.id, row_group, index), || load).await?;
        let CachedPart::Column(array) = loaded else { return Err(StorageError::wrong_part_kind()) };
        Ok(array)
    }
}

fn decode_column(footer: &FileFooter, row_group: usize, index: usize, fetched: FetchedRange) -> Result<ArrayRef> {
    let rows = footer.extent_list.row_groups[row_group].rows;
    let metadata = footer.column_metadata(row_group, index)?;
    let mut batches =
        ParquetRecordBatchReaderBuilder::new_with_metadata(fetched, metadata).with_batch_size(rows).build()?;
    let Some(batch) = batches.next() else { return Ok(new_empty_array(footer.schema.field(index).data_type())) };
    let array = batch?.column(0).clone();
    if array.len() != rows {
        return Err(StorageError::InvalidFile(format!("it contains {} rows instead of {rows}", array.len())));
    }
    Ok(array)
}
