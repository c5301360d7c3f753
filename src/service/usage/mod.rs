//! Counts the reads of each dataset in memory, and adds the counts to the catalog in batches.
//!
//! 1. Each read of a dataset gets a [`UsageMeter`], which counts the request, its outcome, and the bytes of its body as
//!    they are sent (`usage_table`).
//! 2. Every [`FLUSH_INTERVAL`], and when a table is full, the counts become pending and are added to the catalog in
//!    batches of one transaction each (`pending_usage`).
//! 3. If the catalog is unavailable, pending counts accumulate up to a limit. Beyond the limit, counts of additional
//!    datasets are lost (`strata_usage_lost_requests_total`). A killed process loses the counts since its last batch.
//!
//! A request that exceeds the rate limit is rejected before its dataset is looked up, so it is counted by dataset id
//! and slug. When such counts are added, the catalog checks that the dataset exists.

mod pending_usage;
mod usage_table;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use strata_catalog::{Catalog, CatalogClock, CatalogError, DailyUsage, UsageCounts, UsageIncrement};
use strata_runtime::metrics::metrics;
use strata_types::dataset::Dataset;
use strata_types::ids::DatasetId;
use strata_types::limits;
use strata_types::user::User;
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use crate::management::ManageError;
use pending_usage::PendingUsage;
use usage_table::{UsageKey, UsageTable};

const FLUSH_INTERVAL: Duration = Duration::from_secs(10);

/// Delay after a repeated failure to write usage counts to the catalog.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Interval at which the usage counts of old days are deleted from the catalog.
const SWEEP_INTERVAL: Duration = Duration::from_secs(3_600);

/// Maximum number of entries (dataset and day) in the table of looked-up datasets. An entry takes about 100 bytes.
const MAX_RESOLVED_ENTRIES: usize = 50_000;

/// Maximum number of entries in the table of datasets that were not looked up.
const MAX_UNRESOLVED_ENTRIES: usize = 10_000;

/// Maximum size of a slug in the table of datasets that were not looked up. Slugs of existing datasets are shorter.
const MAX_SLUG_BYTES: usize = 4 * limits::MAX_DATASET_NAME_CHARACTERS;

const MAX_PENDING_ENTRIES: usize = 200_000;
const MAX_BATCHES_PER_FLUSH: usize = 250;

pub struct UsageRecorder {
    catalog: Catalog,
    clock: CatalogClock,
    resolved: UsageTable,
    unresolved: UsageTable,
    table_full: Notify,
    pending: Mutex<PendingUsage>,
    writer_id: String,
}

/// Counts a read of a dataset, its outcome, and the bytes of its response. Clones count for the same read.
#[derive(Clone)]
pub struct UsageMeter {
    recorder: Arc<UsageRecorder>,
    dataset: DatasetId,
    name_slug: Option<Arc<str>>,
}

impl UsageRecorder {
    /// Creates a usage recorder. `writer_id` identifies the process, so that the catalog adds each batch only once.
    pub(crate) fn new(catalog: Catalog, clock: CatalogClock, writer_id: String) -> UsageRecorder {
        UsageRecorder {
            catalog,
            clock,
            resolved: UsageTable::new(MAX_RESOLVED_ENTRIES),
            unresolved: UsageTable::new(MAX_UNRESOLVED_ENTRIES),
            table_full: Notify::new(),
            pending: Mutex::new(PendingUsage::new(MAX_PENDING_ENTRIES)),
            writer_id,
        }
    }

    pub fn meter_read(self: &Arc<Self>, dataset: DatasetId) -> UsageMeter {
        self.start_meter(dataset, None)
    }

    /// Counts a read that exceeded the rate limit, if a dataset with this id and slug exists.
    pub fn meter_rate_limited(self: &Arc<Self>, dataset: DatasetId, name_slug: &str) -> UsageMeter {
        let meter = self.start_meter(dataset, Some(name_slug.into()));
        meter.record_rate_limited();
        meter
    }

    fn start_meter(self: &Arc<Self>, dataset: DatasetId, name_slug: Option<Arc<str>>) -> UsageMeter {
        let meter = UsageMeter { recorder: self.clone(), dataset, name_slug };
        meter.add_counts(UsageCounts { requests: 1, ..UsageCounts::default() });
        meter
    }

    /// Returns the usage on the last `days` days including today and pending counts, newest first, without empty days.
    pub async fn daily_usage(&self, owner: &User, id: DatasetId, days: u64) -> Result<Vec<DailyUsage>, ManageError> {
        let dataset = self.catalog.owned_dataset(owner.id, id).await?;
        let first_day = self.first_day(days);
        // The lock prevents counts from moving to the catalog between both queries, which would count them twice.
        let pending = self.pending.lock().await;
        let stored = self.catalog.daily_usage(id, first_day).await?;
        let find = |dataset_id: DatasetId| (dataset_id == id).then_some(&dataset);
        let unflushed = self.unflushed_counts(pending.counts_for_dataset(id), first_day, find);
        let unflushed = unflushed.into_iter().map(|UsageIncrement { day, counts, .. }| DailyUsage { day, counts });
        let mut sums: BTreeMap<u32, UsageCounts> = BTreeMap::new();
        for DailyUsage { day, counts } in stored.into_iter().chain(unflushed) {
            sums.entry(day).or_default().add(counts);
        }
        let usage = sums.into_iter().rev().map(|(day, counts)| DailyUsage { day, counts });
        Ok(usage.filter(|usage| !usage.counts.is_zero()).collect())
    }

