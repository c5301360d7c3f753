//! Documents in an order that is not the file's, by way of the disk.
//!
//! Fetching single documents decodes a page for each. That is right for a few, and for versions whose documents the
//! cache holds; a sorted export of everything else would decode each page hundreds of times. Here every page is decoded
//! once, in the file's order, and what is selected of it is spilled in buckets of neighbouring places of the answer; a
//! bucket fits in memory and is put in order when its turn comes. So each document is read, written and read once, in
//! runs long enough for a disk, and an answer may be gone through twice.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::resources_datafusion_err;
use datafusion::error::DataFusionError;
use datafusion::execution::SpillFile;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use futures::{StreamExt, TryStreamExt};

use super::documents::Pages;
use super::{Engine, QueryError};
use crate::storage::StorageError;
use crate::storage::reader::VersionReader;

/// Least bytes of a run: what is read of one bucket in one go.
const RUN_BYTES: u64 = 16 << 10;

/// Least and most bytes of a bucket.
const BUCKET_BYTES: Range<u64> = 1 << 20..64 << 20;

/// Buckets kept in memory: those of the units that are worked on.
const BUCKETS_KEPT: usize = 2;

/// Before each document: its place as eight bytes, its length as four, both little-endian.
const HEADER_BYTES: usize = 12;

/// Documents on disk, in buckets of places.
pub struct Reordered {
    file: File,
    /// Keeps the file, and its part of the bytes that may be spilled.
    _spill: Arc<dyn SpillFile>,
    places_per_bucket: u64,
    /// Per bucket, where its parts lie.
    buckets: Vec<Vec<Run>>,
    loaded: Mutex<VecDeque<(usize, Arc<Bucket>)>>,
    _reservation: MemoryReservation,
}

#[derive(Clone, Copy)]
struct Run {
    offset: u64,
    bytes: u64,
}

/// A bucket in memory.
struct Bucket {
    bytes: Vec<u8>,
    /// Where each document lies, by place from the bucket's first.
    documents: Vec<Range<usize>>,
}

/// A position of the file and its place in the answer.
type Placed = (u64, u64);

/// Documents of one stretch of the file, sorted by place.
struct Stretch {
    bytes: Vec<u8>,
    /// Per bucket that has any: where its documents end.
    ends: Vec<(usize, usize)>,
}

impl Reordered {
    /// Spills the documents at `positions`, which are in the order of the answer.
    ///
    /// Takes memory for the positions and for a few stretches and buckets from the engine's pool, and disk for all the
    /// documents from what may be spilled.
    ///
    /// # Errors
    /// [`QueryError::OutOfMemory`] when the pool or the disk has no room, others when the version cannot be read.
    pub async fn spill(engine: &Engine, reader: &VersionReader, positions: &[u64]) -> Result<Reordered, QueryError> {
        let layout = reader.layout();
        let mean = layout.document_bytes.checked_div(layout.entity_count).unwrap_or(1).max(1) + HEADER_BYTES as u64;
        let total = mean * positions.len() as u64;
        let wanted = (total.saturating_mul(RUN_BYTES)).isqrt().clamp(BUCKET_BYTES.start, BUCKET_BYTES.end);
        let runtime = engine.context().runtime_env();
        let reservation = MemoryConsumer::new("reordered documents").register(&runtime.memory_pool);
        reservation.try_grow(size_of_val(positions) * 2)?;
        let bucket_bytes = reserve(&reservation, wanted, engine.threads())?;
        let places_per_bucket = (bucket_bytes / mean).max(1);

        let mut placed: Vec<Placed> = positions.iter().copied().zip(0..).collect();
        placed.sort_unstable();
        let spill = runtime.disk_manager.create_tmp_file("sorted documents")?;
        let mut writer = spill.open_writer()?;
        let mut buckets = vec![Vec::new(); positions.len().div_ceil(places_per_bucket as usize)];
        let mut offset = 0;
        let mut stretches = stretches(engine, reader, placed, places_per_bucket);
        while let Some(stretch) = stretches.try_next().await? {
            writer.write_all(&stretch.bytes).map_err(out_of_disk)?;
            let mut start = 0;
            for (bucket, end) in stretch.ends {
                buckets[bucket].push(Run { offset: offset + start as u64, bytes: (end - start) as u64 });
                start = end;
            }
            offset += stretch.bytes.len() as u64;
        }
        drop(stretches);
        writer.finish()?;
        reservation.try_grow(buckets.iter().map(|runs| runs.capacity() * size_of::<Run>()).sum())?;
        reservation.shrink(size_of_val(positions) * 2);
        let path = spill.path().ok_or_else(|| resources_datafusion_err!("spilled documents have no file"))?;
        let file = File::open(path).map_err(StorageError::Io)?;
        let loaded = Mutex::new(VecDeque::new());
        Ok(Reordered { file, _spill: spill, places_per_bucket, buckets, loaded, _reservation: reservation })
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.buckets.iter().flatten().map(|run| run.bytes).sum()
    }

