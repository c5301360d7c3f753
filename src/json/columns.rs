//! The columns of a table: the union of the flattened keys of all entities, in order of first appearance
//! (docs/reference/formats.md, csv and tsv).
//!
//! A separate pass over the entities finds the columns before the first row is written. Parts of the response run in
//! parallel, each with its own [`TableColumnNamesBuilder`]; the builders are merged in the order of the parts.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use serde::{Deserialize, Serialize};
use strata_types::limits;

use super::flatten::{CellSink, EntityFlattener, FlattenedKey};

const FALLBACK_COLUMN: &str = "_source";
/// Limit for all column names. Flattened names repeat parent keys, so even a small entity can exceed the memory.
const MAX_TOTAL_NAME_BYTES: usize = limits::MAX_COLUMN_NAMES_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the table would have more than {limit} columns, or more than {} MiB of column names; \
     choose fewer fields with keep_field",
    MAX_TOTAL_NAME_BYTES >> 20
)]
pub struct TooManyColumnsError {
    pub limit: usize,
}

/// The names of a table's columns, in order: at least one, all distinct. Serializes as a list of strings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<String>", from = "Vec<String>")]
pub struct TableColumnNames(UniqueNames);

impl TableColumnNames {
    pub fn names(&self) -> &[String] {
        &self.0.names
    }

    #[expect(clippy::len_without_is_empty, reason = "there is always a column")]
    pub fn len(&self) -> usize {
        self.0.names.len()
    }

    pub fn name_bytes(&self) -> usize {
        self.0.name_bytes
    }

    pub fn memory_bytes(&self) -> usize {
        self.0.name_bytes + self.len() * (size_of::<String>() + 2 * size_of::<u32>())
    }

    pub fn position(&self, name: &str) -> Option<usize> {
        self.0.find(name).map(|column| column as usize)
    }
}

impl Default for TableColumnNames {
    fn default() -> Self {
        TableColumnNames::from(UniqueNames::default())
    }
}

/// Creates table columns from their names. Ignores repeated names. An empty list becomes the single column `_source`.
impl From<Vec<String>> for TableColumnNames {
    fn from(list: Vec<String>) -> Self {
        let mut names = UniqueNames::default();
        for name in list {
            names.find_or_insert(name);
        }
        TableColumnNames::from(names)
    }
}

impl From<UniqueNames> for TableColumnNames {
    fn from(mut names: UniqueNames) -> Self {
        if names.names.is_empty() {
            names.find_or_insert(FALLBACK_COLUMN.to_owned());
        }
        TableColumnNames(names)
    }
}

impl From<TableColumnNames> for Vec<String> {
    fn from(columns: TableColumnNames) -> Self {
        columns.0.names
    }
}

#[derive(Debug)]
pub struct TableColumnNamesBuilder {
    collector: ColumnNameCollector,
    flattener: EntityFlattener,
}

#[derive(Debug)]
struct ColumnNameCollector {
    names: UniqueNames,
    max_columns: usize,
}

impl TableColumnNamesBuilder {
    pub fn new(max_columns: usize) -> TableColumnNamesBuilder {
        TableColumnNamesBuilder {
            collector: ColumnNameCollector { names: UniqueNames::default(), max_columns },
            flattener: EntityFlattener::default(),
        }
    }

    /// Adds the columns of one canonical document. After an error, the columns collected so far remain.
    pub fn add_entity(&mut self, document: &[u8]) -> Result<(), TooManyColumnsError> {
        self.flattener.flatten(document, &mut self.collector)
    }

    /// Appends the columns of `later`, whose entities follow the entities of `self`.
    pub fn merge(&mut self, later: TableColumnNamesBuilder) -> Result<(), TooManyColumnsError> {
        for name in later.collector.names.names {
            self.collector.check_limits(&name, name.len())?;
            self.collector.names.find_or_insert(name);
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.collector.names.names.is_empty()
    }

    pub fn name_bytes(&self) -> usize {
        self.collector.names.name_bytes
    }

    pub fn columns(&self) -> TableColumnNames {
        self.collector.names.clone().into()
    }

    /// Returns the columns of the table, or the single column `_source` if there are none.
    pub fn finish(self) -> TableColumnNames {
        self.collector.names.into()
    }
}

impl ColumnNameCollector {
    fn check_limits(&self, name: &str, name_bytes: usize) -> Result<(), TooManyColumnsError> {
        let names = &self.names;
        let fits = names.names.len() < self.max_columns && names.name_bytes + name_bytes <= MAX_TOTAL_NAME_BYTES;
        if fits || names.find(name).is_some() { Ok(()) } else { Err(TooManyColumnsError { limit: self.max_columns }) }
    }
}

impl CellSink for ColumnNameCollector {
    type Error = TooManyColumnsError;

    fn resolve_column_number(&mut self, name: FlattenedKey<'_>) -> Result<u32, TooManyColumnsError> {
        // The size of the name is checked first, because unescaping allocates the name.
        if name.max_escaped_bytes() > MAX_TOTAL_NAME_BYTES {
            return Err(TooManyColumnsError { limit: self.max_columns });
        }
        let name = name.unescape();
        self.check_limits(&name, name.len())?;
        Ok(self.names.find_or_insert(name))
    }

    fn write_cell(&mut self, _: u32, _: usize, _: &[u8]) {}
}

#[derive(Clone, Debug, Default)]
pub struct UniqueNames {
    names: Vec<String>,
    name_bytes: usize,
    index: HashTable<u32>,
    /// Randomly seeded for each instance, because clients choose the names (hash flooding).
    hasher: RandomState,
}

impl PartialEq for UniqueNames {
    fn eq(&self, other: &UniqueNames) -> bool {
        self.names == other.names
    }
}

impl Eq for UniqueNames {}

impl UniqueNames {
    pub fn as_slice(&self) -> &[String] {
        &self.names
    }

    pub fn name_bytes(&self) -> usize {
        self.name_bytes
    }

    fn find(&self, name: &str) -> Option<u32> {
        self.index.find(self.hasher.hash_one(name), |&column| self.names[column as usize] == name).copied()
    }

    pub fn find_or_insert(&mut self, name: String) -> u32 {
        if let Some(column) = self.find(&name) {
            return column;
        }
        let UniqueNames { names, name_bytes: bytes, index, hasher } = self;
        let column = names.len() as u32;
        index.insert_unique(hasher.hash_one(name.as_str()), column, |&column| {
            hasher.hash_one(names[column as usize].as_str())
        });
        *bytes += name.len();
        names.push(name);
        column
    }
}
