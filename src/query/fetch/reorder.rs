//! Documents in an order that is not the file's, by way of the disk.
//!
//! Fetching single documents decodes a page for each. That is right for a few, and for versions whose documents the
//! cache holds; a sorted export of everything else would decode each page hundreds of times. Here every page is decoded
//! once, in the file's order, and what is selected of it is spilled in buckets of neighbouring places of the answer; a
//! bucket fits in memory and is put in order when its turn comes. So each document is read, written and read once, in
//! runs long enough for a disk, and an answer may be gone through twice.
//!
//! Buckets are cut before the sizes of their documents are known, by the mean. So that large documents beside each
//! other take no more memory than others, a stretch of the file ends where it has as many bytes as there is memory for,
//! and of a bucket with more bytes than that, documents are read one by one.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::resources_datafusion_err;
use datafusion::execution::SpillFile;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use futures::{StreamExt, TryStreamExt};
use strata_format::reader::VersionReader;
use strata_store::StorageError;

use crate::error::not_spilled;
use crate::fetch::pages::Pages;
use crate::{Engine, QueryError};

/// Minimum bytes of a run: what is read of one bucket in one go.
const RUN_BYTES: u64 = 16 << 10;

/// Minimum and maximum bytes of a bucket.
const BUCKET_BYTES: Range<u64> = 1 << 20..64 << 20;

/// Of the memory that a query may have, one part in so many is for buckets. What encodes the documents afterwards needs
/// most of the rest where memory is short, as a row group of Parquet does.
const SHARE: u64 = 8;

/// Buckets kept in memory: those of the units that are worked on.
const BUCKETS_KEPT: usize = 2;

/// Before each document: its place as eight bytes, its length as four, both little-endian.
const HEADER_BYTES: usize = 12;

pub(super) struct Reordered {
    file: File,
    /// Keeps the file, and its part of the bytes that may be spilled.
    _spill: Arc<dyn SpillFile>,
    bounds: Bounds,
    /// Per bucket, where its parts lie.
    buckets: Vec<Vec<Range<u64>>>,
    loaded: Mutex<VecDeque<(usize, Arc<Bucket>)>>,
    _reservation: MemoryReservation,
}

struct Bucket {
    /// Its bytes; `None` where they are too many.
    bytes: Option<Vec<u8>>,
    /// Where each document lies in them, or else in the file, by place from the bucket's first.
    documents: Vec<Range<u64>>,
}

#[derive(Clone, Copy)]
struct Bounds {
    places_per_bucket: usize,
    /// Bytes of a stretch, and of a bucket that is read in one go.
    most_bytes: usize,
    stretches: usize,
}

/// A position of the file and its place in the answer.
type Placed = (u64, u64);

/// Documents of one stretch of the file, sorted by place.
struct Stretch {
    bytes: Vec<u8>,
    /// Per bucket that has any: where its documents end.
    ends: Vec<(usize, usize)>,
    /// What follows the last one, of those that were asked for.
    next: usize,
    /// For a document that has more bytes than a stretch may.
    _memory: Option<MemoryReservation>,
}

