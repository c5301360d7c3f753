//! The report of a scan, as the JSON of an explanation shows it.

use serde::Serialize;
use strata_types::path::Path;
use utoipa::ToSchema;

use crate::query::scan::access::{Access, PrunedBy};
pub use crate::query::scan::metrics::AccessName;
use crate::query::scan::metrics::{Counter, PredicateMetrics};
use crate::query::scan::predicate::Predicate;
use crate::query::scan::schema::{GROUP, ORDER};
use crate::query::scan::sort_key;
use crate::query::scan::spec::ScanSpec;

/// What the scan of the version did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ScanUse {
    /// The first position that was looked at.
    pub first_position: u64,
    /// The position after the last one.
    pub end_position: u64,
    /// The row groups.
    pub row_groups: RowGroupUse,
    /// Entities in the row groups that were scanned, as far as their positions count.
    pub rows_tested: u64,
    /// Entities that it gave.
    pub rows_selected: u64,
    /// The predicates, in the order in which they ran.
    pub predicates: Vec<PredicateUse>,
    /// What reading documents for predicates did; null where none needs them.
    pub verification: Option<VerificationUse>,
    /// Entities left out because they could not be among the first of the order; null where that was not tried.
    pub left_out_early: Option<u64>,
    /// Entities left out because another one with the same key comes first; null where that was not tried.
    pub duplicates_left_out: Option<u64>,
    /// Where the keys of `sort` came from; null where nothing was sorted.
    pub sort: Option<KeyUse>,
    /// Where the keys of `dedup` came from; null where none was asked for.
    pub dedup: Option<KeyUse>,
}

/// What became of the row groups. All but `total` add up to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RowGroupUse {
    /// All of the version's.
    pub total: u64,
    /// Outside of the positions that `offset` and `limit` leave.
    pub outside_positions: u64,
    /// Left out because a bloom filter says that the text is not there.
    pub pruned_by_bloom_filter: u64,
    /// Left out because the number lies outside of what the statistics say, nor is its text there; or because no
    /// number lies in the range.
    pub pruned_by_numbers: u64,
    /// Left out because the statistics say that no string lies in the range.
    pub pruned_by_texts: u64,
    /// Left out because the keyword index says that the text is not there.
    pub pruned_by_keyword_index: u64,
    /// Left out because the hash index of a column names none of their entities.
    pub pruned_by_hash_index: u64,
    /// Left out because the statistics say that all of the first of the order lie elsewhere.
    pub pruned_by_order: u64,
    /// Scanned.
    pub scanned: u64,
    /// Not looked at, because there were enough entities before.
    pub not_reached: u64,
}

/// What became of a predicate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct PredicateUse {
    /// The predicate, as the parameter that asks for it.
    pub predicate: String,
    /// What answered it.
    pub access: AccessName,
    /// The path of the shredded column, where it is one.
    pub column: Option<String>,
    /// Entities that it was asked about; null where documents alone answer, which all predicates share.
    pub rows_in: Option<u64>,
    /// Entities that were left.
    pub rows_out: Option<u64>,
    /// What the keyword index said; null where it was not asked.
    pub keyword_index: Option<KeywordIndexUse>,
    /// What shapes did; null where they were not asked.
    pub shapes: Option<ShapeUse>,
    /// Row groups where the statistics of the shredded column say that every entity fits a range filter; null for
    /// other predicates and columns.
    pub settled_by_statistics: Option<u64>,
}

/// How a predicate on paths was answered in the row groups that have shapes. Those that were pruned do not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ShapeUse {
    /// Row groups where search text and shapes settled it, without documents.
    pub settled: u64,
    /// Row groups where its candidates were verified in documents, because that reads less.
    pub left_to_documents: u64,
}

/// What the keyword index said of a predicate's texts, in row groups. Those that other predicates pruned do not
/// count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct KeywordIndexUse {
    /// Row groups where it named the entities that hold the text.
    pub exact: u64,
    /// Row groups where it named entities that may hold the text, to be verified.
    pub candidates: u64,
    /// Row groups where it did not tell, so that the search text was scanned.
    pub left_to_scan: u64,
    /// Entities that it named.
    pub rows: u64,
}

/// What reading documents for predicates did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct VerificationUse {
    /// Entities whose documents were looked at.
    pub rows_in: u64,
    /// Entities that matched.
    pub rows_out: u64,
    /// Pages that these documents lie in.
    pub pages: u64,
}

/// Where the keys of an order or of groups came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct KeyUse {
    /// The fields.
    pub by: String,
    /// What held the keys.
    pub access: AccessName,
    /// The path of the shredded column, where it is one.
    pub column: Option<String>,
    /// Pages of documents that were looked at: with a shredded column, for values that it cannot hold.
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
        let by = if group.paths.is_empty() { "all fields but _source".to_owned() } else { Path::list(&group.paths) };
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
