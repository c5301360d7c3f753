//! The metrics of a scan, counted by row group, so that counting costs nothing beside the work.

use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::physical_plan::metrics::Time;
use serde::Serialize;
use utoipa::ToSchema;

use crate::scan::access::PrunedBy;

/// What strata read: a part of the file or a cached result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessName {
    /// The indexed column of a path.
    ShreddedColumn,
    /// The full-text column, which was sufficient.
    SearchText,
    /// The full-text column and the path index.
    SearchTextAndShapes,
    /// The full-text column. strata verified the matches in documents.
    SearchTextThenDocuments,
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

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs work and adds the time that it keeps a thread busy, which its waiting for the store is no part of.
pub(super) async fn timed<F: Future>(time: &Time, work: F) -> F::Output {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        let _timer = time.timer();
        work.as_mut().poll(context)
    })
    .await
}

/// Rows before and after something that selects among them.
#[derive(Debug, Default)]
pub(super) struct Narrowed {
    pub(super) before: Counter,
    pub(super) after: Counter,
}

impl Narrowed {
    pub(super) fn add(&self, before: usize, after: usize) {
        self.before.add(before);
        self.after.add(after);
    }
}

/// What the keyword index said of a predicate, in row groups, and the rows that it left.
#[derive(Debug, Default)]
pub(super) struct IndexedCounts {
    pub(super) exact: Counter,
    pub(super) candidates: Counter,
    pub(super) scan: Counter,
    pub(super) rows: Counter,
}

/// How a predicate on paths was answered where there are shapes, in row groups.
#[derive(Debug, Default)]
pub(super) struct ShapeCounts {
    pub(super) settled: Counter,
    pub(super) documents: Counter,
}

#[derive(Debug, Default)]
pub(super) struct PredicateMetrics {
    /// What shredded columns and search texts have left.
    pub(super) rows: Narrowed,
    pub(super) indexed: IndexedCounts,
    /// Whether a hash index named the entities that may match.
    pub(super) hash_indexed: OnceLock<()>,
    pub(super) shapes: ShapeCounts,
    /// Row groups in which the statistics of a shredded column say that every row matches.
    pub(super) settled_by_statistics: Counter,
}

#[derive(Debug, Default)]
pub(super) struct ScanMetrics {
    /// Row groups that were pruned, by [`PrunedBy`].
    pub(super) pruned: [Counter; PrunedBy::Order as usize + 1],
    /// Row groups that were not pruned, and their rows.
    pub(super) scanned: Counter,
    pub(super) tested: Counter,
    /// As the scan's predicates.
    pub(super) predicates: Box<[PredicateMetrics]>,
    pub(super) verified: Narrowed,
    /// What the top-k threshold has left.
    pub(super) top_k: Narrowed,
    /// Pages of documents that were looked at to verify, and for the keys of the order and of groups.
    pub(super) verified_pages: Counter,
    pub(super) order_pages: Counter,
    pub(super) group_pages: Counter,
    /// What is left of entities whose group has another one that comes before them.
    pub(super) distinct: Narrowed,
    /// Where the keys came from, once that is decided.
    pub(super) order_source: OnceLock<AccessName>,
    pub(super) group_source: OnceLock<AccessName>,
}

impl ScanMetrics {
    pub(super) fn of(predicates: usize) -> ScanMetrics {
        ScanMetrics {
            predicates: (0..predicates).map(|_| PredicateMetrics::default()).collect(),
            ..ScanMetrics::default()
        }
    }
}