impl Reordered {
    /// Spills the documents at `positions`, which are in the order of the answer.
    ///
    /// Takes memory for the positions and for a few stretches and buckets from the engine's pool, and disk for all the
    /// documents from what may be spilled.
    ///
    /// # Errors
    /// [`QueryError::OutOfMemory`], [`QueryError::OutOfDisk`] and [`QueryError::TooMuchDisk`] when the pool or the disk
    /// has no room, others when the version cannot be read.
    pub(super) async fn spill(
        engine: &Engine,
        reader: &VersionReader,
        positions: &[u64],
    ) -> Result<Reordered, QueryError> {
        let layout = reader.layout();
        let mean = layout.document_bytes.checked_div(layout.entity_count).unwrap_or(1).max(1) + HEADER_BYTES as u64;
        let total = mean * positions.len() as u64;
        let wanted = (total.saturating_mul(RUN_BYTES)).isqrt().clamp(BUCKET_BYTES.start, BUCKET_BYTES.end);
        let runtime = engine.context().runtime_env();
        let reservation = MemoryConsumer::new("sorted documents").register(&runtime.memory_pool);
        reservation.try_grow(size_of_val(positions) * 2)?;
        let most_bytes = engine.most_memory_bytes() / SHARE;
        let (bucket_bytes, stretches_at_once) = reserve(&reservation, wanted, engine.threads(), most_bytes)?;
        let bounds = Bounds {
            places_per_bucket: (bucket_bytes / mean).max(1) as usize,
            // Sizes vary: most buckets that are somewhat larger than the mean are whole, too.
            most_bytes: (bucket_bytes + bucket_bytes / 2) as usize,
            stretches: stretches_at_once,
        };

        let mut placed: Vec<Placed> = positions.iter().copied().zip(0..).collect();
        placed.sort_unstable();
        let limit_bytes = engine.most_spilled_bytes();
        let spill = runtime.disk_manager.create_tmp_file("sorted documents")?;
        let mut writer = spill.open_writer()?;
        let mut buckets = vec![Vec::new(); positions.len().div_ceil(bounds.places_per_bucket)];
        let mut offset = 0;
        let mut stretches = stretches(engine, reader, placed, bounds);
        while let Some(stretch) = stretches.try_next().await? {
            // Lists grow by doubling.
            reservation.try_grow(stretch.ends.len() * size_of::<Range<u64>>() * 2)?;
            let needed = offset + stretch.bytes.len() as u64;
            writer.write_all(&stretch.bytes).map_err(|error| {
                match QueryError::from(not_spilled("sorted documents", error)) {
                    // No other time helps.
                    QueryError::OutOfDisk(_) if needed > limit_bytes => QueryError::TooMuchDisk { limit_bytes },
                    error => error,
                }
            })?;
            let mut start = 0;
            for (bucket, end) in stretch.ends {
                buckets[bucket].push(offset + start as u64..offset + end as u64);
                start = end;
            }
            offset += stretch.bytes.len() as u64;
        }
        drop(stretches);
        writer.finish()?;
        reservation.shrink(size_of_val(positions) * 2);
        let path = spill.path().ok_or_else(|| resources_datafusion_err!("the spill file has no path"))?;
        let file = File::open(path).map_err(StorageError::Io)?;
        let loaded = Mutex::new(VecDeque::new());
        Ok(Reordered { file, _spill: spill, bounds, buckets, loaded, _reservation: reservation })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.buckets.iter().map(|runs| length(runs)).sum()
    }

