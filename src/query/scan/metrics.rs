//! The metrics of a scan, recorded per row group in the form in which a report shows them.

use std::pin::pin;
use std::sync::{Mutex, OnceLock, PoisonError};

use datafusion::physical_plan::metrics::{Count, Time};
use strata_runtime::metrics::metrics;

use crate::scan::access::{Condition, Exact};
use crate::scan::predicate::Predicate;
use crate::scan::report::{AccessName, PredicateUse, PruneCounter, ScanUse, ShapeUse};

/// Runs work and adds the time that it keeps a thread busy, without the time that it waits for the store.
pub(super) async fn timed<F: Future>(time: &Time, work: F) -> F::Output {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        let _timer = time.timer();
        work.as_mut().poll(context)
    })
    .await
}

#[derive(Debug, Default)]
pub(super) struct ScanMetrics {
    report: Mutex<ScanUse>,
    /// Row groups that were pruned or scanned.
    pub(super) reached: Count,
    /// Rows excluded by the top-k threshold, and as duplicates.
    pub(super) top_k: Count,
    pub(super) distinct: Count,
    /// Document pages read for the keys of the order and of groups.
    pub(super) order_pages: Count,
    pub(super) group_pages: Count,
    /// The source of the keys, once the scan has decided on it.
    pub(super) order_source: OnceLock<AccessName>,
    pub(super) group_source: OnceLock<AccessName>,
}

impl ScanMetrics {
    pub(super) fn new(conditions: &[Condition]) -> ScanMetrics {
        let predicates = conditions.iter().map(predicate_use).collect();
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

fn predicate_use(condition: &Condition) -> PredicateUse {
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
