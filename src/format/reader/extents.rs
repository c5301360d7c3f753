//! Reads the parts of a version by its row groups. Each of these is an extent: rows of a row group of a file.
//!
//! If an extent has only some rows of a row group, the whole row group is decoded and cached, and the rows are copied.
//! The statistics of the row group apply to the extent, but a value in them need not occur in the extent.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, MutableArrayData, make_array};
use strata_store::{Result, StorageError};

use super::columns::fold_texts;
use super::file_reader::FileReader;
use super::readahead::PrefetchPlan;
use super::version_reader::VersionReader;
use crate::cached_part::{CachedPart, PartKey};
use crate::document_page::{DocumentForm, DocumentPage, ResidentPage};
use crate::keywords::field_set::FieldSet;
use crate::keywords::segment::KeywordCandidates;
use crate::keywords::segment_directory::KeywordIndex;
use crate::keywords::tokenizer::TermQuery;
use crate::layout::{DOCUMENT_COLUMN_INDEX, HASH_COLUMN_INDEX, ShreddedPart};
use crate::overlay::Extent;
use crate::page_table;

/// The sizes of some columns of a row group.
#[derive(Clone, Copy, Debug)]
pub struct TotalColumnSizes {
    pub stored_bytes: u64,
    pub decompressed_bytes: u64,
}

pub(super) struct ExtentLocation<'a> {
    pub(super) reader: &'a FileReader,
    pub(super) row_group: usize,
    partial_rows: Option<Range<usize>>,
}

impl ExtentLocation<'_> {
    fn page_range(&self) -> Range<usize> {
        let page_for_row = |row| self.reader.page_for_row(self.row_group, row);
        match &self.partial_rows {
            None => 0..self.reader.page_count(self.row_group),
            Some(rows) => page_for_row(rows.start)..page_for_row(rows.end - 1) + 1,
        }
    }

    fn first_row(&self) -> usize {
        self.partial_rows.as_ref().map_or(0, |rows| rows.start)
    }

    fn slice_page(&self, page: DocumentPage) -> DocumentPage {
        match &self.partial_rows {
            None => page,
            Some(rows) => page.slice_rows(rows),
        }
    }

    pub(super) fn scale_to_extent(&self, sum: u64) -> u64 {
        let Some(rows) = &self.partial_rows else { return sum };
        let all = self.reader.footer.extent_list.row_groups[self.row_group].rows.max(1);
        (u128::from(sum) * rows.len() as u128 / all as u128) as u64
    }
}

