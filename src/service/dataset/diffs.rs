//! What two versions of a dataset differ in.
//!
//! Steps: look both versions up; compare their files, which is heavy work and is done once for all who ask for the same
//! pair of files at the same time; write the records of a page from the documents, at the pace of the reader.
//!
//! What files differ in never changes, so it is kept: a list of positions, of 16 bytes for each change. While it is
//! found out it is accounted to the memory of queries. What is kept is not, so that it takes nothing from them: it has
//! `cache.diff_bytes`, and as much again for what had to go from the cache while answers are still sent of it. Where
//! there is no room in that, it stays accounted to queries until its last answer is sent, and is not kept.

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

/// What a diff takes in the cache besides its changes.
const OVERHEAD_BYTES: usize = 1 << 10;

/// About what a record has besides entities.
const RECORD_BYTES: u64 = 100;

/// The unit in which room is counted, so that any capacity fits a semaphore.
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
    /// Whether the alternate of v2 stands for v2.
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

/// What two versions of a dataset differ in. Clones share it.
#[derive(Clone)]
pub struct VersionDiff {
    pub dataset: Dataset,
    /// v1 and v2.
    pub versions: [VersionNumber; 2],
    /// Whether the alternate of v2 stands for v2.
    pub alt: bool,
    capacity: Capacity,
    readers: [VersionReader; 2],
    diff: Held,
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

