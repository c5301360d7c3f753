//! Counts the distinct values of each field exactly, and spills to disk if the values exceed the memory limit.
//!
//! A value is a `u128` that contains a hash and a field number
//! ([`pack_value`](strata_query::fields::field_hash::pack_value)). The highest bits select one of [`PARTITION_COUNT`]
//! partitions, so equal values are in the same partition. If the memory pool refuses a reservation, duplicates are
//! removed first; if that frees too little, all partitions are spilled. Finally, each partition is sorted separately.
//!
//! DataFusion's aggregates could count the same values. But nearly every value is its own group here, and a group takes
//! several times the memory of a `u128`. Sorting a partition in the processor's cache is also faster than hashing.

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
use strata_query::error::spill_error;
use strata_query::fields::field_hash::unpack_field_number;
use strata_runtime::metrics::metrics;
use strata_store::StorageError;

const PARTITION_COUNT: usize = 256;
const SPILL_BUFFER_BYTES: usize = 1 << 20;
const VALUE_BYTES: usize = size_of::<u128>();

pub(super) struct DistinctValueCounter {
    partitions: Vec<Vec<u128>>,
    reservation: MemoryReservation,
    disk: Arc<DiskManager>,
    spill: Option<SpilledPartitions>,
}

struct SpilledPartitions {
    file: File,
    writer: Box<dyn SpillWriter>,
    /// Keeps the spill file and its share of the spill quota until this value is dropped.
    _spill_file: Arc<dyn SpillFile>,
    /// For each partition, the byte offsets of its runs in the file and the number of values in each run.
    extents: Vec<Vec<(u64, usize)>>,
    end_offset: u64,
}

impl DistinctValueCounter {
    pub(super) fn new(reservation: MemoryReservation, disk: Arc<DiskManager>) -> DistinctValueCounter {
        DistinctValueCounter { partitions: vec![Vec::new(); PARTITION_COUNT], reservation, disk, spill: None }
    }

    pub(super) fn add(&mut self, values: impl Iterator<Item = u128>) -> Result<(), QueryError> {
        for value in values {
            self.partitions[(value >> (u128::BITS - 8)) as usize].push(value);
        }
        if self.reservation.try_resize(self.memory_bytes()).is_ok() {
            return Ok(());
        }
        let before = self.memory_bytes();
        for partition in &mut self.partitions {
            partition.sort_unstable();
            partition.dedup();
            partition.shrink_to_fit();
        }
        if self.memory_bytes() <= before / 2 && self.reservation.try_resize(self.memory_bytes()).is_ok() {
            return Ok(());
        }
        self.spill()
    }

    pub(super) fn spill(&mut self) -> Result<(), QueryError> {
        self.write_partitions()?;
        Ok(self.reservation.try_resize(self.memory_bytes())?)
    }

    pub(super) fn has_spilled(&self) -> bool {
        self.spill.is_some()
    }

    fn memory_bytes(&self) -> usize {
        self.partitions.iter().map(|partition| partition.capacity() * VALUE_BYTES).sum()
    }

    fn write_partitions(&mut self) -> Result<(), QueryError> {
        let spill = match &mut self.spill {
            Some(spill) => spill,
            none => none.insert(SpilledPartitions::create(&self.disk)?),
        };
        let before = spill.end_offset;
        let mut buffer = Vec::with_capacity(SPILL_BUFFER_BYTES);
        for (partition, extents) in self.partitions.iter_mut().zip(&mut spill.extents) {
            if partition.is_empty() {
                continue;
            }
            extents.push((spill.end_offset, partition.len()));
            spill.end_offset += (partition.len() * VALUE_BYTES) as u64;
            for value in std::mem::take(partition) {
                buffer.extend_from_slice(&value.to_le_bytes());
                if buffer.len() >= SPILL_BUFFER_BYTES {
                    spill.writer.write_all(&buffer).map_err(distinct_spill_error)?;
                    buffer.clear();
                }
            }
        }
        spill.writer.write_all(&buffer).map_err(distinct_spill_error)?;
        spill.writer.flush().map_err(distinct_spill_error)?;
        metrics().spilled_bytes.increment(spill.end_offset - before);
        Ok(())
    }

