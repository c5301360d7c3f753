//! Deciding how a predicate is answered, apart from answering it.

use strata_format::reader::VersionReader;
use strata_store::StorageError;

use crate::scan::predicate::{Comparison, Predicate};
use crate::scan::range_statistics::{self, Told};

/// How a predicate is answered over a version. Ordered by cost: cheaper ways run first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// From the shredded column of this number.
    ShreddedColumn(usize),
    /// From the search text, which decides.
    Search,
    /// From the search text and the shapes, which decide where a row group has shapes; otherwise as the next two.
    Shapes,
    /// From the search text; what it finds is verified in the documents.
    SearchThenDocuments,
    Documents,
}

impl Access {
    pub fn reads_search(self) -> bool {
        matches!(self, Access::Search | Access::Shapes | Access::SearchThenDocuments)
    }

    pub fn reads_documents(self) -> bool {
        matches!(self, Access::SearchThenDocuments | Access::Documents)
    }
}

pub fn choose(reader: &VersionReader, predicate: &Predicate) -> Access {
    let has_shapes = !reader.shape_index().is_empty();
    match predicate {
        Predicate::Keywords(keywords) if keywords.sees_everything() => Access::Search,
        Predicate::Keywords(_) if has_shapes => Access::Shapes,
        Predicate::Keywords(_) => Access::SearchThenDocuments,
        Predicate::Compare(compare) => match reader.layout().shredded(compare.path.keys()) {
            Some(shredded) => Access::ShreddedColumn(shredded),
            None if has_shapes => Access::Shapes,
            None if compare.searched.is_some() => Access::SearchThenDocuments,
            None => Access::Documents,
        },
    }
}

/// Whether candidates are verified in the search text, not in documents: it is there already, or it is less than the
/// pages of documents that they lie in, or they are many and it finds room in the cache. Searching a text costs a tenth
/// of reading a document, for which others pay then. With `fetch`, so many matches are enough.
pub fn searches(reader: &VersionReader, row_group: usize, candidates: &[usize], fetch: Option<usize>) -> bool {
    /// Of candidates that are verified until enough match, about one in so many does.
    const TRIES: usize = 4;
    /// One row in so many makes many candidates.
    const MANY: usize = 16;
    if reader.caches_search(row_group) {
        return true;
    }
    let most = fetch.map_or(usize::MAX, |fetch| fetch.saturating_mul(TRIES));
    let rows = reader.row_groups()[row_group].rows;
    if candidates.len().min(most) >= rows / MANY && reader.has_room_for_search(row_group) {
        return true;
    }
    let (search, documents) = reader.search_and_document_bytes(row_group);
    let pages = reader.page_count(row_group);
    let (mut used, mut last) = (0, None);
    for row in candidates.iter().take(most) {
        let page = reader.page_of(row_group, *row);
        if last.replace(page) != Some(page) {
            used += 1;
        }
    }
    (documents / pages.max(1) as u64).saturating_mul(used) > search
}

/// What says that a row group holds nothing that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrunedBy {
    /// The text is not there, by the bloom filter.
    BloomFilter,
    /// The number is not there, by the statistics, nor is its text, by the bloom filter; or no number lies in the
    /// range, by the statistics.
    Numbers,
    /// No string lies in the range, by the statistics.
    Texts,
    /// The text is in no search text, by the keyword index.
    KeywordIndex,
    /// The hash index of a column names none of its entities.
    HashIndex,
    /// All of the first of the order lie elsewhere, by the statistics.
    Order,
}

/// What says that a row group cannot hold a match; `None` when it may. `ShreddedColumn` accesses alone prune.
pub async fn pruned(
    reader: &VersionReader,
    row_group: usize,
    predicate: &Predicate,
    access: Access,
) -> Result<Option<PrunedBy>, StorageError> {
    let (Access::ShreddedColumn(shredded), Predicate::Compare(predicate)) = (access, predicate) else {
        return Ok(None);
    };
    match predicate.comparison {
        Comparison::Equal => {}
        Comparison::Contains => return Ok(None),
        Comparison::Range(_) => {
            let by = if predicate.needs_exact_text() { PrunedBy::Texts } else { PrunedBy::Numbers };
            let told = range_statistics::told(reader, row_group, shredded, predicate);
            return Ok((told == Told::NoRow).then_some(by));
        }
    }
    if predicate.matches_null() && reader.holds_null(row_group, shredded) {
        return Ok(None);
    }
    let mut by = PrunedBy::BloomFilter;
    if let Some(number) = predicate.number() {
        let range = reader.number_range(row_group, shredded);
        if range.is_some_and(|(min, max)| (min..=max).contains(&number.double())) {
            return Ok(None);
        }
        by = PrunedBy::Numbers;
    }
    Ok((!reader.may_hold_text(row_group, shredded, &predicate.folded).await?).then_some(by))
}
