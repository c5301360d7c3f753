//! The fields of documents as rows, for diffs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, UInt64Array};
use datafusion::physical_plan::ExecutionPlan;
use futures::TryStreamExt;
use strata_format::reader::VersionReader;
use strata_format::writer::WriteOptions;
use strata_query::fields::entity_counts::DiffEntityCounts;
use strata_query::fields::field_hash::{HashSeeds, unpack_field_rank};
use strata_query::fields::field_scan::{FieldScan, FieldScanOutput};
use strata_query::fields::record_rows::{decode_feature_rows, decode_value_rows};
use strata_query::fields::row_group_fields::{FieldNumbers, FieldRanks};
use strata_query::tracked_vec::TrackedVec;
use strata_reference::Value;
use strata_testing::engines::EngineLab;

const ENTITIES: usize = 50_000;

/// A version in one row group: a field with few values, a field with many, and the source.
fn reader(lab: &EngineLab) -> VersionReader {
    let entity = |number: usize| {
        let text = format!(r#"{{"few":{},"many":{number},"_source":"s"}}"#, number % 9);
        Value::parse_entity(&text).expect("an entity")
    };
    let entities: Vec<Value> = (0..ENTITIES).map(entity).collect();
    lab.reader(&entities, &WriteOptions { max_row_group_rows: ENTITIES, ..WriteOptions::default() })
}

fn batches(lab: &EngineLab, reader: &VersionReader, wanted: FieldScanOutput) -> Vec<RecordBatch> {
    let engine = &lab.engines[1];
    let memory = engine.try_reserve("entities", 0).expect("memory");
    let counts = [1, 0].map(|count| TrackedVec::from_elem(count, ENTITIES, &memory).expect("memory"));
    let readers = [reader.clone(), reader.clone()];
    let scan = FieldScan::new(&readers, DiffEntityCounts::ByEntity(Arc::new(counts)), wanted, HashSeeds::random(), 2);
    lab.bench.runtime.block_on(async {
        scan.execute(0, engine.task_context().clone()).expect("a stream").try_collect().await.expect("rows")
    })
}

#[test]
fn value_rows_contain_each_value_once() {
    let lab = EngineLab::new();
    let batches = batches(&lab, &reader(&lab), FieldScanOutput::Values);
    assert!(batches.len() > 1, "{}", batches.len());
    let mut found: BTreeMap<Vec<u8>, (u64, BTreeSet<u128>)> = BTreeMap::new();
    for row in batches.iter().flat_map(decode_value_rows) {
        let row = row.expect("a row");
        let (entities, hashes) = found.entry(row.name.to_vec()).or_default();
        *entities += row.entity_count;
        for hash in row.hashes() {
            assert!(hashes.insert(hash), "a value is repeated");
        }
    }
    let found: Vec<_> =
        found.into_iter().map(|(name, (entities, hashes))| (name, entities as usize, hashes.len())).collect();
    assert_eq!(found, [(b"few".to_vec(), ENTITIES, 9), (b"many".to_vec(), ENTITIES, ENTITIES)]);
}

#[test]
fn feature_rows_belong_to_their_entities() {
    let lab = EngineLab::new();
    let numbers: FieldNumbers = [(b"few"[..].into(), 0), (b"many"[..].into(), 1)].into_iter().collect();
    let batches = batches(&lab, &reader(&lab), FieldScanOutput::Features(Arc::new(FieldRanks(numbers))));
    assert!(batches.len() > 1, "{}", batches.len());
    let mut few = HashMap::new();
    let mut many = BTreeSet::new();
    let mut count = 0;
    for row in batches.iter().flat_map(decode_feature_rows) {
        let (position, features) = row.expect("a row");
        assert_eq!(position, count);
        let features: Vec<u128> = features.collect();
        assert_eq!(features.iter().map(|feature| unpack_field_rank(*feature)).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(*few.entry(position % 9).or_insert(features[0]), features[0]);
        assert!(many.insert(features[1]), "a feature is repeated");
        count += 1;
    }
    assert_eq!((count as usize, few.len()), (ENTITIES, 9));
}

#[test]
fn truncated_rows_are_errors() {
    let numbers = || Arc::new(UInt64Array::from(vec![1])) as ArrayRef;
    let bytes = |length: usize| Arc::new(BinaryArray::from_iter_values([vec![0; length]])) as ArrayRef;
    let values = [("field", bytes(1)), ("entities", numbers()), ("hashes", bytes(13))];
    let values = RecordBatch::try_from_iter(values).expect("a batch");
    assert!(decode_value_rows(&values).any(|row| row.is_err()));
    let features = RecordBatch::try_from_iter([("position", numbers()), ("features", bytes(15))]).expect("a batch");
    assert!(decode_feature_rows(&features).any(|row| row.is_err()));
}