    /// Calls `each` with the field number of every distinct value.
    pub(super) async fn for_each_distinct_value_field(mut self, mut each: impl FnMut(u32)) -> Result<(), QueryError> {
        if self.spill.is_some() {
            // All partitions are spilled, so that each one can use the memory of the others while it is read.
            self.spill()?;
        }
        for number in 0..PARTITION_COUNT {
            // At this point, a diff can be canceled.
            tokio::task::consume_budget().await;
            let mut values = std::mem::take(&mut self.partitions[number]);
            if let Some(spill) = &mut self.spill {
                spill.read_partition(number, &mut values, &self.reservation)?;
            }
            values.sort_unstable();
            values.dedup();
            values.iter().for_each(|value| each(unpack_field_number(*value)));
            drop(values);
            self.reservation.try_resize(self.memory_bytes())?;
        }
        Ok(())
    }
}

impl SpilledPartitions {
    fn create(disk: &Arc<DiskManager>) -> Result<SpilledPartitions, QueryError> {
        let spill = disk.create_tmp_file("field values")?;
        let path =
            spill.path().ok_or_else(|| resources_datafusion_err!("the spill file of field values has no path"))?;
        let file = File::open(path).map_err(StorageError::Io)?;
        let writer = spill.open_writer()?;
        let extents = vec![Vec::new(); PARTITION_COUNT];
        Ok(SpilledPartitions { file, writer, _spill_file: spill, extents, end_offset: 0 })
    }

    fn read_partition(
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
            let mut remaining = count * VALUE_BYTES;
            while remaining > 0 {
                buffer.resize(remaining.min(SPILL_BUFFER_BYTES), 0);
                self.file.read_exact_at(&mut buffer, offset).map_err(StorageError::Io)?;
                let (chunks, _) = buffer.as_chunks::<VALUE_BYTES>();
                values.extend(chunks.iter().map(|bytes| u128::from_le_bytes(*bytes)));
                offset += buffer.len() as u64;
                remaining -= buffer.len();
            }
        }
        Ok(())
    }
}

fn distinct_spill_error(error: std::io::Error) -> DataFusionError {
    spill_error("field values", error)
}

#[cfg(test)]
mod tests {
    use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
    use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryPool};

    use super::*;
    use strata_query::fields::field_hash::pack_value;

    /// Counts the distinct values of fields 0 to 2. Field n contains every (n + 1)th of `values` hashes, and each block
    /// of 1,000 hashes is added twice. Returns the three counts, and whether values were spilled.
    fn count_distinct(values: u128, pool_bytes: usize) -> (Vec<u64>, bool) {
        let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(pool_bytes));
        let reservation = MemoryConsumer::new("test").with_can_spill(true).register(&pool);
        let directory = tempfile::tempdir().expect("failed to create directory");
        let mode = DiskManagerMode::Directories(vec![directory.path().to_owned()]);
        let disk = DiskManagerBuilder::default().with_mode(mode).build().expect("failed to build disk manager");
        let mut distinct = DistinctValueCounter::new(reservation, Arc::new(disk));
        // The multiplication spreads the hashes of consecutive numbers over all partitions.
        let hash = |number: u128| number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) >> 32;
        let numbers: Vec<u128> = (0..values).collect();
        for block in numbers.chunks(1_000) {
            for _ in 0..2 {
                let field_values = |field: u32| {
                    let is_in_field = move |number: &&u128| number.is_multiple_of(u128::from(field + 1));
                    block.iter().filter(is_in_field).map(move |number| pack_value(hash(*number), field))
                };
                let all_fields = field_values(0).chain(field_values(1)).chain(field_values(2));
                distinct.add(all_fields).expect("failed to add values");
            }
        }
        let spilled = distinct.has_spilled();
        let mut counts = vec![0; 3];
        let counting = distinct.for_each_distinct_value_field(|field| counts[field as usize] += 1);
        futures::executor::block_on(counting).expect("failed to count values");
        assert_eq!(pool.reserved(), 0);
        (counts, spilled)
    }

    #[test]
    fn each_distinct_value_counts_once() {
        assert_eq!(count_distinct(30_000, 1 << 30), (vec![30_000, 15_000, 10_000], false));
        assert_eq!(count_distinct(0, 1 << 30), (vec![0, 0, 0], false));
    }

    #[test]
    fn values_beyond_memory_spill_and_count_the_same() {
        assert_eq!(count_distinct(30_000, 128 << 10), (vec![30_000, 15_000, 10_000], true));
    }
}
