//! The writer thread of the disk cache: loads the ranges that an earlier process cached, then writes fetched ranges.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use bytes::Bytes;
use strata_runtime::metrics::metrics;

use super::cache_directory::{CacheDirectory, list_entries};
use super::range_index::{CachedRange, InvalidationCount, RangeIndex, record_size_bytes};
use super::segment::{CacheSegment, RecordHeader, SegmentRecords};
use super::state::{DiskCacheState, InFlightFetch, RangeKey};
use crate::checksums::crc32;
use crate::free_space::FreeSpaceCheckInterval;

/// Number of segment files in a full disk cache.
const TARGET_SEGMENTS: u64 = 32;
const WRITE_RETRY_DELAY: Duration = Duration::from_secs(30);

pub(super) struct CacheWriteJob {
    pub(super) fetch: Arc<InFlightFetch>,
    pub(super) bytes: Bytes,
    /// Value of [`RangeIndex::invalidations`] before the bytes were fetched.
    pub(super) invalidations: InvalidationCount,
}

/// Runs until all senders of `write_queue` are dropped and all queued ranges are written.
pub(super) fn run_cache_writer(shared: &Arc<DiskCacheState>, write_queue: Receiver<CacheWriteJob>) {
    let mut writer = CacheSegmentWriter {
        state: shared,
        directory: None,
        current_segment: None,
        space_check: FreeSpaceCheckInterval::default(),
        paused_until: None,
    };
    writer.open_directory();
    for job in write_queue {
        writer.write_range(&job);
        shared.queued_bytes.fetch_sub(job.bytes.len(), Ordering::Relaxed);
    }
}

struct CacheSegmentWriter<'a> {
    state: &'a DiskCacheState,
    directory: Option<CacheDirectory>,
    current_segment: Option<Arc<CacheSegment>>,
    space_check: FreeSpaceCheckInterval,
    /// After a failed write, the time until which ranges are dropped instead of written.
    paused_until: Option<Instant>,
}

impl CacheSegmentWriter<'_> {
    fn open_directory(&mut self) {
        let directory = match CacheDirectory::acquire(&self.state.parent_directory) {
            Ok(directory) => directory,
            Err(error) => return self.pause_after_error(&error),
        };
        directory.clear_abandoned_directories();
        self.load_segments(&directory);
        // The capacity may be smaller than in the earlier process that wrote the segments.
        self.evict_and_take_used(0);
        self.directory = Some(directory);
    }

    /// Adds the segments of an earlier process to the index, in the order in which they were created.
    fn load_segments(&self, directory: &CacheDirectory) {
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
            let SegmentRecords { records, is_complete } = segment.read_records(size_bytes);
            if !is_complete {
                metrics().disk_cache_damaged.increment(1);
            }
            let number = segment.number;
            let mut index = self.state.index.lock();
            index.add_segment(Arc::new(segment), size_bytes);
            let invalidations = index.invalidations;
            for record in &records {
                index.insert_record(number, record, invalidations);
            }
        }
    }

    fn pause_after_error(&mut self, error: &std::io::Error) {
        tracing::warn!(%error, path = %self.state.parent_directory.display(), "failed to write to disk cache; pausing writes");
        self.current_segment = None;
        self.paused_until = Some(Instant::now() + WRITE_RETRY_DELAY);
    }

    /// Writes a range, unless it is cached by now, writes are paused, or the disk is short of space.
    fn write_range(&mut self, job: &CacheWriteJob) {
        let RangeKey { file, range } = &job.fetch.key;
        let Ok(length) = u32::try_from(job.bytes.len()) else { return };
        if self.paused_until.is_some_and(|until| Instant::now() < until)
            || self.state.index.lock().contains(*file, range)
        {
            return;
        }
        self.paused_until = None;
        self.ensure_directory();
        let needed_bytes = record_size_bytes(job.bytes.len());
        if self.space_check.advance_and_check_due(needed_bytes) && !self.state.disk_reserve.has_ample_space() {
            self.space_check.reset();
            return;
        }
        self.make_space(needed_bytes);
        let header = RecordHeader { file: *file, start: range.start, length, checksum: crc32(&job.bytes) };
        self.append_record(header, &job.bytes, job.invalidations);
    }

    /// Opens the directory if it is not open, or if another program has deleted it.
    fn ensure_directory(&mut self) {
        if self.directory.as_ref().is_some_and(|directory| !directory.exists()) {
            self.state.index.lock().clear();
            self.directory = None;
            self.current_segment = None;
        }
        if self.directory.is_none() {
            self.open_directory();
        }
    }

    /// Evicts segments until `bytes` more bytes fit, and appends their used ranges again.
    fn make_space(&mut self, bytes: u64) {
        for CachedRange { segment, record } in self.evict_and_take_used(bytes) {
            let Some(content) = segment.read_record(&record) else { continue };
            let invalidations = self.state.index.lock().invalidations;
            self.append_record(record.header, &content, invalidations);
        }
    }

    /// Deletes the oldest segments of the cache until `bytes` more bytes fit. Returns the deleted ranges that were
    /// used, up to half a segment, so that appending them again terminates.
    fn evict_and_take_used(&mut self, bytes: u64) -> Vec<CachedRange> {
        let mut moved = Vec::new();
        let mut moved_bytes = 0;
        let max_moved_bytes = self.state.capacity_bytes / TARGET_SEGMENTS / 2;
        loop {
            let mut index = self.state.index.lock();
            if !index.needs_eviction(bytes + moved_bytes, self.state.capacity_bytes) {
                return moved;
            }
            let Some(evicted) = index.pop_oldest_segment() else { return moved };
            drop(index);
            evicted.segment.delete_file();
            for range in evicted.used_ranges {
                let range_bytes = record_size_bytes(range.record.header.length as usize);
                if moved_bytes + range_bytes <= max_moved_bytes {
                    moved_bytes += range_bytes;
                    moved.push(range);
                }
            }
        }
    }

    fn append_record(&mut self, header: RecordHeader, content: &[u8], invalidations: InvalidationCount) {
        let Some(directory) = &self.directory else { return };
        let needed_bytes = record_size_bytes(content.len());
        let mut index = self.state.index.lock();
        let (segment, end) = match self.unfilled_segment(&index) {
            Some(unfilled) => unfilled,
            None => match CacheSegment::create(&directory.path, index.last_segment_number + 1) {
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
        // The recorded size of the cache grows before the write, so that the cache never exceeds its capacity.
        index.grow_segment(segment.number, needed_bytes);
        drop(index);
        match segment.append_record(end, header, content) {
            Ok(record) => self.state.index.lock().insert_record(segment.number, &record, invalidations),
            Err(error) => self.pause_after_error(&error),
        }
    }

    /// Returns the current segment and its size, unless the segment is full or was evicted.
    fn unfilled_segment(&self, index: &RangeIndex) -> Option<(Arc<CacheSegment>, u64)> {
        let segment = self.current_segment.as_ref()?;
        let size_bytes = index.segment_bytes(segment.number)?;
        (size_bytes < self.state.capacity_bytes / TARGET_SEGMENTS).then(|| (segment.clone(), size_bytes))
    }
}
