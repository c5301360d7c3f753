//! In-memory index of the disk cache: which ranges are cached, and in which segment file each of them is stored.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::segment::{CacheSegment, RECORD_HEADER_BYTES, RecordHeader, SegmentRecord, VersionFileId};

/// Max cached ranges that start at or before a requested range and are checked for containing it.
const MAX_PRECEDING_RANGES: usize = 4;
/// Max ranges in the disk cache. Each takes about 100 bytes of memory.
pub(super) const MAX_CACHED_RANGES: usize = 1 << 20;
/// Max segment files in the disk cache. Each is an open file.
pub(super) const MAX_CACHE_SEGMENTS: usize = 128;

#[derive(Clone, Debug)]
pub(super) struct CachedRange {
    pub(super) segment: Arc<CacheSegment>,
    pub(super) record: SegmentRecord,
}

/// A segment that is no longer in the index, and its ranges that were used since they were written.
pub(super) struct EvictedSegment {
    pub(super) segment: Arc<CacheSegment>,
    pub(super) used_ranges: Vec<CachedRange>,
}

/// Number of invalidations so far. A range is cached only if the number is the same before and after its fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InvalidationCount(u64);

impl InvalidationCount {
    fn next(self) -> InvalidationCount {
        InvalidationCount(self.0 + 1)
    }
}

/// A cached range of a file. The key of the entry is the start of the range.
struct RangeEntry {
    end: u64,
    checksum: u32,
    /// Number of the segment.
    segment: u64,
    content_offset: u64,
    was_used: bool,
}

impl RangeEntry {
    fn to_record(&self, file: VersionFileId, start: u64) -> Option<SegmentRecord> {
        let length = u32::try_from(self.end - start).ok()?;
        let header = RecordHeader { file, start, length, checksum: self.checksum };
        Some(SegmentRecord { header, content_offset: self.content_offset })
    }
}

struct SegmentEntry {
    segment: Arc<CacheSegment>,
    size_bytes: u64,
    /// File and start of each range in the segment. Newer copies of a range can be in other segments.
    ranges: Vec<(VersionFileId, u64)>,
}

/// Ranges and segments of the disk cache, shared by all of its users, which lock the index only for short operations.
#[derive(Default)]
pub(super) struct RangeIndex {
    /// Ranges of each file by their start.
    files: HashMap<VersionFileId, BTreeMap<u64, RangeEntry>>,
    /// Segments by their number.
    segments: BTreeMap<u64, SegmentEntry>,
    pub(super) total_bytes: u64,
    pub(super) last_segment_number: u64,
    pub(super) invalidations: InvalidationCount,
}

impl RangeIndex {
    /// Returns whether `bytes` more bytes require an eviction.
    pub(super) fn needs_eviction(&self, bytes: u64, capacity_bytes: u64) -> bool {
        let ranges: usize = self.segments.values().map(|segment| segment.ranges.len()).sum();
        self.total_bytes.saturating_add(bytes) > capacity_bytes
            || ranges >= MAX_CACHED_RANGES
            || self.segments.len() >= MAX_CACHE_SEGMENTS
    }

    /// Returns the size of a segment, or `None` if the segment was evicted.
    pub(super) fn segment_bytes(&self, segment: u64) -> Option<u64> {
        Some(self.segments.get(&segment)?.size_bytes)
    }

    pub(super) fn add_segment(&mut self, segment: Arc<CacheSegment>, size_bytes: u64) {
        self.total_bytes += size_bytes;
        self.last_segment_number = self.last_segment_number.max(segment.number);
        self.segments.insert(segment.number, SegmentEntry { segment, size_bytes, ranges: Vec::new() });
    }

    pub(super) fn grow_segment(&mut self, segment: u64, bytes: u64) {
        if let Some(entry) = self.segments.get_mut(&segment) {
            entry.size_bytes += bytes;
            self.total_bytes += bytes;
        }
    }

