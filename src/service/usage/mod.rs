//! How much each dataset is read: counted in memory, added to the catalog every few seconds and at the end.
//!
//! 1. A read that names a dataset gets a [`UsageMeter`]. It counts the request, what became of it, and each piece of
//!    its body as it is sent, also after minutes (`table`).
//! 2. Every [`INTERVAL`], and when the table is full, the counts move to what is unwritten, and a batch of it is added
//!    to the catalog in one transaction (`unwritten`).
//! 3. While the catalog takes none, what is unwritten grows, up to a bound: counts of further datasets are then lost,
//!    and `strata_usage_lost_requests_total` counts them. A process that is killed loses what it has counted since the
//!    last batch.
//!
//! A request beyond the rate is refused before its dataset is looked up. It is counted for the dataset and the slug
//! that it names. Whether there is such a dataset, the catalog decides when the counts are added.

mod table;
mod unwritten;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
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

/// How often the counts are added to the catalog.
const INTERVAL: Duration = Duration::from_secs(10);

/// The least time between two tries that fail.
const PAUSE: Duration = Duration::from_secs(1);

/// How often days that are no longer kept are deleted.
const SWEEP: Duration = Duration::from_secs(3_600);

/// Entries that a table has room for: datasets and days. About 100 bytes each.
const COUNTED: usize = 50_000;

/// Entries whose dataset was not looked up.
const NAMED: usize = 10_000;

/// The longest slug of those, in bytes. Names of datasets are shorter.
const SLUG_BYTES: usize = 4 * limits::DATASET_NAME_CHARACTERS;

/// Entries that may wait for the catalog.
const UNWRITTEN: usize = 200_000;

/// Batches that are written in a row.
const BATCHES: usize = 250;

pub struct Usage {
    catalog: Catalog,
    clock: Clock,
    tables: ArcSwap<Tables>,
    full: Notify,
    unwritten: Mutex<Unwritten>,
    writer: String,
}

struct Tables {
    found: Table,
    named: Table,
}

impl Tables {
    fn new() -> Arc<Tables> {
        Arc::new(Tables { found: Table::new(COUNTED), named: Table::new(NAMED) })
    }
}

/// Counts one read, and what is sent of its answer.
#[derive(Clone)]
pub struct UsageMeter {
    usage: Arc<Usage>,
    dataset: DatasetId,
    name_slug: Option<Arc<str>>,
}

impl Usage {
    /// Counts by this clock, whose days they are; `writer` is a text that no other process has.
    pub(crate) fn new(catalog: Catalog, clock: Clock, writer: String) -> Usage {
        let unwritten = Mutex::new(Unwritten::new(UNWRITTEN));
        Usage { catalog, clock, tables: ArcSwap::new(Tables::new()), full: Notify::new(), unwritten, writer }
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
        let memory = self.counted(unwritten.of(id), first, |asked| (asked == id).then_some(&dataset));
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
        let waiting = datasets.iter().flat_map(|dataset| unwritten.of(dataset.id));
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
        let tables = self.tables.load_full();
        let memory = waiting.chain(tables.found.counted()).chain(tables.named.counted());
        let is_asked = |counted: &CountedUsage| {
            asked(counted.dataset).is_some_and(|dataset| {
                counted.name_slug.as_deref().is_none_or(|named| named == dataset.name.slug()) && counted.day >= first
            })
        };
        memory.filter(is_asked).collect()
    }

    /// Adds what was counted to the catalog: at most `BATCHES` batches, each a transaction.
    /// On an error nothing is lost: the next call continues.
    pub async fn flush(&self) -> Result<(), CatalogError> {
        let mut unwritten = self.unwritten.lock().await;
        self.move_to(&mut unwritten);
        for _ in 0..BATCHES {
            let Some((number, rows)) = unwritten.batch() else { break };
            self.catalog.add_usage(&self.writer, number, rows).await?;
            unwritten.written();
        }
        Ok(())
    }

    /// Moves the counts of the interval, and begins the next one. All at once: a caller that leaves loses nothing.
    fn move_to(&self, unwritten: &mut Unwritten) {
        let current = self.tables.load();
        if current.found.is_empty() && current.named.is_empty() {
            return;
        }
        drop(current);
        let mut ended = self.tables.swap(Tables::new());
        // Whoever still counts in it needs a moment, and nobody comes any more.
        let ended = loop {
            match Arc::try_unwrap(ended) {
                Ok(ended) => break ended,
                Err(shared) => ended = shared,
            }
            std::thread::yield_now();
        };
        let lost: u64 = ended.found.counted().chain(ended.named.counted()).map(|counted| unwritten.add(counted)).sum();
        metrics().usage_lost_requests.increment(lost);
    }

    /// Adds what was counted, every few seconds until `stop`, and forgets days that are too old. Whoever stops it
    /// calls [`Usage::flush`] when nothing is counted any more.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let (mut swept, mut failing) = (None::<tokio::time::Instant>, false);
        let rounds = async {
            loop {
                // One that was full meanwhile leaves its mark.
                let _ = tokio::time::timeout(INTERVAL, self.full.notified()).await;
                match self.flush().await {
                    Ok(()) => failing = false,
                    Err(error) if !failing => {
                        failing = true;
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "failed to write usage statistics; retrying");
                    }
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
                if !failing && swept.is_none_or(|swept| swept.elapsed() >= SWEEP) {
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
        let tables = self.tables.load_full();
        let table = if name_slug.is_none() { &tables.found } else { &tables.named };
        let is_short = name_slug.as_ref().is_none_or(|slug| slug.len() <= SLUG_BYTES);
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
