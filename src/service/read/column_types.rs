//! Infers column types of a typed Parquet response (docs/reference/formats.md, parquet) before writing the first row.
//!
//! 1. If the response contains all entities, the profile of the version proves that a column contains strings or only
//!    booleans. This requires that the column comes from a single path, which no array fans out.
//! 2. The types of the other columns are inferred from the values in one pass over the entities. The profile does not
//!    distinguish integers from doubles.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use strata_encode::{ColumnType, ColumnTypeInference};
use strata_format::profile::{ProfilePathRecord, StoredProfile};
use strata_json::TableColumnNames;
use strata_query::QueryEngine;
use strata_types::field_path::FieldPath;

use crate::lookup::error::ReadError;
use crate::read::entity_source::{EntitySource, OrderedChunkTasks};

pub(crate) async fn infer_column_types(
    engine: &QueryEngine,
    source: &Arc<EntitySource>,
    columns: &Arc<TableColumnNames>,
) -> Result<Arc<[ColumnType]>, ReadError> {
    let inference = ColumnTypeInference::new(columns.clone(), proven_column_types(source, columns).await);
    let mut types = inference.new_builder();
    if inference.has_all_types() || source.documents.is_empty() {
        return Ok(types.finish());
    }
    let shared_source = source.clone();
    let mut parts = OrderedChunkTasks::new(engine, source.documents.chunks(), move |chunk| {
        let source = shared_source.clone();
        let mut part = inference.new_builder();
        async move {
            let push = |entity: &[u8]| {
                part.add_entity(entity);
                ControlFlow::Continue(())
            };
            let next = source.for_each_selected_entity(&chunk, push).await?;
            Ok((part, next))
        }
    });
    while let Some(part) = parts.next_result(|running, _| running < engine.threads()).await? {
        types.merge(&part);
    }
    Ok(types.finish())
}

async fn proven_column_types(source: &EntitySource, columns: &TableColumnNames) -> Vec<Option<ColumnType>> {
    let unknown = || vec![None; columns.len()];
    // The profile describes only whole versions, without the values that `denull` removes from a response.
    if !source.documents.is_whole_version() || source.projection.denull {
        return unknown();
    }
    // If the profile is damaged, the reader reports it, and the column types are inferred from the documents.
    match source.documents.reader().profile().await {
        Ok(profile) if !profile.paths_left_out => types_from_profile(&profile, columns),
        Ok(_) | Err(_) => unknown(),
    }
}

fn types_from_profile(profile: &StoredProfile, columns: &TableColumnNames) -> Vec<Option<ColumnType>> {
    let mut paths: HashMap<String, Option<&ProfilePathRecord>> = HashMap::new();
    for record in &profile.paths {
        let name = FieldPath::parse(&record.path).map_or_else(|_| String::new(), |path| path.keys().join("."));
        // If two paths have the same column name, a cell's value can come from either path, so its type is not known.
        paths.entry(name).and_modify(|known| *known = None).or_insert(Some(record));
    }
    let proven_type =
        |name: &String| type_from_path(paths.get(name).copied().flatten().filter(|_| !may_be_array_element(name))?);
    columns.names().iter().map(proven_type).collect()
}

fn type_from_path(record: &ProfilePathRecord) -> Option<ColumnType> {
    let types = &record.types;
    if record.fans_out || types.array > 0 {
        return None;
    }
    match (types.string, types.boolean, types.number) {
        (0, 1.., 0) => Some(ColumnType::Boolean),
        (0, 0, 1..) => None,
        _ => Some(ColumnType::Text),
    }
}

fn may_be_array_element(name: &str) -> bool {
    let mut parts = name.split('_').skip(1).peekable();
    while let Some(part) = parts.next() {
        let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && parts.peek().is_some() {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_element_fields_are_recognized() {
        for name in ["a_0_b", "_1_", "a__12_b", "x.a_0_b.c"] {
            assert!(may_be_array_element(name), "{name}");
        }
        for name in ["", "a", "a_0", "0_a", "a__b", "a_1b_c", "a.0.b"] {
            assert!(!may_be_array_element(name), "{name}");
        }
    }
}