impl VersionReader {
    pub(super) fn locate_extent(&self, row_group: usize) -> ExtentLocation<'_> {
        let extent = self.extent_list.extents[row_group];
        let reader = &self.files[usize::from(extent.file)];
        let row_group = extent.row_group as usize;
        let rows = extent.rows as usize;
        let start = extent.start as usize;
        let is_whole = rows == reader.footer.extent_list.row_groups[row_group].rows;
        ExtentLocation { reader, row_group, partial_rows: (!is_whole).then_some(start..start + rows) }
    }

    pub fn stable_row_group_name(&self, row_group: usize) -> Vec<u8> {
        let location = self.locate_extent(row_group);
        format!("{} {}", location.reader.object_file.path, location.row_group).into_bytes()
    }

    /// Returns the canonical hashes of a row group, as a binary array with 16 bytes per row.
    pub async fn read_entity_hashes(&self, row_group: usize) -> Result<ArrayRef> {
        self.read_column(row_group, HASH_COLUMN_INDEX).await
    }

    /// Returns a part of an indexed column: a list array if rows have lists, a dictionary array if it has `dictionary`.
    pub async fn read_shredded(
        &self,
        row_group: usize,
        shredded: usize,
        column: ShreddedPart,
    ) -> Result<Option<ArrayRef>> {
        let Some(index) = self.layout().column_index(shredded, column) else { return Ok(None) };
        self.read_column(row_group, index).await.map(Some)
    }

    /// Returns the case-folded texts of an indexed column.
    pub async fn read_folded_texts(&self, row_group: usize, shredded: usize) -> Result<ArrayRef> {
        let layout = self.layout();
        let missing = || StorageError::InvalidFile(format!("indexed column {shredded} has no text"));
        let column = layout.column_index(shredded, ShreddedPart::Text).ok_or_else(missing)?;
        if !layout.shredded_columns[shredded].needs_folding {
            return self.read_column(row_group, column).await;
        }
        let location = self.locate_extent(row_group);
        if location.partial_rows.is_none() {
            return location.reader.read_folded_column(location.row_group, column).await;
        }
        let load = || async { fold_texts(&self.read_column(row_group, column).await?).map(CachedPart::Column) };
        let key = PartKey::folded_column(self.extent_list.id, row_group, column);
        let CachedPart::Column(array) = self.cache().get_or_load(key, load).await? else {
            return Err(StorageError::wrong_part_kind());
        };
        Ok(array)
    }

    pub fn has_cached_folded_texts(&self, row_group: usize, shredded: usize) -> bool {
        let layout = self.layout();
        let Some(column) = layout.column_index(shredded, ShreddedPart::Text) else { return false };
        if !layout.shredded_columns[shredded].needs_folding {
            return self.is_column_cached(row_group, column);
        }
        let location = self.locate_extent(row_group);
        self.cache().contains(&match location.partial_rows {
            None => PartKey::folded_column(location.reader.footer.id, location.row_group, column),
            Some(_) => PartKey::folded_column(self.extent_list.id, row_group, column),
        })
    }

    async fn read_column(&self, row_group: usize, column: usize) -> Result<ArrayRef> {
        let location = self.locate_extent(row_group);
        let Some(rows) = location.partial_rows.clone() else {
            return location.reader.read_column(location.row_group, column).await;
        };
        let load = || async {
            let whole = location.reader.read_column(location.row_group, column).await?;
            if whole.len() < rows.end {
                return Err(StorageError::InvalidFile("a column has too few rows".to_owned()));
            }
            Ok(CachedPart::Column(copy_rows(&whole, rows.clone())?))
        };
        let loaded = self.cache().get_or_load(PartKey::column(self.extent_list.id, row_group, column), load).await?;
        let CachedPart::Column(array) = loaded else { return Err(StorageError::wrong_part_kind()) };
        Ok(array)
    }

    fn is_column_cached(&self, row_group: usize, column: usize) -> bool {
        let location = self.locate_extent(row_group);
        let is_cached = |key: &PartKey| self.cache().contains(key);
        is_cached(&PartKey::column(location.reader.footer.id, location.row_group, column))
            || (location.partial_rows.is_some() && is_cached(&PartKey::column(self.extent_list.id, row_group, column)))
    }

    pub fn has_cached_columns(&self, row_group: usize, columns: &[usize]) -> bool {
        columns.iter().all(|column| self.is_column_cached(row_group, *column))
    }

    pub fn column_indices(&self, shredded: usize, parts: &[ShreddedPart]) -> Vec<usize> {
        parts.iter().filter_map(|part| self.layout().column_index(shredded, *part)).collect()
    }

    pub fn total_column_sizes(&self, row_group: usize, columns: &[usize]) -> TotalColumnSizes {
        let location = self.locate_extent(row_group);
        let row_group_sizes = location.reader.total_column_sizes(location.row_group, columns);
        TotalColumnSizes {
            stored_bytes: location.scale_to_extent(row_group_sizes.stored_bytes),
            decompressed_bytes: location.scale_to_extent(row_group_sizes.decompressed_bytes),
        }
    }

    pub fn document_column_bytes(&self, row_group: usize) -> u64 {
        self.total_column_sizes(row_group, &[DOCUMENT_COLUMN_INDEX]).stored_bytes
    }

    pub fn stored_bytes(&self, row_group: usize) -> u64 {
        let location = self.locate_extent(row_group);
        location.scale_to_extent(location.reader.stored_bytes(location.row_group))
    }

    pub fn page_count(&self, row_group: usize) -> usize {
        self.locate_extent(row_group).page_range().len()
    }

    pub fn page_for_row(&self, row_group: usize, row: usize) -> usize {
        let location = self.locate_extent(row_group);
        location.reader.page_for_row(location.row_group, location.first_row() + row) - location.page_range().start
    }

    pub fn is_page_cached(&self, row_group: usize, page: usize) -> bool {
        let location = self.locate_extent(row_group);
        location.reader.is_page_cached(location.row_group, location.page_range().start + page)
    }

    pub fn can_cache_documents(&self) -> bool {
        self.layout().document_bytes <= self.cache().capacity_bytes() / 2
    }

    /// Returns the documents at ranges of positions, if all of them are in memory and have at most `max_bytes` in
    /// total. Each item contains documents of one page. Cache lookups are counted only if documents are returned.
    pub async fn try_resident_documents(
        &self,
        position_ranges: impl Iterator<Item = Range<u64>> + Send,
        max_bytes: usize,
        form: DocumentForm,
    ) -> Option<Vec<ResidentPage>> {
        // Each step of this function handles all pages, so that the processor loads their scattered memory in parallel.
        let mut locations = Vec::with_capacity(position_ranges.size_hint().0);
        for positions in position_ranges {
            let mut position = positions.start;
            while position < positions.end {
                let row_group = self.row_group_at(position);
                let group = self.row_groups()[row_group];
                let location = self.locate_extent(row_group);
                let row = (position - group.first_position) as usize;
                let start = location.first_row();
                let end = start + group.rows.min(row + (positions.end - position) as usize);
                let page = location.reader.page_for_row(location.row_group, start + row);
                let rows = start + row..end.min(location.reader.page_end_row(location.row_group, page));
                if rows.is_empty() {
                    return None;
                }
                position += rows.len() as u64;
                locations.push((location.reader, location.row_group, page, rows));
            }
        }
        let table_pages = page_table::get_pages(
            locations.iter().map(|(reader, row_group, page, _)| (&reader.footer.page_table, *row_group, *page)),
        );
        for (page, (.., rows)) in table_pages.iter().zip(&locations) {
            page.iter().for_each(|page| page.cpu_prefetch_range(rows.start));
        }
        let mut resident_pages = Vec::with_capacity(locations.len());
        let mut keys = Vec::with_capacity(locations.len());
        let mut bytes = 0;
        let mut page_bytes = 0;
        for (table_page, (reader, row_group, page, rows)) in table_pages.into_iter().zip(locations) {
            let stored = match table_page {
                Some(table_page) => table_page,
                None => reader.peek_cached_page(row_group, page).await?,
            };
            let indented = match form {
                DocumentForm::PreferIndented => reader.indented_page(row_group, page, &stored, rows.len()).await,
                DocumentForm::Stored => None,
            };
            let key = reader.page_key(row_group, page);
            if keys.last() != Some(&key) {
                page_bytes += stored.memory_bytes() as u64;
                keys.push(key);
            }
            let stored = stored.slice_rows(&rows);
            if stored.len() != rows.len() {
                return None;
            }
            bytes += stored.document_bytes();
            resident_pages.push(ResidentPage { stored, indented: indented.map(|page| page.slice_rows(&rows)) });
        }
        if bytes > max_bytes {
            return None;
        }
        resident_pages.iter().for_each(|page| page.indented.as_ref().unwrap_or(&page.stored).cpu_prefetch_documents());
        self.cache().count_page_hits(&keys, page_bytes);
        Some(resident_pages)
    }

    pub async fn cached_document_page(&self, row_group: usize, page: usize) -> Option<DocumentPage> {
        let location = self.locate_extent(row_group);
        let cached = location.reader.cached_document_page(location.row_group, location.page_range().start + page).await;
        cached.map(|page| location.slice_page(page))
    }

    pub async fn read_document_page(&self, row_group: usize, page: usize) -> Result<DocumentPage> {
        let location = self.locate_extent(row_group);
        let page = location.reader.read_document_page(location.row_group, location.page_range().start + page).await?;
        Ok(location.slice_page(page))
    }

    /// Reads the first of `pages`: as many as one request of limited size fetches, but at least one.
    pub async fn read_document_pages(&self, row_group: usize, pages: Range<usize>) -> Result<Vec<DocumentPage>> {
        let location = self.locate_extent(row_group);
        let before = location.page_range().start;
        let pages = before + pages.start..before + pages.end;
        let document_pages = location.reader.read_document_pages(location.row_group, pages).await?;
        Ok(document_pages.into_iter().map(|page| location.slice_page(page)).collect())
    }

    pub fn keyword_index(&self) -> &KeywordIndex {
        &self.extent_list.keyword_index
    }

    /// Returns the rows of a segment that can match a query in the fields, according to the keyword index. Returns
    /// [`KeywordCandidates::Scan`] if the index cannot decide, or would cost more than a scan.
    pub async fn keyword_candidates(
        &self,
        mut segment: usize,
        query: &TermQuery,
        fields: FieldSet,
    ) -> Result<KeywordCandidates> {
        for reader in &*self.files {
            match segment.checked_sub(reader.footer.extent_list.keyword_index.segments.len()) {
                None => return reader.keyword_candidates(segment, query, fields).await,
                Some(remaining) => segment = remaining,
            }
        }
        Ok(KeywordCandidates::Scan)
    }

    pub fn with_readahead(&self, plan: PrefetchPlan) -> VersionReader {
        // Only the base is prefetched: the delta of an edited version has few entities, which need few requests.
        let in_base = |extent: &Extent| (extent.file == Extent::BASE).then_some(extent.row_group as usize);
        let extents = self.extent_list.extents.get(plan.row_groups.clone()).unwrap_or_default();
        let mut row_groups = extents.iter().filter_map(in_base);
        let first = row_groups.next().unwrap_or_default();
        let end = row_groups.next_back().unwrap_or(first) + 1;
        let row_groups = if extents.is_empty() { 0..0 } else { first..end.min(self.base_row_group_count()) };
        let scan_order = plan.scan_order.as_ref().map(|order| {
            let extents = order.iter().filter_map(|number| self.extent_list.extents.get(*number));
            let mut base_row_groups: Vec<usize> = extents.filter_map(in_base).collect();
            base_row_groups.dedup();
            base_row_groups.into()
        });
        let mut files = vec![self.base_file().with_readahead(PrefetchPlan { row_groups, scan_order, ..plan })];
        files.extend_from_slice(&self.files[1..]);
        VersionReader { files: files.into(), extent_list: self.extent_list.clone() }
    }

    pub fn is_waiting_for_store(&self) -> bool {
        self.files.iter().any(FileReader::is_waiting_for_store)
    }

    pub fn prefetch_pages(&self, pages: &[(usize, usize)]) {
        let is_in_base = |row_group: usize| self.extent_list.extents[row_group].file == Extent::BASE;
        let in_base = pages.iter().filter(|(row_group, _)| is_in_base(*row_group));
        let locations = in_base.map(|(row_group, page)| {
            let location = self.locate_extent(*row_group);
            (location.row_group, location.page_range().start + page)
        });
        self.base_file().prefetch_pages(&locations.collect::<Vec<_>>());
    }
}

fn copy_rows(whole: &ArrayRef, rows: Range<usize>) -> Result<ArrayRef> {
    let data = whole.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, rows.len());
    copy.try_extend(0, rows.start, rows.end)?;
    Ok(make_array(copy.freeze()))
}
