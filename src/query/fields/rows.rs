//! Values and features as rows, which nodes give.
//!
//! | Rows | Columns |
//! |---|---|
//! | values | a field's name, how many entities have it, hashes of values: several rows may be of one field |
//! | features | the position of an entity, its features by rank |

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayBuilder, ArrayRef, AsArray, BinaryBuilder, RecordBatch, UInt64Builder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use datafusion::error::DataFusionError;
use strata_store::StorageError;

use super::row_group::{FieldValues, RowFeatures};
use super::values::{self, Feature, HASH_BITS};
use crate::error::QueryError;

const HASH_BYTES: usize = HASH_BITS as usize / 8;

const FEATURE_BYTES: usize = size_of::<Feature>();

const HASHES: usize = 4_096;

/// Bytes of hashes or features after which a batch ends.
const BATCH_BYTES: usize = 512 << 10;

pub(super) static VALUES: LazyLock<SchemaRef> = LazyLock::new(|| {
    let fields = [("field", DataType::Binary), ("entities", DataType::UInt64), ("hashes", DataType::Binary)];
    schema(&fields)
});

pub(super) static FEATURES: LazyLock<SchemaRef> = LazyLock::new(|| {
    let fields = [("position", DataType::UInt64), ("features", DataType::Binary)];
    schema(&fields)
});

fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
    let field = |(name, data_type): &(&str, DataType)| Field::new(*name, data_type.clone(), false);
    Arc::new(Schema::new(fields.iter().map(field).collect::<Vec<_>>()))
}

/// Values as rows: each value once.
pub(super) fn of_values(found: FieldValues) -> Result<Vec<RecordBatch>, QueryError> {
    let FieldValues { numbers, mut entities, mut values } = found;
    let mut names: Vec<&[u8]> = vec![&[]; entities.len()];
    for (name, number) in &numbers {
        names[*number as usize] = name;
    }
    let values = values.items_mut();
    // By field, then by hash.
    values.sort_unstable_by_key(|value| value.rotate_right(u128::BITS - HASH_BITS));
    let mut batches = Vec::new();
    let (mut fields, mut counts, mut hashes) = (BinaryBuilder::new(), UInt64Builder::new(), BinaryBuilder::new());
    let mut row = Vec::with_capacity(HASHES * HASH_BYTES);
    for of_field in values.chunk_by(|one, other| values::field(*one) == values::field(*other)) {
        let number = of_field.first().map_or(0, |value| values::field(*value) as usize);
        let mut distinct = of_field.chunk_by(|one, other| one == other).filter_map(<[u128]>::first).peekable();
        while distinct.peek().is_some() {
            row.clear();
            for value in distinct.by_ref().take(HASHES) {
                row.extend_from_slice(&values::hash(*value).to_be_bytes()[FEATURE_BYTES - HASH_BYTES..]);
            }
            fields.append_value(names[number]);
            counts.append_value(std::mem::take(&mut entities[number]));
            hashes.append_value(&row);
            if hashes.values_slice().len() + fields.values_slice().len() >= BATCH_BYTES {
                batches.push(batch(&VALUES, &mut [&mut fields, &mut counts, &mut hashes])?);
            }
        }
    }
    if !hashes.is_empty() {
        batches.push(batch(&VALUES, &mut [&mut fields, &mut counts, &mut hashes])?);
    }
    Ok(batches)
}

fn batch(schema: &SchemaRef, columns: &mut [&mut dyn ArrayBuilder]) -> Result<RecordBatch, QueryError> {
    let columns: Vec<ArrayRef> = columns.iter_mut().map(|column| column.finish()).collect();
    Ok(RecordBatch::try_new(schema.clone(), columns).map_err(DataFusionError::from)?)
}

pub struct ValueRow<'b> {
    /// The name of the field, as it stands in documents.
    pub name: &'b [u8],
    /// So many entities have it, besides those of other rows.
    pub entities: u64,
    hashes: &'b [[u8; HASH_BYTES]],
}

impl ValueRow<'_> {
    pub fn hashes(&self) -> impl Iterator<Item = u128> {
        self.hashes.iter().map(|hash| {
            let mut bytes = [0; FEATURE_BYTES];
            bytes[FEATURE_BYTES - HASH_BYTES..].copy_from_slice(hash);
            u128::from_be_bytes(bytes)
        })
    }
}

pub fn value_rows(batch: &RecordBatch) -> impl Iterator<Item = Result<ValueRow<'_>, QueryError>> {
    let (names, hashes) = (batch.column(0).as_binary::<i32>(), batch.column(2).as_binary::<i32>());
    let entities = batch.column(1).as_primitive::<UInt64Type>();
    (0..batch.num_rows()).map(move |row| match hashes.value(row).as_chunks::<HASH_BYTES>() {
        (hashes, []) => Ok(ValueRow { name: names.value(row), entities: entities.value(row), hashes }),
        _ => Err(cut()),
    })
}

