//! Reads the parts of a version by its row groups ([`crate::extent_list`]).
//!
//! A row group that is a whole row group of a file is read from this file. For others, the row groups of the files are
//! decoded and cached, and their rows are copied and cached, too. The statistics of these row groups apply, but a value
//! in them need not occur in the rows.

use std::collections::HashMap;
use std::ops::Range;

use arrow::array::ArrayRef;
use futures::future::try_join_all;
use strata_store::{Result, StorageError};

use super::columns::fold_texts;
use super::file_reader::FileReader;
use super::gather::gather_rows;
use super::readahead::PrefetchPlan;
use super::version_reader::VersionReader;
use crate::cached_part::{CachedPart, PartKey};
use crate::document_page::{DocumentForm, DocumentPage, ResidentPage};
use crate::extent_list::{PlacedExtent, RowRanges, SourceRowGroup};
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

/// The rows of a row group that come from one row group of a file.
#[derive(Clone, Copy, Debug)]
pub struct KeywordRows<'a> {
    /// The number of the keyword index segment with the rows, and the number of the row group's first row in it. `None`
    /// if no segment has the rows.
    segment: Option<(usize, usize)>,
    ranges: RowRanges<'a>,
}

impl KeywordRows<'_> {
    /// Returns the number of the segment, and the range in it that contains all rows, perhaps with others between them.
    pub fn segment_range(&self) -> Option<(usize, Range<usize>)> {
        let (segment, start) = self.segment?;
        let bounds = self.ranges.bounds()?;
        Some((segment, start + bounds.start..start + bounds.end))
    }

    /// Returns pairs of a row of the segment and its number in the row group. Skips rows that the row group does not
    /// have. `segment_rows` must be ascending.
    pub fn rows_of(&self, segment_rows: impl Iterator<Item = usize>) -> impl Iterator<Item = (usize, usize)> {
        let start = self.segment.map_or(usize::MAX, |(_, start)| start);
        let mut ranges = self.ranges;
        segment_rows.filter_map(move |segment_row| {
            let row = u32::try_from(segment_row.checked_sub(start)?).ok()?;
            Some((segment_row, ranges.find_next(row)? as usize))
        })
    }

    /// Returns the rows as ranges of the row group.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.ranges.in_version()
    }
}

/// A document page of a row group, as a page of a file.
struct PageLocation<'a> {
    reader: &'a FileReader,
    row_group: usize,
    page: usize,
    /// The rows of the extent in the row group of the file, and the number of its first row in that of the version.
    rows: Range<usize>,
    first_row: usize,
}

impl PageLocation<'_> {
    fn slice(&self, page: DocumentPage) -> DocumentPage {
        page.slice_rows(&self.rows, self.first_row)
    }
}

/// A row group of a file, from which a row group of the version has rows.
pub(super) struct RowGroupSource<'a> {
    pub(super) reader: &'a FileReader,
    pub(super) row_group: usize,
    rows: u64,
}

impl RowGroupSource<'_> {
    /// Returns the part of a sum over all rows that the version's rows account for.
    pub(super) fn scale(&self, sum: u64) -> u64 {
        let all = u64::from(self.reader.footer.footer_index.rows(self.row_group));
        if self.rows == all {
            return sum;
        }
        (u128::from(sum) * u128::from(self.rows) / u128::from(all.max(1))) as u64
    }
}

impl VersionReader {
    /// Returns the row group of a file that a row group of the version consists of; `None` if it has other rows.
    fn whole_row_group(&self, row_group: usize) -> Option<(&FileReader, usize)> {
        let [PlacedExtent { extent, .. }] = self.extent_list.row_group_extents(row_group) else { return None };
        let reader = &self.files[usize::from(extent.file)];
        let is_whole = extent.rows == reader.footer.footer_index.rows(extent.row_group as usize);
        is_whole.then_some((reader, extent.row_group as usize))
    }

