//! An external bucket sort of documents, for selections in another order than the file.
//!
//! Fetching a single document decodes its whole page. That is acceptable for a few documents, and for cached versions,
//! but a sorted export would decode each page hundreds of times. Instead, this sort decodes each page once, in the
//! order of the file, and spills the selected documents into buckets of neighboring ordinals (an ordinal is an index of
//! the selection). A bucket fits in memory and is sorted on demand. So each document is read, written and read once, in
//! long runs, and a response can be read twice.
//!
//! The mean size of a document determines the number of documents in a bucket. To limit the memory for large documents,
//! a batch of the file ends when it reaches the memory limit, and the documents of larger buckets are read one by one.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use datafusion::common::resources_datafusion_err;
use datafusion::execution::SpillFile;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use strata_format::reader::VersionReader;
use strata_store::StorageError;

use crate::error::spill_error;
use crate::fetch::document_page_reader::DocumentPageReader;
use crate::{QueryEngine, QueryError};

const MIN_BUCKET_RUN_BYTES: u64 = 16 << 10;
const BUCKET_BYTES_RANGE: Range<u64> = 1 << 20..64 << 20;
/// Fraction of a query's memory that sort buckets can use. The encoder may need most of the rest.
const BUCKET_MEMORY_DIVISOR: u64 = 8;
/// Max sort buckets in memory: the buckets of the chunks that are being encoded.
const MAX_CACHED_BUCKETS: usize = 2;
/// The header of each document: its ordinal in eight bytes and its length in four bytes, little-endian.
const DOCUMENT_HEADER_BYTES: usize = 12;

pub(super) struct ExternalDocumentSort {
    file: File,
    _spill: Arc<dyn SpillFile>,
    limits: SortLimits,
    bucket_runs: Vec<Vec<Range<u64>>>,
    bucket_cache: Mutex<VecDeque<(usize, Arc<SortBucket>)>>,
    _reservation: MemoryReservation,
}

struct SortBucket {
    /// `None` if the documents of the bucket are too large for memory.
    bytes: Option<Vec<u8>>,
    /// The range of each document, by ordinal. The range is in `bytes`, or in the spill file if `bytes` is `None`.
    documents: Vec<Range<u64>>,
}

#[derive(Clone, Copy)]
struct SortLimits {
    documents_per_bucket: usize,
    /// The maximum size of a batch of documents, and of a sort bucket in memory.
    max_batch_bytes: usize,
    concurrent_batches: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct OrdinalPosition {
    position: u64,
    ordinal: u64,
}

struct SpillBatch {
    bytes: Vec<u8>,
    /// The bucket number of each group of documents, and the end of the group in `bytes`.
    bucket_ends: Vec<(usize, usize)>,
    next_index: usize,
    _reservation: Option<MemoryReservation>,
}

impl ExternalDocumentSort {
    /// Spills the documents at `positions`, which are in the order of the response.
    pub(super) async fn spill(
        engine: &QueryEngine,
        reader: &VersionReader,
        positions: &[u64],
    ) -> Result<ExternalDocumentSort, QueryError> {
        let layout = reader.layout();
        let mean =
            layout.document_bytes.checked_div(layout.entity_count).unwrap_or(1).max(1) + DOCUMENT_HEADER_BYTES as u64;
        let total = mean * positions.len() as u64;
        let wanted = total.saturating_mul(MIN_BUCKET_RUN_BYTES).isqrt();
        let wanted = wanted.clamp(BUCKET_BYTES_RANGE.start, BUCKET_BYTES_RANGE.end);
        let runtime = engine.task_context().runtime_env();
        let reservation = MemoryConsumer::new("sorted documents").register(&runtime.memory_pool);
        reservation.try_grow(size_of_val(positions) * 2)?;
        let max_bytes = engine.max_principal_memory_bytes() / BUCKET_MEMORY_DIVISOR;
        let (bucket_bytes, batches) = reserve_sort_memory(&reservation, wanted, engine.threads(), max_bytes)?;
        let limits = SortLimits {
            documents_per_bucket: (bucket_bytes / mean).max(1) as usize,
            // Documents vary in size, so the limit exceeds the mean bucket size: most buckets should fit in memory.
            max_batch_bytes: (bucket_bytes + bucket_bytes / 2) as usize,
            concurrent_batches: batches,
        };

        let with_ordinal = |(&position, ordinal)| OrdinalPosition { position, ordinal };
        let mut selected: Vec<OrdinalPosition> = positions.iter().zip(0..).map(with_ordinal).collect();
        selected.sort_unstable();
        let limit_bytes = engine.max_principal_spill_bytes();
        let spill = runtime.disk_manager.create_tmp_file("sorted documents")?;
        let mut writer = spill.open_writer()?;
        let mut bucket_runs = vec![Vec::new(); positions.len().div_ceil(limits.documents_per_bucket)];
        let mut offset = 0;
        let mut batches = read_spill_batches(engine, reader, selected, limits);
        while let Some(batch) = batches.try_next().await? {
            // The lists of document ranges grow by doubling, so they can need twice the memory of their items.
            reservation.try_grow(batch.bucket_ends.len() * size_of::<Range<u64>>() * 2)?;
            let needed = offset + batch.bytes.len() as u64;
            writer.write_all(&batch.bytes).map_err(|error| {
                match QueryError::from(spill_error("sorted documents", error)) {
                    QueryError::OutOfDisk(_) if needed > limit_bytes => QueryError::TooMuchDisk { limit_bytes },
                    error => error,
                }
            })?;
            let mut start = 0;
            for (bucket, end) in batch.bucket_ends {
                bucket_runs[bucket].push(offset + start as u64..offset + end as u64);
                start = end;
            }
            offset += batch.bytes.len() as u64;
        }
        drop(batches);
        writer.finish()?;
        reservation.shrink(size_of_val(positions) * 2);
        let path = spill.path().ok_or_else(|| resources_datafusion_err!("the spill file has no path"))?;
        let file = File::open(path).map_err(StorageError::Io)?;
        let bucket_cache = Mutex::new(VecDeque::new());
        Ok(ExternalDocumentSort { file, _spill: spill, limits, bucket_runs, bucket_cache, _reservation: reservation })
    }

