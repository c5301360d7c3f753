//! The columns of a table: the union of the flattened keys of its entities, in order of first appearance
//! (docs/reference/formats.md, csv and tsv).
//!
//! A separate pass finds them before the first row is written. It keeps no entities. Parts of the answer run in
//! parallel, each with a [`ColumnsBuilder`]. The builders are then merged in the order of the parts. The caller decides
//! the columns of an answer without entities.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use serde::{Deserialize, Serialize};
use strata_types::limits;

use super::shape::{Name, Place, Shape};

/// The one column of a table whose entities have no key.
const FALLBACK: &str = "_source";

/// Bytes that all names of a table may have together. Flattened names repeat the keys above them, so the names of a
/// small entity may not fit into memory.
const MAX_NAME_BYTES: usize = limits::COLUMN_NAME_BYTES;

/// A table would have too many columns (`limits.columns`), or far too long names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the table would have more than {limit} columns, or more than {} MiB of column names; \
     choose fewer fields with keep_field",
    MAX_NAME_BYTES >> 20
)]
pub struct TooManyColumns {
    pub limit: usize,
}

/// The names of a table's columns, in order.
///
/// - There is at least one.
/// - No name occurs twice.
///
/// As data it is the list of the names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<String>", from = "Vec<String>")]
pub struct Columns(Names);

impl Columns {
    pub fn names(&self) -> &[String] {
        &self.0.names
    }

    #[expect(clippy::len_without_is_empty, reason = "there is always a column")]
    pub fn len(&self) -> usize {
        self.0.names.len()
    }

    pub fn name_bytes(&self) -> usize {
        self.0.bytes
    }

    pub fn memory_bytes(&self) -> usize {
        self.0.bytes + self.len() * (size_of::<String>() + 2 * size_of::<u32>())
    }

    pub fn position(&self, name: &str) -> Option<usize> {
        self.0.find(name).map(|column| column as usize)
    }
}

impl Default for Columns {
    fn default() -> Self {
        Columns::from(Names::default())
    }
}

/// A repeated name counts once; no name is the one column `_source`.
impl From<Vec<String>> for Columns {
    fn from(list: Vec<String>) -> Self {
        let mut names = Names::default();
        for name in list {
            names.find_or_insert(name);
        }
        Columns::from(names)
    }
}

impl From<Names> for Columns {
    fn from(mut names: Names) -> Self {
        if names.names.is_empty() {
            names.find_or_insert(FALLBACK.to_owned());
        }
        Columns(names)
    }
}

impl From<Columns> for Vec<String> {
    fn from(columns: Columns) -> Self {
        columns.0.names
    }
}

/// Finds the columns of entities, given one after the other.
#[derive(Debug)]
pub struct ColumnsBuilder {
    found: NamedColumns,
    shape: Shape,
}

#[derive(Debug)]
struct NamedColumns {
    names: Names,
    limit: usize,
}

impl ColumnsBuilder {
    /// A builder that has seen no entity. `limit` columns are the most.
    pub fn new(limit: usize) -> ColumnsBuilder {
        ColumnsBuilder { found: NamedColumns { names: Names::default(), limit }, shape: Shape::default() }
    }

    /// Adds the columns of one entity, a canonical document. An entity that repeats the keys of earlier ones costs one
    /// scan.
    ///
    /// # Errors
    /// [`TooManyColumns`]. The columns so far stay.
    pub fn add(&mut self, document: &[u8]) -> Result<(), TooManyColumns> {
        self.shape.walk(document, &mut self.found)
    }

    /// Adds the columns of the entities after those of `self`.
    ///
    /// # Errors
    /// [`TooManyColumns`], when both together have more than `self` may.
    pub fn merge(&mut self, later: ColumnsBuilder) -> Result<(), TooManyColumns> {
        for name in later.found.names.names {
            self.found.check(&name, name.len())?;
            self.found.names.find_or_insert(name);
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.found.names.names.is_empty()
    }

    pub fn name_bytes(&self) -> usize {
        self.found.names.bytes
    }

    /// The columns found so far, as [`ColumnsBuilder::finish`] gives them.
    pub fn columns(&self) -> Columns {
        self.found.names.clone().into()
    }

    /// The columns found; the one column `_source` when there is none.
    pub fn finish(self) -> Columns {
        self.found.names.into()
    }
}

impl NamedColumns {
    /// Fails if `name` would be one too many.
    fn check(&self, name: &str, name_bytes: usize) -> Result<(), TooManyColumns> {
        let names = &self.names;
        let fits = names.names.len() < self.limit && names.bytes + name_bytes <= MAX_NAME_BYTES;
        match fits || names.find(name).is_some() {
            true => Ok(()),
            false => Err(TooManyColumns { limit: self.limit }),
        }
    }
}

impl Place for NamedColumns {
    type Error = TooManyColumns;

    fn column(&mut self, name: Name<'_>) -> Result<u32, TooManyColumns> {
        // Checked before it is spelled out.
        if name.escaped_bytes() > MAX_NAME_BYTES {
            return Err(TooManyColumns { limit: self.limit });
        }
        let name = name.spell();
        self.check(&name, name.len())?;
        Ok(self.names.find_or_insert(name))
    }

    fn cell(&mut self, _: u32, _: usize, _: &[u8]) {}
}

/// A list of names that differ, and an index of it.
#[derive(Clone, Debug, Default)]
pub struct Names {
    names: Vec<String>,
    bytes: usize,
    index: HashTable<u32>,
    /// A new seed each time, because anybody can choose the names.
    hasher: RandomState,
}

impl PartialEq for Names {
    fn eq(&self, other: &Names) -> bool {
        self.names == other.names
    }
}

impl Eq for Names {}

impl Names {
    pub fn list(&self) -> &[String] {
        &self.names
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn find(&self, name: &str) -> Option<u32> {
        self.index.find(self.hasher.hash_one(name), |&column| self.names[column as usize] == name).copied()
    }

    /// The position of a name, which is added at the end if it is new.
    pub fn find_or_insert(&mut self, name: String) -> u32 {
        if let Some(column) = self.find(&name) {
            return column;
        }
        let Names { names, bytes, index, hasher } = self;
        let column = names.len() as u32;
        index.insert_unique(hasher.hash_one(name.as_str()), column, |&column| {
            hasher.hash_one(names[column as usize].as_str())
        });
        *bytes += name.len();
        names.push(name);
        column
    }
}
