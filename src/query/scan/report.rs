//! The report of a scan, as the JSON of an explanation shows it.

use serde::Serialize;
use strata_types::path::Path;
use utoipa::ToSchema;

use crate::scan::access::Condition;
pub use crate::scan::metrics::AccessName;
use crate::scan::predicate::Predicate;
use crate::scan::schema::{GROUP, ORDER};
use crate::scan::sort_key;
use crate::scan::spec::ScanSpec;

/// The scan of the version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ScanUse {
    /// The first position of the scanned range.
    pub first_position: u64,
    /// The first position after the scanned range.
    pub end_position: u64,
    /// The row groups.
    pub row_groups: RowGroupUse,
    /// The number of entities whose row groups were scanned and whose positions are in the range.
    pub rows_tested: u64,
    /// The number of entities that the scan returned.
    pub rows_selected: u64,
    /// The predicates, in the order in which strata evaluated them.
    pub predicates: Vec<PredicateUse>,
    /// The verification of predicates in documents. Null if no predicate requires verification.
    pub verification: Option<VerificationUse>,
    /// The number of entities that the top-k threshold excluded. Null if the scan has no top-k threshold.
    pub left_out_early: Option<u64>,
    /// The number of duplicates that the scan excluded. Null if the scan does not exclude duplicates.
    pub duplicates_left_out: Option<u64>,
    /// The source of the keys for `sort`. Null if the scan did not sort.
    pub sort: Option<KeyUse>,
    /// The source of the keys for `dedup`. Null if the request has no `dedup`.
    pub dedup: Option<KeyUse>,
}

/// The number of row groups for each outcome. The sum of the other fields is `total`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct RowGroupUse {
    /// All row groups of the version.
    pub total: u64,
    /// Row groups outside the positions that `offset` and `limit` select.
    pub outside_positions: u64,
    /// Row groups pruned because a bloom filter excludes the string.
    pub pruned_by_bloom_filter: u64,
    /// Row groups pruned because statistics and bloom filters exclude the number, or because no number is in the
    /// filter's range.
    pub pruned_by_numbers: u64,
    /// Row groups pruned because, according to the statistics, no string is in the filter's range.
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
pub struct PredicateUse {
    /// The predicate, in the form of its request parameter.
    pub predicate: String,
    /// The part of the file on which strata evaluated the predicate.
    pub access: AccessName,
    /// The path of the indexed column. Null for other kinds of access.
    pub column: Option<String>,
    /// The number of entities before the predicate. Null if strata evaluated the predicate only on documents; see
    /// `verification`.
    pub rows_in: Option<u64>,
    /// The number of entities after the predicate.
    pub rows_out: Option<u64>,
    /// The results of the keyword index. Null if strata did not use the keyword index.
    pub keyword_index: Option<KeywordIndexUse>,
    /// The results of the path index. Null if strata did not use the path index.
    pub shapes: Option<ShapeUse>,
    /// The number of row groups in which all entities match a range filter, according to the statistics of the indexed
    /// column. Null for other predicates and other kinds of access.
    pub settled_by_statistics: Option<u64>,
}

/// The evaluation of a predicate in row groups that have a path index, excluding pruned row groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ShapeUse {
    /// Row groups in which the full-text column and the path index were sufficient.
    pub settled: u64,
    /// Row groups in which strata verified the candidates in documents because reading the documents required fewer
    /// bytes.
    pub left_to_documents: u64,
}

/// The results of the keyword index for a predicate, excluding row groups that other predicates pruned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct KeywordIndexUse {
    /// Row groups in which the index listed exactly the entities that contain the string.
    pub exact: u64,
    /// Row groups in which the index listed candidates, which strata then verified.
    pub candidates: u64,
    /// Row groups in which the index could not help, so strata scanned the full-text column.
    pub left_to_scan: u64,
    /// The number of entities that the index listed.
    pub rows: u64,
}

/// The verification of predicates in documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct VerificationUse {
    /// The number of entities whose documents strata read.
    pub rows_in: u64,
    /// The number of entities that matched.
    pub rows_out: u64,
    /// The number of document pages that strata read.
    pub pages: u64,
}

