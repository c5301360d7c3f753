//! The fields of a row group: the values of each field, or the features of each entity.

use datafusion::execution::memory_pool::MemoryReservation;
use hashbrown::HashMap;
use strata_format::reader::VersionReader;
use strata_json::Text;

use super::SOURCE;
use super::values::{self, Feature, Seeds, ValueHasher};
use crate::account::Accounted;
use crate::error::QueryError;
use crate::fetch::pages::Pages;

/// The numbers of fields, by their escaped names.
pub type FieldNumbers = HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>;

/// The number of recent values that are not repeated.
const MAX_RECENT: usize = 1 << 14;

pub struct FieldValues {
    pub numbers: FieldNumbers,
    pub entities: Vec<u64>,
    /// See [`values::value`]. Some values are repeated.
    pub values: Accounted<u128>,
}

impl FieldValues {
    /// Reads the rows of a row group whose count is not 0.
    pub async fn read(
        reader: &VersionReader,
        row_group: usize,
        counts: &[u32],
        seeds: Seeds,
        reservation: &MemoryReservation,
    ) -> Result<FieldValues, QueryError> {
        // Allows cancellation between row groups, even if everything is cached.
        tokio::task::consume_budget().await;
        let rows = reader.row_groups()[row_group].rows;
        let wanted = counts.iter().filter(|count| **count > 0).count();
        let mut pages = Pages::of(reader, row_group, wanted, rows);
        let mut hasher = ValueHasher::new(seeds);
        let values = Accounted::new(reservation);
        let mut found = FieldValues { numbers: FieldNumbers::default(), entities: Vec::new(), values };
        let mut recent = if wanted == 0 { Vec::new() } else { vec![0_u128; MAX_RECENT] };
        for (row, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            for (name, value) in strata_json::members(pages.document(row).await?) {
                if name.eq_str(SOURCE) {
                    continue;
                }
                let number = found.number(name);
                found.entities[number as usize] += u64::from(*count);
                let value = values::value(hasher.hash(value), number);
                let place = &mut recent[(value >> 64) as usize % MAX_RECENT];
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

#[derive(Debug, Default)]
pub struct Ranks(pub FieldNumbers);

/// The features of entities, by entity and rank, and the number of features of each entity.
pub struct RowFeatures {
    pub features: Accounted<Feature>,
    pub lengths: Vec<u32>,
}

impl RowFeatures {
    /// Reads ascending rows of a row group.
    pub async fn read(
        reader: &VersionReader,
        row_group: usize,
        rows: impl ExactSizeIterator<Item = usize> + Send,
        ranks: &Ranks,
        seeds: Seeds,
        reservation: &MemoryReservation,
    ) -> Result<RowFeatures, QueryError> {
        // Allows cancellation between row groups, even if everything is cached.
        tokio::task::consume_budget().await;
        let mut pages = Pages::of(reader, row_group, rows.len(), reader.row_groups()[row_group].rows);
        let mut hasher = ValueHasher::new(seeds);
        let mut features = Accounted::new(reservation);
        let mut lengths = Vec::with_capacity(rows.len());
        for row in rows {
            let start = features.len();
            for (name, value) in strata_json::members(pages.document(row).await?) {
                // Every field but one has a rank.
                if name.eq_str(SOURCE) {
                    continue;
                }
                if let Some(rank) = ranks.0.get(name.raw()) {
                    features.push(values::feature(*rank, hasher.hash(value)))?;
                }
            }
            features.items_mut()[start..].sort_unstable();
            lengths.push((features.len() - start) as u32);
        }
        Ok(RowFeatures { features, lengths })
    }
}
