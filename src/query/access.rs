//! Deciding how a predicate is answered, apart from answering it.

use super::predicate::{Compare, Comparison, Predicate};
use crate::storage::StorageError;
use crate::storage::layout::{Layout, SEPARATOR};
use crate::storage::reader::VersionReader;

/// How a predicate is answered over a version. Ordered by cost: cheaper ways run first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// From the leaf of this number.
    Leaf(usize),
    /// From the search text, which decides.
    Search,
    /// From the search text; what it finds is verified in the documents.
    SearchThenDocuments,
    /// From every document.
    Documents,
}

/// Chooses the access for a version.
pub fn choose(layout: &Layout, predicate: &Predicate) -> Access {
    match predicate {
        Predicate::Keywords(keywords) if keywords.sees_everything() => Access::Search,
        Predicate::Keywords(_) => Access::SearchThenDocuments,
        Predicate::Compare(compare) => match layout.leaf(compare.path().keys()) {
            Some(leaf) => Access::Leaf(leaf),
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

/// Whether a row group can hold a match, by what the footer and the bloom filter say. `Leaf` accesses alone prune.
///
/// # Errors
/// When the bloom filter cannot be read.
pub async fn may_match(
    reader: &VersionReader,
    row_group: usize,
    predicate: &Predicate,
    access: Access,
) -> Result<bool, StorageError> {
    let (Access::Leaf(leaf), Predicate::Compare(predicate)) = (access, predicate) else { return Ok(true) };
    if predicate.comparison() != Comparison::Equal {
        return Ok(true);
    }
    if predicate.matches_null() && reader.holds_null(row_group, leaf) {
        return Ok(true);
    }
    if let Some(number) = predicate.number()
        && let Some((least, greatest)) = reader.number_range(row_group, leaf)
        && (least..=greatest).contains(&number.double())
    {
        return Ok(true);
    }
    reader.may_hold_text(row_group, leaf, predicate.folded()).await
}