    /// Calls `each` with the documents of these places, in order, until it breaks. Returns the place after the last one.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn for_each(
        &self,
        places: Range<u64>,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<u64, StorageError> {
        let mut place = places.start;
        while place < places.end {
            tokio::task::consume_budget().await;
            let number = place / self.places_per_bucket;
            let first = number * self.places_per_bucket;
            let bucket = self.bucket(number as usize)?;
            let end = places.end.min(first + self.places_per_bucket);
            for document in &bucket.documents[(place - first) as usize..(end - first) as usize] {
                place += 1;
                if each(&bucket.bytes[document.clone()]).is_break() {
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
        let length: u64 = runs.iter().map(|run| run.bytes).sum();
        let mut bytes = vec![0; length as usize];
        let mut at = 0;
        for run in runs {
            let end = at + run.bytes as usize;
            self.file.read_exact_at(&mut bytes[at..end], run.offset)?;
            at = end;
        }
        let mut documents: Vec<(u64, Range<usize>)> = Vec::new();
        let mut at = 0;
        while let Some(header) = bytes.get(at..at + HEADER_BYTES) {
            let (place, length) = header.split_at(8);
            let place = place.try_into().map_or(0, u64::from_le_bytes);
            let length = length.try_into().map_or(0, u32::from_le_bytes);
            let start = at + HEADER_BYTES;
            at = start + length as usize;
            documents.push((place, start..at));
        }
        documents.sort_unstable_by_key(|(place, _)| *place);
        Ok(Bucket { bytes, documents: documents.into_iter().map(|(_, document)| document).collect() })
    }
}

/// Takes memory for buckets and stretches, smaller ones where there is little; how large one may be.
fn reserve(reservation: &MemoryReservation, wanted: u64, threads: usize) -> Result<u64, QueryError> {
    let mut bytes = wanted;
    loop {
        // Per thread one stretch as pages and once more in order, and the next one waiting; buckets come after them.
        let taken = bytes as usize * 3 * threads.max(BUCKETS_KEPT);
        match reservation.try_grow(taken) {
            Ok(()) => return Ok(bytes),
            Err(_) if bytes > BUCKET_BYTES.start => bytes = (bytes / 2).max(BUCKET_BYTES.start),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The documents in the file's order, a stretch of about a bucket's size at a time, several at once.
fn stretches(
    engine: &Engine,
    reader: &VersionReader,
    placed: Vec<Placed>,
    places_per_bucket: u64,
) -> impl futures::Stream<Item = Result<Stretch, QueryError>> + Unpin + use<> {
    let (engine, reader, placed) = (engine.clone(), reader.clone(), Arc::new(placed));
    let threads = engine.threads();
    let step = places_per_bucket as usize;
    futures::stream::iter((0..placed.len()).step_by(step))
        .map(move |start| {
            let (reader, placed) = (reader.clone(), placed.clone());
            engine.spawn(async move { stretch(&reader, &placed[start..placed.len().min(start + step)], step).await })
        })
        .buffered(threads)
        .map(|done| Ok(done??))
}

async fn stretch(reader: &VersionReader, placed: &[Placed], step: usize) -> Result<Stretch, StorageError> {
    let mut read = Vec::new();
    let mut documents: Vec<(u64, Range<usize>)> = Vec::with_capacity(placed.len());
    let row_groups = reader.row_groups();
    let mut at = 0;
    while let Some((position, _)) = placed.get(at) {
        let row_group = reader.row_group_of(*position);
        let group = row_groups[row_group];
        let end = at + placed[at..].partition_point(|(position, _)| group.holds(*position));
        let last = (placed[end - 1].0 - group.first) as usize;
        let span = reader.page_of(row_group, last) + 1 - reader.page_of(row_group, (position - group.first) as usize);
        let mut pages = if end - at >= span {
            Pages::contiguous(reader, row_group, last + 1)
        } else {
            Pages::scattered(reader, row_group)
        };
        for (position, place) in &placed[at..end] {
            let document = pages.document((position - group.first) as usize).await?;
            let start = read.len();
            read.extend_from_slice(document);
            documents.push((*place, start..read.len()));
        }
        at = end;
    }
    documents.sort_unstable_by_key(|(place, _)| *place);
    let mut bytes = Vec::with_capacity(read.len() + documents.len() * HEADER_BYTES);
    let mut ends: Vec<(usize, usize)> = Vec::new();
    for (place, document) in documents {
        let length = u32::try_from(document.len())
            .map_err(|_| StorageError::Layout("a document is longer than 4 GiB".to_owned()))?;
        bytes.extend_from_slice(&place.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&read[document]);
        let bucket = place as usize / step;
        match ends.last_mut() {
            Some((last, end)) if *last == bucket => *end = bytes.len(),
            _ => ends.push((bucket, bytes.len())),
        }
    }
    Ok(Stretch { bytes, ends })
}

/// A full disk, or the bound of what may be spilled: a matter of room, as with memory.
fn out_of_disk(error: std::io::Error) -> QueryError {
    DataFusionError::ResourcesExhausted(format!("sorted documents cannot be spilled: {error}")).into()
}