    /// Calls `each` with the documents of these places, in order, until it breaks. Returns the place after the last
    /// one.
    pub(super) async fn for_each(
        &self,
        places: Range<u64>,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<u64, StorageError> {
        let mut place = places.start;
        let mut alone = Vec::new();
        while place < places.end {
            tokio::task::consume_budget().await;
            let step = self.bounds.places_per_bucket as u64;
            let first = place / step * step;
            let bucket = self.bucket((place / step) as usize)?;
            let end = places.end.min(first + step);
            for document in &bucket.documents[(place - first) as usize..(end - first) as usize] {
                place += 1;
                let document = match &bucket.bytes {
                    Some(bytes) => &bytes[document.start as usize..document.end as usize],
                    None => {
                        tokio::task::consume_budget().await;
                        alone.resize((document.end - document.start) as usize, 0);
                        self.file.read_exact_at(&mut alone, document.start)?;
                        &alone
                    }
                };
                if each(document).is_break() {
                    return Ok(place);
                }
            }
        }
        Ok(place)
    }

    /// A bucket, read when it is none of the last ones. Who else wants one waits: most likely it is this one.
    fn bucket(&self, number: usize) -> Result<Arc<Bucket>, StorageError> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bucket)) = loaded.iter().find(|(other, _)| *other == number) {
            return Ok(bucket.clone());
        }
        loaded.truncate(BUCKETS_KEPT - 1);
        let bucket = Arc::new(self.read(number)?);
        loaded.push_front((number, bucket.clone()));
        Ok(bucket)
    }

    fn read(&self, number: usize) -> Result<Bucket, StorageError> {
        let runs = self.buckets.get(number).map_or(&[][..], Vec::as_slice);
        if length(runs) > self.bounds.most_bytes as u64 {
            return self.locate(runs);
        }
        let mut bytes = vec![0; length(runs) as usize];
        let mut rest = &mut bytes[..];
        for run in runs {
            let (part, after) = rest.split_at_mut((run.end - run.start) as usize);
            self.file.read_exact_at(part, run.start)?;
            rest = after;
        }
        let mut documents = Vec::new();
        let mut at = 0;
        while let Some(header) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
            let (place, length) = parse_header(header);
            let start = (at + HEADER_BYTES) as u64;
            documents.push((place, start..start + length));
            at += HEADER_BYTES + length as usize;
        }
        Ok(Bucket { bytes: Some(bytes), documents: by_place(documents) })
    }

    fn locate(&self, runs: &[Range<u64>]) -> Result<Bucket, StorageError> {
        let mut documents = Vec::new();
        let mut header = [0; HEADER_BYTES];
        for run in runs {
            let mut at = run.start;
            while at < run.end {
                self.file.read_exact_at(&mut header, at)?;
                let (place, length) = parse_header(&header);
                let start = at + HEADER_BYTES as u64;
                at = start + length;
                documents.push((place, start..at));
            }
        }
        Ok(Bucket { bytes: None, documents: by_place(documents) })
    }
}

fn length(runs: &[Range<u64>]) -> u64 {
    runs.iter().map(|run| run.end - run.start).sum()
}

fn parse_header(header: &[u8; HEADER_BYTES]) -> (u64, u64) {
    let (place, length) = header.split_at(8);
    let length = length.try_into().map_or(0, u32::from_le_bytes);
    (place.try_into().map_or(0, u64::from_le_bytes), u64::from(length))
}

fn by_place(mut documents: Vec<(u64, Range<u64>)>) -> Vec<Range<u64>> {
    documents.sort_unstable_by_key(|(place, _)| *place);
    documents.into_iter().map(|(_, document)| document).collect()
}

/// Takes memory for buckets and stretches: smaller ones where there is little, and then fewer at once. How large one
/// may be, and how many.
fn reserve(
    reservation: &MemoryReservation,
    wanted: u64,
    threads: usize,
    most_bytes: u64,
) -> Result<(u64, usize), QueryError> {
    let (mut bytes, mut stretches) = (wanted, threads.max(BUCKETS_KEPT));
    loop {
        // One stretch as pages and once more in order, and the next one waiting; buckets come after them.
        let taken = bytes * 3 * stretches as u64;
        let is_least = bytes == BUCKET_BYTES.start && stretches == BUCKETS_KEPT;
        if taken <= most_bytes || is_least {
            match reservation.try_grow(taken as usize) {
                Ok(()) => return Ok((bytes, stretches)),
                Err(error) if is_least => return Err(error.into()),
                Err(_) => {}
            }
        }
        match bytes > BUCKET_BYTES.start {
            true => bytes = (bytes / 2).max(BUCKET_BYTES.start),
            false => stretches = (stretches / 2).max(BUCKETS_KEPT),
        }
    }
}

