//! The metrics of a scan, recorded for each row group in the form of the report.

use std::pin::pin;
use std::sync::OnceLock;

use datafusion::physical_plan::metrics::{Count, Time};
use parking_lot::Mutex;
use strata_runtime::metrics::metrics;

use crate::scan::access_path::{ExactRows, PlannedPredicate};
use crate::scan::predicate::Predicate;
use crate::scan::scan_report::{AccessPath, PredicateReport, PruneCounter, ScanReport};

/// Runs work and adds the time that it keeps a thread busy, without the time that it waits for the store.
pub(super) async fn with_busy_timer<F: Future>(time: &Time, work: F) -> F::Output {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        let _timer = time.timer();
        work.as_mut().poll(context)
    })
    .await
}

#[derive(Debug, Default)]
pub(super) struct ScanMetrics {
    report: Mutex<ScanReport>,
    pub(super) reached_row_groups: Count,
    pub(super) top_k_excluded_rows: Count,
    pub(super) duplicate_rows: Count,
    pub(super) order_pages_read: Count,
    pub(super) group_pages_read: Count,
    pub(super) order_source: OnceLock<AccessPath>,
    pub(super) group_source: OnceLock<AccessPath>,
}

impl ScanMetrics {
    pub(super) fn new(conditions: &[PlannedPredicate]) -> ScanMetrics {
        let predicates = conditions.iter().map(new_predicate_report).collect();
        ScanMetrics { report: Mutex::new(ScanReport { predicates, ..ScanReport::default() }), ..ScanMetrics::default() }
    }

    pub(super) fn with_report<T>(&self, record: impl FnOnce(&mut ScanReport) -> T) -> T {
        record(&mut self.report.lock())
    }

    pub(super) fn count_pruned(&self, rows: usize, bytes: u64, counter: PruneCounter) {
        metrics().pruned_rows.increment(rows as u64);
        metrics().pruned_bytes.increment(bytes);
        self.reached_row_groups.add(1);
        self.with_report(|scan| *counter(&mut scan.row_groups) += 1);
    }

    pub(super) fn count_scanned_row_group(&self, rows: usize) {
        self.reached_row_groups.add(1);
        metrics().scanned_rows.increment(rows as u64);
        self.with_report(|scan| {
            scan.row_groups.scanned += 1;
            scan.rows_tested += rows as u64;
        });
    }

    pub(super) fn count_predicate_rows(&self, number: usize, rows_in: usize, rows_out: usize) {
        self.with_report(|scan| {
            let report = &mut scan.predicates[number];
            report.rows_in = report.rows_in.map(|rows| rows + rows_in as u64);
            report.rows_out = report.rows_out.map(|rows| rows + rows_out as u64);
        });
    }

    /// Counts a lookup of a row group in the keyword index: the candidates that are certain to match (`None` if the
    /// index could not help) and the number of listed rows.
    pub(super) fn count_keyword_lookup(&self, number: usize, exact: Option<&ExactRows>, rows: usize) {
        let outcome = self.with_report(|scan| {
            let report = scan.predicates[number].keyword_index.get_or_insert_default();
            report.rows += rows as u64;
            let (counter, outcome) = match exact {
                Some(ExactRows::All) => (&mut report.exact, "exact"),
                Some(_) => (&mut report.candidates, "candidates"),
                None => (&mut report.left_to_scan, "scan"),
            };
            *counter += 1;
            outcome
        });
        metrics().keyword_index_uses.with_label_values([outcome.into()]).increment(1);
    }
}

fn new_predicate_report(condition: &PlannedPredicate) -> PredicateReport {
    let access = condition.access_path;
    let is_range = matches!(&condition.predicate, Predicate::Comparison(compare) if compare.range_needle().is_some());
    let rows = (access != AccessPath::Documents).then_some(0);
    PredicateReport {
        predicate: String::new(),
        access,
        column: None,
        rows_in: rows,
        rows_out: rows,
        keyword_index: None,
        settled_by_statistics: (access == AccessPath::ShreddedColumn && is_range).then_some(0),
    }
}
