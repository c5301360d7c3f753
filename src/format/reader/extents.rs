//! The parts of a version by its row groups, which are the extents of its list.
//!
//! If an extent is not a whole row group, the row group is decoded whole and cached under its file, and the rows of the
//! extent are copied from it. Statistics and bloom filters of a row group are true of each of its rows, but a value
//! that they include need not occur in an extent: they tell what is not there, never what is.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, MutableArrayData, make_array};
use strata_store::{Result, StorageError};

use super::file::FileReader;
use super::readahead::Wanted;
use super::version::VersionReader;
use crate::document_page::{DocumentPage, HeldDocuments};
use crate::keywords::cut::Plan;
use crate::keywords::segment::Candidates;
use crate::keywords::stored::KeywordIndex;
use crate::layout::{DOCUMENT_COLUMN, HASH_COLUMN, SEARCH_COLUMN, ShreddedPart};
use crate::overlay::Extent;
use crate::page_table;
use crate::parts::{Part, PartKey};
use crate::shapes::decoded::Shapes;
use crate::shapes::stored::ShapeIndex;

pub(super) struct Place<'a> {
    pub(super) reader: &'a FileReader,
    pub(super) row_group: usize,
    /// The rows of the extent, if they are not the whole row group.
    part: Option<Range<usize>>,
}

impl Place<'_> {
    fn pages(&self) -> Range<usize> {
        let page_of = |row| self.reader.page_of(self.row_group, row);
        match &self.part {
            None => 0..self.reader.page_count(self.row_group),
            Some(rows) => page_of(rows.start)..page_of(rows.end - 1) + 1,
        }
    }

    /// The row of the row group at which the extent begins.
    fn start(&self) -> usize {
        self.part.as_ref().map_or(0, |rows| rows.start)
    }

    fn within(&self, page: DocumentPage) -> DocumentPage {
        match &self.part {
            None => page,
            Some(rows) => page.within(rows),
        }
    }

    /// The share of the extent's rows in a sum over the row group.
    pub(super) fn share(&self, sum: u64) -> u64 {
        let Some(rows) = &self.part else { return sum };
        let all = self.reader.footer.list.row_groups[self.row_group].rows.max(1);
        (u128::from(sum) * rows.len() as u128 / all as u128) as u64
    }
}

