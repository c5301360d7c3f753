//! The columns of a version file except the documents, by row group: values and statistics. Statistics cost no request,
//! because they are in the footer index.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, ListArray, new_empty_array};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::Int32Type;
use arrow::error::ArrowError;
use futures::FutureExt;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use strata_store::{Result, StorageError};

use super::extents::TotalColumnSizes;
use super::file_reader::FileReader;
use super::version_reader::VersionReader;
use crate::cached_part::{CachedPart, PartKey};
use crate::fetched_range::{FetchedRange, decode_catching_panics};
use crate::footer::FileFooter;
use crate::layout::{ShreddedKind, ShreddedPart};

impl VersionReader {
    /// Returns inclusive bounds of an indexed column's numbers; `None` if it has no numbers.
    pub fn number_range(&self, row_group: usize, shredded: usize) -> Option<(f64, f64)> {
        let index = self.layout().column_index(shredded, ShreddedPart::Number)?;
        let ranges = self
            .row_group_sources(row_group)
            .filter_map(|source| source.reader.footer.footer_index.chunk_details(source.row_group, index).double_range);
        ranges.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// Returns inclusive bounds of an indexed column's texts in code point order, if the footer has bounds. A column
    /// that omits the texts of integers has bounds if it has other texts.
    pub fn text_bounds(&self, row_group: usize, shredded: usize) -> Option<(&[u8], &[u8])> {
        let index = self.layout().column_index(shredded, ShreddedPart::Text)?;
        let omits_integer_texts = self.layout().shredded_columns[shredded].omits_integer_texts();
        let mut all = None::<(&[u8], &[u8])>;
        for source in self.row_group_sources(row_group) {
            match source.reader.footer.footer_index.chunk_details(source.row_group, index).string_bounds {
                Some((low, high)) => {
                    all = Some(all.map_or((low, high), |(min, max)| (min.min(low), max.max(high))));
                }
                None if omits_integer_texts => {}
                None => return None,
            }
        }
        all
    }

    pub fn may_have_null(&self, row_group: usize, shredded: usize) -> bool {
        self.kind_range(row_group, shredded).is_none_or(|(min, _)| min == ShreddedKind::Null as i32)
    }

    pub fn kind_range(&self, row_group: usize, shredded: usize) -> Option<(i32, i32)> {
        let index = self.layout().column_index(shredded, ShreddedPart::Kind)?;
        let ranges = self
            .row_group_sources(row_group)
            .map(|source| source.reader.footer.footer_index.chunk_details(source.row_group, index).integer_range);
        let all: Option<Vec<(i32, i32)>> = ranges.collect();
        all?.into_iter().reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// Returns the number of elements of an indexed column, slightly more if lists are empty.
    pub fn shredded_element_count(&self, shredded: usize) -> u64 {
        let Some(index) = self.layout().column_index(shredded, ShreddedPart::Text) else { return 0 };
        let sources = (0..self.row_groups().len()).flat_map(|row_group| self.row_group_sources(row_group));
        sources
            .map(|source| source.scale(source.reader.footer.footer_index.chunk(source.row_group, index).values.into()))
            .sum()
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

    /// Returns a part of an indexed column, with case-folded texts.
    pub(crate) async fn read_folded_column(&self, row_group: usize, index: usize) -> Result<ArrayRef> {
        let load = || async {
            let column = self.read_column(row_group, index).await?;
            fold_texts(&column).map(CachedPart::Column)
        };
        let key = PartKey::folded_column(self.footer.id, row_group, index);
        let CachedPart::Column(array) = self.object_file.cache.get_or_load(key, load).await? else {
            return Err(StorageError::wrong_part_kind());
        };
        Ok(array)
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

/// Returns the case-folded texts of a column.
pub(super) fn fold_texts(column: &ArrayRef) -> Result<ArrayRef> {
    if let Some(list) = column.as_list_opt::<i32>() {
        let (field, offsets, values, nulls) = list.clone().into_parts();
        return Ok(Arc::new(ListArray::try_new(field, offsets, fold_texts(&values)?, nulls)?));
    }
    if let Some(dictionary) = column.as_dictionary_opt::<Int32Type>() {
        return Ok(Arc::new(dictionary.with_values(fold_texts(dictionary.values())?)));
    }
    let texts = column.as_binary_opt::<i32>().ok_or_else(StorageError::undecodable)?;
    let mut bytes = Vec::with_capacity(texts.value_data().len());
    let mut offsets = vec![0];
    for row in 0..texts.len() {
        strata_json::fold_bytes(texts.value(row), &mut bytes);
        let end = i32::try_from(bytes.len()).map_err(|_| ArrowError::OffsetOverflowError(bytes.len()))?;
        offsets.push(end);
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(Arc::new(BinaryArray::try_new(offsets, bytes.into(), texts.nulls().cloned())?))
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
