//! Values and features as rows.
//!
//! | Rows | Columns |
//! |---|---|
//! | values | the name of a field, the number of entities that have it, hashes of some values |
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

/// Hashes of a row, and rows of a batch of features.
const MAX_HASHES: usize = 4_096;

/// Bytes of hashes or features after which a batch ends.
const BATCH_BYTES: usize = 512 << 10;

pub(super) static VALUES: LazyLock<SchemaRef> = LazyLock::new(|| {
    schema(&[("field", DataType::Binary), ("entities", DataType::UInt64), ("hashes", DataType::Binary)])
});

pub(super) static FEATURES: LazyLock<SchemaRef> =
    LazyLock::new(|| schema(&[("position", DataType::UInt64), ("features", DataType::Binary)]));

fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
    let field = |(name, data_type): &(&str, DataType)| Field::new(*name, data_type.clone(), false);
    Arc::new(Schema::new(fields.iter().map(field).collect::<Vec<_>>()))
}

/// Values as rows, without duplicates.
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
    let mut fields = BinaryBuilder::new();
    let mut counts = UInt64Builder::new();
    let mut hashes = BinaryBuilder::new();
    let mut row = Vec::with_capacity(MAX_HASHES * HASH_BYTES);
    for of_field in values.chunk_by(|one, other| values::field(*one) == values::field(*other)) {
        let number = of_field.first().map_or(0, |value| values::field(*value) as usize);
        let mut distinct = of_field.chunk_by(|one, other| one == other).filter_map(<[u128]>::first).peekable();
        while distinct.peek().is_some() {
            row.clear();
            for value in distinct.by_ref().take(MAX_HASHES) {
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
    /// The escaped name of the field.
    pub name: &'b [u8],
    /// The number of entities with the field, in addition to other rows.
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
    let names = batch.column(0).as_binary::<i32>();
    let hashes = batch.column(2).as_binary::<i32>();
    let entities = batch.column(1).as_primitive::<UInt64Type>();
    (0..batch.num_rows()).map(move |row| match hashes.value(row).as_chunks::<HASH_BYTES>() {
        (hashes, []) => Ok(ValueRow { name: names.value(row), entities: entities.value(row), hashes }),
        _ => Err(truncated()),
    })
}

pub(super) fn of_features(
    positions: impl Iterator<Item = u64>,
    found: &RowFeatures,
) -> Result<Vec<RecordBatch>, QueryError> {
    let mut batches = Vec::new();
    let mut places = UInt64Builder::new();
    let mut features = BinaryBuilder::new();
    let mut left = &found.features[..];
    let mut row = Vec::new();
    for (position, length) in positions.zip(&found.lengths) {
        let (own, others) = left.split_at(*length as usize);
        left = others;
        row.clear();
        own.iter().for_each(|feature| row.extend_from_slice(&feature.to_be_bytes()));
        places.append_value(position);
        features.append_value(&row);
        if features.values_slice().len() >= BATCH_BYTES || features.len() >= MAX_HASHES {
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
    let positions = batch.column(0).as_primitive::<UInt64Type>();
    let features = batch.column(1).as_binary::<i32>();
    (0..batch.num_rows()).map(move |row| match features.value(row).as_chunks::<FEATURE_BYTES>() {
        (features, []) => Ok((positions.value(row), features.iter().map(|feature| u128::from_be_bytes(*feature)))),
        _ => Err(truncated()),
    })
}

fn truncated() -> QueryError {
    StorageError::Layout("a row of fields is truncated".to_owned()).into()
}
