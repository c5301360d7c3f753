//! The metrics of a scan, recorded per row group in the form in which a report shows them.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use datafusion::physical_plan::metrics::Time;
use serde::Serialize;
use strata_runtime::metrics::metrics;
use utoipa::ToSchema;

use crate::scan::access::{Condition, Exact};
use crate::scan::report::{PredicateUse, PruneCounter, ScanUse};

/// What strata read: a part of the file or a cached result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
// Conditions are evaluated in the order of the first five: the cheapest access path first.
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

/// The rows that a filter of the scan has excluded.
#[derive(Debug, Default)]
pub(super) struct ExcludedRows(Counter);

impl ExcludedRows {
    pub(super) fn add(&self, rows_in: usize, rows_out: usize) {
        self.0.add(rows_in - rows_out);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.get()
    }
}

#[derive(Debug, Default)]
pub(super) struct ScanMetrics {
    /// What row groups, predicates and documents contribute to the report.
    report: Mutex<ScanUse>,
    /// Row groups that were pruned or scanned.
    pub(super) reached: Counter,
    /// By the top-k threshold.
    pub(super) top_k: ExcludedRows,
    /// Document pages read for the keys of the order and of groups.
    pub(super) order_pages: Counter,
    pub(super) group_pages: Counter,
    /// Because a row before them is of the same group.
    pub(super) distinct: ExcludedRows,
    /// The source of the keys, once the scan has decided on it.
    pub(super) order_source: OnceLock<AccessName>,
    pub(super) group_source: OnceLock<AccessName>,
}

impl ScanMetrics {
    pub(super) fn new(conditions: &[Condition]) -> ScanMetrics {
        let predicates = conditions.iter().map(PredicateUse::new).collect();
        ScanMetrics { report: Mutex::new(ScanUse { predicates, ..ScanUse::default() }), ..ScanMetrics::default() }
    }

    pub(super) fn record<T>(&self, record: impl FnOnce(&mut ScanUse) -> T) -> T {
        // Counters stay consistent when a thread panics.
        record(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn count_pruned(&self, rows: usize, bytes: u64, counter: PruneCounter) {
        metrics().pruned_rows.increment(rows as u64);
        metrics().pruned_bytes.increment(bytes);
        self.reached.add(1);
        self.record(|scan| *counter(&mut scan.row_groups) += 1);
    }

    pub(super) fn count_scanned(&self, rows: usize) {
        self.reached.add(1);
        metrics().scanned_rows.increment(rows as u64);
        self.record(|scan| {
            scan.row_groups.scanned += 1;
            scan.rows_tested += rows as u64;
        });
    }

    pub(super) fn count_condition(&self, number: usize, rows_in: usize, rows_out: usize) {
        self.record(|scan| {
            let used = &mut scan.predicates[number];
            used.rows_in = used.rows_in.map(|rows| rows + rows_in as u64);
            used.rows_out = used.rows_out.map(|rows| rows + rows_out as u64);
        });
    }

    /// Counts a row group whose path index was sufficient, or left candidates to documents.
    pub(super) fn count_path_index(&self, number: usize, is_sufficient: bool) {
        self.record(|scan| {
            let used = scan.predicates[number].shapes.get_or_insert_default();
            *(if is_sufficient { &mut used.settled } else { &mut used.left_to_documents }) += 1;
        });
        metrics().shapes.of([if is_sufficient { "settled" } else { "documents" }.into()]).increment(1);
    }

    /// Counts a lookup of a row group in the keyword index: the candidates that match for certain (`None` if the index
    /// could not help) and the number of rows that the index listed.
    pub(super) fn count_keyword_lookup(&self, number: usize, exact: Option<&Exact>, rows: usize) {
        let outcome = self.record(|scan| {
            let used = scan.predicates[number].keyword_index.get_or_insert_default();
            used.rows += rows as u64;
            let (counter, outcome) = match exact {
                Some(Exact::All) => (&mut used.exact, "exact"),
                Some(_) => (&mut used.candidates, "candidates"),
                None => (&mut used.left_to_scan, "scan"),
            };
            *counter += 1;
            outcome
        });
        metrics().keyword_index.of([outcome.into()]).increment(1);
    }
}