/// The features of entities at these positions as rows.
pub(super) fn of_features(
    positions: impl Iterator<Item = u64>,
    found: &RowFeatures,
) -> Result<Vec<RecordBatch>, QueryError> {
    let mut batches = Vec::new();
    let (mut places, mut features) = (UInt64Builder::new(), BinaryBuilder::new());
    let (mut left, mut row) = (&found.features[..], Vec::new());
    for (position, length) in positions.zip(&found.lengths) {
        let (own, others) = left.split_at(*length as usize);
        left = others;
        row.clear();
        own.iter().for_each(|feature| row.extend_from_slice(&feature.to_be_bytes()));
        places.append_value(position);
        features.append_value(&row);
        if features.values_slice().len() >= BATCH_BYTES || features.len() >= HASHES {
            batches.push(batch(&FEATURES, &mut [&mut places, &mut features])?);
        }
    }
    if !features.is_empty() {
        batches.push(batch(&FEATURES, &mut [&mut places, &mut features])?);
    }
    Ok(batches)
}

pub fn feature_rows(
    batch: &RecordBatch,
) -> impl Iterator<Item = Result<(u64, impl ExactSizeIterator<Item = Feature>), QueryError>> {
    let (positions, features) = (batch.column(0).as_primitive::<UInt64Type>(), batch.column(1).as_binary::<i32>());
    (0..batch.num_rows()).map(move |row| match features.value(row).as_chunks::<FEATURE_BYTES>() {
        (features, []) => Ok((positions.value(row), features.iter().map(|feature| u128::from_be_bytes(*feature)))),
        _ => Err(cut()),
    })
}

fn cut() -> QueryError {
    StorageError::Layout("a row of fields is truncated".to_owned()).into()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryPool, MemoryReservation};

    use super::*;
    use crate::account::Accounted;
    use crate::fields::row_group::FieldNumbers;

    fn reservation() -> MemoryReservation {
        let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(1 << 30));
        MemoryConsumer::new("test").register(&pool)
    }

    #[test]
    fn values_come_once_however_many_they_are_and_entities_are_counted_once() {
        // Of three fields, the second has many values, some of them twice, and the third has none.
        let mut values = Accounted::new(&reservation());
        let mut expected: BTreeMap<&[u8], BTreeSet<u128>> = BTreeMap::new();
        for number in 0..60_000_u128 {
            let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) >> 32;
            let (name, field): (&[u8], u32) = if number % 9 == 0 { (b"few", 0) } else { (b"many", 1) };
            for _ in 0..=number % 2 {
                values.push(values::value(hash, field)).expect("room");
            }
            expected.entry(name).or_default().insert(hash);
        }
        let numbers: FieldNumbers =
            [("few", 0), ("many", 1)].map(|(name, number)| (name.as_bytes().into(), number)).into_iter().collect();
        let batches = of_values(FieldValues { numbers, entities: vec![7, 9], values }).expect("rows");
        assert!(batches.len() > 1, "{}", batches.len());
        let mut found: BTreeMap<&[u8], (u64, BTreeSet<u128>)> = BTreeMap::new();
        for row in batches.iter().flat_map(value_rows) {
            let row = row.expect("a row");
            let (entities, hashes) = found.entry(row.name).or_default();
            *entities += row.entities;
            for hash in row.hashes() {
                assert!(hashes.insert(hash), "a value came twice");
            }
        }
        let entities = BTreeMap::from([(&b"few"[..], 7), (&b"many"[..], 9)]);
        let expected: BTreeMap<_, _> =
            expected.into_iter().map(|(name, hashes)| (name, (entities[name], hashes))).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn features_stay_with_their_entities() {
        let mut features = Accounted::new(&reservation());
        let lengths: Vec<u32> = (0..20_000).map(|number| number % 5).collect();
        for number in 0..lengths.iter().sum() {
            features.push(values::feature(number, u128::from(number) << 60)).expect("room");
        }
        let expected: Vec<Feature> = features.iter().copied().collect();
        let positions = (0..lengths.len() as u64).map(|number| number * 3);
        let batches = of_features(positions, &RowFeatures { features, lengths: lengths.clone() }).expect("rows");
        assert!(batches.len() > 1, "{}", batches.len());
        let mut found = Vec::new();
        for (number, row) in batches.iter().flat_map(feature_rows).enumerate() {
            let (position, features) = row.expect("a row");
            assert_eq!((position, features.len()), (number as u64 * 3, lengths[number] as usize));
            found.extend(features);
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn rows_that_were_cut_are_noticed() {
        let (mut fields, mut counts, mut hashes) = (BinaryBuilder::new(), UInt64Builder::new(), BinaryBuilder::new());
        fields.append_value("a");
        counts.append_value(1);
        hashes.append_value([0; HASH_BYTES + 1]);
        let rows = batch(&VALUES, &mut [&mut fields, &mut counts, &mut hashes]).expect("a batch");
        assert!(value_rows(&rows).any(|row| row.is_err()));
        let (mut positions, mut features) = (UInt64Builder::new(), BinaryBuilder::new());
        positions.append_value(1);
        features.append_value([0; FEATURE_BYTES - 1]);
        let rows = batch(&FEATURES, &mut [&mut positions, &mut features]).expect("a batch");
        assert!(feature_rows(&rows).any(|row| row.is_err()));
    }
}
