//! Counts the reads of each dataset in memory, and adds the counts to the catalog every few seconds and at the end.
//!
//! 1. A read that names a dataset gets a [`UsageMeter`]. The meter counts the request, its outcome, and each part of
//!    its body when the part is sent, also after minutes (`table`).
//! 2. Every [`INTERVAL`], and when a table is full, the counts become pending, and batches of them are added to the
//!    catalog, each in one transaction (`unwritten`).
//! 3. While the catalog is unavailable, the pending counts grow up to a limit. Counts of further datasets are then
//!    lost, and `strata_usage_lost_requests_total` counts them. A killed process loses the counts since the last batch.
//!
//! A request beyond the rate limit is refused before its dataset is looked up, and counts for the dataset and the slug
//! that it names. The catalog checks whether there is such a dataset when the counts are added.

mod table;
mod unwritten;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use strata_catalog::{Catalog, CatalogError, Clock, CountedUsage, DayUsage, UsageCounts};
use strata_runtime::metrics::metrics;
use strata_types::dataset::Dataset;
use strata_types::ids::DatasetId;
use strata_types::limits;
use strata_types::user::User;
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use crate::manage::ManageError;
use table::{Key, Table};
use unwritten::Unwritten;

/// How often counts are added to the catalog.
const INTERVAL: Duration = Duration::from_secs(10);

/// The minimum time between two attempts that fail.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// How often outdated days are deleted.
const SWEEP_INTERVAL: Duration = Duration::from_secs(3_600);

/// The maximum number of entries, which are datasets and days. An entry takes about 100 bytes.
const MAX_FOUND: usize = 50_000;

/// The maximum number of entries whose dataset was not looked up.
const MAX_NAMED: usize = 10_000;

/// The maximum size of the slug of such an entry. Names of datasets are shorter.
const MAX_SLUG_BYTES: usize = 4 * limits::DATASET_NAME_CHARACTERS;

/// The maximum number of pending entries.
const MAX_UNWRITTEN: usize = 200_000;

/// The maximum number of batches of one flush.
const MAX_BATCHES: usize = 250;

pub struct Usage {
    catalog: Catalog,
    clock: Clock,
    found: Table,
    named: Table,
    full: Notify,
    unwritten: Mutex<Unwritten>,
    writer: String,
}

/// Counts one read, and what is sent of its answer.
#[derive(Clone)]
pub struct UsageMeter {
    usage: Arc<Usage>,
    dataset: DatasetId,
    name_slug: Option<Arc<str>>,
}

impl Usage {
    /// Counts days by this clock. `writer` identifies the process.
    pub(crate) fn new(catalog: Catalog, clock: Clock, writer: String) -> Usage {
        Usage {
            catalog,
            clock,
            found: Table::new(MAX_FOUND),
            named: Table::new(MAX_NAMED),
            full: Notify::new(),
            unwritten: Mutex::new(Unwritten::new(MAX_UNWRITTEN)),
            writer,
        }
    }

    /// A read of a dataset that was looked up. The request is counted.
    pub fn found(self: &Arc<Self>, dataset: DatasetId) -> UsageMeter {
        self.begun(dataset, None)
    }

    /// A read that was refused for its client's rate. The request is counted if there is such a dataset.
    pub fn refused(self: &Arc<Self>, dataset: DatasetId, name_slug: &str) -> UsageMeter {
        let meter = self.begun(dataset, Some(name_slug.into()));
        meter.rate_limited();
        meter
    }

    fn begun(self: &Arc<Self>, dataset: DatasetId, name_slug: Option<Arc<str>>) -> UsageMeter {
        let meter = UsageMeter { usage: self.clone(), dataset, name_slug };
        meter.add(UsageCounts { requests: 1, ..UsageCounts::default() });
        meter
    }

    /// How much a dataset was read on the last `days` days, today among them, the newest first; days without a read are
    /// left out. What this process has counted and not yet added is part of it.
    pub async fn days(&self, owner: &User, id: DatasetId, days: u64) -> Result<Vec<DayUsage>, ManageError> {
        let dataset = self.catalog.owned_dataset(owner.id, id).await?;
        let first = self.first(days);
        // Nothing moves to the catalog meanwhile, so nothing is counted twice.
        let unwritten = self.unwritten.lock().await;
        let written = self.catalog.usage(id, first).await?;
        let memory = self.counted(unwritten.of_dataset(id), first, |asked| (asked == id).then_some(&dataset));
        let memory = memory.into_iter().map(|CountedUsage { day, counts, .. }| DayUsage { day, counts });
        let mut sums: BTreeMap<u32, UsageCounts> = BTreeMap::new();
        for DayUsage { day, counts } in written.into_iter().chain(memory) {
            sums.entry(day).or_default().add(counts);
        }
        let usage = sums.into_iter().rev().map(|(day, counts)| DayUsage { day, counts });
        Ok(usage.filter(|usage| !usage.counts.is_zero()).collect())
    }