/// The documents in the file's order, a stretch of about a bucket's size at a time, several at once.
fn stretches(
    engine: &Engine,
    reader: &VersionReader,
    placed: Vec<Placed>,
    bounds: Bounds,
) -> impl futures::Stream<Item = Result<Stretch, QueryError>> + Unpin + use<> {
    let (engine, reader, placed) = (engine.clone(), reader.clone(), Arc::new(placed));
    let (at_once, step, count) = (bounds.stretches, bounds.places_per_bucket, placed.len());
    let starts = (0..count).step_by(step);
    let begin = move |asked: Range<usize>| {
        let (own, reader, placed) = (engine.clone(), reader.clone(), placed.clone());
        (asked.end, engine.spawn(async move { stretch(&own, &reader, &placed, asked, bounds).await }))
    };
    let state = (starts, VecDeque::with_capacity(at_once), begin);
    let read = futures::stream::try_unfold(state, move |(mut starts, mut working, begin)| async move {
        while working.len() < at_once
            && let Some(start) = starts.next()
        {
            working.push_back(begin(start..count.min(start + step)));
        }
        let Some((end, task)) = working.pop_front() else { return Ok::<_, QueryError>(None) };
        let stretch: Stretch = task.await??;
        if stretch.next < end {
            working.push_front(begin(stretch.next..end));
        }
        Ok(Some((stretch, (starts, working, begin))))
    });
    read.boxed()
}