/// The source of the keys for a sort or a dedup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct KeyUse {
    /// The `sort` field, or the `dedup` paths.
    pub by: String,
    /// Where the keys were found: in a part of the file or in a cached result.
    pub access: AccessName,
    /// The path of the indexed column. Null for other kinds of access.
    pub column: Option<String>,
    /// The number of document pages that strata read. With an indexed column, it reads them only for values that the
    /// column cannot store.
    pub pages: u64,
}

/// The counter of a reason to prune row groups.
pub(super) type PruneCounter = fn(&mut RowGroupUse) -> &mut u64;

impl PredicateUse {
    pub(super) fn new(condition: &Condition) -> PredicateUse {
        let access = condition.access;
        let is_range = matches!(&condition.predicate, Predicate::Compare(compare) if compare.range().is_some());
        let rows = (access != AccessName::Documents).then_some(0);
        PredicateUse {
            predicate: String::new(),
            access,
            column: None,
            rows_in: rows,
            rows_out: rows,
            keyword_index: None,
            shapes: (access == AccessName::SearchTextAndShapes).then(ShapeUse::default),
            settled_by_statistics: (access == AccessName::ShreddedColumn && is_range).then_some(0),
        }
    }
}

impl ScanSpec {
    /// The report of the scan so far. It returned `rows_selected` rows.
    pub(super) fn used(&self, rows_selected: u64) -> ScanUse {
        let metrics = &self.metrics;
        let mut scan = metrics.record(|scan| scan.clone());
        scan.first_position = self.range.start;
        scan.end_position = self.range.end;
        let touched = self.row_groups().len() as u64;
        scan.row_groups.total = self.reader.row_groups().len() as u64;
        scan.row_groups.outside_positions = scan.row_groups.total - touched;
        scan.row_groups.not_reached = touched.saturating_sub(metrics.reached.get());
        scan.rows_selected = rows_selected;
        for (number, (used, condition)) in scan.predicates.iter_mut().zip(self.predicates.iter()).enumerate() {
            used.predicate = condition.predicate.to_string();
            used.column = condition.indexed_column(&self.reader).map(|column| self.column_path(column.column));
            if self.asks_keyword_index(number) {
                used.keyword_index.get_or_insert_default();
            }
        }
        let reads_documents = self.predicates.iter().any(Condition::reads_documents);
        let verification = scan.verification.take().unwrap_or_default();
        scan.verification = Some(verification).filter(|used| reads_documents || used.rows_in > 0);
        scan.left_out_early = self.threshold.is_some().then(|| metrics.top_k.get());
        scan.duplicates_left_out = self.distinct.then(|| metrics.distinct.get());
        scan.sort = self.sort();
        scan.dedup = self.dedup();
        scan
    }

    fn sort(&self) -> Option<KeyUse> {
        let order = self.computed.order.as_ref().filter(|_| self.gives(ORDER))?;
        let shredded = sort_key::order_column(self.reader.layout(), &order.field);
        let unless_kept = if shredded.is_some() { AccessName::ShreddedColumn } else { AccessName::Documents };
        Some(KeyUse {
            by: order.field.clone(),
            access: self.metrics.order_source.get().copied().unwrap_or(unless_kept),
            column: shredded.map(|shredded| self.column_path(shredded)),
            pages: self.metrics.order_pages.get(),
        })
    }

    fn dedup(&self) -> Option<KeyUse> {
        let group = self.computed.group.as_ref().filter(|_| self.gives(GROUP))?;
        let by = if group.paths.is_empty() { "all fields except _source".to_owned() } else { Path::list(&group.paths) };
        let unless_scanned = if group.is_stored() { AccessName::StoredHashes } else { AccessName::Documents };
        let access = self.metrics.group_source.get().copied().unwrap_or(unless_scanned);
        let is_column = access == AccessName::ShreddedColumn;
        let column = is_column.then(|| Path::list(&group.compared().unwrap_or_default()));
        Some(KeyUse { by, access, column, pages: self.metrics.group_pages.get() })
    }

    fn column_path(&self, shredded: usize) -> String {
        let keys = &self.reader.layout().shredded_columns[shredded].keys;
        Path::from_keys(keys.iter().cloned()).map_or_else(|_| String::new(), |path| path.to_string())
    }
}
