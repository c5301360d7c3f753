//! The report of a scan, as the JSON of an explanation shows it.

use serde::Serialize;
use utoipa::ToSchema;

/// What strata read: a part of the file or a cached result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
// Conditions are evaluated in the order of the first three: the cheapest access path first.
pub enum AccessPath {
    /// The indexed column of a path.
    ShreddedColumn,
    /// The keyword index. strata verified the entities in documents that the index could not decide.
    KeywordIndex,
    /// Documents.
    Documents,
    /// The stored hashes of the entities.
    StoredHashes,
    /// Cached codes: equal values at a path have equal codes.
    Codes,
    /// The cached order of all entities by a column.
    KeptOrder,
    /// The cached first entity of each group.
    KeptSet,
    /// The cached hash index of a column, and the column's values for the entities that the index lists.
    HashIndex,
}

/// The scan of the version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ScanReport {
    /// The first position of the scanned range.
    pub first_position: u64,
    /// The first position after the scanned range.
    pub end_position: u64,
    /// The row groups.
    pub row_groups: RowGroupReport,
    /// The number of entities whose row groups were scanned and whose positions are in the range.
    pub rows_tested: u64,
    /// The number of entities that the scan returned.
    pub rows_selected: u64,
    /// The predicates, in the order in which strata evaluated them.
    pub predicates: Vec<PredicateReport>,
    /// The verification of predicates in documents. Null if no predicate requires verification.
    pub verification: Option<VerificationReport>,
    /// The number of entities that the top-k threshold excluded. Null if the scan has no top-k threshold.
    pub left_out_early: Option<u64>,
    /// The number of duplicates that the scan excluded. Null if the scan does not exclude duplicates.
    pub duplicates_left_out: Option<u64>,
    /// The source of the keys for `sort`. Null if the scan did not sort.
    pub sort: Option<KeySourceReport>,
    /// The source of the keys for `dedup`. Null if the request has no `dedup`.
    pub dedup: Option<KeySourceReport>,
}

/// The number of row groups for each outcome. The sum of the other fields is `total`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct RowGroupReport {
    /// All row groups of the version.
    pub total: u64,
    /// Row groups outside the positions that `offset` and `limit` select.
    pub outside_positions: u64,
    /// Row groups pruned because, according to the statistics, no number equals the filter's value or is in its
    /// range.
    pub pruned_by_numbers: u64,
    /// Row groups pruned because, according to the statistics, no string equals the filter's value or is in its
    /// range.
    pub pruned_by_texts: u64,
    /// Row groups pruned because the keyword index excludes the string.
    pub pruned_by_keyword_index: u64,
    /// Row groups pruned because the hash index of a column lists none of their entities.
    pub pruned_by_hash_index: u64,
    /// Row groups pruned because, according to the statistics, all values are beyond the top-k threshold.
    pub pruned_by_order: u64,
    /// Scanned row groups.
    pub scanned: u64,
    /// Row groups that the scan did not reach because it had already found enough entities.
    pub not_reached: u64,
}

/// The evaluation of a predicate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct PredicateReport {
    /// The predicate, in the form of its request parameter.
    pub predicate: String,
    /// The part of the file on which strata evaluated the predicate.
    pub access: AccessPath,
    /// The path of the indexed column. Null for other kinds of access.
    pub column: Option<String>,
    /// The number of entities before the predicate. Null if strata evaluated the predicate only on documents; see
    /// `verification`.
    pub rows_in: Option<u64>,
    /// The number of entities after the predicate.
    pub rows_out: Option<u64>,
    /// The results of the keyword index. Null if strata did not use the keyword index.
    pub keyword_index: Option<KeywordIndexReport>,
    /// The number of row groups in which all entities match a range filter, according to the statistics of the indexed
    /// column. Null for other predicates and other kinds of access.
    pub settled_by_statistics: Option<u64>,
}

/// The results of the keyword index for a predicate, excluding row groups that other predicates pruned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct KeywordIndexReport {
    /// Row groups in which the index listed exactly the entities that contain the string.
    pub exact: u64,
    /// Row groups in which the index listed candidates, which strata then verified.
    pub candidates: u64,
    /// Row groups in which the index could not help, so strata scanned the documents.
    pub left_to_scan: u64,
    /// The number of entities that the index listed.
    pub rows: u64,
}

/// The verification of predicates in documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct VerificationReport {
    /// The number of entities whose documents strata read.
    pub rows_in: u64,
    /// The number of entities that matched.
    pub rows_out: u64,
    /// The number of document pages that strata read.
    pub pages: u64,
}

/// The source of the keys for a sort or a dedup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct KeySourceReport {
    /// The `sort` field, or the `dedup` paths.
    pub by: String,
    /// Where the keys were found: in a part of the file or in a cached result.
    pub access: AccessPath,
    /// The path of the indexed column. Null for other kinds of access.
    pub column: Option<String>,
    /// The number of document pages that strata read. With an indexed column, it reads them only for values that the
    /// column cannot store.
    pub pages: u64,
}

pub(super) type PruneCounter = fn(&mut RowGroupReport) -> &mut u64;
