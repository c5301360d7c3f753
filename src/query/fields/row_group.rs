//! The fields of entities of one row group: the values that each field has, or the features that each entity has.

use datafusion::execution::memory_pool::MemoryReservation;
use hashbrown::HashMap;
use strata_format::reader::VersionReader;
use strata_json::Text;

use super::SOURCE;
use super::values::{self, Feature, Seeds, ValueHasher};
use crate::account::Accounted;
use crate::error::QueryError;
use crate::fetch::pages::Pages;

/// Fields and their numbers, by their names as they stand in documents.
pub type FieldNumbers = HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>;

/// Values that were seen last are not given again: most values of fields with few of them.
const RECENT: usize = 1 << 14;

pub struct FieldValues {
    pub numbers: FieldNumbers,
    pub entities: Vec<u64>,
    /// See [`values::value`]. Some come more than once.
    pub values: Accounted<u128>,
}

impl FieldValues {
    /// Those of the rows of a row group that count: each so many times.
    pub async fn read(
        reader: &VersionReader,
        row_group: usize,
        counts: &[u32],
        seeds: Seeds,
        reservation: &MemoryReservation,
    ) -> Result<FieldValues, QueryError> {
        // Cancelling takes effect between row groups, even when nothing has to be waited for.
        tokio::task::consume_budget().await;
        let rows = reader.row_groups()[row_group].rows;
        let wanted = counts.iter().filter(|count| **count > 0).count();
        let mut pages = Pages::of(reader, row_group, wanted, rows);
        let mut hasher = ValueHasher::new(seeds);
        let values = Accounted::new(reservation);
        let mut found = FieldValues { numbers: FieldNumbers::default(), entities: Vec::new(), values };
        let mut recent = if wanted == 0 { Vec::new() } else { vec![0_u128; RECENT] };
        for (row, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            for (name, value) in strata_json::members(pages.document(row).await?) {
                if name.eq_str(SOURCE) {
                    continue;
                }
                let number = found.number(name);
                found.entities[number as usize] += u64::from(*count);
                let value = values::value(hasher.hash(value), number);
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

/// The ranks of fields, by their names as they stand in documents.
#[derive(Debug, Default)]
pub struct Ranks(pub FieldNumbers);

/// The features of entities, one after the other by rank, and how many each has.
pub struct RowFeatures {
    pub features: Accounted<Feature>,
    pub lengths: Vec<u32>,
}

impl RowFeatures {
    /// Those of some rows of a row group, which ascend.
    pub async fn read(
        reader: &VersionReader,
        row_group: usize,
        rows: impl ExactSizeIterator<Item = usize> + Send,
        ranks: &Ranks,
        seeds: Seeds,
        reservation: &MemoryReservation,
    ) -> Result<RowFeatures, QueryError> {
        // Cancelling takes effect between row groups, even when nothing has to be waited for.
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
