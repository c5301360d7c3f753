//! Diffs: the differences between two versions of a dataset.
//!
//! Steps: look both versions up; compare their files, which is heavy work and done once for concurrent requests for the
//! same files; write the records of a page from the documents, at the pace of the reader.
//!
//! The differences between two files never change, so they are cached as lists of positions, of 16 bytes for each
//! change. A new diff is charged to the memory of queries. A cached diff is charged to `cache.diff_bytes`, and to as
//! much again after its eviction while responses still use it. A diff that exceeds this is not cached, and stays
//! charged to queries.

use std::collections::HashMap;
use std::ops::{ControlFlow, Deref};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use futures::{FutureExt, TryFutureExt};
use moka::future::Cache;
use moka::policy::EvictionPolicy;
use strata_diff::{self as diff, Change, ChangeType, Diff, DiffBounds, DiffPage, records};
use strata_encode::ContentCoding;
use strata_format::reader::VersionReader;
use strata_query::QueryError;
use strata_query::fetch::documents::{UNIT_BYTES, Unit};
use strata_runtime::metrics::metrics;
use strata_runtime::priority::Priority;
use strata_types::dataset::Dataset;
use strata_types::ids::{DatasetId, FileId};
use strata_types::request::Format;
use strata_types::user::User;
use strata_types::version::{Version, VersionFile, VersionNumber, VersionSelector};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::admission::capacity::Capacity;
use crate::read::body::WHOLE_BODY_BYTES;
use crate::read::responses::compress;
use crate::read::single_flight::SingleFlight;
use crate::read::stream::{EXPANSION, Paced};
use crate::{Answer, AnswerBody, ManageError, Principal, ReadError, Reads, locked};

/// The size of a cached diff without its changes.
const OVERHEAD_BYTES: usize = 1 << 10;

/// The approximate size of a record without its entities.
const RECORD_BYTES: u64 = 100;

/// The bytes of a semaphore permit, so that any capacity fits a semaphore.
const PERMIT_BYTES: u64 = 1 << 10;

