//! How many distinct values each field has: exact, whatever their number, on disk where they do not fit.
//!
//! A value is a hash and the number of its field in one `u128`
//! ([`value`](strata_query::fields::values::value)). Values are cut into [`PARTITIONS`] by their highest
//! bits, so that equal ones meet in one; when the pool refuses more, repeated ones are dropped and, if that does not
//! help, all partitions go to disk. At the end each partition is sorted by itself.
//!
//! DataFusion's aggregates could count the same, but a group of theirs takes several times the memory of such a number,
//! and sorting numbers in the processor's cache is much faster than hashing rows of all partitions at once: here nearly
//! every value is a group of its own.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use datafusion::common::resources_datafusion_err;
use datafusion::error::DataFusionError;
use datafusion::execution::disk_manager::DiskManager;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::{SpillFile, SpillWriter};
use strata_query::QueryError;
use strata_query::error::not_spilled;
use strata_query::fields::values::field;
use strata_runtime::metrics::metrics;
use strata_store::StorageError;

const PARTITIONS: usize = 256;

/// Bytes that are written or read at once.
const BUFFER_BYTES: usize = 1 << 20;

const VALUE_BYTES: usize = size_of::<u128>();

pub(super) struct Distinct {
    partitions: Vec<Vec<u128>>,
    reservation: MemoryReservation,
    disk: Arc<DiskManager>,
    spilled: Option<Spill>,
}

struct Spill {
    file: File,
    writer: Box<dyn SpillWriter>,
    /// Keeps the file, and its part of the bytes that may be spilled.
    _spill: Arc<dyn SpillFile>,
    /// Where each partition's values are: offset and number.
    extents: Vec<Vec<(u64, usize)>>,
    end: u64,
}

impl Distinct {
    pub(super) fn new(reservation: MemoryReservation, disk: Arc<DiskManager>) -> Distinct {
        Distinct { partitions: vec![Vec::new(); PARTITIONS], reservation, disk, spilled: None }
    }

    pub(super) fn add(&mut self, values: impl Iterator<Item = u128>) -> Result<(), QueryError> {
        for value in values {
            self.partitions[(value >> (u128::BITS - 8)) as usize].push(value);
        }
        if self.reservation.try_resize(self.held_bytes()).is_ok() {
            return Ok(());
        }
        let before = self.held_bytes();
        for partition in &mut self.partitions {
            partition.sort_unstable();
            partition.dedup();
            partition.shrink_to_fit();
        }
        if self.held_bytes() <= before / 2 && self.reservation.try_resize(self.held_bytes()).is_ok() {
            return Ok(());
        }
        self.spill()
    }

    /// Moves all values to disk, and gives their memory back.
    pub(super) fn spill(&mut self) -> Result<(), QueryError> {
        self.write()?;
        Ok(self.reservation.try_resize(self.held_bytes())?)
    }

    pub(super) fn has_spilled(&self) -> bool {
        self.spilled.is_some()
    }

    fn held_bytes(&self) -> usize {
        self.partitions.iter().map(|partition| partition.capacity() * VALUE_BYTES).sum()
    }

    fn write(&mut self) -> Result<(), QueryError> {
        let spill = match &mut self.spilled {
            Some(spill) => spill,
            none => none.insert(Spill::create(&self.disk)?),
        };
        let before = spill.end;
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        for (partition, extents) in self.partitions.iter_mut().zip(&mut spill.extents) {
            if partition.is_empty() {
                continue;
            }
            extents.push((spill.end, partition.len()));
            spill.end += (partition.len() * VALUE_BYTES) as u64;
            for value in std::mem::take(partition) {
                buffer.extend_from_slice(&value.to_le_bytes());
                if buffer.len() >= BUFFER_BYTES {
                    spill.writer.write_all(&buffer).map_err(out_of_disk)?;
                    buffer.clear();
                }
            }
        }
        spill.writer.write_all(&buffer).map_err(out_of_disk)?;
        spill.writer.flush().map_err(out_of_disk)?;
        metrics().spilled_bytes.increment(spill.end - before);
        Ok(())
    }

