//! The weight of each field: its distinct values over the entities that have it, in both versions together.
//!
//! Equal entities have equal values, so only the first of them is read ([`super::identity`]): for two versions
//! that are much alike, about half of all entities. Other nodes may help to read them.

use std::sync::Arc;

use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use futures::{StreamExt, TryStreamExt, stream};
use strata_json::Text;
use strata_query::QueryError;
use strata_query::account::Accounted;
use strata_query::fields::chosen::Chosen;
use strata_query::fields::row_group::{FieldNumbers, FieldValues, Ranks};
use strata_query::fields::rows;
use strata_query::fields::scan::Wanted;
use strata_query::fields::values::{field, hash, value};
use strata_query::tasks;

use super::Session;
use super::distinct::Distinct;

/// About how much memory a field takes, besides its name.
const FIELD_BYTES: usize = 64;

/// The fields of two versions. A field's rank is its place in the code point order of the names.
pub(super) struct Weights {
    pub(super) ranks: Arc<Ranks>,
    pub(super) by_rank: Vec<f64>,
    _reservation: MemoryReservation,
}

pub(super) async fn weigh(session: &Session, multiplicities: [Accounted<u32>; 2]) -> Result<Weights, QueryError> {
    let multiplicities = Arc::new(multiplicities);
    let chosen = Chosen::Counts(multiplicities.clone());
    let collect = async |mut batches: SendableRecordBatchStream| {
        let mut found = Counting::new(session);
        while let Some(batch) = batches.try_next().await? {
            for row in rows::value_rows(&batch) {
                let row = row?;
                let number = found.add_field(row.name, row.entities)?;
                found.values.add(row.hashes().map(|hash| value(hash, number)))?;
            }
        }
        Ok(found)
    };
    let found = match session.helped(chosen, Wanted::Values, collect).await {
        Some(found) => found,
        None => counted_here(session, &multiplicities).await?,
    };
    drop(multiplicities);
    found.weights().await
}

async fn counted_here(session: &Session, multiplicities: &Arc<[Accounted<u32>; 2]>) -> Result<Counting, QueryError> {
    let read = |version: usize, row_group: usize| {
        let session = session.clone();
        let multiplicities = multiplicities.clone();
        async move {
            let reader = &session.readers[version];
            let group = reader.row_groups()[row_group];
            let first = group.first as usize;
            let counts = &multiplicities[version][first..first + group.rows];
            FieldValues::read(reader, row_group, counts, session.seeds, &session.reservation).await
        }
    };
    let row_groups = tasks::row_groups(&session.readers);
    let works: Vec<_> = row_groups.iter().map(|(version, row_group)| read(*version, *row_group)).collect();
    let mut parts = tasks::in_order(works.into_iter(), session.engine.threads()).zip(stream::iter(row_groups));
    let mut found = Counting::new(session);
    while let Some((part, (version, row_group))) = parts.next().await {
        let part = match part {
            // The values that are counted already may hold what the row group needs.
            Err(QueryError::TooMuchMemory { .. }) => {
                found.values.spill()?;
                Box::pin(read(version, row_group)).await?
            }
            part => part?,
        };
        let mut numbers = vec![0; part.entities.len()];
        for (name, local) in part.numbers {
            numbers[local as usize] = found.add_field(&name, part.entities[local as usize])?;
        }
        let renumbered = |of_part: &u128| value(hash(*of_part), numbers[field(*of_part) as usize]);
        for block in part.values.chunks(BLOCK) {
            found.values.add(block.iter().map(renumbered))?;
        }
    }
    Ok(found)
}

const BLOCK: usize = 1 << 16;

struct Counting {
    numbers: FieldNumbers,
    /// How many entities have each field, by its number.
    entities: Vec<u64>,
    reservation: MemoryReservation,
    values: Distinct,
}

impl Counting {
    fn new(session: &Session) -> Counting {
        let spilling = MemoryConsumer::new("field values").with_can_spill(true);
        let spilling = spilling.register(session.engine.context().memory_pool());
        let disk = session.engine.context().runtime_env().disk_manager.clone();
        Counting {
            numbers: FieldNumbers::default(),
            entities: Vec::new(),
            reservation: session.reservation.new_empty(),
            values: Distinct::new(spilling, disk),
        }
    }

    /// Adds entities that have a field; its number.
    fn add_field(&mut self, name: &[u8], entities: u64) -> Result<u32, QueryError> {
        if let Some(number) = self.numbers.get(name) {
            self.entities[*number as usize] += entities;
            return Ok(*number);
        }
        self.reservation.try_grow(2 * (name.len() + FIELD_BYTES))?;
        let number = self.entities.len() as u32;
        self.entities.push(entities);
        self.numbers.insert(name.into(), number);
        Ok(number)
    }

    async fn weights(self) -> Result<Weights, QueryError> {
        let Counting { mut numbers, entities, reservation, values } = self;
        if values.has_spilled() {
            tracing::debug!("spilled field values to disk");
        }
        let mut distinct = vec![0_u64; entities.len()];
        values.finish(|field| distinct[field as usize] += 1).await?;
        let mut order: Vec<(Vec<u8>, u32)> = Vec::with_capacity(numbers.len());
        for (name, number) in &numbers {
            let mut unescaped = Vec::with_capacity(name.len());
            Text::new(name).unescape_into(&mut unescaped);
            order.push((unescaped, *number));
        }
        // The order of bytes is that of code points in UTF-8.
        order.sort_unstable();
        let mut ranks = vec![0; order.len()];
        let mut weights = Vec::with_capacity(order.len());
        for (rank, (_, number)) in order.iter().enumerate() {
            ranks[*number as usize] = rank as u32;
            weights.push(distinct[*number as usize] as f64 / entities[*number as usize] as f64);
        }
        numbers.values_mut().for_each(|number| *number = ranks[*number as usize]);
        Ok(Weights { ranks: Arc::new(Ranks(numbers)), by_rank: weights, _reservation: reservation })
    }
}