    pub(super) fn spilled_bytes(&self) -> u64 {
        self.bucket_runs.iter().map(|runs| sum_run_bytes(runs)).sum()
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
            let step = self.limits.documents_per_bucket as u64;
            let first = next / step * step;
            let bucket = self.get_or_load_bucket((next / step) as usize)?;
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

    /// Loads a sort bucket while it locks the cache, because other threads most likely need the same bucket.
    fn get_or_load_bucket(&self, number: usize) -> Result<Arc<SortBucket>, StorageError> {
        let mut cache = self.bucket_cache.lock();
        if let Some((_, bucket)) = cache.iter().find(|(other, _)| *other == number) {
            return Ok(bucket.clone());
        }
        cache.truncate(MAX_CACHED_BUCKETS - 1);
        let bucket = Arc::new(self.load_bucket(number)?);
        cache.push_front((number, bucket.clone()));
        Ok(bucket)
    }

    fn load_bucket(&self, number: usize) -> Result<SortBucket, StorageError> {
        let runs = self.bucket_runs.get(number).map_or(&[][..], Vec::as_slice);
        let bucket_bytes = sum_run_bytes(runs);
        let mut bytes = None;
        if bucket_bytes <= self.limits.max_batch_bytes as u64 {
            let mut rest = &mut bytes.insert(vec![0; bucket_bytes as usize])[..];
            for run in runs {
                let (part, others) = rest.split_at_mut((run.end - run.start) as usize);
                self.file.read_exact_at(part, run.start)?;
                rest = others;
            }
        }
        let whole = 0..bucket_bytes;
        let mut documents = Vec::new();
        let mut header = [0; DOCUMENT_HEADER_BYTES];
        for run in if bytes.is_some() { std::slice::from_ref(&whole) } else { runs } {
            let mut next = run.start;
            while next < run.end {
                match &bytes {
                    Some(bytes) => header.copy_from_slice(&bytes[next as usize..][..DOCUMENT_HEADER_BYTES]),
                    None => self.file.read_exact_at(&mut header, next)?,
                }
                let (ordinal, length) = parse_ordinal_and_length(&header);
                let start = next + DOCUMENT_HEADER_BYTES as u64;
                next = start + length;
                documents.push((ordinal, start..next));
            }
        }
        documents.sort_unstable_by_key(|(ordinal, _)| *ordinal);
        Ok(SortBucket { bytes, documents: documents.into_iter().map(|(_, document)| document).collect() })
    }
}

fn sum_run_bytes(runs: &[Range<u64>]) -> u64 {
    runs.iter().map(|run| run.end - run.start).sum()
}

fn parse_ordinal_and_length(header: &[u8; DOCUMENT_HEADER_BYTES]) -> (u64, u64) {
    let (ordinal, length) = header.split_at(8);
    let length = length.try_into().map_or(0, u32::from_le_bytes);
    (ordinal.try_into().map_or(0, u64::from_le_bytes), u64::from(length))
}

/// Reserves memory for sort buckets and batches, smaller or fewer if necessary. Returns bucket size and batch count.
fn reserve_sort_memory(
    reservation: &MemoryReservation,
    wanted_bytes: u64,
    threads: usize,
    max_bytes: u64,
) -> Result<(u64, usize), QueryError> {
    let mut bytes = wanted_bytes;
    let mut batches = threads.max(MAX_CACHED_BUCKETS);
    loop {
        // Each of the concurrent batches needs its memory three times: in the order of the file, sorted, and for the
        // next batch. Buckets are loaded later.
        let needed = bytes * 3 * batches as u64;
        let is_minimum = bytes == BUCKET_BYTES_RANGE.start && batches == MAX_CACHED_BUCKETS;
        if needed <= max_bytes || is_minimum {
            match reservation.try_grow(needed as usize) {
                Ok(()) => return Ok((bytes, batches)),
                Err(error) if is_minimum => return Err(error.into()),
                Err(_) => {}
            }
        }
        match bytes > BUCKET_BYTES_RANGE.start {
            true => bytes = (bytes / 2).max(BUCKET_BYTES_RANGE.start),
            false => batches = (batches / 2).max(MAX_CACHED_BUCKETS),
        }
    }
}

/// Reads the documents in the order of the file, in batches of about the size of a bucket, several at once.
fn read_spill_batches(
    engine: &QueryEngine,
    reader: &VersionReader,
    selected: Vec<OrdinalPosition>,
    limits: SortLimits,
) -> impl futures::Stream<Item = Result<SpillBatch, QueryError>> + Unpin + use<> {
    let engine = engine.clone();
    let reader = reader.clone();
    let step = limits.documents_per_bucket;
    let count = selected.len();
    let selected = Arc::new(selected);
    let start_batch = move |requested: Range<usize>| {
        let worker_engine = engine.clone();
        let reader = reader.clone();
        let selected = selected.clone();
        let end = requested.end;
        let batch = async move { read_spill_batch(&worker_engine, &reader, &selected, requested, limits).await };
        (end, engine.spawn(batch))
    };
    let state = ((0..count).step_by(step), VecDeque::with_capacity(limits.concurrent_batches), start_batch);
    let read = futures::stream::try_unfold(state, move |(mut starts, mut working, start_batch)| async move {
        while working.len() < limits.concurrent_batches
            && let Some(start) = starts.next()
        {
            working.push_back(start_batch(start..count.min(start + step)));
        }
        let Some((end, task)) = working.pop_front() else { return Ok::<_, QueryError>(None) };
        let batch: SpillBatch = task.await??;
        if batch.next_index < end {
            working.push_front(start_batch(batch.next_index..end));
        }
        Ok(Some((batch, (starts, working, start_batch))))
    });
    read.boxed()
}

async fn read_spill_batch(
    engine: &QueryEngine,
    reader: &VersionReader,
    selected: &[OrdinalPosition],
    requested: Range<usize>,
    limits: SortLimits,
) -> Result<SpillBatch, QueryError> {
    let mut read = Vec::new();
    let mut documents: Vec<(u64, Range<usize>)> = Vec::with_capacity(requested.len());
    let mut reservation = None;
    let row_groups = reader.row_groups();
    let mut next_index = requested.start;
    'read: while next_index < requested.end {
        let left = &selected[next_index..requested.end];
        let position = left[0].position;
        let row_group = reader.row_group_at(position);
        let group = row_groups[row_group];
        let left = &left[..left.partition_point(|selected| group.contains(selected.position))];
        let last = (left[left.len() - 1].position - group.first_position) as usize;
        let span = reader.page_for_row(row_group, last) + 1
            - reader.page_for_row(row_group, (position - group.first_position) as usize);
        let mut pages = if left.len() >= span {
            DocumentPageReader::for_contiguous_rows(reader, row_group, last + 1)
        } else {
            DocumentPageReader::for_scattered_rows(reader, row_group)
        };
        for OrdinalPosition { position, ordinal } in left {
            let document = pages.document((position - group.first_position) as usize).await?;
            let beyond = (read.len() + document.len()).saturating_sub(limits.max_batch_bytes);
            if beyond > 0 {
                if !documents.is_empty() {
                    break 'read;
                }
                // A large document is in memory twice: as it was read, and in the sorted batch.
                reservation = Some(engine.try_reserve("sorted document", 2 * beyond)?);
            }
            let start = read.len();
            read.extend_from_slice(document);
            documents.push((*ordinal, start..read.len()));
            next_index += 1;
        }
    }
    documents.sort_unstable_by_key(|(ordinal, _)| *ordinal);
    let mut bytes = Vec::with_capacity(read.len() + documents.len() * DOCUMENT_HEADER_BYTES);
    let mut bucket_ends: Vec<(usize, usize)> = Vec::new();
    for (ordinal, document) in documents {
        let length = u32::try_from(document.len())
            .map_err(|_| StorageError::InvalidFile("a document exceeds 4 GiB".to_owned()))?;
        bytes.extend_from_slice(&ordinal.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&read[document]);
        let bucket = ordinal as usize / limits.documents_per_bucket;
        match bucket_ends.last_mut() {
            Some((last, end)) if *last == bucket => *end = bytes.len(),
            _ => bucket_ends.push((bucket, bytes.len())),
        }
    }
    Ok(SpillBatch { bytes, bucket_ends, next_index, _reservation: reservation })
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
    use object_store::path::Path;

