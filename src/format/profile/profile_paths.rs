//! The paths and table columns of a version, without the rest of its profile.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use strata_json::{NumericValue, TableColumnNames};
use strata_store::Result;

use super::stored::{ValueRecord, decode_profile};
use super::value_statistics::{DistinctCount, TypeCounts};

#[derive(Debug)]
pub struct ProfilePaths {
    entities: u64,
    is_complete: bool,
    paths: HashMap<Box<str>, PathFacts>,
    columns: Option<Arc<TableColumnNames>>,
}

/// Facts about the values at a path, over all entities of a version; `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathFacts {
    pub has_object: Option<bool>,
    pub has_array: Option<bool>,
    pub has_text: Option<bool>,
    pub has_number: Option<bool>,
    pub has_string: Option<bool>,
    /// Set if the strings at the path look like numbers, and sorting them as numbers would change their order.
    pub has_numeric_strings: Option<bool>,
    pub survives_denull: Option<bool>,
    pub distinct: Option<u64>,
}

#[derive(Deserialize)]
struct SlimProfile {
    entities: u64,
    paths_left_out: bool,
    paths: Vec<SlimPathRecord>,
    columns: Option<TableColumnNames>,
}

#[derive(Deserialize)]
struct SlimPathRecord {
    path: Box<str>,
    types: TypeCounts,
    text_bytes: u64,
    string_min: Option<ValueRecord>,
    string_max: Option<ValueRecord>,
    distinct: Option<DistinctCount>,
}

impl ProfilePaths {
    pub fn decode(bytes: &[u8]) -> Result<ProfilePaths> {
        let SlimProfile { entities, paths_left_out, paths, columns } = decode_profile(bytes)?;
        let paths = paths.into_iter().map(|path| {
            let facts = derive_facts(&path);
            (path.path, facts)
        });
        let columns = columns.map(Arc::new);
        Ok(ProfilePaths { entities, is_complete: !paths_left_out, paths: paths.collect(), columns })
    }

    pub fn entities(&self) -> u64 {
        self.entities
    }

    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub fn columns(&self) -> Option<&Arc<TableColumnNames>> {
        self.columns.as_ref()
    }

    pub fn get(&self, path: &str) -> Option<PathFacts> {
        self.paths.get(path).copied()
    }

    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.keys().map(|path| &**path)
    }

    pub fn memory_bytes(&self) -> usize {
        let entry = size_of::<(Box<str>, PathFacts)>() + 16;
        let columns = self.columns.as_ref().map_or(0, |columns| columns.memory_bytes());
        self.paths.capacity() * entry + self.paths.keys().map(|path| path.len()).sum::<usize>() + columns
    }
}

fn derive_facts(path: &SlimPathRecord) -> PathFacts {
    let types = &path.types;
    // At a path without numbers, `text_bytes` counts only strings, so it is positive if a string is not empty.
    let survives_denull = if types.boolean + types.number + types.object + path.text_bytes > 0 {
        Some(true)
    } else if types.array == 0 {
        Some(false)
    } else {
        // `denull` retains arrays that are stored empty, but not arrays that it empties. The counts do not tell which.
        (types.null + types.string == 0).then_some(true)
    };
    PathFacts {
        has_object: Some(types.object > 0),
        has_array: Some(types.array > 0),
        has_text: Some(types.string + types.boolean > 0),
        has_number: Some(types.number > 0),
        has_string: Some(types.string > 0),
        has_numeric_strings: Some(bounds_look_numeric(path.string_min.as_ref(), path.string_max.as_ref())),
        survives_denull,
        distinct: path.distinct.map(|distinct| distinct.count),
    }
}

fn bounds_look_numeric(first: Option<&ValueRecord>, last: Option<&ValueRecord>) -> bool {
    let text = |record: Option<&ValueRecord>| record.filter(|record| !record.cut)?.value.as_str().map(str::to_owned);
    let is_number = |text: &str| NumericValue::parse(text).is_some();
    match (text(first), text(last)) {
        (Some(first), Some(last)) => {
            let is_in_order =
                first.len() == last.len() && first.bytes().chain(last.bytes()).all(|b| b.is_ascii_digit());
            is_number(&last) && (first.is_empty() || is_number(&first)) && !is_in_order
        }
        _ => false,
    }
}