impl VersionReader {
    pub(super) fn place(&self, row_group: usize) -> Place<'_> {
        let extent = self.list.extents[row_group];
        let reader = &self.files[usize::from(extent.file)];
        let row_group = extent.row_group as usize;
        let rows = extent.rows as usize;
        let start = extent.start as usize;
        let is_whole = rows == reader.footer.list.row_groups[row_group].rows;
        Place { reader, row_group, part: (!is_whole).then_some(start..start + rows) }
    }

    /// A name of the bytes of a row group, which is the same everywhere: the file that it lies in, and its number
    /// there.
    pub fn name_of(&self, row_group: usize) -> Vec<u8> {
        let place = self.place(row_group);
        format!("{} {}", place.reader.file.path, place.row_group).into_bytes()
    }

    /// The search text of a row group: a binary array, one value per row.
    pub async fn search(&self, row_group: usize) -> Result<ArrayRef> {
        self.column(row_group, SEARCH_COLUMN).await
    }

    /// The canonical hashes of a row group: a binary array of 32 bytes a row.
    pub async fn hashes(&self, row_group: usize) -> Result<ArrayRef> {
        self.column(row_group, HASH_COLUMN).await
    }

    /// A part of a shredded column in a row group, or `None` when it has no such part. A list array where it
    /// fans out; texts are dictionary arrays where it says so.
    pub async fn shredded(&self, row_group: usize, shredded: usize, column: ShreddedPart) -> Result<Option<ArrayRef>> {
        match self.layout().column_index(shredded, column) {
            Some(index) => self.column(row_group, index).await.map(Some),
            None => Ok(None),
        }
    }

    async fn column(&self, row_group: usize, column: usize) -> Result<ArrayRef> {
        let place = self.place(row_group);
        let Some(rows) = place.part.clone() else { return place.reader.column(place.row_group, column).await };
        let load = || async {
            let whole = place.reader.column(place.row_group, column).await?;
            if whole.len() < rows.end {
                return Err(StorageError::Layout("a column has too few rows".to_owned()));
            }
            Ok(Part::Column(copied(&whole, rows.clone())?))
        };
        let loaded = self.cache().get_or_load(PartKey::column(self.list.id, row_group, column), load).await?;
        let Part::Column(array) = loaded else { return Err(StorageError::wrong_part()) };
        Ok(array)
    }

    fn caches_column(&self, row_group: usize, column: usize) -> bool {
        let place = self.place(row_group);
        let is_kept = |key: &PartKey| self.cache().contains(key);
        is_kept(&PartKey::column(place.reader.footer.id, place.row_group, column))
            || (place.part.is_some() && is_kept(&PartKey::column(self.list.id, row_group, column)))
    }

    pub fn caches_columns(&self, row_group: usize, columns: &[usize]) -> bool {
        columns.iter().all(|column| self.caches_column(row_group, *column))
    }

    pub fn columns_of(&self, shredded: usize, parts: &[ShreddedPart]) -> Vec<usize> {
        parts.iter().filter_map(|part| self.layout().column_index(shredded, *part)).collect()
    }

    pub fn hash_column(&self) -> usize {
        HASH_COLUMN
    }

    pub fn column_bytes(&self, row_group: usize, columns: &[usize]) -> (u64, u64) {
        let place = self.place(row_group);
        let (stored, decompressed) = place.reader.column_bytes(place.row_group, columns);
        (place.share(stored), place.share(decompressed))
    }

    pub fn stored_bytes(&self, row_group: usize) -> u64 {
        let place = self.place(row_group);
        place.share(place.reader.stored_bytes(place.row_group))
    }

    pub fn page_count(&self, row_group: usize) -> usize {
        self.place(row_group).pages().len()
    }

    pub fn page_of(&self, row_group: usize, row: usize) -> usize {
        let place = self.place(row_group);
        place.reader.page_of(place.row_group, place.start() + row) - place.pages().start
    }

    /// Whether the cache holds a page of documents. The metrics count no look-up.
    pub fn caches_page(&self, row_group: usize, page: usize) -> bool {
        let place = self.place(row_group);
        place.reader.caches_page(place.row_group, place.pages().start + page)
    }

    /// Whether the cache has room for all documents, and as much besides.
    pub fn caches_documents(&self) -> bool {
        self.layout().document_bytes <= self.cache().capacity_bytes() / 2
    }

    /// The documents at positions that follow each other in stretches, in order, if all of them are in memory and have
    /// at most so many bytes. Each part is of one page; it comes indented, too, if that is wanted and kept. The metrics
    /// count look-ups if so.
    pub async fn documents_at_hand(
        &self,
        stretches: impl Iterator<Item = Range<u64>> + Send,
        most_bytes: usize,
        indented: bool,
    ) -> Option<Vec<HeldDocuments>> {
        // Each step for all of them: what they need lies far apart in memory, and so the processor fetches several at
        // once.
        let mut places = Vec::with_capacity(stretches.size_hint().0);
        for stretch in stretches {
            let mut position = stretch.start;
            while position < stretch.end {
                let row_group = self.row_group_of(position);
                let group = self.row_groups()[row_group];
                let place = self.place(row_group);
                let row = (position - group.first) as usize;
                let start = place.start();
                let end = start + group.rows.min(row + (stretch.end - position) as usize);
                let page = place.reader.page_of(place.row_group, start + row);
                let rows = start + row..end.min(place.reader.page_end(place.row_group, page));
                if rows.is_empty() {
                    return None;
                }
                position += rows.len() as u64;
                places.push((place.reader, place.row_group, page, rows));
            }
        }
        let held = page_table::pages(
            places.iter().map(|(reader, row_group, page, _)| (&reader.footer.page_table, *row_group, *page)),
        );
        for (held, (.., rows)) in held.iter().zip(&places) {
            held.iter().for_each(|held| held.fetch_span(rows.start));
        }
        let mut parts = Vec::with_capacity(places.len());
        let mut keys = Vec::with_capacity(places.len());
        let mut bytes = 0;
        let mut page_bytes = 0;
        for (held, (reader, row_group, page, rows)) in held.into_iter().zip(places) {
            let stored = match held {
                Some(held) => held,
                None => reader.page_in_cache(row_group, page).await?,
            };
            let indented = match indented {
                true => reader.indented_page(row_group, page, &stored, rows.len()).await,
                false => None,
            };
            let key = reader.page_key(row_group, page);
            if keys.last() != Some(&key) {
                page_bytes += stored.memory_bytes() as u64;
                keys.push(key);
            }
            let stored = stored.within(&rows);
            if stored.len() != rows.len() {
                return None;
            }
            bytes += stored.document_bytes();
            parts.push(HeldDocuments { stored, indented: indented.map(|page| page.within(&rows)) });
        }
        if bytes > most_bytes {
            return None;
        }
        for HeldDocuments { stored, indented } in &parts {
            indented.as_ref().unwrap_or(stored).fetch();
        }
        self.cache().found_pages(&keys, page_bytes);
        Some(parts)
    }

    pub async fn cached_documents(&self, row_group: usize, page: usize) -> Option<DocumentPage> {
        let place = self.place(row_group);
        let found = place.reader.cached_documents(place.row_group, place.pages().start + page).await;
        found.map(|page| place.within(page))
    }

    pub async fn documents(&self, row_group: usize, page: usize) -> Result<DocumentPage> {
        let place = self.place(row_group);
        let page = place.reader.documents(place.row_group, place.pages().start + page).await?;
        Ok(place.within(page))
    }

    /// The pages `pages` of a row group, from the first on, as many as one bounded request yields.
    /// At least one, when `pages` is not empty.
    pub async fn documents_ahead(&self, row_group: usize, pages: Range<usize>) -> Result<Vec<DocumentPage>> {
        let place = self.place(row_group);
        let before = place.pages().start;
        let pages = before + pages.start..before + pages.end;
        let found = place.reader.documents_ahead(place.row_group, pages).await?;
        Ok(found.into_iter().map(|page| place.within(page)).collect())
    }

    pub fn keyword_index(&self) -> &KeywordIndex {
        &self.list.keywords
    }

    pub fn caches_search(&self, row_group: usize) -> bool {
        self.caches_column(row_group, SEARCH_COLUMN)
    }

    pub fn has_room_for_search(&self, row_group: usize) -> bool {
        self.cache().has_room_for(self.search_bytes(row_group))
    }

    pub fn search_bytes(&self, row_group: usize) -> u64 {
        self.column_bytes(row_group, &[SEARCH_COLUMN]).1
    }

    /// Bytes of the search text of a row group, and of its documents, as stored.
    pub fn search_and_document_bytes(&self, row_group: usize) -> (u64, u64) {
        let bytes = |column| self.column_bytes(row_group, &[column]).0;
        (bytes(SEARCH_COLUMN), bytes(DOCUMENT_COLUMN))
    }

    /// The rows of a segment that hold the needle of a plan, or may hold it. [`Candidates::Scan`] where the index
    /// does not tell, and where what is not in the cache of it is more than the search text.
    pub async fn keyword_candidates(&self, mut segment: usize, plan: &Plan) -> Result<Candidates> {
        for reader in &*self.files {
            match segment.checked_sub(reader.footer.list.keywords.segments.len()) {
                None => return reader.keyword_candidates(segment, plan).await,
                Some(left) => segment = left,
            }
        }
        Ok(Candidates::Scan)
    }

    /// Where the shapes of each row group lie, in its file; nowhere in files that have none.
    pub fn shape_index(&self) -> &ShapeIndex {
        &self.list.shapes
    }

    /// The shapes of a row group, if it has any. One request, and a few milliseconds at most; kept in the cache.
    pub async fn shapes(&self, row_group: usize) -> Result<Option<Arc<Shapes>>> {
        let place = self.place(row_group);
        let Some(rows) = place.part.clone() else { return place.reader.shapes(place.row_group).await };
        if self.shape_index().get(row_group).is_none() {
            return Ok(None);
        }
        let load = || async {
            match place.reader.shapes(place.row_group).await? {
                Some(whole) if whole.rows() >= rows.end => Ok(Part::Shapes(Arc::new(whole.of_rows(rows.clone())))),
                _ => Err(StorageError::Layout("the path index has too few rows".to_owned())),
            }
        };
        let key = PartKey::Shapes { file: self.list.id, row_group: row_group as u32 };
        let loaded = self.cache().get_or_load(key, load).await?;
        let Part::Shapes(shapes) = loaded else { return Err(StorageError::wrong_part()) };
        Ok(Some(shapes))
    }

    pub fn report_foreign_shapes(&self, row_group: usize) {
        let Place { reader, row_group, .. } = self.place(row_group);
        reader.blame_shapes(row_group, StorageError::Layout("it does not match the full-text column".to_owned()));
    }

    pub fn reading_ahead(&self, wanted: Wanted) -> VersionReader {
        // A delta has few entities, which need few requests.
        let in_base = |extent: &Extent| (extent.file == Extent::BASE).then_some(extent.row_group as usize);
        let extents = self.list.extents.get(wanted.row_groups.clone()).unwrap_or_default();
        let mut row_groups = extents.iter().filter_map(in_base);
        let first = row_groups.next().unwrap_or_default();
        let end = row_groups.next_back().unwrap_or(first) + 1;
        let row_groups = if extents.is_empty() { 0..0 } else { first..end.min(self.base_row_groups()) };
        let part = wanted.part.as_ref().map(|part| {
            // Extents of the base are in its order.
            let extents = part.iter().filter_map(|number| self.list.extents.get(*number));
            let mut part: Vec<usize> = extents.filter_map(in_base).collect();
            part.dedup();
            part.into()
        });
        let mut files = vec![self.base().reading_ahead(Wanted { row_groups, part, ..wanted })];
        files.extend_from_slice(&self.files[1..]);
        VersionReader { files: files.into(), list: self.list.clone() }
    }

    /// Whether someone waits for the store now, of those who read ahead with this reader.
    pub fn waits_for_store(&self) -> bool {
        self.files.iter().any(FileReader::waits_for_store)
    }

    /// Fetches pages of documents of the base ahead, as far as the cache does not contain them: each by its row group
    /// and number.
    pub fn pages_ahead(&self, pages: &[(usize, usize)]) {
        let is_in_base = |row_group: usize| self.list.extents[row_group].file == Extent::BASE;
        let in_base = pages.iter().filter(|(row_group, _)| is_in_base(*row_group));
        let places = in_base.map(|(row_group, page)| {
            let place = self.place(*row_group);
            (place.row_group, place.pages().start + page)
        });
        self.base().pages_ahead(&places.collect::<Vec<_>>());
    }
}

/// Rows of an array as one of its own, which keeps nothing else in memory.
fn copied(whole: &ArrayRef, rows: Range<usize>) -> Result<ArrayRef> {
    let data = whole.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, rows.len());
    copy.try_extend(0, rows.start, rows.end)?;
    Ok(make_array(copy.freeze()))
}
