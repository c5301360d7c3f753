//! The paths and the columns of a version alone, out of its profile: what a read asks that names fields, or is a table.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use strata_json::{Columns, NumericValue};
use strata_store::Result;

use super::stored::{Distinct, ValueRecord, decode};
use super::values::TypeCounts;

/// Which paths the entities of a version have. Made from the stored profile, and some tens of times smaller.
#[derive(Debug)]
pub struct PathIndex {
    entities: u64,
    is_complete: bool,
    paths: HashMap<Box<str>, PathFacts>,
    columns: Option<Arc<Columns>>,
}

/// What is known of the values at a path, in all entities together; `None` is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathFacts {
    pub has_object: Option<bool>,
    pub has_array: Option<bool>,
    /// Whether a string or a boolean stands at it somewhere.
    pub has_text: Option<bool>,
    pub has_number: Option<bool>,
    pub has_string: Option<bool>,
    /// Whether the strings at it look like numbers that another order than theirs sorts: those of one length are
    /// ordered as numbers are.
    pub has_numerals: Option<bool>,
    pub survives_denull: Option<bool>,
    pub distinct: Option<u64>,
}

#[derive(Deserialize)]
struct Slim {
    entities: u64,
    paths_left_out: bool,
    paths: Vec<SlimPath>,
    columns: Option<Columns>,
}

#[derive(Deserialize)]
struct SlimPath {
    path: Box<str>,
    types: TypeCounts,
    text_bytes: u64,
    string_min: Option<ValueRecord>,
    string_max: Option<ValueRecord>,
    distinct: Option<Distinct>,
}

impl PathIndex {
    /// Reads what [`super::StoredProfile::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<PathIndex> {
        let Slim { entities, paths_left_out, paths, columns } = decode(bytes)?;
        let paths = paths.into_iter().map(|path| {
            let facts = facts(&path);
            (path.path, facts)
        });
        let columns = columns.map(Arc::new);
        Ok(PathIndex { entities, is_complete: !paths_left_out, paths: paths.collect(), columns })
    }

    pub fn entities(&self) -> u64 {
        self.entities
    }

    /// Whether a path that is not listed is in no entity.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The columns of all entities as a table, in order of first appearance; `None` if there are too many.
    pub fn columns(&self) -> Option<&Arc<Columns>> {
        self.columns.as_ref()
    }

    /// What is known of a path in its escaped form, if it is listed.
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

fn facts(path: &SlimPath) -> PathFacts {
    let types = &path.types;
    // Without numbers, text is bytes of strings that are not empty.
    let survives_denull = if types.boolean + types.number + types.object + path.text_bytes > 0 {
        Some(true)
    } else if types.array == 0 {
        Some(false)
    } else {
        // Arrays that came empty stay, those that become empty do not; a profile counts both.
        (types.null + types.string == 0).then_some(true)
    };
    PathFacts {
        has_object: Some(types.object > 0),
        has_array: Some(types.array > 0),
        has_text: Some(types.string + types.boolean > 0),
        has_number: Some(types.number > 0),
        has_string: Some(types.string > 0),
        has_numerals: Some(are_numerals(path.string_min.as_ref(), path.string_max.as_ref())),
        survives_denull,
        distinct: path.distinct.map(|distinct| distinct.count),
    }
}

/// Whether strings look like numbers, as far as the first and the last of them by code point tell.
fn are_numerals(first: Option<&ValueRecord>, last: Option<&ValueRecord>) -> bool {
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
