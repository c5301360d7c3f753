//! Deciding how a predicate is answered, apart from answering it.

use crate::query::scan::predicate::{Compare, Comparison, Predicate};
use crate::storage::StorageError;
use crate::storage::layout::{Layout, SEPARATOR};
use crate::storage::reader::VersionReader;

/// How a predicate is answered over a version. Ordered by cost: cheaper ways run first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// From the shredded column of this number.
    ShreddedColumn(usize),
    /// From the search text, which decides.
    Search,
    /// From the search text; what it finds is verified in the documents.
    SearchThenDocuments,
    /// From every document.
    Documents,
}

impl Access {
    /// Whether documents are read.
    pub fn reads_documents(self) -> bool {
        matches!(self, Access::SearchThenDocuments | Access::Documents)
    }
}

/// Chooses the access for a version.
pub fn choose(layout: &Layout, predicate: &Predicate) -> Access {
    match predicate {
        Predicate::Keywords(keywords) if keywords.sees_everything() => Access::Search,
        Predicate::Keywords(_) => Access::SearchThenDocuments,
        Predicate::Compare(compare) => match layout.shredded(compare.path().keys()) {
            Some(shredded) => Access::ShreddedColumn(shredded),
            None if needle(compare).is_some() => Access::SearchThenDocuments,
            None => Access::Documents,
        },
    }
}

/// What the search text of every entity that matches holds, if there is such a text.
pub fn needle(compare: &Compare) -> Option<Vec<u8>> {
    let folded = compare.folded();
    match compare.comparison() {
        Comparison::Contains if folded.is_empty() => None,
        Comparison::Contains => Some(folded.to_vec()),
        // A number may be written in many ways, and a null has no text.
        Comparison::Equal if compare.number().is_some() || compare.matches_null() => None,
        Comparison::Equal => {
            let mut whole = Vec::with_capacity(folded.len() + 2);
            whole.push(SEPARATOR);
            whole.extend_from_slice(folded);
            whole.push(SEPARATOR);
            Some(whole)
        }
    }
}

/// What says that a row group holds no match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrunedBy {
    /// The text is not there, by the bloom filter.
    BloomFilter,
    /// The number is not there, by the statistics, nor is its text, by the bloom filter.
    Numbers,
    /// The text is in no search text, by the keyword index.
    KeywordIndex,
}

/// What says that a row group cannot hold a match; `None` when it may. `ShreddedColumn` accesses alone prune.
///
/// # Errors
/// When the bloom filter cannot be read.
pub async fn pruned(
    reader: &VersionReader,
    row_group: usize,
    predicate: &Predicate,
    access: Access,
) -> Result<Option<PrunedBy>, StorageError> {
    let (Access::ShreddedColumn(shredded), Predicate::Compare(predicate)) = (access, predicate) else {
        return Ok(None);
    };
    if predicate.comparison() != Comparison::Equal {
        return Ok(None);
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
    Ok((!reader.may_hold_text(row_group, shredded, predicate.folded()).await?).then_some(by))
}