    /// How much each of an owner's datasets was read on the last `days` days, today among them, as of [`Usage::days`].
    /// Datasets without a read may be left out. One look-up in the catalog.
    pub async fn totals(
        &self,
        owner: &User,
        datasets: &[Dataset],
        days: u64,
    ) -> Result<HashMap<DatasetId, UsageCounts>, ManageError> {
        let first = self.first(days);
        let by_id: HashMap<DatasetId, &Dataset> = datasets.iter().map(|dataset| (dataset.id, dataset)).collect();
        let unwritten = self.unwritten.lock().await;
        let mut sums = self.catalog.owned_usage(owner.id, first).await?;
        let waiting = datasets.iter().flat_map(|dataset| unwritten.of_dataset(dataset.id));
        for counted in self.counted(waiting, first, |asked| by_id.get(&asked).copied()) {
            sums.entry(counted.dataset).or_default().add(counted.counts);
        }
        Ok(sums)
    }

    fn first(&self, days: u64) -> u32 {
        let days = u32::try_from(days.min(limits::USAGE_DAYS as u64)).unwrap_or(u32::MAX);
        (DayUsage::day_of(self.clock.now()) + 1).saturating_sub(days)
    }

    /// What was counted in memory since `first` of the `asked` datasets, with what is `waiting` to be written.
    fn counted<'d>(
        &self,
        waiting: impl Iterator<Item = CountedUsage>,
        first: u32,
        asked: impl Fn(DatasetId) -> Option<&'d Dataset>,
    ) -> Vec<CountedUsage> {
        let memory = waiting.chain(self.found.counted()).chain(self.named.counted());
        let is_asked = |counted: &CountedUsage| {
            asked(counted.dataset).is_some_and(|dataset| {
                counted.name_slug.as_deref().is_none_or(|named| named == dataset.name.slug()) && counted.day >= first
            })
        };
        memory.filter(is_asked).collect()
    }

    /// Adds counts to the catalog: at most [`MAX_BATCHES`] batches, each a transaction.
    /// On an error nothing is lost: the next call continues.
    pub async fn flush(&self) -> Result<(), CatalogError> {
        let mut unwritten = self.unwritten.lock().await;
        // Drains and adds without an await, so that a caller that leaves loses nothing.
        let drained = self.found.drain().into_iter().chain(self.named.drain());
        let lost: u64 = drained.map(|(key, counts)| unwritten.add(key, counts)).sum();
        metrics().usage_lost_requests.increment(lost);
        for _ in 0..MAX_BATCHES {
            let Some((number, rows)) = unwritten.batch() else { break };
            self.catalog.add_usage(&self.writer, number, rows).await?;
            unwritten.written();
        }
        Ok(())
    }

    /// Adds counts to the catalog every few seconds until `stop`, and deletes outdated days. Call [`Usage::flush`]
    /// after the last count.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut swept = None::<tokio::time::Instant>;
        let mut failing = false;
        let rounds = async {
            loop {
                // A notification of a table that was full in the meantime is stored.
                let _ = tokio::time::timeout(INTERVAL, self.full.notified()).await;
                match self.flush().await {
                    Ok(()) => failing = false,
                    Err(error) if !failing => {
                        failing = true;
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "failed to write usage statistics; retrying");
                    }
                    Err(_) => tokio::time::sleep(RETRY_DELAY).await,
                }
                if !failing && swept.is_none_or(|swept| swept.elapsed() >= SWEEP_INTERVAL) {
                    swept = Some(tokio::time::Instant::now());
                    let today = DayUsage::day_of(self.clock.now());
                    let first = (today + 1).saturating_sub(limits::USAGE_DAYS as u32);
                    if let Err(error) = self.catalog.sweep_usage(first).await {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "failed to delete old usage statistics");
                    }
                }
            }
        };
        stop.run_until_cancelled(rounds).await;
    }

    fn add(&self, dataset: DatasetId, name_slug: Option<Arc<str>>, counts: UsageCounts) {
        let day = DayUsage::day_of(self.clock.now());
        let table = if name_slug.is_none() { &self.found } else { &self.named };
        let is_short = name_slug.as_ref().is_none_or(|slug| slug.len() <= MAX_SLUG_BYTES);
        let added = is_short && table.add(Key { dataset, name_slug, day }, counts);
        if !added {
            self.full.notify_one();
            metrics().usage_lost_requests.increment(counts.requests);
        }
    }
}

impl UsageMeter {
    pub fn not_modified(&self) {
        self.add(UsageCounts { not_modified: 1, ..UsageCounts::default() });
    }

    pub fn rate_limited(&self) {
        self.add(UsageCounts { rate_limited: 1, ..UsageCounts::default() });
    }

    pub fn sent(&self, bytes: u64) {
        self.add(UsageCounts { bytes, ..UsageCounts::default() });
    }

    fn add(&self, counts: UsageCounts) {
        self.usage.add(self.dataset, self.name_slug.clone(), counts);
    }
}