    use super::*;
    use crate::QueryEngineOptions;
    use strata_format::cache::PartCache;
    use strata_format::spool::SpoolWriter;
    use strata_format::writer::{WriteOptions, write_version};
    use strata_store::spool_quota::SpoolReservation;
    use strata_store::store::{self, S3Options};

    #[test]
    fn reserve_leaves_most_memory_to_encoder() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(72 << 20));
        let taken = |wanted, threads, max_bytes| {
            let reservation = MemoryConsumer::new("buckets").register(&pool);
            let chosen = reserve_sort_memory(&reservation, wanted, threads, max_bytes).expect("memory");
            (chosen, reservation.size())
        };
        assert_eq!(taken(1 << 20, 2, 9 << 20), ((1 << 20, 2), 6 << 20));
        assert_eq!(taken(64 << 20, 32, 9 << 20), ((1 << 20, 2), 6 << 20));
        assert_eq!(taken(64 << 20, 4, u64::MAX), ((4 << 20, 4), 48 << 20), "as much as there is");
        assert_eq!(taken(1 << 20, 8, 0), ((1 << 20, 2), 6 << 20), "the least that works");
        let held = MemoryConsumer::new("others").register(&pool);
        held.try_grow(70 << 20).expect("memory");
        let reservation = MemoryConsumer::new("buckets").register(&pool);
        assert!(matches!(reserve_sort_memory(&reservation, 1 << 20, 8, 9 << 20), Err(QueryError::OutOfMemory(_))));
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
        let mut spool = SpoolWriter::create(directory.path(), SpoolReservation::unbounded()).expect("a spool");
        for entity in &entities {
            spool.add_lines(format!("{entity}\n").as_bytes()).expect("spooled");
        }
        let store = store::open_store("memory://", &S3Options::default()).expect("a store");
        let path = Path::from("version");
        let spooled = spool.finish().expect("spooled");
        let written = write_version(&store, &path, spooled, &WriteOptions::default(), runtime.handle(), &|_| {});
        let size_bytes = written.expect("written").size_bytes;
        let engine = QueryEngine::try_new(&QueryEngineOptions {
            threads: 2,
            memory_bytes: 64 << 20,
            spill_directory: Some(directory.path().to_owned()),
            spill_bytes: 1 << 30,
            ..QueryEngineOptions::default()
        });
        let engine = engine.expect("an engine");
        runtime.block_on(async {
            let cache = PartCache::new(0);
            let reader = VersionReader::open(&store, &path, size_bytes, &cache).await.expect("opened");
            let count = entities.len() as u64;
            let positions: Vec<u64> = (0..count).rev().collect();

            let limits = SortLimits { documents_per_bucket: 1_000, max_batch_bytes: 1 << 20, concurrent_batches: 2 };
            let all = (0..count).map(|position| OrdinalPosition { position, ordinal: count - 1 - position }).collect();
            let batches: Vec<_> = read_spill_batches(&engine, &reader, all, limits).try_collect().await.expect("read");
            assert_eq!(batches.last().map(|batch| batch.next_index), Some(entities.len()));
            let max = batches.iter().map(|batch| batch.bytes.len()).max().unwrap_or_default();
            assert!(max <= limits.max_batch_bytes + limits.documents_per_bucket * DOCUMENT_HEADER_BYTES, "{max}");

            let sorted = ExternalDocumentSort::spill(&engine, &reader, &positions).await.expect("spilled");
            let mut resident = 0;
            for number in 0..sorted.bucket_runs.len() {
                let bucket = sorted.load_bucket(number).expect("read");
                let bytes = bucket.bytes.map_or(0, |bytes| bytes.len());
                assert!(bytes <= sorted.limits.max_batch_bytes, "bucket {number} has {bytes}");
                resident += usize::from(bytes > 0);
            }
            assert!(0 < resident && resident < sorted.bucket_runs.len(), "{resident} of {}", sorted.bucket_runs.len());
            let mut expected = entities.iter().rev();
            let next = sorted.for_each(0..count, |document| {
                assert!(expected.next().is_some_and(|entity| entity.as_bytes() == document));
                ControlFlow::Continue(())
            });
            assert_eq!(next.await.expect("read"), count);
            assert!(expected.next().is_none());
        });
        assert_eq!(engine.reserved_memory_bytes(), 0);
    }
}