    /// Like [`UsageRecorder::daily_usage`], but returns the sums over all days of several datasets with one query.
    pub async fn total_usage(
        &self,
        owner: &User,
        datasets: &[Dataset],
        days: u64,
    ) -> Result<HashMap<DatasetId, UsageCounts>, ManageError> {
        let first_day = self.first_day(days);
        let by_id: HashMap<DatasetId, &Dataset> = datasets.iter().map(|dataset| (dataset.id, dataset)).collect();
        let pending = self.pending.lock().await;
        let mut sums = self.catalog.usage_by_owner(owner.id, first_day).await?;
        let pending_counts = datasets.iter().flat_map(|dataset| pending.counts_for_dataset(dataset.id));
        for increment in self.unflushed_counts(pending_counts, first_day, |id| by_id.get(&id).copied()) {
            sums.entry(increment.dataset).or_default().add(increment.counts);
        }
        Ok(sums)
    }

    fn first_day(&self, days: u64) -> u32 {
        let days = u32::try_from(days.min(limits::MAX_USAGE_DAYS as u64)).unwrap_or(u32::MAX);
        (DailyUsage::day_number(self.clock.now()) + 1).saturating_sub(days)
    }

    /// Returns the counts since `first_day` that are not in the catalog yet, for datasets that `find` returns: the
    /// `pending` counts and the counts of both tables.
    fn unflushed_counts<'d>(
        &self,
        pending: impl Iterator<Item = UsageIncrement>,
        first_day: u32,
        find: impl Fn(DatasetId) -> Option<&'d Dataset>,
    ) -> Vec<UsageIncrement> {
        let all = pending.chain(self.resolved.snapshot()).chain(self.unresolved.snapshot());
        let matches = |UsageIncrement { dataset, name_slug, day, .. }: &UsageIncrement| {
            *day >= first_day
                && find(*dataset).is_some_and(|found| name_slug.as_deref().is_none_or(|slug| slug == found.name.slug()))
        };
        all.filter(matches).collect()
    }

    /// Adds counts to the catalog in at most [`MAX_BATCHES_PER_FLUSH`] batches. Counts remain pending after an error.
    pub async fn flush(&self) -> Result<(), CatalogError> {
        let mut pending = self.pending.lock().await;
        // No await separates draining the tables from adding to `pending`, so a dropped future loses no counts.
        let drained = self.resolved.drain().into_iter().chain(self.unresolved.drain());
        let lost: u64 = drained.map(|(key, counts)| pending.add_or_count_lost(key, counts)).sum();
        metrics().usage_lost_requests.increment(lost);
        for _ in 0..MAX_BATCHES_PER_FLUSH {
            let Some((number, rows)) = pending.next_batch() else { break };
            self.catalog.add_usage(&self.writer_id, number, rows).await?;
            pending.confirm_batch();
        }
        Ok(())
    }

    /// Flushes counts and deletes old days until `stop`. After the last read, you must call [`UsageRecorder::flush`].
    pub(crate) async fn run_flush_loop(self: Arc<Self>, stop: CancellationToken) {
        let mut swept_at = None::<tokio::time::Instant>;
        let mut failing = false;
        let rounds = async {
            loop {
                // `Notify` stores a notification that arrives between two rounds of the loop.
                let _ = tokio::time::timeout(FLUSH_INTERVAL, self.table_full.notified()).await;
                match self.flush().await {
                    Ok(()) => failing = false,
                    Err(error) if !failing => {
                        failing = true;
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "failed to write usage statistics; retrying");
                    }
                    Err(_) => tokio::time::sleep(RETRY_DELAY).await,
                }
                if !failing && swept_at.is_none_or(|at| at.elapsed() >= SWEEP_INTERVAL) {
                    swept_at = Some(tokio::time::Instant::now());
                    let today = DailyUsage::day_number(self.clock.now());
                    let first_day = (today + 1).saturating_sub(limits::MAX_USAGE_DAYS as u32);
                    if let Err(error) = self.catalog.delete_usage_before(first_day).await {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "failed to delete old usage statistics");
                    }
                }
            }
        };
        stop.run_until_cancelled(rounds).await;
    }

    fn add_counts(&self, dataset: DatasetId, name_slug: Option<Arc<str>>, counts: UsageCounts) {
        let day = DailyUsage::day_number(self.clock.now());
        let table = if name_slug.is_none() { &self.resolved } else { &self.unresolved };
        let is_short = name_slug.as_ref().is_none_or(|slug| slug.len() <= MAX_SLUG_BYTES);
        let added = is_short && table.try_add(UsageKey { dataset, name_slug, day }, counts);
        if !added {
            self.table_full.notify_one();
            metrics().usage_lost_requests.increment(counts.requests);
        }
    }
}

impl UsageMeter {
    pub fn record_not_modified(&self) {
        self.add_counts(UsageCounts { not_modified: 1, ..UsageCounts::default() });
    }

    pub fn record_rate_limited(&self) {
        self.add_counts(UsageCounts { rate_limited: 1, ..UsageCounts::default() });
    }

    pub fn record_sent_bytes(&self, bytes: u64) {
        self.add_counts(UsageCounts { sent_bytes: bytes, ..UsageCounts::default() });
    }

    fn add_counts(&self, counts: UsageCounts) {
        self.recorder.add_counts(self.dataset, self.name_slug.clone(), counts);
    }
}
