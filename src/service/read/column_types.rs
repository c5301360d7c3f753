//! The types of a Parquet answer's columns (docs/reference/formats.md, parquet), before its first row is written.
//!
//! 1. Of an answer that holds all entities, the version's profile proves the types of columns that hold a string, or
//!    booleans alone: a column that a single path gives, which no array fans out and no other name looks like.
//! 2. Of the other columns, one pass over the answer's entities looks at the values. The profile does not tell an
//!    integer from a double.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use strata_encode::{ColumnType, Typing};
use strata_format::profile::{PathRecord, StoredProfile};
use strata_json::Columns;
use strata_query::Engine;
use strata_types::path::Path;

use crate::lookup::error::ReadError;
use crate::read::source::{OrderedUnits, Source};

pub(crate) async fn column_types(
    engine: &Engine,
    source: &Arc<Source>,
    columns: &Arc<Columns>,
) -> Result<Arc<[ColumnType]>, ReadError> {
    let typing = Typing::new(columns.clone(), proven(source, columns).await);
    let mut types = typing.begin();
    if typing.is_known() || source.documents.is_empty() {
        return Ok(types.finish());
    }
    let shared = source.clone();
    let mut parts = OrderedUnits::new(engine, source.documents.units(), move |unit| {
        let source = shared.clone();
        let mut part = typing.begin();
        async move {
            let each = |entity: &[u8]| {
                part.push(entity);
                ControlFlow::Continue(())
            };
            let next = source.for_each(&unit, each).await?;
            Ok((part, next))
        }
    });
    while let Some(part) = parts.next(|running, _| running < engine.threads()).await? {
        types.merge(&part);
    }
    Ok(types.finish())
}

async fn proven(source: &Source, columns: &Columns) -> Vec<Option<ColumnType>> {
    let unknown = || vec![None; columns.len()];
    // What `denull` takes away, the profile does not tell.
    if !source.documents.are_all() || source.reshape.denull {
        return unknown();
    }
    // One that cannot be read has been reported. The documents tell, too.
    match source.documents.reader().profile().await {
        Ok(profile) if !profile.paths_left_out => types_by_profile(&profile, columns),
        Ok(_) | Err(_) => unknown(),
    }
}

fn types_by_profile(profile: &StoredProfile, columns: &Columns) -> Vec<Option<ColumnType>> {
    let mut paths: HashMap<String, Option<&PathRecord>> = HashMap::new();
    for record in &profile.paths {
        let name = Path::parse(&record.path).map_or_else(|_| String::new(), |path| path.keys().join("."));
        // Of two paths of one name, any may give an entity's value.
        paths.entry(name).and_modify(|known| *known = None).or_insert(Some(record));
    }
    let of = |name: &String| type_by_path(paths.get(name).copied().flatten().filter(|_| !looks_indexed(name))?);
    columns.names().iter().map(of).collect()
}

fn type_by_path(record: &PathRecord) -> Option<ColumnType> {
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

/// Whether a name may be that of a field of an array's element: `parent_0_field`.
fn looks_indexed(name: &str) -> bool {
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
            assert!(looks_indexed(name), "{name}");
        }
        for name in ["", "a", "a_0", "0_a", "a__b", "a_1b_c", "a.0.b"] {
            assert!(!looks_indexed(name), "{name}");
        }
    }
}