    /// Adds a record of a segment, unless an invalidation occurred after `invalidations` was read, or the index has a
    /// longer range with the same start.
    pub(super) fn insert_record(&mut self, segment: u64, record: &SegmentRecord, invalidations: InvalidationCount) {
        let Some(segment_entry) = self.segments.get_mut(&segment).filter(|_| invalidations == self.invalidations)
        else {
            return;
        };
        let SegmentRecord { header, content_offset } = *record;
        let RecordHeader { file, start, length, checksum } = header;
        let end = start.saturating_add(length.into());
        let ranges = self.files.entry(file).or_default();
        if ranges.get(&start).is_none_or(|entry| entry.end <= end) {
            ranges.insert(start, RangeEntry { end, checksum, segment, content_offset, was_used: false });
            segment_entry.ranges.push((file, start));
        }
    }

    /// Returns a cached range that contains `range`, and marks it as used.
    pub(super) fn find_and_mark_used(&mut self, file: VersionFileId, range: &Range<u64>) -> Option<CachedRange> {
        let preceding = self.files.get_mut(&file)?.range_mut(..=range.start).rev().take(MAX_PRECEDING_RANGES);
        let (start, entry) = preceding.into_iter().find(|(_, entry)| entry.end >= range.end)?;
        entry.was_used = true;
        let record = entry.to_record(file, *start)?;
        Some(CachedRange { segment: self.segments.get(&entry.segment)?.segment.clone(), record })
    }

    /// Returns whether a cached range contains `range`.
    pub(super) fn contains(&self, file: VersionFileId, range: &Range<u64>) -> bool {
        let preceding =
            self.files.get(&file).map(|ranges| ranges.range(..=range.start).rev().take(MAX_PRECEDING_RANGES));
        preceding.into_iter().flatten().any(|(_, entry)| entry.end >= range.end)
    }

    /// Removes a damaged range, unless the index has another copy of the range by now.
    pub(super) fn remove_range(&mut self, range: &CachedRange) {
        let SegmentRecord { header, content_offset } = range.record;
        let position = (range.segment.number, content_offset);
        if let Some(ranges) = self.files.get_mut(&header.file)
            && ranges.get(&header.start).is_some_and(|entry| (entry.segment, entry.content_offset) == position)
        {
            ranges.remove(&header.start);
        }
    }

    /// Removes all ranges of a version file, and prevents the caching of all ranges that are being fetched now.
    pub(super) fn invalidate_file(&mut self, file: VersionFileId) {
        self.invalidations = self.invalidations.next();
        self.files.remove(&file);
    }

    /// Removes the oldest segment and its ranges from the index. The caller deletes the file.
    pub(super) fn pop_oldest_segment(&mut self) -> Option<EvictedSegment> {
        let (number, SegmentEntry { segment, size_bytes, ranges: segment_ranges }) = self.segments.pop_first()?;
        self.total_bytes -= size_bytes;
        let mut used_ranges = Vec::new();
        for (file, start) in segment_ranges {
            let Some(ranges) = self.files.get_mut(&file) else { continue };
            let Some(entry) = ranges.get(&start).filter(|entry| entry.segment == number) else { continue };
            if let Some(record) = entry.to_record(file, start).filter(|_| entry.was_used) {
                used_ranges.push(CachedRange { segment: segment.clone(), record });
            }
            ranges.remove(&start);
            if ranges.is_empty() {
                self.files.remove(&file);
            }
        }
        Some(EvictedSegment { segment, used_ranges })
    }

    /// Removes all segments and ranges, including ranges that are being fetched now.
    pub(super) fn clear(&mut self) {
        *self = RangeIndex {
            last_segment_number: self.last_segment_number,
            invalidations: self.invalidations.next(),
            ..RangeIndex::default()
        };
    }
}

/// Size of a record with a content of `content_bytes` bytes.
pub(super) fn record_size_bytes(content_bytes: usize) -> u64 {
    (RECORD_HEADER_BYTES + content_bytes) as u64
}
