//! The columns of a version file in addition to the documents, by row group: values, bloom filters and statistics. The
//! footer has the statistics, so they cost no request.

use std::sync::Arc;

use arrow::array::{ArrayRef, new_empty_array};
use futures::FutureExt;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::bloom_filter::Sbbf;
use strata_store::{Result, StorageError};

use super::extents::Place;
use super::file::FileReader;
use super::version::VersionReader;
use crate::fetched_range::{FetchedRange, decode};
use crate::footer::Footer;
use crate::layout::{ShreddedKind, ShreddedPart};
use crate::parts::{Part, PartKey};

impl VersionReader {
    /// Whether the texts of a shredded column in a row group may include one of `texts`: false only when none is there.
    /// A damaged filter is reported, and tells nothing.
    pub async fn may_hold_text(&self, row_group: usize, shredded: usize, text: &[u8]) -> Result<bool> {
        let Some(index) = self.layout().column_index(shredded, ShreddedPart::Text) else { return Ok(true) };
        let Place { reader, row_group, .. } = self.place(row_group);
        let FileReader { file, footer } = reader;
        let load = async {
            let Some((range, checksum)) = footer.outline.bloom(row_group, index) else { return Ok(Part::Bloom(None)) };
            reader.bloom_missed(row_group);
            let run = file.fetch_verified(range, checksum).await?;
            let column = footer.chunk_metadata(row_group, index)?;
            let bloom = decode(|| Ok(Sbbf::read_from_column_chunk(&column, &run)?))?;
            // A filter without blocks cannot be asked.
            match bloom {
                Some(bloom) if bloom.num_blocks() == 0 => Err(StorageError::undecodable()),
                bloom => Ok(Part::Bloom(bloom.map(Arc::new))),
            }
        };
        let part = || format!("the bloom filter of column {index} of row group {row_group}");
        let load = load.map(|loaded| loaded.map_err(|error| file.blame_accelerator(&part(), error)));
        match file.cache.get_or_load(reader.bloom_key(row_group, index), || load).await {
            Ok(Part::Bloom(Some(bloom))) => Ok(bloom.check(text)),
            Err(error) if !error.is_damage() => Err(error),
            _ => Ok(true),
        }
    }

    /// The minimum and the maximum of the doubles of a shredded column in a row group; `None` if there is no number.
    pub fn number_range(&self, row_group: usize, shredded: usize) -> Option<(f64, f64)> {
        let index = self.layout().column_index(shredded, ShreddedPart::Number)?;
        let Place { reader, row_group, .. } = self.place(row_group);
        reader.footer.outline.details(row_group, index).doubles
    }

    /// Bounds of a shredded column's strings in a row group, as exact texts: none is below the first or above the
    /// second, by code point. `None` if the footer has no bounds of them.
    pub fn string_bounds(&self, row_group: usize, shredded: usize) -> Option<(&[u8], &[u8])> {
        let layout = self.layout();
        let Place { reader, row_group, .. } = self.place(row_group);
        let outline = &reader.footer.outline;
        let statistics = |part| {
            let index = layout.column_index(shredded, part)?;
            let details = outline.details(row_group, index);
            let values = details.nulls.map(|nulls| outline.chunk(row_group, index).values.saturating_sub(nulls));
            details.has_texts.then_some((details.bounds, values))
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

    /// Whether a shredded column may reach a null in a row group.
    pub fn holds_null(&self, row_group: usize, shredded: usize) -> bool {
        self.kind_range(row_group, shredded).is_none_or(|(min, _)| min == ShreddedKind::Null as i32)
    }

    /// The least and the greatest [`ShreddedKind`] of a row group, as numbers, if they are known.
    pub fn kind_range(&self, row_group: usize, shredded: usize) -> Option<(i32, i32)> {
        let index = self.layout().column_index(shredded, ShreddedPart::Kind)?;
        let Place { reader, row_group, .. } = self.place(row_group);
        reader.footer.outline.details(row_group, index).integers
    }

    /// Elements of a shredded column in all row groups, and a few more if lists are empty.
    pub fn element_count(&self, shredded: usize) -> u64 {
        let Some(index) = self.layout().column_index(shredded, ShreddedPart::Text) else { return 0 };
        let elements = |row_group| {
            let place = self.place(row_group);
            place.share(place.reader.footer.outline.chunk(place.row_group, index).values.into())
        };
        (0..self.row_groups().len()).map(elements).sum()
    }

    /// Bytes of a shredded column in all row groups before they were compressed.
    pub fn shredded_bytes(&self, shredded: usize) -> u64 {
        let columns = self.columns_of(shredded, &ShreddedPart::ALL);
        let row_groups =
            self.files.iter().flat_map(|file| (0..file.footer.outline.row_groups).map(move |number| (file, number)));
        row_groups.map(|(file, number)| file.column_bytes(number, &columns).1).sum()
    }
}

impl FileReader {
    pub(super) fn column_bytes(&self, row_group: usize, columns: &[usize]) -> (u64, u64) {
        let chunks = columns.iter().map(|column| self.footer.outline.chunk(row_group, *column));
        chunks.fold((0, 0), |(stored, decompressed), chunk| {
            (stored + u64::from(chunk.stored_bytes), decompressed + u64::from(chunk.decompressed_bytes))
        })
    }

    pub(super) fn bloom_key(&self, row_group: usize, column: usize) -> PartKey {
        PartKey::Bloom { file: self.footer.id, row_group: row_group as u32, column: column as u32 }
    }

    pub(crate) async fn column(&self, row_group: usize, index: usize) -> Result<ArrayRef> {
        let load = async {
            self.columns_missed(row_group, index);
            let chunk = self.footer.outline.chunk(row_group, index);
            let run = self.file.fetch_verified(chunk.range(), chunk.checksum).await?;
            decode(|| decode_column(&self.footer, row_group, index, run)).map(Part::Column)
        };
        let part = || format!("column {index} of row group {row_group}");
        let load = load.map(|loaded| loaded.map_err(|error| self.file.blame(&part(), error)));
        let loaded = self.file.cache.get_or_load(PartKey::column(self.footer.id, row_group, index), || load).await?;
        let Part::Column(array) = loaded else { return Err(StorageError::wrong_part()) };
        Ok(array)
    }
}

fn decode_column(footer: &Footer, row_group: usize, index: usize, run: FetchedRange) -> Result<ArrayRef> {
    let rows = footer.list.row_groups[row_group].rows;
    let metadata = footer.column_metadata(row_group, index)?;
    let mut batches =
        ParquetRecordBatchReaderBuilder::new_with_metadata(run, metadata).with_batch_size(rows).build()?;
    match batches.next() {
        Some(batch) => {
            let array = batch?.column(0).clone();
            if array.len() != rows {
                return Err(StorageError::Layout(format!("it contains {} rows instead of {rows}", array.len())));
            }
            Ok(array)
        }
        None => Ok(new_empty_array(footer.schema.field(index).data_type())),
    }
}
