//! Cell batches reuse memory.

use std::sync::Arc;

use proptest::prelude::*;
use strata_encode::CellBatchFactory;
use strata_json::TableColumnNames;

use super::{ParquetFileStream, ROW_GROUP_BYTES, written_row_group};

/// Entities with some of six keys, whose values are strings of several lengths, numbers, and nulls.
fn parts() -> impl Strategy<Value = Vec<Vec<String>>> {
    let value = prop_oneof!["\"[a-c]{0,20}\"", Just("null".to_owned()), Just("\"a\\nb\"".to_owned()), "[1-9]{1,3}"];
    let entity = proptest::collection::btree_map(0..6, value, 0..6).prop_map(|members| {
        let members: Vec<String> = members.iter().map(|(key, value)| format!("\"k{key}\":{value}")).collect();
        format!("{{{}}}", members.join(","))
    });
    proptest::collection::vec(proptest::collection::vec(entity, 0..20), 1..6)
}

/// Returns the sizes of a batch as it grows, and the bytes of a file with the batch.
fn written(batches: &CellBatchFactory, columns: &TableColumnNames, part: &[String]) -> (Vec<usize>, Vec<u8>) {
    let mut batch = batches.new_builder();
    let sizes = part.iter().map(|entity| {
        batch.add_entity(entity.as_bytes());
        batch.size_bytes()
    });
    let mut sizes: Vec<usize> = sizes.collect();
    let batch = batch.finish();
    sizes.extend([batch.rows, batch.size_bytes()]);
    let mut stream = ParquetFileStream::try_new(columns, None, ROW_GROUP_BYTES, usize::MAX).expect("a file");
    stream.push(batch);
    written_row_group(&mut stream);
    (sizes, stream.finish_file().expect("a file").to_vec())
}

proptest! {
    #[test]
    fn batch_does_not_depend_on_reused_memory(parts in parts(), free in any::<bool>()) {
        let columns: Arc<TableColumnNames> = Arc::new(TableColumnNames::from((0..6).map(|key| format!("k{key}")).collect::<Vec<_>>()));
        let shared = CellBatchFactory::new(columns.clone(), None);
        for part in &parts {
            // Two batches at once use the memory of two.
            let other = shared.new_builder();
            let fresh = CellBatchFactory::new(columns.clone(), None);
            prop_assert_eq!(written(&shared, &columns, part), written(&fresh, &columns, part));
            drop(other.finish());
            if free {
                shared.free_spare_buffers();
            }
        }
    }
}