    /// A page in this form, written on the engine's threads at the pace of the reader; dropping the stream stops that.
    pub fn stream(&self, page: &DiffPage, form: DiffForm) -> BoxStream<'static, Result<Bytes, ReadError>> {
        let (diff, page) = (self.clone(), *page);
        let body = async move { Ok(diff.body(&page, form).await?.into_stream()) };
        body.try_flatten_stream().boxed()
    }

    /// A page as an answer, compressed as `coding` says if that is worth it.
    pub async fn answer(&self, page: &DiffPage, form: DiffForm, coding: ContentCoding) -> Result<Answer, ReadError> {
        let (total, content_type) = (self.page_count(page), form.content_type());
        let body = self.body(page, form).await?;
        let plain = Answer { total, matches: None, content_type, coding: ContentCoding::Identity, body };
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
            let (readers, mut body) = (self.readers.clone(), begin.clone());
            let work = async move {
                if write(&readers, &changes, form, true, WHOLE_BODY_BYTES, &mut body).await? < changes.len() {
                    return Ok(None);
                }
                body.extend_from_slice(end);
                Ok::<_, ReadError>(Some(body))
            };
            let body = self.capacity.engine.spawn(work).await.map_err(QueryError::from)??;
            // Where the entities are much larger than the mean, the records are streamed after all.
            if let Some(body) = body {
                metrics().sent_rows.increment(selected);
                return Ok(AnswerBody::Whole(self.capacity.whole_body(body, room)?));
            }
        }
        let place = admission.stream_of_units(mean_bytes.saturating_mul(EXPANSION)).await?;
        let (readers, diff) = (self.readers.clone(), self.diff.clone());
        let mut cursor = diff.cursor(page);
        // With the first records, so that a version that cannot be read at all is still an error.
        let mut begin = Some(begin);
        // What units that ended early have left, by its first place.
        let left: Arc<Mutex<HashMap<u64, Vec<Change>>>> = Arc::default();
        let encode = move |unit: Unit, most_bytes: u64| {
            let most = usize::try_from(unit.places.end - unit.places.start).unwrap_or(usize::MAX);
            let again = locked(&left).remove(&unit.places.start);
            let changes: Vec<Change> =
                again.unwrap_or_else(|| std::iter::from_fn(|| diff.next(&mut cursor)).take(most).collect());
            let (readers, left, begin) = (readers.clone(), left.clone(), begin.take());
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

/// Appends records until they are all, or more than `most_bytes`; `first` if none stands before. Returns how many.
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
    /// Compares two versions of the owner's dataset, frozen or not, or a version and an alternate. Without an owner it
    /// is for the operator, and the dataset may be anybody's. Costs nothing but look-ups where the pair is kept, or the
    /// entities are the same. Dropping the future stops the work, unless others wait for the same.
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
            true => Held::new(Diff::none(readers[0].entity_count()), None),
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

    /// What two files differ in, from the cache or from who compares them now.
    async fn compare_files(
        &self,
        capacity: &Capacity,
        files: &[VersionFile; 2],
        readers: &[VersionReader; 2],
    ) -> Result<Held, ReadError> {
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
                // It may have come since the look-up.
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

/// Diffs of at most so many bytes; none keeps nothing.
pub(crate) struct DiffCache {
    kept: Cache<Key, Held, foldhash::fast::RandomState>,
    single_flight: SingleFlight<Key, Held>,
    capacity_bytes: u64,
    /// For all that is not accounted to queries.
    room: Arc<Semaphore>,
}

impl DiffCache {
    pub(crate) fn new(capacity_bytes: u64) -> DiffCache {
        let kept = Cache::builder()
            .max_capacity(capacity_bytes)
            // Whoever has asked for a new one is about to ask for its next page.
            .eviction_policy(EvictionPolicy::lru())
            .weigher(|_, held: &Held| u32::try_from(weight_bytes(held)).unwrap_or(u32::MAX))
            .build_with_hasher(foldhash::fast::RandomState::default());
        // For what is in the cache, and what was.
        let permits = usize::try_from(capacity_bytes / PERMIT_BYTES).unwrap_or(usize::MAX).saturating_mul(2);
        let room = Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        DiffCache { kept, single_flight: SingleFlight::default(), capacity_bytes, room }
    }

    async fn keep(&self, key: Key, diff: Diff) -> Held {
        let size_bytes = weight_bytes(&diff) as u64;
        let permits = u32::try_from(size_bytes.div_ceil(PERMIT_BYTES)).ok();
        let permits = permits.filter(|_| size_bytes <= self.capacity_bytes);
        let room = permits.and_then(|permits| self.room.clone().try_acquire_many_owned(permits).ok());
        if room.is_none() {
            return Held::new(diff, None);
        }
        let held = Held::new(diff.unaccounted(), room);
        self.kept.insert(key, held.clone()).await;
        // What has to go for it goes at once, and gives its room back.
        self.kept.run_pending_tasks().await;
        held
    }
}

fn weight_bytes(diff: &Diff) -> usize {
    diff.memory_bytes() + OVERHEAD_BYTES
}

/// A diff, and the room that it has unless it is accounted to queries. Clones share it.
#[derive(Clone)]
struct Held(Arc<(Diff, Option<OwnedSemaphorePermit>)>);

impl Held {
    fn new(diff: Diff, room: Option<OwnedSemaphorePermit>) -> Held {
        Held(Arc::new((diff, room)))
    }
}

impl Deref for Held {
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
    async fn what_is_kept_and_what_is_still_used_is_bounded() {
        let diffs = DiffCache::new(10 * OVERHEAD_BYTES as u64);
        let mut used = Vec::new();
        for number in 0..30 {
            used.push(diffs.keep(key(number), Diff::none(number)).await);
        }
        // As much as the cache takes, and as much again of what had to go; the others stay accounted to queries.
        let with_room: Vec<bool> = used.iter().map(|held| held.0.1.is_some()).collect();
        assert_eq!(with_room, (0..30).map(|number| number < 20).collect::<Vec<_>>());
        for number in 0..30 {
            let kept = diffs.kept.get(&key(number)).await;
            assert_eq!(kept.is_some_and(|held| held.total_v1 == number), (10..20).contains(&number), "{number}");
        }
        drop(used);
        for _ in 0..10_000 {
            // The cache lets go of what it had a while later, when it is used.
            diffs.kept.run_pending_tasks().await;
            diffs.kept.get(&key(100)).await;
        }
        diffs.keep(key(100), Diff::none(100)).await;
        assert!(diffs.kept.get(&key(100)).await.is_some_and(|held| held.total_v1 == 100 && held.0.1.is_some()));
    }

    #[tokio::test]
    async fn nothing_is_kept_where_nothing_may_be() {
        let diffs = DiffCache::new(0);
        let held = diffs.keep(key(1), Diff::none(7)).await;
        assert_eq!((held.total_v1, held.0.1.is_some()), (7, false));
        assert!(diffs.kept.get(&key(1)).await.is_none());
    }
}
