//! Computes the weight of each field: its number of distinct values divided by the number of entities that have it,
//! over both versions together. For example, an identifier weighs 1 and a boolean nearly 0.
//!
//! Equal entities have equal values, so only the first of them is read ([`super::exact_matching`]). If the versions are
//! similar, that is about half of all entities. Other nodes can read a part of them.

use std::sync::Arc;

use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use futures::{StreamExt, TryStreamExt, stream};
use strata_json::JsonStr;
use strata_query::QueryError;
use strata_query::fields::entity_counts::DiffEntityCounts;
use strata_query::fields::field_hash::{pack_value, unpack_field_number, unpack_value_hash};
use strata_query::fields::field_scan::FieldScanOutput;
use strata_query::fields::record_rows;
use strata_query::fields::row_group_fields::{FieldNumbers, FieldRanks, FieldValues};
use strata_query::tasks;
use strata_query::tracked_vec::TrackedVec;

use super::DiffSession;
use super::distinct_values::DistinctValueCounter;

const FIELD_OVERHEAD_BYTES: usize = 64;
const VALUES_PER_BLOCK: usize = 1 << 16;

/// The weights of the fields of two versions. The rank of a field is its index in the code point order of the names.
pub(super) struct FieldWeights {
    pub(super) ranks: Arc<FieldRanks>,
    pub(super) by_rank: Vec<f64>,
    _reservation: MemoryReservation,
}

pub(super) async fn compute_weights(
    session: &DiffSession,
    multiplicities: [TrackedVec<u32>; 2],
) -> Result<FieldWeights, QueryError> {
    let multiplicities = Arc::new(multiplicities);
    let entities = DiffEntityCounts::ByEntity(multiplicities.clone());
    let collect = async |mut batches: SendableRecordBatchStream| {
        let mut counter = FieldCounter::new(session);
        while let Some(batch) = batches.try_next().await? {
            for row in record_rows::decode_value_rows(&batch) {
                let row = row?;
                let number = counter.add_field(row.name, row.entity_count)?;
                counter.distinct_values.add(row.hashes().map(|hash| pack_value(hash, number)))?;
            }
        }
        Ok(counter)
    };
    let counter = match session.run_distributed(entities, FieldScanOutput::Values, collect).await {
        Some(counter) => counter,
        None => count_fields_locally(session, &multiplicities).await?,
    };
    drop(multiplicities);
    counter.into_weights().await
}

async fn count_fields_locally(
    session: &DiffSession,
    multiplicities: &Arc<[TrackedVec<u32>; 2]>,
) -> Result<FieldCounter, QueryError> {
    let read = |version: usize, row_group: usize| {
        let session = session.clone();
        let multiplicities = multiplicities.clone();
        async move {
            let reader = &session.readers[version];
            let group = reader.row_groups()[row_group];
            let first = group.first_position as usize;
            let counts = &multiplicities[version][first..first + group.rows];
            FieldValues::read(reader, row_group, counts, session.seeds, &session.reservation).await
        }
    };
    let row_groups = tasks::row_groups_of_both(&session.readers);
    let reads: Vec<_> = row_groups.iter().map(|(version, row_group)| read(*version, *row_group)).collect();
    let mut results = tasks::run_in_order(reads.into_iter(), session.engine.threads()).zip(stream::iter(row_groups));
    let mut counter = FieldCounter::new(session);
    while let Some((result, (version, row_group))) = results.next().await {
        let fields = match result {
            // If a row group's values exceed the memory limit, spilling already counted values can free enough memory.
            Err(QueryError::TooMuchMemory { .. }) => {
                counter.distinct_values.spill()?;
                Box::pin(read(version, row_group)).await?
            }
            result => result?,
        };
        let mut numbers = vec![0; fields.entity_counts.len()];
        for (name, local) in fields.numbers {
            numbers[local as usize] = counter.add_field(&name, fields.entity_counts[local as usize])?;
        }
        let renumber = |&old: &u128| pack_value(unpack_value_hash(old), numbers[unpack_field_number(old) as usize]);
        for block in fields.values.chunks(VALUES_PER_BLOCK) {
            counter.distinct_values.add(block.iter().map(renumber))?;
        }
    }
    Ok(counter)
}

struct FieldCounter {
    field_numbers: FieldNumbers,
    /// For each field number, the number of entities that have the field.
    entity_counts: Vec<u64>,
    reservation: MemoryReservation,
    distinct_values: DistinctValueCounter,
}

impl FieldCounter {
    fn new(session: &DiffSession) -> FieldCounter {
        let spilling = MemoryConsumer::new("field values").with_can_spill(true);
        let spilling = spilling.register(session.engine.task_context().memory_pool());
        let disk = session.engine.task_context().runtime_env().disk_manager.clone();
        FieldCounter {
            field_numbers: FieldNumbers::default(),
            entity_counts: Vec::new(),
            reservation: session.reservation.new_empty(),
            distinct_values: DistinctValueCounter::new(spilling, disk),
        }
    }

    /// Adds `entities` to the number of entities that have a field. Returns the number of the field, which can be new.
    fn add_field(&mut self, name: &[u8], entities: u64) -> Result<u32, QueryError> {
        if let Some(number) = self.field_numbers.get(name) {
            self.entity_counts[*number as usize] += entities;
            return Ok(*number);
        }
        self.reservation.try_grow(2 * (name.len() + FIELD_OVERHEAD_BYTES))?;
        let number = self.entity_counts.len() as u32;
        self.entity_counts.push(entities);
        self.field_numbers.insert(name.into(), number);
        Ok(number)
    }

    async fn into_weights(self) -> Result<FieldWeights, QueryError> {
        let FieldCounter { mut field_numbers, entity_counts, reservation, distinct_values } = self;
        if distinct_values.has_spilled() {
            tracing::debug!("spilled field values to disk");
        }
        let mut distinct = vec![0_u64; entity_counts.len()];
        distinct_values.for_each_distinct_value_field(|field| distinct[field as usize] += 1).await?;
        let mut order: Vec<(Vec<u8>, u32)> = Vec::with_capacity(field_numbers.len());
        for (name, number) in &field_numbers {
            let mut unescaped = Vec::with_capacity(name.len());
            JsonStr::new(name).unescape_into(&mut unescaped);
            order.push((unescaped, *number));
        }
        // In UTF-8, the order of bytes is the order of code points.
        order.sort_unstable();
        let mut ranks = vec![0; order.len()];
        let mut weights = Vec::with_capacity(order.len());
        for (rank, (_, number)) in order.iter().enumerate() {
            ranks[*number as usize] = rank as u32;
            weights.push(distinct[*number as usize] as f64 / entity_counts[*number as usize] as f64);
        }
        field_numbers.values_mut().for_each(|number| *number = ranks[*number as usize]);
        Ok(FieldWeights { ranks: Arc::new(FieldRanks(field_numbers)), by_rank: weights, _reservation: reservation })
    }
}