/// The first of the documents that are asked for, as many as a stretch may have.
async fn stretch(
    engine: &Engine,
    reader: &VersionReader,
    placed: &[Placed],
    asked: Range<usize>,
    bounds: Bounds,
) -> Result<Stretch, QueryError> {
    let mut read = Vec::new();
    let mut documents: Vec<(u64, Range<usize>)> = Vec::with_capacity(asked.len());
    let mut memory = None;
    let row_groups = reader.row_groups();
    let mut next = asked.start;
    'read: while next < asked.end {
        let left = &placed[next..asked.end];
        let position = left[0].0;
        let row_group = reader.row_group_of(position);
        let group = row_groups[row_group];
        let left = &left[..left.partition_point(|(position, _)| group.holds(*position))];
        let last = (left[left.len() - 1].0 - group.first) as usize;
        let span = reader.page_of(row_group, last) + 1 - reader.page_of(row_group, (position - group.first) as usize);
        let mut pages = if left.len() >= span {
            Pages::contiguous(reader, row_group, last + 1)
        } else {
            Pages::scattered(reader, row_group)
        };
        for (position, place) in left {
            let document = pages.document((position - group.first) as usize).await?;
            let beyond = (read.len() + document.len()).saturating_sub(bounds.most_bytes);
            if beyond > 0 {
                if !documents.is_empty() {
                    break 'read;
                }
                // As it was read, and once more with its header.
                memory = Some(engine.reserve("sorted document", 2 * beyond)?);
            }
            let start = read.len();
            read.extend_from_slice(document);
            documents.push((*place, start..read.len()));
            next += 1;
        }
    }
    documents.sort_unstable_by_key(|(place, _)| *place);
    let mut bytes = Vec::with_capacity(read.len() + documents.len() * HEADER_BYTES);
    let mut ends: Vec<(usize, usize)> = Vec::new();
    for (place, document) in documents {
        let length =
            u32::try_from(document.len()).map_err(|_| StorageError::Layout("a document exceeds 4 GiB".to_owned()))?;
        bytes.extend_from_slice(&place.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&read[document]);
        let bucket = place as usize / bounds.places_per_bucket;
        match ends.last_mut() {
            Some((last, end)) if *last == bucket => *end = bytes.len(),
            _ => ends.push((bucket, bytes.len())),
        }
    }
    Ok(Stretch { bytes, ends, next, _memory: memory })
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
    use object_store::path::Path;

    use super::*;
    use crate::engine::test_engine;
    use strata_format::cache::PartCache;
    use strata_format::spool::Spool;
    use strata_format::writer::{WriteOptions, write_version};
    use strata_store::budget::SpoolCharge;
    use strata_store::store::{self, S3Options};

    #[test]
    fn buckets_leave_most_of_the_memory_to_what_follows() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(72 << 20));
        let taken = |wanted, threads, most_bytes| {
            let reservation = MemoryConsumer::new("buckets").register(&pool);
            let chosen = reserve(&reservation, wanted, threads, most_bytes).expect("memory");
            (chosen, reservation.size())
        };
        assert_eq!(taken(1 << 20, 2, 9 << 20), ((1 << 20, 2), 6 << 20));
        assert_eq!(taken(64 << 20, 32, 9 << 20), ((1 << 20, 2), 6 << 20));
        assert_eq!(taken(64 << 20, 4, u64::MAX), ((4 << 20, 4), 48 << 20), "as much as there is");
        assert_eq!(taken(1 << 20, 8, 0), ((1 << 20, 2), 6 << 20), "the least that works");
        let full = pool.clone();
        let held = MemoryConsumer::new("others").register(&full);
        held.try_grow(70 << 20).expect("memory");
        let reservation = MemoryConsumer::new("buckets").register(&pool);
        assert!(matches!(reserve(&reservation, 1 << 20, 8, 9 << 20), Err(QueryError::OutOfMemory(_))));
    }

    #[test]
    fn large_documents_beside_each_other_take_no_more_memory_than_others() {
        const LARGE_BYTES: usize = 256 << 10;
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let entity = |number: usize| match (9_000..9_040).contains(&number) {
            true => format!("{{\"n\":{number},\"large\":\"{}\"}}", "x".repeat(LARGE_BYTES)),
            false => format!("{{\"n\":{number}}}"),
        };
        let entities: Vec<String> = (0..20_000).map(entity).collect();
        let mut spool = Spool::create(directory.path(), SpoolCharge::unbounded()).expect("a spool");
        for entity in &entities {
            spool.add_lines(format!("{entity}\n").as_bytes()).expect("spooled");
        }
        let (store, path) = (store::open("memory://", &S3Options::default()).expect("a store"), Path::from("version"));
        let spooled = spool.finish().expect("spooled");
        let written = write_version(&store, &path, spooled, &WriteOptions::default(), runtime.handle(), &|_| {});
        let size_bytes = written.expect("written").size_bytes;
        let engine = test_engine(64 << 20, directory.path());
        runtime.block_on(async {
            let cache = PartCache::new(0);
            let reader = VersionReader::open(&store, &path, size_bytes, &cache).await.expect("opened");
            let count = entities.len() as u64;
            let positions: Vec<u64> = (0..count).rev().collect();

            let bounds = Bounds { places_per_bucket: 1_000, most_bytes: 1 << 20, stretches: 2 };
            let placed = positions.iter().rev().copied().zip((0..count).rev()).collect();
            let stretches: Vec<_> = stretches(&engine, &reader, placed, bounds).try_collect().await.expect("read");
            assert_eq!(stretches.last().map(|stretch| stretch.next), Some(entities.len()));
            let most = stretches.iter().map(|stretch| stretch.bytes.len()).max().unwrap_or_default();
            assert!(most <= bounds.most_bytes + bounds.places_per_bucket * HEADER_BYTES, "{most}");

            let reordered = Reordered::spill(&engine, &reader, &positions).await.expect("spilled");
            let mut whole = 0;
            for number in 0..reordered.buckets.len() {
                let bucket = reordered.read(number).expect("read");
                let bytes = bucket.bytes.map_or(0, |bytes| bytes.len());
                assert!(bytes <= reordered.bounds.most_bytes, "bucket {number} has {bytes}");
                whole += usize::from(bytes > 0);
            }
            assert!(0 < whole && whole < reordered.buckets.len(), "{whole} of {}", reordered.buckets.len());
            let mut expected = entities.iter().rev();
            let next = reordered.for_each(0..count, |document| {
                assert!(expected.next().is_some_and(|entity| entity.as_bytes() == document));
                ControlFlow::Continue(())
            });
            assert_eq!(next.await.expect("read"), count);
            assert!(expected.next().is_none());
        });
        assert_eq!(engine.memory_bytes(), 0);
    }
}
