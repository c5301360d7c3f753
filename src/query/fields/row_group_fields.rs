//! Reads a row group for a diff: the values of each field, or the features (fields with hashes) of each entity.

use datafusion::execution::memory_pool::MemoryReservation;
use hashbrown::HashMap;
use strata_format::reader::VersionReader;
use strata_json::JsonStr;

use super::SOURCE_FIELD;
use super::field_hash::{self, FieldFeature, FieldValueHasher, HashSeeds};
use crate::error::QueryError;
use crate::fetch::document_page_reader::DocumentPageReader;
use crate::tracked_vec::TrackedVec;

pub type FieldNumbers = HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>;

/// Slots of a direct-mapped cache of recent values, which skips most repeated values.
const RECENT_VALUE_SLOTS: usize = 1 << 14;

pub struct FieldValues {
    pub numbers: FieldNumbers,
    pub entity_counts: Vec<u64>,
    /// The hashes of field values, packed by [`field_hash::pack_value`]. Some values are repeated.
    pub values: TrackedVec<u128>,
}

impl FieldValues {
    /// Reads the fields of all entities of a row group whose count in `counts` is not 0.
    pub async fn read(
        reader: &VersionReader,
        row_group: usize,
        counts: &[u32],
        seeds: HashSeeds,
        reservation: &MemoryReservation,
    ) -> Result<FieldValues, QueryError> {
        // Yields to the executor, so that a scan can be cancelled between row groups, even if everything is cached.
        tokio::task::consume_budget().await;
        let rows = reader.row_groups()[row_group].rows;
        let wanted = counts.iter().filter(|count| **count > 0).count();
        let mut pages = DocumentPageReader::for_rows(reader, row_group, wanted, rows);
        let mut hasher = FieldValueHasher::new(seeds);
        let values = TrackedVec::new(reservation);
        let mut fields = FieldValues { numbers: FieldNumbers::default(), entity_counts: Vec::new(), values };
        let mut recent = if wanted == 0 { Vec::new() } else { vec![0_u128; RECENT_VALUE_SLOTS] };
        for (row, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            for (name, value) in strata_json::members(pages.document(row).await?) {
                if name.eq_str(SOURCE_FIELD) {
                    continue;
                }
                let number = fields.get_or_insert_field(name);
                fields.entity_counts[number as usize] += u64::from(*count);
                let value = field_hash::pack_value(hasher.hash_canonical(value), number);
                let slot = &mut recent[(value >> 64) as usize % RECENT_VALUE_SLOTS];
                if *slot != value {
                    *slot = value;
                    fields.values.try_push(value)?;
                }
            }
        }
        Ok(fields)
    }

    fn get_or_insert_field(&mut self, name: JsonStr<'_>) -> u32 {
        if let Some(number) = self.numbers.get(name.raw()) {
            return *number;
        }
        let number = self.entity_counts.len() as u32;
        self.numbers.insert(name.raw().into(), number);
        self.entity_counts.push(0);
        number
    }
}

#[derive(Debug, Default)]
pub struct FieldRanks(pub FieldNumbers);

/// The features (field ranks with value hashes) of entities, ordered by entity and rank, and their number per entity.
pub struct RowFeatures {
    pub features: TrackedVec<FieldFeature>,
    pub feature_counts: Vec<u32>,
}

impl RowFeatures {
    /// Reads the features of entities of a row group. `rows` must ascend.
    pub async fn read(
        reader: &VersionReader,
        row_group: usize,
        rows: impl ExactSizeIterator<Item = usize> + Send,
        ranks: &FieldRanks,
        seeds: HashSeeds,
        reservation: &MemoryReservation,
    ) -> Result<RowFeatures, QueryError> {
        tokio::task::consume_budget().await;
        let mut pages =
            DocumentPageReader::for_rows(reader, row_group, rows.len(), reader.row_groups()[row_group].rows);
        let mut hasher = FieldValueHasher::new(seeds);
        let mut features = TrackedVec::new(reservation);
        let mut feature_counts = Vec::with_capacity(rows.len());
        for row in rows {
            let start = features.len();
            for (name, value) in strata_json::members(pages.document(row).await?) {
                // Features exclude the field `_source`, which has no rank.
                if name.eq_str(SOURCE_FIELD) {
                    continue;
                }
                if let Some(rank) = ranks.0.get(name.raw()) {
                    features.try_push(field_hash::pack_feature(*rank, hasher.hash_canonical(value)))?;
                }
            }
            features.as_mut_slice()[start..].sort_unstable();
            feature_counts.push((features.len() - start) as u32);
        }
        Ok(RowFeatures { features, feature_counts })
    }
}
