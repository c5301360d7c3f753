//! Deciding how a predicate is answered, apart from answering it.

use super::predicate::{Comparison, Predicate};
use crate::storage::StorageError;
use crate::storage::layout::{Layout, SEPARATOR};
use crate::storage::reader::VersionReader;

/// How a predicate is answered over a version. Ordered by cost: cheaper ways run first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// From the leaf of this number.
    Leaf(usize),
    /// By these bytes in the search text, which every match holds; what is found is verified in the documents.
    Search(Vec<u8>),
    /// From every document.
    Documents,
}

/// Chooses the access for a version.
pub fn choose(layout: &Layout, predicate: &Predicate) -> Access {
    if let Some(leaf) = layout.leaf(predicate.path().keys()) {
        return Access::Leaf(leaf);
    }
    let folded = predicate.folded();
    match predicate.comparison() {
        Comparison::Contains if folded.is_empty() => Access::Documents,
        Comparison::Contains => Access::Search(folded.to_vec()),
        // A number may be written in many ways, and a null has no text.
        Comparison::Equal if predicate.number().is_some() || predicate.matches_null() => Access::Documents,
        Comparison::Equal => {
            let mut whole = Vec::with_capacity(folded.len() + 2);
            whole.push(SEPARATOR);
            whole.extend_from_slice(folded);
            whole.push(SEPARATOR);
            Access::Search(whole)
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
    access: &Access,
) -> Result<bool, StorageError> {
    let (Access::Leaf(leaf), Comparison::Equal) = (access, predicate.comparison()) else { return Ok(true) };
    if predicate.matches_null() && reader.holds_null(row_group, *leaf) {
        return Ok(true);
    }
    if let Some(number) = predicate.number()
        && let Some((least, greatest)) = reader.number_range(row_group, *leaf)
        && (least..=greatest).contains(&number.double())
    {
        return Ok(true);
    }
    reader.may_hold_text(row_group, *leaf, predicate.folded()).await
}
