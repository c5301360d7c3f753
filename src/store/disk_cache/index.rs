//! What the cache holds, and in which of its files.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::segment::{FileId, HEADER_BYTES, Header, Segment};

/// Ranges of a file that begin before the one looked for, of which one may hold it.
const NEIGHBOURS: usize = 4;

/// Most ranges that are held: about 100 bytes of memory each.
pub(super) const MAX_RANGES: usize = 1 << 20;

/// Most files: each is open.
pub(super) const MAX_SEGMENTS: usize = 128;

#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) header: Header,
    pub(super) segment: Arc<Segment>,
    pub(super) offset: u64,
}

struct Record {
    end: u64,
    checksum: u32,
    segment: u64,
    offset: u64,
    /// Whether it was asked for since it was written.
    used: bool,
}

struct Held {
    segment: Arc<Segment>,
    size_bytes: u64,
    ranges: Vec<(FileId, u64)>,
}

/// The index; the same for all users of the cache, who lock it for moments.
#[derive(Default)]
pub(super) struct Index {
    files: HashMap<FileId, BTreeMap<u64, Record>>,
    segments: BTreeMap<u64, Held>,
    pub(super) bytes: u64,
    pub(super) last_number: u64,
    /// Counts the times that something was forgotten. [`Index::add`] wants to know that of before the bytes were
    /// fetched.
    pub(super) forgotten: u64,
}

impl Index {
    /// Whether there is no room for so many bytes more, in another file.
    pub(super) fn is_full(&self, bytes: u64, capacity_bytes: u64) -> bool {
        let ranges: usize = self.segments.values().map(|held| held.ranges.len()).sum();
        self.bytes.saturating_add(bytes) > capacity_bytes || ranges >= MAX_RANGES || self.segments.len() >= MAX_SEGMENTS
    }

    /// Bytes of a file that is held; `None` of one that is not any more.
    pub(super) fn size_of(&self, segment: u64) -> Option<u64> {
        Some(self.segments.get(&segment)?.size_bytes)
    }

    /// Adds a file, which holds nothing yet but has a size.
    pub(super) fn add_segment(&mut self, segment: Arc<Segment>, size_bytes: u64) {
        self.bytes += size_bytes;
        self.last_number = self.last_number.max(segment.number);
        self.segments.insert(segment.number, Held { segment, size_bytes, ranges: Vec::new() });
    }

    pub(super) fn grow(&mut self, segment: u64, bytes: u64) {
        if let Some(held) = self.segments.get_mut(&segment) {
            held.size_bytes += bytes;
            self.bytes += bytes;
        }
    }

    /// Adds a range that is in a file, unless something was forgotten since its bytes were fetched.
    pub(super) fn add(&mut self, header: &Header, segment: u64, offset: u64, forgotten: u64) {
        let Some(held) = self.segments.get_mut(&segment).filter(|_| forgotten == self.forgotten) else { return };
        let end = header.start.saturating_add(header.length.into());
        let ranges = self.files.entry(header.file).or_default();
        if ranges.get(&header.start).is_none_or(|record| record.end <= end) {
            ranges.insert(header.start, Record { end, checksum: header.checksum, segment, offset, used: false });
            held.ranges.push((header.file, header.start));
        }
    }

    /// Where a range is, alone or in a greater one.
    pub(super) fn find(&mut self, file: FileId, range: &Range<u64>) -> Option<Place> {
        let near = self.files.get_mut(&file)?.range_mut(..=range.start).rev().take(NEIGHBOURS);
        let (start, record) = near.into_iter().find(|(_, record)| record.end >= range.end)?;
        record.used = true;
        let length = u32::try_from(record.end - start).ok()?;
        let header = Header { file, start: *start, length, checksum: record.checksum };
        Some(Place { header, segment: self.segments.get(&record.segment)?.segment.clone(), offset: record.offset })
    }

    /// Whether a range is there, alone or in a greater one.
    pub(super) fn holds(&self, file: FileId, range: &Range<u64>) -> bool {
        let near = self.files.get(&file).map(|ranges| ranges.range(..=range.start).rev().take(NEIGHBOURS));
        near.into_iter().flatten().any(|(_, record)| record.end >= range.end)
    }

    /// Leaves out a range that is not what it should be, where it is still at this place.
    pub(super) fn drop_place(&mut self, place: &Place) {
        if let Some(ranges) = self.files.get_mut(&place.header.file)
            && ranges
                .get(&place.header.start)
                .is_some_and(|record| (record.segment, record.offset) == (place.segment.number, place.offset))
        {
            ranges.remove(&place.header.start);
        }
    }

    /// Leaves out all of a version file, and what is being fetched now of any.
    pub(super) fn forget(&mut self, file: FileId) {
        self.forgotten += 1;
        self.files.remove(&file);
    }

    /// Takes out the file that was written first; returns it, and its ranges that were asked for.
    pub(super) fn take_oldest(&mut self) -> Option<(Arc<Segment>, Vec<Place>)> {
        let (number, held) = self.segments.pop_first()?;
        self.bytes -= held.size_bytes;
        let mut used = Vec::new();
        for (file, start) in held.ranges {
            let Some(ranges) = self.files.get_mut(&file) else { continue };
            let Some(record) = ranges.get(&start).filter(|record| record.segment == number) else { continue };
            if let Some(length) = u32::try_from(record.end - start).ok().filter(|_| record.used) {
                let header = Header { file, start, length, checksum: record.checksum };
                used.push(Place { header, segment: held.segment.clone(), offset: record.offset });
            }
            ranges.remove(&start);
            if ranges.is_empty() {
                self.files.remove(&file);
            }
        }
        Some((held.segment, used))
    }

    /// Leaves out everything: the files are gone.
    pub(super) fn clear(&mut self) {
        *self = Index { last_number: self.last_number, forgotten: self.forgotten + 1, ..Index::default() };
    }
}

pub(super) fn record_bytes(content_bytes: usize) -> u64 {
    (HEADER_BYTES + content_bytes) as u64
}