    pub(super) fn row_group_sources(&self, row_group: usize) -> impl Iterator<Item = RowGroupSource<'_>> {
        self.extent_list.sources(row_group).iter().map(|source| RowGroupSource {
            reader: &self.files[usize::from(source.file)],
            row_group: source.row_group as usize,
            rows: source.rows.into(),
        })
    }

    /// Returns the bytes of the documents that the version has from each of its files, estimated from the mean size of
    /// the documents in each row group.
    pub(crate) fn document_bytes_of_files(&self) -> Vec<u64> {
        let mut bytes = vec![0; self.files.len()];
        for source in (0..self.row_groups().len()).flat_map(|row_group| self.extent_list.sources(row_group)) {
            let file = usize::from(source.file);
            let index = &self.files[file].footer.footer_index;
            bytes[file] += index.estimate_document_bytes(source.row_group as usize, source.rows);
        }
        bytes
    }

    /// Returns the row of a file at a position, which must exist.
    pub(crate) fn row_at(&self, position: u64) -> Extent {
        let row_group = self.row_group_at(position);
        let row = (position - self.row_groups()[row_group].first_position) as u32;
        let PlacedExtent { extent, first_row, .. } = self.extent_list.extent_for_row(row_group, row as usize);
        Extent { start: extent.start + row - first_row, rows: 1, ..extent }
    }

    /// Returns a name of the row group that is the same for all versions in which most of its rows are the same.
    pub fn stable_row_group_name(&self, row_group: usize) -> Vec<u8> {
        let largest = self.row_group_sources(row_group).max_by_key(|source| source.rows);
        let name = |source: RowGroupSource<'_>| format!("{} {}", source.reader.object_file.path, source.row_group);
        largest.map_or(String::new(), name).into_bytes()
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
        if let Some((reader, row_group)) = self.whole_row_group(row_group) {
            return reader.read_folded_column(row_group, column).await;
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
        self.cache().contains(&match self.whole_row_group(row_group) {
            Some((reader, row_group)) => PartKey::folded_column(reader.footer.id, row_group, column),
            None => PartKey::folded_column(self.extent_list.id, row_group, column),
        })
    }

    async fn read_column(&self, row_group: usize, column: usize) -> Result<ArrayRef> {
        if let Some((reader, row_group)) = self.whole_row_group(row_group) {
            return reader.read_column(row_group, column).await;
        }
        let load = || async {
            let sources = self.extent_list.sources(row_group);
            let read = |source: &SourceRowGroup| {
                self.files[usize::from(source.file)].read_column(source.row_group as usize, column)
            };
            let arrays = try_join_all(sources.iter().map(read)).await?;
            let numbers: HashMap<(u8, u32), usize> =
                sources.iter().map(|source| (source.file, source.row_group)).zip(0..).collect();
            let extents = self.extent_list.row_group_extents(row_group).iter().map(|placed| placed.extent);
            let ranges = extents.map(|Extent { file, row_group, start, rows }| {
                (numbers[&(file, row_group)], start as usize..(start + rows) as usize)
            });
            gather_rows(arrays, ranges).map(CachedPart::Column)
        };
        let loaded = self.cache().get_or_load(PartKey::column(self.extent_list.id, row_group, column), load).await?;
        let CachedPart::Column(array) = loaded else { return Err(StorageError::wrong_part_kind()) };
        Ok(array)
    }

    fn is_column_cached(&self, row_group: usize, column: usize) -> bool {
        let is_cached = |id, row_group| self.cache().contains(&PartKey::column(id, row_group, column));
        match self.whole_row_group(row_group) {
            Some((reader, row_group)) => is_cached(reader.footer.id, row_group),
            None => {
                is_cached(self.extent_list.id, row_group)
                    || self
                        .row_group_sources(row_group)
                        .all(|source| is_cached(source.reader.footer.id, source.row_group))
            }
        }
    }

    pub fn has_cached_columns(&self, row_group: usize, columns: &[usize]) -> bool {
        columns.iter().all(|column| self.is_column_cached(row_group, *column))
    }

    pub fn column_indices(&self, shredded: usize, parts: &[ShreddedPart]) -> Vec<usize> {
        parts.iter().filter_map(|part| self.layout().column_index(shredded, *part)).collect()
    }

    pub fn total_column_sizes(&self, row_group: usize, columns: &[usize]) -> TotalColumnSizes {
        let mut total = TotalColumnSizes { stored_bytes: 0, decompressed_bytes: 0 };
        for source in self.row_group_sources(row_group) {
            let sizes = source.reader.total_column_sizes(source.row_group, columns);
            total.stored_bytes += source.scale(sizes.stored_bytes);
            total.decompressed_bytes += source.scale(sizes.decompressed_bytes);
        }
        total
    }

    pub fn document_column_bytes(&self, row_group: usize) -> u64 {
        self.total_column_sizes(row_group, &[DOCUMENT_COLUMN_INDEX]).stored_bytes
    }

    pub fn stored_bytes(&self, row_group: usize) -> u64 {
        self.row_group_sources(row_group).map(|source| source.scale(source.reader.stored_bytes(source.row_group))).sum()
    }

    pub fn page_count(&self, row_group: usize) -> usize {
        self.extent_list.page_count(row_group)
    }

    pub fn page_for_row(&self, row_group: usize, row: usize) -> usize {
        let PlacedExtent { extent, first_row, first_page, file_page } = self.extent_list.extent_for_row(row_group, row);
        let file_row = extent.start as usize + row - first_row as usize;
        let reader = &self.files[usize::from(extent.file)];
        first_page as usize + reader.page_for_row(extent.row_group as usize, file_row) - file_page as usize
    }

    fn locate_page(&self, row_group: usize, page: usize) -> PageLocation<'_> {
        let placed = self.extent_list.extent_for_page(row_group, page);
        self.locate_page_of(placed, page)
    }

    fn locate_page_of(&self, placed: PlacedExtent, page: usize) -> PageLocation<'_> {
        let PlacedExtent { extent, first_row, first_page, file_page } = placed;
        PageLocation {
            reader: &self.files[usize::from(extent.file)],
            row_group: extent.row_group as usize,
            page: file_page as usize + page - first_page as usize,
            rows: extent.start as usize..(extent.start + extent.rows) as usize,
            first_row: first_row as usize,
        }
    }

    pub fn is_page_cached(&self, row_group: usize, page: usize) -> bool {
        let location = self.locate_page(row_group, page);
        location.reader.is_page_cached(location.row_group, location.page)
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
                let row = (position - self.row_groups()[row_group].first_position) as usize;
                let PlacedExtent { extent, first_row, .. } = self.extent_list.extent_for_row(row_group, row);
                let reader = &self.files[usize::from(extent.file)];
                let row_group = extent.row_group as usize;
                let start = extent.start as usize + row - first_row as usize;
                let wanted = (positions.end - position).min(extent.rows.into()) as usize;
                let end = (start + wanted).min((extent.start + extent.rows) as usize);
                let page = reader.page_for_row(row_group, start);
                let rows = start..end.min(reader.page_end_row(row_group, page));
                if rows.is_empty() {
                    return None;
                }
                position += rows.len() as u64;
                locations.push((reader, row_group, page, rows));
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
            let stored = stored.slice_rows(&rows, 0);
            if stored.len() != rows.len() {
                return None;
            }
            bytes += stored.document_bytes();
            resident_pages.push(ResidentPage { stored, indented: indented.map(|page| page.slice_rows(&rows, 0)) });
        }
        if bytes > max_bytes {
            return None;
        }
        resident_pages.iter().for_each(|page| page.indented.as_ref().unwrap_or(&page.stored).cpu_prefetch_documents());
        self.cache().count_page_hits(&keys, page_bytes);
        Some(resident_pages)
    }

    pub async fn cached_document_page(&self, row_group: usize, page: usize) -> Option<DocumentPage> {
        let location = self.locate_page(row_group, page);
        let cached = location.reader.cached_document_page(location.row_group, location.page).await;
        cached.map(|page| location.slice(page))
    }

    pub async fn read_document_page(&self, row_group: usize, page: usize) -> Result<DocumentPage> {
        let location = self.locate_page(row_group, page);
        let page = location.reader.read_document_page(location.row_group, location.page).await?;
        Ok(location.slice(page))
    }

    /// Reads the first of `pages`: as many as one request of limited size fetches, but at least one.
    pub async fn read_document_pages(&self, row_group: usize, pages: Range<usize>) -> Result<Vec<DocumentPage>> {
        if pages.is_empty() {
            return Ok(Vec::new());
        }
        let extents = self.extent_list.row_group_extents(row_group);
        let start = extents.partition_point(|placed| placed.first_page as usize <= pages.start) - 1;
        let end = extents.partition_point(|placed| (placed.first_page as usize) < pages.end);
        // One request fetches pages of the row group of a file that has most rows. Extents of other files between them
        // are short, and their pages are read one by one.
        let main = self.row_group_sources(row_group).max_by_key(|source| source.rows);
        let is_main = |location: &PageLocation<'_>| {
            main.as_ref().is_some_and(|main| {
                (main.reader.footer.id, main.row_group) == (location.reader.footer.id, location.row_group)
            })
        };
        let mut main_pages: Option<Range<usize>> = None;
        for (number, placed) in extents.iter().enumerate().take(end).skip(start) {
            let next = extents.get(number + 1).map_or(self.page_count(row_group), |next| next.first_page as usize);
            let first = self.locate_page_of(*placed, pages.start.max(placed.first_page as usize));
            if is_main(&first) {
                let end = self.locate_page_of(*placed, next.min(pages.end) - 1).page + 1;
                let range = main_pages.get_or_insert(first.page..end);
                range.end = range.end.max(end);
            }
        }
        let main_start = main_pages.as_ref().map_or(0, |range| range.start);
        let fetched = match (main_pages, &main) {
            (Some(range), Some(main)) => main.reader.read_document_pages(main.row_group, range).await?,
            _ => Vec::new(),
        };
        let first_page = pages.start;
        let mut document_pages = Vec::new();
        let mut extent = start;
        // The last page of each other file, which several extents need.
        let mut last_pages: HashMap<u64, (usize, usize, DocumentPage)> = HashMap::new();
        for page in pages {
            while extents.get(extent + 1).is_some_and(|next| next.first_page as usize <= page) {
                extent += 1;
            }
            let location = self.locate_page_of(extents[extent], page);
            let document_page = if is_main(&location) {
                let Some(number) = location.page.checked_sub(main_start).filter(|number| *number < fetched.len())
                else {
                    break;
                };
                fetched[number].clone()
            } else {
                let key = (location.row_group, location.page);
                let last = last_pages.get(&location.reader.footer.id);
                match last.filter(|(row_group, page, _)| (*row_group, *page) == key) {
                    Some((.., last)) => last.clone(),
                    None => {
                        let read = location.reader.read_document_page(location.row_group, location.page).await?;
                        last_pages.insert(location.reader.footer.id, (key.0, key.1, read.clone()));
                        read
                    }
                }
            };
            document_pages.push(location.slice(document_page));
        }
        // A moved extent of the row group can be before the pages that were fetched.
        if document_pages.is_empty() {
            document_pages.push(self.read_document_page(row_group, first_page).await?);
        }
        Ok(document_pages)
    }

    pub fn keyword_index(&self) -> &KeywordIndex {
        &self.extent_list.keyword_index
    }

    /// Returns where the keyword index has the rows of a row group.
    pub fn keyword_rows(&self, row_group: usize) -> impl Iterator<Item = KeywordRows<'_>> {
        self.extent_list.source_rows(row_group).map(|(source, ranges)| {
            let file = usize::from(source.file);
            let index = &self.files[file].footer.extent_list.keyword_index;
            let segment = index.segment_and_first_row(source.row_group as usize).map(|(number, start)| {
                let before: usize = self.files[..file].iter().map(FileReader::keyword_segment_count).sum();
                (before + number, start)
            });
            KeywordRows { segment, ranges }
        })
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
            match segment.checked_sub(reader.keyword_segment_count()) {
                None => return reader.keyword_candidates(segment, query, fields).await,
                Some(remaining) => segment = remaining,
            }
        }
        Ok(KeywordCandidates::Scan)
    }

    pub fn with_readahead(&self, plan: PrefetchPlan) -> VersionReader {
        let row_groups = match &plan.scan_order {
            Some(order) => order.to_vec(),
            None => plan.row_groups.clone().collect(),
        };
        let mut orders: Vec<Vec<usize>> = vec![Vec::new(); self.files.len()];
        for row_group in row_groups.into_iter().filter(|row_group| *row_group < self.row_groups().len()) {
            for source in self.extent_list.sources(row_group) {
                let order = &mut orders[usize::from(source.file)];
                if order.last() != Some(&(source.row_group as usize)) {
                    order.push(source.row_group as usize);
                }
            }
        }
        let files = self.files.iter().zip(orders).map(|(file, order)| {
            let first = order.iter().min().copied().unwrap_or_default();
            let row_groups = first..order.iter().max().map_or(first, |last| last + 1);
            let is_ascending = order.len() == row_groups.len();
            let scan_order = (!is_ascending || plan.scan_order.is_some()).then(|| order.into());
            file.with_readahead(PrefetchPlan { row_groups, scan_order, ..plan.clone() })
        });
        VersionReader { files: files.collect(), extent_list: self.extent_list.clone() }
    }

    pub fn is_waiting_for_store(&self) -> bool {
        self.files.iter().any(FileReader::is_waiting_for_store)
    }

    pub fn prefetch_pages(&self, pages: &[(usize, usize)]) {
        let locations: Vec<_> = pages.iter().map(|(row_group, page)| self.locate_page(*row_group, *page)).collect();
        for file in &*self.files {
            let in_file = locations.iter().filter(|location| location.reader.footer.id == file.footer.id);
            let mut pages: Vec<_> = in_file.map(|location| (location.row_group, location.page)).collect();
            pages.dedup();
            file.prefetch_pages(&pages);
        }
    }
}
