//! What a diff scans, as rows of record batches: the values of each field, or the features of each entity.
//!
//! | Rows | Columns |
//! |---|---|
//! | values | the name of a field, the number of entities with the field, hashes of some values |
//! | features | the position of an entity, its features by rank |

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayBuilder, ArrayRef, AsArray, BinaryBuilder, RecordBatch, UInt64Builder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use datafusion::error::DataFusionError;
use strata_store::StorageError;

use super::field_hash::{FieldFeature, VALUE_HASH_BITS, unpack_field_number, unpack_value_hash};
use super::row_group_fields::{FieldValues, RowFeatures};
use crate::error::QueryError;

const HASH_BYTES: usize = VALUE_HASH_BITS as usize / 8;
const FEATURE_BYTES: usize = size_of::<FieldFeature>();
/// The maximum number of hashes in a row of values, and of rows in a batch of features.
const MAX_ROW_HASHES: usize = 4_096;
const TARGET_BATCH_BYTES: usize = 512 << 10;

pub(super) static VALUE_ROW_SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    build_schema(&[("field", DataType::Binary), ("entities", DataType::UInt64), ("hashes", DataType::Binary)])
});

pub(super) static FEATURE_ROW_SCHEMA: LazyLock<SchemaRef> =
    LazyLock::new(|| build_schema(&[("position", DataType::UInt64), ("features", DataType::Binary)]));

fn build_schema(fields: &[(&str, DataType)]) -> SchemaRef {
    let field = |(name, data_type): &(&str, DataType)| Field::new(*name, data_type.clone(), false);
    Arc::new(Schema::new(fields.iter().map(field).collect::<Vec<_>>()))
}

pub(super) fn encode_values(field_values: FieldValues) -> Result<Vec<RecordBatch>, QueryError> {
    let FieldValues { numbers, mut entity_counts, mut values } = field_values;
    let mut names: Vec<&[u8]> = vec![&[]; entity_counts.len()];
    numbers.iter().for_each(|(name, number)| names[*number as usize] = name);
    let values = values.as_mut_slice();
    values.sort_unstable_by_key(|value| value.rotate_right(u128::BITS - VALUE_HASH_BITS));
    let mut batches = Vec::new();
    let mut fields = BinaryBuilder::new();
    let mut counts = UInt64Builder::new();
    let mut hashes = BinaryBuilder::new();
    let mut row = Vec::with_capacity(MAX_ROW_HASHES * HASH_BYTES);
    for same_field in values.chunk_by(|one, other| unpack_field_number(*one) == unpack_field_number(*other)) {
        let number = same_field.first().map_or(0, |value| unpack_field_number(*value) as usize);
        let mut distinct = same_field.chunk_by(|one, other| one == other).filter_map(<[u128]>::first).peekable();
        while distinct.peek().is_some() {
            row.clear();
            for value in distinct.by_ref().take(MAX_ROW_HASHES) {
                row.extend_from_slice(&unpack_value_hash(*value).to_be_bytes()[FEATURE_BYTES - HASH_BYTES..]);
            }
            fields.append_value(names[number]);
            counts.append_value(std::mem::take(&mut entity_counts[number]));
            hashes.append_value(&row);
            if hashes.values_slice().len() + fields.values_slice().len() >= TARGET_BATCH_BYTES {
                batches.push(finish_batch(&VALUE_ROW_SCHEMA, &mut [&mut fields, &mut counts, &mut hashes])?);
            }
        }
    }
    if !hashes.is_empty() {
        batches.push(finish_batch(&VALUE_ROW_SCHEMA, &mut [&mut fields, &mut counts, &mut hashes])?);
    }
    Ok(batches)
}

fn finish_batch(schema: &SchemaRef, columns: &mut [&mut dyn ArrayBuilder]) -> Result<RecordBatch, QueryError> {
    let columns: Vec<ArrayRef> = columns.iter_mut().map(|column| column.finish()).collect();
    Ok(RecordBatch::try_new(schema.clone(), columns).map_err(DataFusionError::from)?)
}

pub struct FieldHashesRow<'b> {
    pub name: &'b [u8],
    /// The number of entities with the field. If a field has several rows, their numbers add up.
    pub entity_count: u64,
    hashes: &'b [[u8; HASH_BYTES]],
}

impl FieldHashesRow<'_> {
    pub fn hashes(&self) -> impl Iterator<Item = u128> {
        self.hashes.iter().map(|hash| {
            let mut bytes = [0; FEATURE_BYTES];
            bytes[FEATURE_BYTES - HASH_BYTES..].copy_from_slice(hash);
            u128::from_be_bytes(bytes)
        })
    }
}

pub fn decode_value_rows(batch: &RecordBatch) -> impl Iterator<Item = Result<FieldHashesRow<'_>, QueryError>> {
    let names = batch.column(0).as_binary::<i32>();
    let hashes = batch.column(2).as_binary::<i32>();
    let entities = batch.column(1).as_primitive::<UInt64Type>();
    (0..batch.num_rows()).map(move |row| match hashes.value(row).as_chunks::<HASH_BYTES>() {
        (hashes, []) => Ok(FieldHashesRow { name: names.value(row), entity_count: entities.value(row), hashes }),
        _ => Err(truncated_row_error()),
    })
}

pub(super) fn encode_features(
    positions: impl Iterator<Item = u64>,
    row_features: &RowFeatures,
) -> Result<Vec<RecordBatch>, QueryError> {
    let mut batches = Vec::new();
    let mut position_column = UInt64Builder::new();
    let mut features = BinaryBuilder::new();
    let mut remaining = &row_features.features[..];
    let mut row = Vec::new();
    for (position, length) in positions.zip(&row_features.feature_counts) {
        let (own, others) = remaining.split_at(*length as usize);
        remaining = others;
        row.clear();
        own.iter().for_each(|feature| row.extend_from_slice(&feature.to_be_bytes()));
        position_column.append_value(position);
        features.append_value(&row);
        if features.values_slice().len() >= TARGET_BATCH_BYTES || features.len() >= MAX_ROW_HASHES {
            batches.push(finish_batch(&FEATURE_ROW_SCHEMA, &mut [&mut position_column, &mut features])?);
        }
    }
    if !features.is_empty() {
        batches.push(finish_batch(&FEATURE_ROW_SCHEMA, &mut [&mut position_column, &mut features])?);
    }
    Ok(batches)
}

pub fn decode_feature_rows(
    batch: &RecordBatch,
) -> impl Iterator<Item = Result<(u64, impl ExactSizeIterator<Item = FieldFeature>), QueryError>> {
    let positions = batch.column(0).as_primitive::<UInt64Type>();
    let features = batch.column(1).as_binary::<i32>();
    (0..batch.num_rows()).map(move |row| match features.value(row).as_chunks::<FEATURE_BYTES>() {
        (features, []) => Ok((positions.value(row), features.iter().map(|feature| u128::from_be_bytes(*feature)))),
        _ => Err(truncated_row_error()),
    })
}

fn truncated_row_error() -> QueryError {
    StorageError::InvalidFile("a row of fields is truncated".to_owned()).into()
}
