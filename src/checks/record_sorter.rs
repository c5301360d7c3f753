//! An external merge sort of records of a fixed size.
//!
//! Records beyond [`MAX_BUFFER_BYTES`] are spilled as sorted runs to one unnamed temporary file. Its bytes are charged
//! to the spool quota of a user. The merge reads [`READ_BUFFER_BYTES`] of each run at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strata_store::spool_quota::SpoolReservation;
use strata_store::{StorageError, temp_file};

/// Bytes of records in memory.
const MAX_BUFFER_BYTES: usize = 16 << 20;
const READ_BUFFER_BYTES: usize = 64 << 10;

pub struct RecordSorter<const N: usize> {
    directory: PathBuf,
    reservation: SpoolReservation,
    max_buffered_records: usize,
    buffer: Vec<[u8; N]>,
    file: Option<Arc<File>>,
    runs: Vec<Range<u64>>,
}

impl<const N: usize> RecordSorter<N> {
    pub fn new(directory: &Path, reservation: SpoolReservation) -> RecordSorter<N> {
        RecordSorter::with_max_buffered_records(directory, reservation, MAX_BUFFER_BYTES / N)
    }

    pub fn with_max_buffered_records(
        directory: &Path,
        reservation: SpoolReservation,
        max_buffered_records: usize,
    ) -> RecordSorter<N> {
        let directory = directory.to_owned();
        RecordSorter { directory, reservation, max_buffered_records, buffer: Vec::new(), file: None, runs: Vec::new() }
    }

    /// Returns an empty sorter with the same limits.
    pub(crate) fn new_sibling<const M: usize>(&self) -> RecordSorter<M> {
        let reservation = self.reservation.quota().new_reservation();
        RecordSorter::with_max_buffered_records(&self.directory, reservation, self.max_buffered_records)
    }

    pub fn push(&mut self, record: [u8; N]) -> Result<(), StorageError> {
        if self.buffer.len() >= self.max_buffered_records {
            self.spill_run()?;
        }
        self.buffer.push(record);
        Ok(())
    }

    fn spill_run(&mut self) -> Result<(), StorageError> {
        self.buffer.sort_unstable();
        let bytes = self.buffer.as_flattened();
        self.reservation.try_grow(bytes.len() as u64)?;
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(Arc::new(temp_file::create_temp_file(&self.directory)?)),
        };
        let start = self.runs.last().map_or(0, |run| run.end);
        file.write_all_at(bytes, start)?;
        self.runs.push(start..start + bytes.len() as u64);
        self.buffer.clear();
        Ok(())
    }

    /// Calls `each` with all records in ascending order.
    pub fn for_each_sorted(
        mut self,
        mut each: impl FnMut(&[u8; N]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let Some(file) = self.file.clone() else {
            self.buffer.sort_unstable();
            return self.buffer.iter().try_for_each(each);
        };
        self.spill_run()?;
        self.buffer = Vec::new();
        let open = |run: &Range<u64>| {
            let run = SpilledRun { file: file.clone(), start: run.start, end: run.end };
            BufReader::with_capacity(READ_BUFFER_BYTES, run)
        };
        let mut runs: Vec<_> = self.runs.iter().map(open).collect();
        let mut heads = BinaryHeap::new();
        for (number, run) in runs.iter_mut().enumerate() {
            heads.extend(read_record(run)?.map(|record: [u8; N]| Reverse((record, number))));
        }
        while let Some(Reverse((record, number))) = heads.pop() {
            each(&record)?;
            heads.extend(read_record(&mut runs[number])?.map(|record| Reverse((record, number))));
        }
        Ok(())
    }
}

fn read_record<const N: usize>(run: &mut BufReader<SpilledRun>) -> io::Result<Option<[u8; N]>> {
    if run.buffer().is_empty() && run.get_ref().is_at_end() {
        return Ok(None);
    }
    let mut record = [0; N];
    run.read_exact(&mut record)?;
    Ok(Some(record))
}

struct SpilledRun {
    file: Arc<File>,
    start: u64,
    end: u64,
}

impl SpilledRun {
    fn is_at_end(&self) -> bool {
        self.start == self.end
    }
}

impl Read for SpilledRun {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = usize::try_from(self.end - self.start).map_or(buffer.len(), |left| left.min(buffer.len()));
        let read = self.file.read_at(&mut buffer[..length], self.start)?;
        self.start += read as u64;
        Ok(read)
    }
}
