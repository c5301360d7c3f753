//! In-memory index of the cache: which ranges are cached, and in which segment each of them is stored.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::segment::{CacheSegment, RECORD_HEADER_BYTES, RecordHeader, VersionFileId};

/// Ranges that start at or before a requested range and that are checked for containing it.
const MAX_PRECEDING_RANGES: usize = 4;
/// Max ranges in the cache. Each takes about 100 bytes of memory.
pub(super) const MAX_CACHED_RANGES: usize = 1 << 20;
/// Max segments in the cache. Each has an open file.
pub(super) const MAX_CACHE_SEGMENTS: usize = 128;

#[derive(Clone, Debug)]
pub(super) struct CachedRange {
    pub(super) header: RecordHeader,
    pub(super) segment: Arc<CacheSegment>,
    pub(super) offset: u64,
}

struct RangeEntry {
    end: u64,
    checksum: u32,
    segment: u64,
    offset: u64,
    was_used: bool,
}

struct SegmentEntry {
    segment: Arc<CacheSegment>,
    size_bytes: u64,
    ranges: Vec<(VersionFileId, u64)>,
}

/// Ranges and segments of the cache, shared by all of its users. They lock the index only for short operations.
#[derive(Default)]
pub(super) struct RangeIndex {
    files: HashMap<VersionFileId, BTreeMap<u64, RangeEntry>>,
    segments: BTreeMap<u64, SegmentEntry>,
    pub(super) total_bytes: u64,
    pub(super) last_segment_number: u64,
    /// Number of invalidations so far. [`RangeIndex::insert_range`] compares it with the number from before the fetch.
    pub(super) invalidations: u64,
}

impl RangeIndex {
    pub(super) fn is_full(&self, bytes: u64, capacity_bytes: u64) -> bool {
        let ranges: usize = self.segments.values().map(|segment| segment.ranges.len()).sum();
        self.total_bytes.saturating_add(bytes) > capacity_bytes
            || ranges >= MAX_CACHED_RANGES
            || self.segments.len() >= MAX_CACHE_SEGMENTS
    }

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

    /// Adds a range of a segment, unless an invalidation occurred after its bytes were fetched.
    pub(super) fn insert_range(&mut self, header: &RecordHeader, segment: u64, offset: u64, invalidations: u64) {
        let Some(entry) = self.segments.get_mut(&segment).filter(|_| invalidations == self.invalidations) else {
            return;
        };
        let end = header.start.saturating_add(header.length.into());
        let ranges = self.files.entry(header.file).or_default();
        if ranges.get(&header.start).is_none_or(|record| record.end <= end) {
            ranges
                .insert(header.start, RangeEntry { end, checksum: header.checksum, segment, offset, was_used: false });
            entry.ranges.push((header.file, header.start));
        }
    }

    pub(super) fn find(&mut self, file: VersionFileId, range: &Range<u64>) -> Option<CachedRange> {
        let preceding = self.files.get_mut(&file)?.range_mut(..=range.start).rev().take(MAX_PRECEDING_RANGES);
        let (start, record) = preceding.into_iter().find(|(_, record)| record.end >= range.end)?;
        record.was_used = true;
        let length = u32::try_from(record.end - start).ok()?;
        let header = RecordHeader { file, start: *start, length, checksum: record.checksum };
        Some(CachedRange {
            header,
            segment: self.segments.get(&record.segment)?.segment.clone(),
            offset: record.offset,
        })
    }

    pub(super) fn contains(&self, file: VersionFileId, range: &Range<u64>) -> bool {
        let preceding =
            self.files.get(&file).map(|ranges| ranges.range(..=range.start).rev().take(MAX_PRECEDING_RANGES));
        preceding.into_iter().flatten().any(|(_, record)| record.end >= range.end)
    }

    /// Removes a damaged range, unless the index has another copy of it by now.
    pub(super) fn remove_range(&mut self, range: &CachedRange) {
        if let Some(ranges) = self.files.get_mut(&range.header.file)
            && ranges
                .get(&range.header.start)
                .is_some_and(|record| (record.segment, record.offset) == (range.segment.number, range.offset))
        {
            ranges.remove(&range.header.start);
        }
    }

    /// Removes all ranges of a version file, and prevents the caching of all ranges that are being fetched now.
    pub(super) fn invalidate_file(&mut self, file: VersionFileId) {
        self.invalidations += 1;
        self.files.remove(&file);
    }

    pub(super) fn pop_oldest_segment(&mut self) -> Option<(Arc<CacheSegment>, Vec<CachedRange>)> {
        let (number, entry) = self.segments.pop_first()?;
        self.total_bytes -= entry.size_bytes;
        let mut used = Vec::new();
        for (file, start) in entry.ranges {
            let Some(ranges) = self.files.get_mut(&file) else { continue };
            let Some(record) = ranges.get(&start).filter(|record| record.segment == number) else { continue };
            if let Some(length) = u32::try_from(record.end - start).ok().filter(|_| record.was_used) {
                let header = RecordHeader { file, start, length, checksum: record.checksum };
                used.push(CachedRange { header, segment: entry.segment.clone(), offset: record.offset });
            }
            ranges.remove(&start);
            if ranges.is_empty() {
                self.files.remove(&file);
            }
        }
        Some((entry.segment, used))
    }

    pub(super) fn clear(&mut self) {
        *self = RangeIndex {
            last_segment_number: self.last_segment_number,
            invalidations: self.invalidations + 1,
            ..RangeIndex::default()
        };
    }
}

pub(super) fn record_bytes(content_bytes: usize) -> u64 {
    (RECORD_HEADER_BYTES + content_bytes) as u64
}
