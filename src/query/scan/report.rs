//! The report of a scan, as the JSON of an explanation shows it.

use serde::Serialize;
use strata_types::path::Path;
use utoipa::ToSchema;

use crate::scan::access::{Access, PrunedBy};
pub use crate::scan::metrics::AccessName;
use crate::scan::metrics::{Counter, PredicateMetrics};
use crate::scan::predicate::Predicate;
use crate::scan::schema::{GROUP, ORDER};
use crate::scan::sort_key;
use crate::scan::spec::ScanSpec;

/// The scan of the version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ShapeUse {
    /// Row groups in which the full-text column and the path index were sufficient.
    pub settled: u64,
    /// Row groups in which strata verified the candidates in documents because reading the documents required fewer
    /// bytes.
    pub left_to_documents: u64,
}

/// The results of the keyword index for a predicate, excluding row groups that other predicates pruned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
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

impl ScanSpec {
    /// What the scan has done so far, and how many rows it gave.
    pub(super) fn used(&self, rows_selected: u64) -> ScanUse {
        let metrics = &self.metrics;
        let total = self.reader.row_groups().len() as u64;
        let touched = self.row_groups().len() as u64;
        let pruned = |by: PrunedBy| metrics.pruned[by as usize].get();
        let scanned = metrics.scanned.get();
        let reached = metrics.pruned.iter().map(Counter::get).sum::<u64>() + scanned;
        let predicates = self.predicates.iter().zip(&metrics.predicates).enumerate();
        let predicates = predicates.map(|(number, (predicate, counts))| self.predicate(number, predicate, counts));
        let verifies =
            metrics.verified.before.get() > 0 || self.predicates.iter().any(|(access, _)| access.reads_documents());
        ScanUse {
            first_position: self.range.start,
            end_position: self.range.end,
            row_groups: RowGroupUse {
                total,
                outside_positions: total - touched,
                pruned_by_bloom_filter: pruned(PrunedBy::BloomFilter),
                pruned_by_numbers: pruned(PrunedBy::Numbers),
                pruned_by_texts: pruned(PrunedBy::Texts),
                pruned_by_keyword_index: pruned(PrunedBy::KeywordIndex),
                pruned_by_hash_index: pruned(PrunedBy::HashIndex),
                pruned_by_order: pruned(PrunedBy::Order),
                scanned,
                not_reached: touched.saturating_sub(reached),
            },
            rows_tested: metrics.tested.get(),
            rows_selected,
            predicates: predicates.collect(),
            verification: verifies.then(|| VerificationUse {
                rows_in: metrics.verified.before.get(),
                rows_out: metrics.verified.after.get(),
                pages: metrics.verified_pages.get(),
            }),
            left_out_early: self.threshold.is_some().then(|| metrics.top_k.before.get() - metrics.top_k.after.get()),
            duplicates_left_out: self.distinct.then(|| metrics.distinct.before.get() - metrics.distinct.after.get()),
            sort: self.sort(),
            dedup: self.dedup(),
        }
    }

    fn predicate(
        &self,
        number: usize,
        (access, predicate): &(Access, Predicate),
        counts: &PredicateMetrics,
    ) -> PredicateUse {
        let is_indexed = counts.hash_indexed.get().is_some();
        let is_asked = self.keywords.as_ref().is_some_and(|keywords| keywords.asks(number));
        let (name, column) = match *access {
            Access::ShreddedColumn(shredded) => {
                let name = if is_indexed { AccessName::HashIndex } else { AccessName::ShreddedColumn };
                (name, Some(self.shredded_path(shredded)))
            }
            Access::Search => (AccessName::SearchText, None),
            Access::Shapes => (AccessName::SearchTextAndShapes, None),
            Access::SearchThenDocuments => (AccessName::SearchTextThenDocuments, None),
            Access::Documents => (AccessName::Documents, None),
        };
        let is_counted = name != AccessName::Documents;
        let is_range = matches!(predicate, Predicate::Compare(compare) if compare.range().is_some());
        PredicateUse {
            predicate: predicate.to_string(),
            access: name,
            rows_in: is_counted.then(|| counts.rows.before.get()),
            rows_out: is_counted.then(|| counts.rows.after.get()),
            keyword_index: is_asked.then(|| KeywordIndexUse {
                exact: counts.indexed.exact.get(),
                candidates: counts.indexed.candidates.get(),
                left_to_scan: counts.indexed.scan.get(),
                rows: counts.indexed.rows.get(),
            }),
            shapes: (*access == Access::Shapes).then(|| ShapeUse {
                settled: counts.shapes.settled.get(),
                left_to_documents: counts.shapes.documents.get(),
            }),
            settled_by_statistics: (is_range && column.is_some()).then(|| counts.settled_by_statistics.get()),
            column,
        }
    }

    fn sort(&self) -> Option<KeyUse> {
        let order = self.computed.order.as_ref().filter(|_| self.gives(ORDER))?;
        let shredded = sort_key::order_column(self.reader.layout(), &order.field);
        let unless_kept = if shredded.is_some() { AccessName::ShreddedColumn } else { AccessName::Documents };
        Some(KeyUse {
            by: order.field.clone(),
            access: self.metrics.order_source.get().copied().unwrap_or(unless_kept),
            column: shredded.map(|shredded| self.shredded_path(shredded)),
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

    fn shredded_path(&self, shredded: usize) -> String {
        let keys = &self.reader.layout().shredded_columns[shredded].keys;
        Path::from_keys(keys.iter().cloned()).map_or_else(|_| String::new(), |path| path.to_string())
    }
}
