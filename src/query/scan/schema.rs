//! The columns that a scan gives.

use arrow::datatypes::{DataType, Field};

use crate::scan::dedup_key::GroupSpec;
use crate::scan::sort_key::OrderSpec;

/// The column that holds an entity's position in the version, from 0: the order of rows, as data.
pub const POSITION: &str = "position";

/// The column that conditions name. No scan gives it.
pub(crate) const DOCUMENT: &str = "document";

/// The column that holds the key of `sort`, where there is one: bytes that order as the entities shall.
pub(crate) const ORDER: &str = "order";

/// The column that holds the key of `dedup`, where there is one: bytes that are equal for duplicates.
pub(crate) const GROUP: &str = "group";

pub(crate) fn field(name: &str) -> Field {
    Field::new(name, if name == POSITION { DataType::UInt64 } else { DataType::Binary }, false)
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Computed {
    pub order: Option<OrderSpec>,
    pub group: Option<GroupSpec>,
}