    /// Calls `each` with the field of every distinct value.
    pub(super) async fn finish(mut self, mut each: impl FnMut(u32)) -> Result<(), QueryError> {
        if self.spilled.is_some() {
            // What the others would hold is for the partition that is read.
            self.spill()?;
        }
        for number in 0..PARTITIONS {
            // Cancelling takes effect between partitions.
            tokio::task::consume_budget().await;
            let mut values = std::mem::take(&mut self.partitions[number]);
            if let Some(spill) = &mut self.spilled {
                spill.read(number, &mut values, &self.reservation)?;
            }
            values.sort_unstable();
            values.dedup();
            values.iter().for_each(|value| each(field(*value)));
            drop(values);
            self.reservation.try_resize(self.held_bytes())?;
        }
        Ok(())
    }
}

impl Spill {
    fn create(disk: &Arc<DiskManager>) -> Result<Spill, QueryError> {
        let spill = disk.create_tmp_file("field values")?;
        let path =
            spill.path().ok_or_else(|| resources_datafusion_err!("the spill file of field values has no path"))?;
        let file = File::open(path).map_err(StorageError::Io)?;
        let writer = spill.open_writer()?;
        Ok(Spill { file, writer, _spill: spill, extents: vec![Vec::new(); PARTITIONS], end: 0 })
    }

    fn read(
        &mut self,
        partition: usize,
        values: &mut Vec<u128>,
        reservation: &MemoryReservation,
    ) -> Result<(), QueryError> {
        let extents = std::mem::take(&mut self.extents[partition]);
        let count = extents.iter().map(|(_, count)| count).sum();
        reservation.try_grow(count * VALUE_BYTES)?;
        values.reserve_exact(count);
        let mut buffer = Vec::new();
        for (mut offset, count) in extents {
            let mut left = count * VALUE_BYTES;
            while left > 0 {
                buffer.resize(left.min(BUFFER_BYTES), 0);
                self.file.read_exact_at(&mut buffer, offset).map_err(StorageError::Io)?;
                let (numbers, _) = buffer.as_chunks::<VALUE_BYTES>();
                values.extend(numbers.iter().map(|bytes| u128::from_le_bytes(*bytes)));
                offset += buffer.len() as u64;
                left -= buffer.len();
            }
        }
        Ok(())
    }
}

fn out_of_disk(error: std::io::Error) -> DataFusionError {
    not_spilled("field values", error)
}

#[cfg(test)]
mod tests {
    use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
    use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryPool};

    use super::*;
    use strata_query::fields::values::value;

    /// How many distinct values of three fields are counted, and whether some went to disk: of field n every (n + 1)th
    /// of `values` hashes, each block of them twice.
    fn counted(values: u128, pool_bytes: usize) -> (Vec<u64>, bool) {
        let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(pool_bytes));
        let reservation = MemoryConsumer::new("test").with_can_spill(true).register(&pool);
        let directory = tempfile::tempdir().expect("a directory");
        let mode = DiskManagerMode::Directories(vec![directory.path().to_owned()]);
        let disk = DiskManagerBuilder::default().with_mode(mode).build().expect("a disk manager");
        let mut distinct = Distinct::new(reservation, Arc::new(disk));
        // The multiplier spreads hashes over all partitions.
        let hash = |number: u128| number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) >> 32;
        let numbers: Vec<u128> = (0..values).collect();
        for block in numbers.chunks(1_000) {
            for _ in 0..2 {
                let of_field = |field: u32| {
                    let fits = move |number: &&u128| number.is_multiple_of(u128::from(field + 1));
                    block.iter().filter(fits).map(move |number| value(hash(*number), field))
                };
                distinct.add(of_field(0).chain(of_field(1)).chain(of_field(2))).expect("added");
            }
        }
        let spilled = distinct.has_spilled();
        let mut counts = vec![0; 3];
        let counting = distinct.finish(|field| counts[field as usize] += 1);
        futures::executor::block_on(counting).expect("counted");
        assert_eq!(pool.reserved(), 0);
        (counts, spilled)
    }

    #[test]
    fn each_distinct_value_counts_once() {
        assert_eq!(counted(30_000, 1 << 30), (vec![30_000, 15_000, 10_000], false));
        assert_eq!(counted(0, 1 << 30), (vec![0, 0, 0], false));
    }

    #[test]
    fn what_does_not_fit_goes_to_disk_and_counts_the_same() {
        assert_eq!(counted(30_000, 128 << 10), (vec![30_000, 15_000, 10_000], true));
    }
}
