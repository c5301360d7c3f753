//! What a scan has done, counted by row group, so that counting costs nothing beside the work.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::physical_plan::metrics::Time;

use super::VersionScan;
use crate::model::path::Path;
use crate::query::explain::{AccessName, KeyUse, PredicateUse, RowGroupUse, ScanUse, VerificationUse};
use crate::query::plan::table::{GROUP, ORDER};
use crate::query::scan::access::{Access, PrunedBy};
use crate::query::scan::columns;
use crate::query::scan::predicate::Predicate;

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Rows before and after something that selects among them.
#[derive(Debug, Default)]
pub(super) struct Narrowed {
    before: Counter,
    after: Counter,
}

impl Narrowed {
    pub(super) fn add(&self, before: usize, after: usize) {
        self.before.add(before);
        self.after.add(after);
    }
}

/// The counts of one scan.
#[derive(Debug, Default)]
pub(super) struct ScanCounts {
    pub(super) pruned_by_bloom_filter: Counter,
    pub(super) pruned_by_numbers: Counter,
    /// Row groups that were not pruned, and their rows.
    pub(super) scanned: Counter,
    pub(super) tested: Counter,
    /// As the scan's predicates: what shredded columns and search texts have left.
    pub(super) predicates: Box<[Narrowed]>,
    /// What documents have left.
    pub(super) verified: Narrowed,
    /// What may be among the first of the order.
    pub(super) first: Narrowed,
    /// Pages of documents that were looked at to verify, and for the keys of the order and of groups.
    pub(super) verified_pages: Counter,
    pub(super) order_pages: Counter,
    pub(super) group_pages: Counter,
}

impl ScanCounts {
    pub(super) fn of(predicates: usize) -> ScanCounts {
        ScanCounts { predicates: (0..predicates).map(|_| Narrowed::default()).collect(), ..ScanCounts::default() }
    }

    pub(super) fn pruned(&self, by: PrunedBy) {
        match by {
            PrunedBy::BloomFilter => self.pruned_by_bloom_filter.add(1),
            PrunedBy::Numbers => self.pruned_by_numbers.add(1),
        }
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

impl VersionScan {
    /// What the scan has done so far.
    pub(in crate::query) fn used(&self) -> ScanUse {
        let counts = &self.counts;
        let total = self.reader.row_groups().len() as u64;
        let touched = self.row_groups().len() as u64;
        let (by_bloom, by_numbers) = (counts.pruned_by_bloom_filter.get(), counts.pruned_by_numbers.get());
        let scanned = counts.scanned.get();
        let predicates = self.predicates.iter().zip(&counts.predicates);
        let verifies = self.predicates.iter().any(|(access, _)| access.reads_documents());
        ScanUse {
            first_position: self.range.start,
            end_position: self.range.end,
            row_groups: RowGroupUse {
                total,
                outside_positions: total - touched,
                pruned_by_bloom_filter: by_bloom,
                pruned_by_numbers: by_numbers,
                scanned,
                not_reached: touched.saturating_sub(by_bloom + by_numbers + scanned),
            },
            rows_tested: counts.tested.get(),
            rows_selected: self.metrics.clone_inner().output_rows().unwrap_or_default() as u64,
            predicates: predicates
                .map(|((access, predicate), rows)| self.predicate(*access, predicate, rows))
                .collect(),
            verification: verifies.then(|| VerificationUse {
                rows_in: counts.verified.before.get(),
                rows_out: counts.verified.after.get(),
                pages: counts.verified_pages.get(),
            }),
            left_out_early: self.first.is_some().then(|| counts.first.before.get() - counts.first.after.get()),
            sort: self.sort(),
            dedup: self.dedup(),
        }
    }

    fn predicate(&self, access: Access, predicate: &Predicate, rows: &Narrowed) -> PredicateUse {
        let (access, shredded) = match access {
            Access::ShreddedColumn(shredded) => (AccessName::ShreddedColumn, Some(self.shredded_path(shredded))),
            Access::Search => (AccessName::SearchText, None),
            Access::SearchThenDocuments => (AccessName::SearchTextThenDocuments, None),
            Access::Documents => (AccessName::Documents, None),
        };
        let counted = access != AccessName::Documents;
        PredicateUse {
            predicate: predicate.to_string(),
            access,
            column: shredded,
            rows_in: counted.then(|| rows.before.get()),
            rows_out: counted.then(|| rows.after.get()),
        }
    }

    fn sort(&self) -> Option<KeyUse> {
        let order = self.computed.order.as_ref().filter(|_| self.gives(ORDER))?;
        let shredded = columns::order_column(self.reader.layout(), &order.field);
        let access = if shredded.is_some() { AccessName::ShreddedColumn } else { AccessName::Documents };
        let pages = self.counts.order_pages.get();
        Some(KeyUse {
            by: order.field.clone(),
            access,
            column: shredded.map(|shredded| self.shredded_path(shredded)),
            pages,
        })
    }

    fn dedup(&self) -> Option<KeyUse> {
        let group = self.computed.group.as_ref().filter(|_| self.gives(GROUP))?;
        let paths: Vec<String> = group.paths.iter().map(Path::to_string).collect();
        let by = if paths.is_empty() { "all fields but _source".to_owned() } else { paths.join(",") };
        let access = if group.is_stored() { AccessName::StoredHashes } else { AccessName::Documents };
        Some(KeyUse { by, access, column: None, pages: self.counts.group_pages.get() })
    }

    fn shredded_path(&self, shredded: usize) -> String {
        let keys = &self.reader.layout().shredded_columns[shredded].keys;
        Path::from_keys(keys.iter().cloned()).map_or_else(|_| String::new(), |path| path.to_string())
    }
}
