//! Fields of the keyword index: the paths that a search can be restricted to.
//!
//! The paths with the most text have their own field, with the numbers from 1 in the order of the [`FieldTable`]. All
//! other paths share the field [`OTHER_PATHS`]. For example, `title` has field 1 and `body` field 2; the token `car` of
//! a row with this word in its title and in its tags has the fields 0 and 1.

use serde::{Deserialize, Serialize};

pub const OTHER_PATHS: u8 = 0;
pub const MAX_FIELDS: usize = 32;

/// A set of field numbers below [`MAX_FIELDS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FieldSet(u32);

impl FieldSet {
    pub const ALL: FieldSet = FieldSet(u32::MAX);
    pub const EMPTY: FieldSet = FieldSet(0);

    pub fn from_bits(bits: u32) -> FieldSet {
        FieldSet(bits)
    }

    pub fn bits(self) -> u32 {
        self.0
    }

    pub fn single(field: u8) -> FieldSet {
        FieldSet(1 << (u32::from(field) % u32::BITS))
    }

    pub fn contains(self, field: u8) -> bool {
        self.intersects(FieldSet::single(field))
    }

    pub fn intersects(self, other: FieldSet) -> bool {
        self.0 & other.0 != 0
    }

    pub fn intersection(self, other: FieldSet) -> FieldSet {
        FieldSet(self.0 & other.0)
    }

    pub fn is_subset(self, other: FieldSet) -> bool {
        self.0 & !other.0 == 0
    }

    pub fn union(self, other: FieldSet) -> FieldSet {
        FieldSet(self.0 | other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Lists the field numbers in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..u32::BITS as u8).filter(move |field| self.contains(*field))
    }
}

impl FromIterator<u8> for FieldSet {
    fn from_iter<I: IntoIterator<Item = u8>>(fields: I) -> FieldSet {
        fields.into_iter().fold(FieldSet::EMPTY, |all, field| all.union(FieldSet::single(field)))
    }
}

/// The paths that have their own field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldTable {
    /// The paths, as keys. The path at index `n` has the field `n + 1`.
    paths: Vec<Vec<String>>,
    /// The fields of whose long hexadecimal tokens, such as hashes, the index has only the first digits. The text of
    /// the path's indexed column is searched for other parts, because storing them again would take as much space.
    pub hashes_in_columns: FieldSet,
}

impl FieldTable {
    /// Creates a table of the first [`MAX_FIELDS`] - 1 paths.
    pub fn new(mut paths: Vec<Vec<String>>) -> FieldTable {
        paths.truncate(MAX_FIELDS - 1);
        FieldTable { paths, hashes_in_columns: FieldSet::EMPTY }
    }

    /// Returns the fields of the paths for which `accepts` is true.
    pub fn select(&self, accepts: impl Fn(&[String]) -> bool) -> FieldSet {
        self.fields().filter(|(path, _)| accepts(path)).map(|(_, field)| field).collect()
    }

    /// Lists the paths with their own field, and the number of this field.
    pub fn fields(&self) -> impl Iterator<Item = (&[String], u8)> {
        self.paths.iter().map(Vec::as_slice).zip(1..)
    }

    pub fn is_valid(&self) -> bool {
        self.paths.len() < MAX_FIELDS
    }

    /// Returns the field of the scalars at a path. Several paths can have the field [`OTHER_PATHS`].
    pub fn find(&self, keys: &[String]) -> u8 {
        self.fields().find(|(path, _)| *path == keys).map_or(OTHER_PATHS, |(_, field)| field)
    }

    pub fn memory_bytes(&self) -> usize {
        let keys = self.paths.iter().flatten();
        keys.map(|key| size_of::<String>() + key.capacity()).sum::<usize>()
            + self.paths.len() * size_of::<Vec<String>>()
    }
}