#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    #[error(transparent)]
    Manage(#[from] ManageError),
    /// The versions cannot be read, or comparing them would take too long or too much memory.
    #[error(transparent)]
    Read(#[from] ReadError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiffSides {
    pub v1: VersionSelector,
    pub v2: VersionSelector,
    /// Whether the alternate of v2 is compared instead of v2.
    pub alt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiffSummary {
    /// Entities in v2 and not in v1.
    pub added: u64,
    /// Entities in v1 and not in v2.
    pub subtracted: u64,
    /// Entities in both with other fields.
    pub modified: u64,
    pub total_v1: u64,
    pub total_v2: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffForm {
    /// The result of docs/reference/diffs.md, Diffs: the summary and the records of a page, as compact JSON.
    Result,
    Lines,
}

impl DiffForm {
    fn content_type(self) -> &'static str {
        match self {
            DiffForm::Result => Format::Json.content_type(),
            DiffForm::Lines => Format::Jsonl.content_type(),
        }
    }

    fn write_record(self, record: &[u8], first: bool, out: &mut Vec<u8>) {
        if !first && self != DiffForm::Lines {
            out.push(b',');
        }
        out.extend_from_slice(record);
        if self == DiffForm::Lines {
            out.push(b'\n');
        }
    }
}

/// The differences between two versions. Clones share them.
#[derive(Clone)]
pub struct VersionDiff {
    pub dataset: Dataset,
    /// v1 and v2.
    pub versions: [VersionNumber; 2],
    /// Whether the alternate of v2 is compared instead of v2.
    pub alt: bool,
    capacity: Capacity,
    readers: [VersionReader; 2],
    diff: SharedDiff,
}

impl VersionDiff {
    pub fn summary(&self) -> DiffSummary {
        DiffSummary {
            added: self.diff.added(),
            subtracted: self.diff.subtracted(),
            modified: self.diff.modified(),
            total_v1: self.diff.total_v1,
            total_v2: self.diff.total_v2,
        }
    }

    pub fn count(&self, change_type: Option<ChangeType>) -> u64 {
        self.diff.count(change_type)
    }

    pub fn page_count(&self, page: &DiffPage) -> u64 {
        self.diff.page_count(page)
    }

    /// A page, written on the engine's threads at the pace of the reader. Dropping the stream stops the work.
    pub fn stream(&self, page: &DiffPage, form: DiffForm) -> BoxStream<'static, Result<Bytes, ReadError>> {
        let diff = self.clone();
        let page = *page;
        let body = async move { Ok(diff.body(&page, form).await?.into_stream()) };
        body.try_flatten_stream().boxed()
    }

    /// A page as a response, compressed with `coding` if that is worthwhile.
    pub async fn answer(&self, page: &DiffPage, form: DiffForm, coding: ContentCoding) -> Result<Answer, ReadError> {
        let plain = Answer {
            total: self.page_count(page),
            matches: None,
            content_type: form.content_type(),
            coding: ContentCoding::Identity,
            body: self.body(page, form).await?,
        };
        compress(&self.capacity, plain, coding).await
    }

    async fn body(&self, page: &DiffPage, form: DiffForm) -> Result<AnswerBody, ReadError> {
        let admission = &self.capacity.admission;
        let selected = self.page_count(page);
        let mean_bytes = RECORD_BYTES + self.readers.iter().map(mean_bytes).sum::<u64>();
        let (begin, end) = self.frame(form);
        let foreseen = mean_bytes.saturating_mul(selected);
        if let (true, Some(room)) = (foreseen <= UNIT_BYTES, admission.whole(foreseen)) {
            let changes: Vec<Change> = self.diff.changes(page).collect();
            let readers = self.readers.clone();
            let mut body = begin.clone();
            let work = async move {
                if write(&readers, &changes, form, true, WHOLE_BODY_BYTES, &mut body).await? < changes.len() {
                    return Ok(None);
                }
                body.extend_from_slice(end);
                Ok::<_, ReadError>(Some(body))
            };
            let body = self.capacity.engine.spawn(work).await.map_err(QueryError::from)??;
            // If the entities are much larger than the mean, the records are streamed.
            if let Some(body) = body {
                metrics().sent_rows.increment(selected);
                return Ok(AnswerBody::Whole(self.capacity.whole_body(body, room)?));
            }
        }
        let place = admission.stream_of_units(mean_bytes.saturating_mul(EXPANSION)).await?;
        let readers = self.readers.clone();
        let diff = self.diff.clone();
        let mut cursor = diff.cursor(page);
        // Sent with the first records, so that an unreadable version is still an error.
        let mut begin = Some(begin);
        // The remaining changes of units that ended early, by their first position.
        let left: Arc<Mutex<HashMap<u64, Vec<Change>>>> = Arc::default();
        let encode = move |unit: Unit, most_bytes: u64| {
            let most = usize::try_from(unit.places.end - unit.places.start).unwrap_or(usize::MAX);
            let again = locked(&left).remove(&unit.places.start);
            let changes: Vec<Change> =
                again.unwrap_or_else(|| std::iter::from_fn(|| diff.next(&mut cursor)).take(most).collect());
            let readers = readers.clone();
            let left = left.clone();
            let begin = begin.take();
            async move {
                let first = begin.is_some();
                let mut bytes = begin.unwrap_or_default();
                let most_bytes = usize::try_from(most_bytes).unwrap_or(usize::MAX);
                let written = write(&readers, &changes, form, first, most_bytes, &mut bytes).await?;
                let next = unit.places.start + written as u64;
                if written < changes.len() {
                    let rest = changes[written..].to_vec();
                    locked(&left).insert(next, rest);
                }
                Ok((bytes, next))
            }
        };
        let capacity = self.capacity.clone();
        let parts = Paced { capacity, place, selected, mean_bytes, encode }.into_stream();
        let end = stream::iter((!end.is_empty()).then(|| Ok(Bytes::from_static(end))));
        Ok(AnswerBody::Stream(parts.chain(end).boxed()))
    }

    fn frame(&self, form: DiffForm) -> (Vec<u8>, &'static [u8]) {
        if form != DiffForm::Result {
            return (Vec::new(), b"");
        }
        let DiffSummary { added, subtracted, modified, total_v1, total_v2 } = self.summary();
        let begin = format!(
            r#"{{"added":{added},"subtracted":{subtracted},"modified":{modified},"total_v1":{total_v1},"total_v2":{total_v2},"records":["#
        );
        (begin.into_bytes(), b"]}")
    }
}

fn mean_bytes(reader: &VersionReader) -> u64 {
    let layout = reader.layout();
    layout.document_bytes.checked_div(layout.entity_count).unwrap_or_default()
}

/// Appends at most `most_bytes` of records, and returns their number. `first` is whether no record precedes them.
async fn write(
    readers: &[VersionReader; 2],
    changes: &[Change],
    form: DiffForm,
    mut first: bool,
    most_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<usize, ReadError> {
    let start = out.len();
    let each = |record: &[u8]| {
        form.write_record(record, std::mem::replace(&mut first, false), out);
        if out.len() - start < most_bytes { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    Ok(records::for_each(readers, changes, each).await?)
}

pub struct Diffs {
    pub(crate) reads: Arc<Reads>,
    pub(crate) diffs: Arc<DiffCache>,
}

impl Diffs {
    /// Compares two versions of the owner's dataset, or of any dataset if there is no owner, also if it is frozen.
    /// Costs only look-ups if the diff is cached or the entities are the same. Dropping the future stops the work,
    /// unless other requests wait for it.
    pub async fn compare(
        &self,
        owner: Option<&User>,
        dataset: DatasetId,
        DiffSides { v1, v2, alt }: DiffSides,
    ) -> Result<VersionDiff, DiffError> {
        let Reads { catalog, capacity, .. } = &*self.reads;
        let (found, capacity) = match owner {
            Some(owner) => {
                let found = catalog.owned_dataset(owner.id, dataset).await.map(Some);
                (found, capacity.of(Principal::User(owner.id)))
            }
            None => (catalog.dataset(dataset).await, capacity.clone()),
        };
        let dataset = found.map_err(ManageError::from)?.ok_or(ManageError::DatasetNotFound)?;
        let number = |selector| match selector {
            VersionSelector::Active => dataset.active_version(),
            VersionSelector::Latest => dataset.latest_version,
            VersionSelector::Number(number) => Some(number),
        };
        let [Some(v1), Some(v2)] = [v1, v2].map(number) else { return Err(ManageError::NoVersionYet.into()) };
        let versions = [v1, v2];
        let first = self.version_of(&dataset, v1).await?.file;
        let second = self.version_of(&dataset, v2).await?;
        let second = match alt {
            false => second.file,
            true => second.alt.ok_or(ReadError::AltNotFound(v2))?,
        };
        let files = [first, second];
        let readers = [self.reader_of(&files[0]).await?, self.reader_of(&files[1]).await?];
        let diff = match files[0].content_hash == files[1].content_hash {
            true => SharedDiff::new(Diff::none(readers[0].entity_count()), None),
            false => self.compare_files(&capacity, &files, &readers).await?,
        };
        Ok(VersionDiff { capacity, dataset, versions, alt, readers, diff })
    }

    async fn version_of(&self, dataset: &Dataset, number: VersionNumber) -> Result<Version, ManageError> {
        let found = self.reads.catalog.version(dataset.id, number).await.map_err(ManageError::from);
        Ok(found.map_err(|error| error.naming(number, dataset.latest_version))?.version)
    }

    async fn reader_of(&self, file: &VersionFile) -> Result<VersionReader, ReadError> {
        Ok(VersionReader::open_recorded(&self.reads.store, file, &self.reads.cache).await?)
    }

    /// The diff of two files, from the cache or from a running comparison.
    async fn compare_files(
        &self,
        capacity: &Capacity,
        files: &[VersionFile; 2],
        readers: &[VersionReader; 2],
    ) -> Result<SharedDiff, ReadError> {
        let key = [files[0].id, files[1].id];
        let kept = self.diffs.kept.get(&key).await;
        let found = if kept.is_some() { "hit" } else { "miss" };
        metrics().cache_lookups.of(["diffs".into(), found.into()]).increment(1);
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let start = || {
            let diffs = self.diffs.clone();
            let capacity = capacity.clone();
            let [v1, v2] = readers.clone();
            async move {
                // Another request can have cached it since the look-up.
                if let Some(kept) = diffs.kept.get(&key).await {
                    return Ok(kept);
                }
                let _permit = capacity.admission.diff().await?;
                let diff =
                    diff::compare(&capacity.engine.with_priority(Priority::Heavy), v1, v2, DiffBounds::default())
                        .await?;
                Ok::<_, ReadError>(diffs.keep(key, diff).await)
            }
            .boxed()
        };
        Ok(self.diffs.single_flight.run(key, start).await?.value)
    }
}

type Key = [FileId; 2];

/// The cached diffs. A capacity of 0 disables the cache.
pub(crate) struct DiffCache {
    kept: Cache<Key, SharedDiff, foldhash::fast::RandomState>,
    single_flight: SingleFlight<Key, SharedDiff>,
    capacity_bytes: u64,
    /// For the diffs that are not charged to queries.
    room: Arc<Semaphore>,
}

impl DiffCache {
    pub(crate) fn new(capacity_bytes: u64) -> DiffCache {
        let kept = Cache::builder()
            .max_capacity(capacity_bytes)
            // The client of a new diff is about to request its next page.
            .eviction_policy(EvictionPolicy::lru())
            .weigher(|_, held: &SharedDiff| u32::try_from(weight_bytes(held)).unwrap_or(u32::MAX))
            .build_with_hasher(foldhash::fast::RandomState::default());
        // For cached diffs and for evicted ones.
        let permits = usize::try_from(capacity_bytes / PERMIT_BYTES).unwrap_or(usize::MAX).saturating_mul(2);
        let room = Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        DiffCache { kept, single_flight: SingleFlight::default(), capacity_bytes, room }
    }

    async fn keep(&self, key: Key, diff: Diff) -> SharedDiff {
        let size_bytes = weight_bytes(&diff) as u64;
        let permits = u32::try_from(size_bytes.div_ceil(PERMIT_BYTES)).ok();
        let permits = permits.filter(|_| size_bytes <= self.capacity_bytes);
        let room = permits.and_then(|permits| self.room.clone().try_acquire_many_owned(permits).ok());
        if room.is_none() {
            return SharedDiff::new(diff, None);
        }
        let held = SharedDiff::new(diff.unaccounted(), room);
        self.kept.insert(key, held.clone()).await;
        // Evicts at once, so that the evicted diffs return their permits.
        self.kept.run_pending_tasks().await;
        held
    }
}

fn weight_bytes(diff: &Diff) -> usize {
    diff.memory_bytes() + OVERHEAD_BYTES
}

/// A diff, and its permits unless it is charged to queries. Clones share it.
#[derive(Clone)]
struct SharedDiff(Arc<(Diff, Option<OwnedSemaphorePermit>)>);

impl SharedDiff {
    fn new(diff: Diff, room: Option<OwnedSemaphorePermit>) -> SharedDiff {
        SharedDiff(Arc::new((diff, room)))
    }
}

impl Deref for SharedDiff {
    type Target = Diff;

    fn deref(&self) -> &Diff {
        &self.0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        [FileId::new(number), FileId::new(number + 1)]
    }

    #[tokio::test]
    async fn cached_and_used_diffs_are_bounded() {
        let diffs = DiffCache::new(10 * OVERHEAD_BYTES as u64);
        let mut used = Vec::new();
        for number in 0..30 {
            used.push(diffs.keep(key(number), Diff::none(number)).await);
        }
        // The cached diffs and as many evicted ones have permits; the others stay charged to queries.
        let with_room: Vec<bool> = used.iter().map(|held| held.0.1.is_some()).collect();
        assert_eq!(with_room, (0..30).map(|number| number < 20).collect::<Vec<_>>());
        for number in 0..30 {
            let kept = diffs.kept.get(&key(number)).await;
            assert_eq!(kept.is_some_and(|held| held.total_v1 == number), (10..20).contains(&number), "{number}");
        }
        drop(used);
        for _ in 0..10_000 {
            // The cache drops evicted entries when it is used later.
            diffs.kept.run_pending_tasks().await;
            diffs.kept.get(&key(100)).await;
        }
        diffs.keep(key(100), Diff::none(100)).await;
        assert!(diffs.kept.get(&key(100)).await.is_some_and(|held| held.total_v1 == 100 && held.0.1.is_some()));
    }

    #[tokio::test]
    async fn quota_of_zero_stores_nothing() {
        let diffs = DiffCache::new(0);
        let held = diffs.keep(key(1), Diff::none(7)).await;
        assert_eq!((held.total_v1, held.0.1.is_some()), (7, false));
        assert!(diffs.kept.get(&key(1)).await.is_none());
    }
}
