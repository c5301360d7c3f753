//! The weight of each field: its distinct values over the entities that have it, in both versions together.
//!
//! Equal entities have equal values, so only the first of them is read ([`super::identity`]): for two versions
//! that are much alike, about half of all entities.

use std::sync::Arc;

use datafusion::execution::memory_pool::MemoryReservation;
use futures::TryStreamExt;
use hashbrown::HashMap;

use super::account::Accounted;
use super::distinct::{self, Distinct};
use super::identity::SOURCE;
use super::session::Session;
use super::tasks;
use super::values::ValueHasher;
use crate::document::{self, Text};
use crate::query::QueryError;
use crate::query::fetch::pages::Pages;

/// Fields and their numbers, by their names as they stand in documents.
type FieldNumbers = HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>;

/// About how much memory a field takes, besides its name.
const FIELD_BYTES: usize = 64;

/// The fields of two versions. A field's rank is its place in the code point order of the names.
pub(super) struct Weights {
    ranks: FieldNumbers,
    /// By rank.
    weights: Vec<f64>,
    _reservation: MemoryReservation,
}

impl Weights {
    /// The rank of the field of that name.
    pub(super) fn rank(&self, name: Text<'_>) -> Option<u32> {
        self.ranks.get(name.raw()).copied()
    }

    /// The weights by rank.
    pub(super) fn by_rank(&self) -> &[f64] {
        &self.weights
    }
}

/// Weighs every field but `_source`.
///
/// # Errors
/// When a version cannot be read, or the pool or the disk refuses.
pub(super) async fn weigh(session: &Session, multiplicities: [Accounted<u32>; 2]) -> Result<Weights, QueryError> {
    let multiplicities = Arc::new(multiplicities);
    let shared = session.clone();
    let jobs = tasks::row_groups(&session.readers).into_iter().map(move |(version, row_group)| {
        let (session, multiplicities) = (shared.clone(), multiplicities.clone());
        async move { RowGroup::read(&session, version, row_group, &multiplicities[version]).await }
    });
    let mut parts = tasks::in_order(jobs, session.threads);
    let reservation = session.reservation.new_empty();
    let mut fields = Fields { numbers: FieldNumbers::default(), entities: Vec::new(), reservation };
    let mut values =
        Distinct::new(session.spilling("values of fields"), session.context.runtime_env().disk_manager.clone());
    while let Some(part) = parts.try_next().await? {
        let mut numbers = vec![0; part.entities.len()];
        for (name, local) in part.numbers {
            numbers[local as usize] = fields.add(name, part.entities[local as usize])?;
        }
        let renumbered = |value: &u128| {
            let local = distinct::field(*value);
            *value - u128::from(local) + u128::from(numbers[local as usize])
        };
        for block in part.values.chunks(BLOCK) {
            values.add(block.iter().map(renumbered))?;
        }
    }
    if values.has_spilled() {
        tracing::debug!("the values of fields did not fit into memory");
    }
    let mut counts = vec![0_u64; fields.entities.len()];
    values.finish(|field| counts[field as usize] += 1).await?;
    Ok(fields.weights(&counts))
}

/// How many values are counted at once.
const BLOCK: usize = 1 << 16;

/// The fields so far.
struct Fields {
    numbers: FieldNumbers,
    /// How many entities have each.
    entities: Vec<u64>,
    reservation: MemoryReservation,
}

impl Fields {
    /// Adds entities that have a field; its number.
    fn add(&mut self, name: Box<[u8]>, entities: u64) -> Result<u32, QueryError> {
        if let Some(number) = self.numbers.get(&name) {
            self.entities[*number as usize] += entities;
            return Ok(*number);
        }
        self.reservation.try_grow(2 * (name.len() + FIELD_BYTES))?;
        let number = self.entities.len() as u32;
        self.entities.push(entities);
        self.numbers.insert(name, number);
        Ok(number)
    }

    /// The weights, given how many distinct values each field has.
    fn weights(self, distinct: &[u64]) -> Weights {
        let mut order: Vec<(Vec<u8>, u32)> = Vec::with_capacity(self.numbers.len());
        for (name, number) in &self.numbers {
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
            weights.push(distinct[*number as usize] as f64 / self.entities[*number as usize] as f64);
        }
        let mut numbers = self.numbers;
        numbers.values_mut().for_each(|number| *number = ranks[*number as usize]);
        Weights { ranks: numbers, weights, _reservation: self.reservation }
    }
}

/// The fields of a row group.
struct RowGroup {
    numbers: FieldNumbers,
    /// How many entities have each, by its number.
    entities: Vec<u64>,
    values: Accounted<u128>,
}

/// Values that were seen last are not given again: most values of fields with few of them.
const RECENT: usize = 1 << 14;

impl RowGroup {
    async fn read(
        session: &Session,
        version: usize,
        row_group: usize,
        multiplicities: &[u32],
    ) -> Result<RowGroup, QueryError> {
        // Cancelling takes effect between row groups, even when nothing has to be waited for.
        tokio::task::consume_budget().await;
        let reader = &session.readers[version];
        let group = reader.row_groups()[row_group];
        let first = group.first as usize;
        let multiplicities = &multiplicities[first..first + group.rows];
        let wanted = multiplicities.iter().filter(|multiplicity| **multiplicity > 0).count();
        let mut pages = Pages::of(reader, row_group, wanted, group.rows);
        let mut hasher = ValueHasher::new(&session.seeds);
        let values = Accounted::new(&session.reservation);
        let mut found = RowGroup { numbers: FieldNumbers::default(), entities: Vec::new(), values };
        let mut recent = if wanted == 0 { Vec::new() } else { vec![0_u128; RECENT] };
        for (row, multiplicity) in multiplicities.iter().enumerate() {
            if *multiplicity == 0 {
                continue;
            }
            for (name, value) in document::members(pages.document(row).await?) {
                if name.eq_str(SOURCE) {
                    continue;
                }
                let number = found.number(name);
                found.entities[number as usize] += u64::from(*multiplicity);
                let value = distinct::value(hasher.hash(value), number);
                let place = &mut recent[(value >> 64) as usize % RECENT];
                if *place != value {
                    *place = value;
                    found.values.push(value)?;
                }
            }
        }
        Ok(found)
    }

    fn number(&mut self, name: Text<'_>) -> u32 {
        match self.numbers.get(name.raw()) {
            Some(number) => *number,
            None => {
                let number = self.entities.len() as u32;
                self.numbers.insert(name.raw().into(), number);
                self.entities.push(0);
                number
            }
        }
    }
}
