//! The thread that writes what was fetched to the disk, and first finds what an earlier process has left there.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use bytes::Bytes;
use strata_runtime::metrics::metrics;

use super::folder::{Folder, entries};
use super::index::{Place, record_bytes};
use super::segment::{Header, Segment};
use super::shared::{Flight, Shared, lock};
use crate::checksums::checksum;
use crate::free_space::Looks;

/// Files that the cache has when it is full.
const SEGMENTS: u64 = 32;

/// How long nothing is written after the disk refused.
const RETRY_DELAY: Duration = Duration::from_secs(30);

pub(super) struct Job {
    pub(super) flight: Arc<Flight>,
    pub(super) bytes: Bytes,
    /// What the index had forgotten when they were fetched.
    pub(super) forgotten: u64,
}

pub(super) fn run(shared: &Arc<Shared>, jobs: Receiver<Job>) {
    let mut writer = Writer { shared, folder: None, current: None, looks: Looks::default(), paused: None };
    writer.open();
    for job in jobs {
        writer.keep(&job);
        shared.waiting_bytes.fetch_sub(job.bytes.len(), Ordering::Relaxed);
    }
}

struct Writer<'a> {
    shared: &'a Shared,
    folder: Option<Folder>,
    current: Option<Arc<Segment>>,
    looks: Looks,
    paused: Option<Instant>,
}

impl Writer<'_> {
    fn open(&mut self) {
        let folder = match Folder::take(&self.shared.parent) {
            Ok(folder) => folder,
            Err(error) => return self.refused(&error),
        };
        folder.clear_others();
        let mut segments: Vec<Segment> = Vec::new();
        for path in entries(&folder.path) {
            match Segment::open(&path) {
                Ok(segment) => segments.extend(segment),
                Err(error) => tracing::warn!(%error, path = %path.display(), "failed to read disk cache file"),
            }
        }
        segments.sort_by_key(|segment| segment.number);
        for segment in segments {
            let Ok(size_bytes) = segment.size_bytes() else { continue };
            let (records, is_whole) = segment.records(size_bytes);
            if !is_whole {
                metrics().disk_cache_damaged.increment(1);
            }
            let number = segment.number;
            let mut index = lock(&self.shared.index);
            index.add_segment(Arc::new(segment), size_bytes);
            let forgotten = index.forgotten;
            for (header, offset) in records {
                index.add(&header, number, offset, forgotten);
            }
        }
        // There may be less room than before.
        self.make_room(0);
        self.folder = Some(folder);
    }

    fn refused(&mut self, error: &std::io::Error) {
        tracing::warn!(%error, path = %self.shared.parent.display(), "failed to write to disk cache; pausing writes");
        (self.current, self.paused) = (None, Some(Instant::now() + RETRY_DELAY));
    }

    fn keep(&mut self, job: &Job) {
        let (file, range) = &job.flight.key;
        let Ok(length) = u32::try_from(job.bytes.len()) else { return };
        if self.paused.is_some_and(|until| Instant::now() < until) || lock(&self.shared.index).holds(*file, range) {
            return;
        }
        self.paused = None;
        if self.folder.as_ref().is_some_and(|folder| !folder.is_there()) {
            lock(&self.shared.index).clear();
            (self.folder, self.current) = (None, None);
        }
        if self.folder.is_none() {
            self.open();
        }
        if self.looks.is_due(record_bytes(job.bytes.len())) && !self.shared.disk.is_ample() {
            self.looks.again();
            return;
        }
        for place in self.make_room(record_bytes(job.bytes.len())) {
            let Ok(bytes) = place.segment.read(place.offset, place.header.length as usize) else { continue };
            if checksum(&bytes) == place.header.checksum {
                let forgotten = lock(&self.shared.index).forgotten;
                self.append(&place.header, &bytes, forgotten);
            }
        }
        let header = Header { file: *file, start: range.start, length, checksum: checksum(&job.bytes) };
        self.append(&header, &job.bytes, job.forgotten);
    }

    /// Removes the oldest files until there is room for so many bytes. Returns ranges that were asked for since they
    /// were written, at most half as many as one file holds, so that there is an end.
    fn make_room(&mut self, bytes: u64) -> Vec<Place> {
        let mut moved = Vec::new();
        let mut moved_bytes = 0;
        let most_bytes = self.shared.capacity_bytes / SEGMENTS / 2;
        loop {
            let mut index = lock(&self.shared.index);
            if !index.is_full(bytes + moved_bytes, self.shared.capacity_bytes) {
                return moved;
            }
            let Some((segment, used)) = index.take_oldest() else { return moved };
            drop(index);
            segment.remove();
            for place in used {
                let place_bytes = record_bytes(place.header.length as usize);
                if moved_bytes + place_bytes <= most_bytes {
                    moved_bytes += place_bytes;
                    moved.push(place);
                }
            }
        }
    }

    fn append(&mut self, header: &Header, bytes: &[u8], forgotten: u64) {
        let Some(folder) = &self.folder else { return };
        let needed_bytes = record_bytes(bytes.len());
        let mut index = lock(&self.shared.index);
        let size = self.current.as_ref().and_then(|segment| index.size_of(segment.number));
        let (segment, end) = match (&self.current, size) {
            (Some(segment), Some(size)) if size < self.shared.capacity_bytes / SEGMENTS => (segment.clone(), size),
            _ => match Segment::create(&folder.path, index.last_number + 1) {
                Ok(segment) => {
                    let segment = Arc::new(segment);
                    index.add_segment(segment.clone(), 0);
                    self.current = Some(segment.clone());
                    (segment, 0)
                }
                Err(error) => {
                    drop(index);
                    return self.refused(&error);
                }
            },
        };
        if index.bytes + needed_bytes > self.shared.capacity_bytes {
            return;
        }
        // Counted before, so that the bound holds in every moment.
        index.grow(segment.number, needed_bytes);
        drop(index);
        match segment.append(end, header, bytes) {
            Ok(()) => {
                let offset = end + needed_bytes - bytes.len() as u64;
                lock(&self.shared.index).add(header, segment.number, offset, forgotten);
            }
            Err(error) => self.refused(&error),
        }
    }
}
