//! An external bucket sort of documents, for selections in another order than the file.
//!
//! Fetching single documents decodes a page for each. That is right for a few documents, and for cached versions, but a
//! sorted export would decode each page hundreds of times. Instead, each page is decoded once, in the order of the
//! file, and its selected documents are spilled into buckets of neighboring ordinals (an ordinal is an index of the
//! selection). A bucket fits in memory and is sorted when it is needed. So each document is read, written and read
//! once, in long runs, and a response can be read twice.
//!
//! The mean size of a document determines the number of documents in a bucket. To limit the memory for large documents,
//! a stretch of the file ends when its bytes reach the memory limit, and the documents of larger buckets are read one
//! by one.

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

/// Minimum bytes of a run of a bucket.
const MIN_RUN_BYTES: u64 = 16 << 10;

/// Minimum and maximum bytes of a bucket.
const BUCKET_BYTES: Range<u64> = 1 << 20..64 << 20;

/// The part of a query's memory for buckets. The encoder may need most of the rest.
const MEMORY_DIVISOR: u64 = 8;

/// Buckets in memory: those of the units that are being encoded.
const CACHED_BUCKETS: usize = 2;

/// Before each document: its ordinal in eight bytes and its length in four bytes, both little-endian.
const HEADER_BYTES: usize = 12;

pub(super) struct ExternalOrder {
    file: File,
    /// Owns the file and its reserved disk space.
    _spill: Arc<dyn SpillFile>,
    bounds: Bounds,
    buckets: Vec<Vec<Range<u64>>>,
    loaded: Mutex<VecDeque<(usize, Arc<Bucket>)>>,
    _reservation: MemoryReservation,
}

struct Bucket {
    /// `None` if the bucket is too large.
    bytes: Option<Vec<u8>>,
    /// The range of each document in `bytes`, or in the file, by ordinal.
    documents: Vec<Range<u64>>,
}

#[derive(Clone, Copy)]
struct Bounds {
    documents_per_bucket: usize,
    /// Maximum bytes of a stretch, and of a bucket in memory.
    max_bytes: usize,
    /// Stretches that are read at once.
    stretches: usize,
}

/// A selected position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Selected {
    position: u64,
    ordinal: u64,
}

/// Documents of a stretch of the file, sorted by ordinal.
struct Stretch {
    bytes: Vec<u8>,
    /// The buckets of the documents, and where the documents of each bucket end.
    ends: Vec<(usize, usize)>,
    /// The first requested position after the stretch.
    next: usize,
    /// For a document that exceeds the limit of a stretch.
    _memory: Option<MemoryReservation>,
}

