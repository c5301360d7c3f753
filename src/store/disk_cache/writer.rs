//! The writer thread of the cache: loads the ranges that an earlier process cached, then writes fetched ranges.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use bytes::Bytes;
use strata_runtime::metrics::metrics;

use super::cache_directory::{CacheDirectory, list_entries};
use super::range_index::{CachedRange, record_bytes};
use super::segment::{CacheSegment, RecordHeader};
use super::state::{DiskCacheState, InFlightFetch};
use crate::checksums::crc32;
use crate::free_space::FreeSpaceCheckInterval;

/// Number of segments in a full cache.
const TARGET_SEGMENTS: u64 = 32;
const WRITE_RETRY_DELAY: Duration = Duration::from_secs(30);

pub(super) struct WriteJob {
    pub(super) fetch: Arc<InFlightFetch>,
    pub(super) bytes: Bytes,
    /// Value of [`RangeIndex::invalidations`](super::range_index::RangeIndex) before the bytes were fetched.
    pub(super) invalidations: u64,
}

pub(super) fn run_writer(shared: &Arc<DiskCacheState>, write_queue: Receiver<WriteJob>) {
    let mut writer = SegmentWriter {
        state: shared,
        directory: None,
        current_segment: None,
        space_check: FreeSpaceCheckInterval::default(),
        paused_until: None,
    };
    writer.open_directory();
    for job in write_queue {
        writer.write(&job);
        shared.queued_bytes.fetch_sub(job.bytes.len(), Ordering::Relaxed);
    }
}

struct SegmentWriter<'a> {
    state: &'a DiskCacheState,
    directory: Option<CacheDirectory>,
    current_segment: Option<Arc<CacheSegment>>,
    space_check: FreeSpaceCheckInterval,
    paused_until: Option<Instant>,
}

impl SegmentWriter<'_> {
    fn open_directory(&mut self) {
        let directory = match CacheDirectory::acquire(&self.state.parent_directory) {
            Ok(directory) => directory,
            Err(error) => return self.pause_after_error(&error),
        };
        directory.clear_abandoned();
        let mut segments: Vec<CacheSegment> = Vec::new();
        for path in list_entries(&directory.path) {
            match CacheSegment::open(&path) {
                Ok(segment) => segments.extend(segment),
                Err(error) => tracing::warn!(%error, path = %path.display(), "failed to read disk cache file"),
            }
        }
        segments.sort_by_key(|segment| segment.number);
        for segment in segments {
            let Ok(size_bytes) = segment.size_bytes() else { continue };
            let (records, is_whole) = segment.read_records(size_bytes);
            if !is_whole {
                metrics().disk_cache_damaged.increment(1);
            }
            let number = segment.number;
            let mut index = self.state.index.lock();
            index.add_segment(Arc::new(segment), size_bytes);
            let invalidations = index.invalidations;
            for (header, offset) in records {
                index.insert_range(&header, number, offset, invalidations);
            }
        }
        // The capacity may be smaller than in the earlier process.
        self.evict_for(0);
        self.directory = Some(directory);
    }

    fn pause_after_error(&mut self, error: &std::io::Error) {
        tracing::warn!(%error, path = %self.state.parent_directory.display(), "failed to write to disk cache; pausing writes");
        self.current_segment = None;
        self.paused_until = Some(Instant::now() + WRITE_RETRY_DELAY);
    }

    fn write(&mut self, job: &WriteJob) {
        let (file, range) = &job.fetch.key;
        let Ok(length) = u32::try_from(job.bytes.len()) else { return };
        if self.paused_until.is_some_and(|until| Instant::now() < until)
            || self.state.index.lock().contains(*file, range)
        {
            return;
        }
        self.paused_until = None;
        if self.directory.as_ref().is_some_and(|directory| !directory.exists()) {
            self.state.index.lock().clear();
            self.directory = None;
            self.current_segment = None;
        }
        if self.directory.is_none() {
            self.open_directory();
        }
        if self.space_check.is_due(record_bytes(job.bytes.len())) && !self.state.disk_reserve.has_ample_space() {
            self.space_check.reset();
            return;
        }
        for evicted in self.evict_for(record_bytes(job.bytes.len())) {
            let Ok(bytes) = evicted.segment.read_at(evicted.offset, evicted.header.length as usize) else { continue };
            if crc32(&bytes) == evicted.header.checksum {
                let invalidations = self.state.index.lock().invalidations;
                self.append_range(&evicted.header, &bytes, invalidations);
            }
        }
        let header = RecordHeader { file: *file, start: range.start, length, checksum: crc32(&job.bytes) };
        self.append_range(&header, &job.bytes, job.invalidations);
    }

    /// Deletes the oldest segments until `bytes` more bytes fit. Returns the deleted ranges that were used, up to half
    /// a segment, so that appending them again terminates.
    fn evict_for(&mut self, bytes: u64) -> Vec<CachedRange> {
        let mut moved = Vec::new();
        let mut moved_bytes = 0;
        let max_moved_bytes = self.state.capacity_bytes / TARGET_SEGMENTS / 2;
        loop {
            let mut index = self.state.index.lock();
            if !index.is_full(bytes + moved_bytes, self.state.capacity_bytes) {
                return moved;
            }
            let Some((segment, used)) = index.pop_oldest_segment() else { return moved };
            drop(index);
            segment.delete_file();
            for range in used {
                let range_bytes = record_bytes(range.header.length as usize);
                if moved_bytes + range_bytes <= max_moved_bytes {
                    moved_bytes += range_bytes;
                    moved.push(range);
                }
            }
        }
    }

    fn append_range(&mut self, header: &RecordHeader, bytes: &[u8], invalidations: u64) {
        let Some(directory) = &self.directory else { return };
        let needed_bytes = record_bytes(bytes.len());
        let mut index = self.state.index.lock();
        let size = self.current_segment.as_ref().and_then(|segment| index.segment_bytes(segment.number));
        let (segment, end) = match (&self.current_segment, size) {
            (Some(segment), Some(size)) if size < self.state.capacity_bytes / TARGET_SEGMENTS => {
                (segment.clone(), size)
            }
            _ => match CacheSegment::create(&directory.path, index.last_segment_number + 1) {
                Ok(segment) => {
                    let segment = Arc::new(segment);
                    index.add_segment(segment.clone(), 0);
                    self.current_segment = Some(segment.clone());
                    (segment, 0)
                }
                Err(error) => {
                    drop(index);
                    return self.pause_after_error(&error);
                }
            },
        };
        if index.total_bytes + needed_bytes > self.state.capacity_bytes {
            return;
        }
        // The size grows before the write, so that the cache never exceeds its capacity.
        index.grow_segment(segment.number, needed_bytes);
        drop(index);
        match segment.append_record(end, header, bytes) {
            Ok(()) => {
                let offset = end + needed_bytes - bytes.len() as u64;
                self.state.index.lock().insert_range(header, segment.number, offset, invalidations);
            }
            Err(error) => self.pause_after_error(&error),
        }
    }
}