impl ExternalOrder {
    /// Spills the documents at `positions`, which are in the order of the response.
    ///
    /// # Errors
    /// [`QueryError::OutOfMemory`], [`QueryError::OutOfDisk`] and [`QueryError::TooMuchDisk`] if there is not enough
    /// memory or spill space, others if the version cannot be read.
    pub(super) async fn spill(
        engine: &Engine,
        reader: &VersionReader,
        positions: &[u64],
    ) -> Result<ExternalOrder, QueryError> {
        let layout = reader.layout();
        let mean = layout.document_bytes.checked_div(layout.entity_count).unwrap_or(1).max(1) + HEADER_BYTES as u64;
        let total = mean * positions.len() as u64;
        let wanted = (total.saturating_mul(MIN_RUN_BYTES)).isqrt().clamp(BUCKET_BYTES.start, BUCKET_BYTES.end);
        let runtime = engine.context().runtime_env();
        let reservation = MemoryConsumer::new("sorted documents").register(&runtime.memory_pool);
        reservation.try_grow(size_of_val(positions) * 2)?;
        let max_bytes = engine.most_memory_bytes() / MEMORY_DIVISOR;
        let (bucket_bytes, stretches_at_once) = reserve(&reservation, wanted, engine.threads(), max_bytes)?;
        let bounds = Bounds {
            documents_per_bucket: (bucket_bytes / mean).max(1) as usize,
            // Sizes vary: most buckets should fit in memory.
            max_bytes: (bucket_bytes + bucket_bytes / 2) as usize,
            stretches: stretches_at_once,
        };

        let with_ordinal = |(&position, ordinal)| Selected { position, ordinal };
        let mut selected: Vec<Selected> = positions.iter().zip(0..).map(with_ordinal).collect();
        selected.sort_unstable();
        let limit_bytes = engine.most_spilled_bytes();
        let spill = runtime.disk_manager.create_tmp_file("sorted documents")?;
        let mut writer = spill.open_writer()?;
        let mut buckets = vec![Vec::new(); positions.len().div_ceil(bounds.documents_per_bucket)];
        let mut offset = 0;
        let mut stretches = stretches(engine, reader, selected, bounds);
        while let Some(stretch) = stretches.try_next().await? {
            // Lists grow by doubling.
            reservation.try_grow(stretch.ends.len() * size_of::<Range<u64>>() * 2)?;
            let needed = offset + stretch.bytes.len() as u64;
            writer.write_all(&stretch.bytes).map_err(|error| {
                match QueryError::from(not_spilled("sorted documents", error)) {
                    // It would fail again.
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
        Ok(ExternalOrder { file, _spill: spill, bounds, buckets, loaded, _reservation: reservation })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.buckets.iter().map(|runs| total_bytes(runs)).sum()
    }

    /// Calls `each` with the documents, in order, until it breaks. Returns the ordinal after the last call.
    pub(super) async fn for_each(
        &self,
        ordinals: Range<u64>,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<u64, StorageError> {
        let mut next = ordinals.start;
        let mut single = Vec::new();
        while next < ordinals.end {
            tokio::task::consume_budget().await;
            let step = self.bounds.documents_per_bucket as u64;
            let first = next / step * step;
            let bucket = self.bucket((next / step) as usize)?;
            let end = ordinals.end.min(first + step);
            for document in &bucket.documents[(next - first) as usize..(end - first) as usize] {
                next += 1;
                let document = match &bucket.bytes {
                    Some(bytes) => &bytes[document.start as usize..document.end as usize],
                    None => {
                        tokio::task::consume_budget().await;
                        single.resize((document.end - document.start) as usize, 0);
                        self.file.read_exact_at(&mut single, document.start)?;
                        &single
                    }
                };
                if each(document).is_break() {
                    return Ok(next);
                }
            }
        }
        Ok(next)
    }

    /// Reads a bucket under the lock, because other threads most likely need the same one.
    fn bucket(&self, number: usize) -> Result<Arc<Bucket>, StorageError> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bucket)) = loaded.iter().find(|(other, _)| *other == number) {
            return Ok(bucket.clone());
        }
        loaded.truncate(CACHED_BUCKETS - 1);
        let bucket = Arc::new(self.read(number)?);
        loaded.push_front((number, bucket.clone()));
        Ok(bucket)
    }

    fn read(&self, number: usize) -> Result<Bucket, StorageError> {
        let runs = self.buckets.get(number).map_or(&[][..], Vec::as_slice);
        let bucket_bytes = total_bytes(runs);
        let bytes = match bucket_bytes > self.bounds.max_bytes as u64 {
            true => None,
            false => {
                let mut bytes = vec![0; bucket_bytes as usize];
                let mut rest = &mut bytes[..];
                for run in runs {
                    let (part, after) = rest.split_at_mut((run.end - run.start) as usize);
                    self.file.read_exact_at(part, run.start)?;
                    rest = after;
                }
                Some(bytes)
            }
        };
        let whole = 0..bucket_bytes;
        let mut documents = Vec::new();
        let mut header = [0; HEADER_BYTES];
        for run in if bytes.is_some() { std::slice::from_ref(&whole) } else { runs } {
            let mut next = run.start;
            while next < run.end {
                match &bytes {
                    Some(bytes) => header.copy_from_slice(&bytes[next as usize..][..HEADER_BYTES]),
                    None => self.file.read_exact_at(&mut header, next)?,
                }
                let (ordinal, length) = parse_header(&header);
                let start = next + HEADER_BYTES as u64;
                next = start + length;
                documents.push((ordinal, start..next));
            }
        }
        documents.sort_unstable_by_key(|(ordinal, _)| *ordinal);
        Ok(Bucket { bytes, documents: documents.into_iter().map(|(_, document)| document).collect() })
    }
}

fn total_bytes(runs: &[Range<u64>]) -> u64 {
    runs.iter().map(|run| run.end - run.start).sum()
}

fn parse_header(header: &[u8; HEADER_BYTES]) -> (u64, u64) {
    let (ordinal, length) = header.split_at(8);
    let length = length.try_into().map_or(0, u32::from_le_bytes);
    (ordinal.try_into().map_or(0, u64::from_le_bytes), u64::from(length))
}

/// Reserves memory for buckets and stretches, if necessary for smaller or fewer ones. Returns size and number.
fn reserve(
    reservation: &MemoryReservation,
    wanted: u64,
    threads: usize,
    max_bytes: u64,
) -> Result<(u64, usize), QueryError> {
    let mut bytes = wanted;
    let mut stretches = threads.max(CACHED_BUCKETS);
    loop {
        // A stretch in the order of the file and sorted, and the next one. Buckets are loaded after them.
        let taken = bytes * 3 * stretches as u64;
        let is_least = bytes == BUCKET_BYTES.start && stretches == CACHED_BUCKETS;
        if taken <= max_bytes || is_least {
            match reservation.try_grow(taken as usize) {
                Ok(()) => return Ok((bytes, stretches)),
                Err(error) if is_least => return Err(error.into()),
                Err(_) => {}
            }
        }
        match bytes > BUCKET_BYTES.start {
            true => bytes = (bytes / 2).max(BUCKET_BYTES.start),
            false => stretches = (stretches / 2).max(CACHED_BUCKETS),
        }
    }
}

/// The documents in the order of the file, in stretches of about the size of a bucket, several at once.
fn stretches(
    engine: &Engine,
    reader: &VersionReader,
    selected: Vec<Selected>,
    bounds: Bounds,
) -> impl futures::Stream<Item = Result<Stretch, QueryError>> + Unpin + use<> {
    let engine = engine.clone();
    let reader = reader.clone();
    let step = bounds.documents_per_bucket;
    let count = selected.len();
    let selected = Arc::new(selected);
    let begin = move |requested: Range<usize>| {
        let own = engine.clone();
        let reader = reader.clone();
        let selected = selected.clone();
        (requested.end, engine.spawn(async move { read_stretch(&own, &reader, &selected, requested, bounds).await }))
    };
    let state = ((0..count).step_by(step), VecDeque::with_capacity(bounds.stretches), begin);
    let read = futures::stream::try_unfold(state, move |(mut starts, mut working, begin)| async move {
        while working.len() < bounds.stretches
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

/// The first of the requested documents, as many as a stretch can have.
async fn read_stretch(
    engine: &Engine,
    reader: &VersionReader,
    selected: &[Selected],
    requested: Range<usize>,
    bounds: Bounds,
) -> Result<Stretch, QueryError> {
    let mut read = Vec::new();
    let mut documents: Vec<(u64, Range<usize>)> = Vec::with_capacity(requested.len());
    let mut memory = None;
    let row_groups = reader.row_groups();
    let mut next = requested.start;
    'read: while next < requested.end {
        let left = &selected[next..requested.end];
        let position = left[0].position;
        let row_group = reader.row_group_of(position);
        let group = row_groups[row_group];
        let left = &left[..left.partition_point(|selected| group.holds(selected.position))];
        let last = (left[left.len() - 1].position - group.first) as usize;
        let span = reader.page_of(row_group, last) + 1 - reader.page_of(row_group, (position - group.first) as usize);
        let mut pages = if left.len() >= span {
            Pages::contiguous(reader, row_group, last + 1)
        } else {
            Pages::scattered(reader, row_group)
        };
        for Selected { position, ordinal } in left {
            let document = pages.document((position - group.first) as usize).await?;
            let beyond = (read.len() + document.len()).saturating_sub(bounds.max_bytes);
            if beyond > 0 {
                if !documents.is_empty() {
                    break 'read;
                }
                // As it was read, and again with its header.
                memory = Some(engine.reserve("sorted document", 2 * beyond)?);
            }
            let start = read.len();
            read.extend_from_slice(document);
            documents.push((*ordinal, start..read.len()));
            next += 1;
        }
    }
    documents.sort_unstable_by_key(|(ordinal, _)| *ordinal);
    let mut bytes = Vec::with_capacity(read.len() + documents.len() * HEADER_BYTES);
    let mut ends: Vec<(usize, usize)> = Vec::new();
    for (ordinal, document) in documents {
        let length =
            u32::try_from(document.len()).map_err(|_| StorageError::Layout("a document exceeds 4 GiB".to_owned()))?;
        bytes.extend_from_slice(&ordinal.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&read[document]);
        let bucket = ordinal as usize / bounds.documents_per_bucket;
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
    use crate::EngineOptions;
    use strata_format::cache::PartCache;
    use strata_format::spool::Spool;
    use strata_format::writer::{WriteOptions, write_version};
    use strata_store::budget::SpoolCharge;
    use strata_store::store::{self, S3Options};

    #[test]
    fn reserve_leaves_most_memory_to_encoder() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(72 << 20));
        let taken = |wanted, threads, max_bytes| {
            let reservation = MemoryConsumer::new("buckets").register(&pool);
            let chosen = reserve(&reservation, wanted, threads, max_bytes).expect("memory");
            (chosen, reservation.size())
        };
        assert_eq!(taken(1 << 20, 2, 9 << 20), ((1 << 20, 2), 6 << 20));
        assert_eq!(taken(64 << 20, 32, 9 << 20), ((1 << 20, 2), 6 << 20));
        assert_eq!(taken(64 << 20, 4, u64::MAX), ((4 << 20, 4), 48 << 20), "as much as there is");
        assert_eq!(taken(1 << 20, 8, 0), ((1 << 20, 2), 6 << 20), "the least that works");
        let held = MemoryConsumer::new("others").register(&pool);
        held.try_grow(70 << 20).expect("memory");
        let reservation = MemoryConsumer::new("buckets").register(&pool);
        assert!(matches!(reserve(&reservation, 1 << 20, 8, 9 << 20), Err(QueryError::OutOfMemory(_))));
    }

    #[test]
    fn adjacent_large_documents_respect_memory_limit() {
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
        let store = store::open("memory://", &S3Options::default()).expect("a store");
        let path = Path::from("version");
        let spooled = spool.finish().expect("spooled");
        let written = write_version(&store, &path, spooled, &WriteOptions::default(), runtime.handle(), &|_| {});
        let size_bytes = written.expect("written").size_bytes;
        let engine = Engine::try_new(&EngineOptions {
            threads: 2,
            memory_bytes: 64 << 20,
            spill_directory: Some(directory.path().to_owned()),
            spill_bytes: 1 << 30,
            ..EngineOptions::default()
        });
        let engine = engine.expect("an engine");
        runtime.block_on(async {
            let cache = PartCache::new(0);
            let reader = VersionReader::open(&store, &path, size_bytes, &cache).await.expect("opened");
            let count = entities.len() as u64;
            let positions: Vec<u64> = (0..count).rev().collect();

            let bounds = Bounds { documents_per_bucket: 1_000, max_bytes: 1 << 20, stretches: 2 };
            let selected = (0..count).map(|position| Selected { position, ordinal: count - 1 - position }).collect();
            let stretches: Vec<_> = stretches(&engine, &reader, selected, bounds).try_collect().await.expect("read");
            assert_eq!(stretches.last().map(|stretch| stretch.next), Some(entities.len()));
            let most = stretches.iter().map(|stretch| stretch.bytes.len()).max().unwrap_or_default();
            assert!(most <= bounds.max_bytes + bounds.documents_per_bucket * HEADER_BYTES, "{most}");

            let sorted = ExternalOrder::spill(&engine, &reader, &positions).await.expect("spilled");
            let mut whole = 0;
            for number in 0..sorted.buckets.len() {
                let bucket = sorted.read(number).expect("read");
                let bytes = bucket.bytes.map_or(0, |bytes| bytes.len());
                assert!(bytes <= sorted.bounds.max_bytes, "bucket {number} has {bytes}");
                whole += usize::from(bytes > 0);
            }
            assert!(0 < whole && whole < sorted.buckets.len(), "{whole} of {}", sorted.buckets.len());
            let mut expected = entities.iter().rev();
            let next = sorted.for_each(0..count, |document| {
                assert!(expected.next().is_some_and(|entity| entity.as_bytes() == document));
                ControlFlow::Continue(())
            });
            assert_eq!(next.await.expect("read"), count);
            assert!(expected.next().is_none());
        });
        assert_eq!(engine.memory_bytes(), 0);
    }
}
