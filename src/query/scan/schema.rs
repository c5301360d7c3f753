//! The columns that a scan returns.

use arrow::datatypes::{DataType, Field};

use crate::scan::dedup_key::GroupSpec;
use crate::scan::sort_key::OrderSpec;

/// The position of an entity in the version, from 0.
pub const POSITION: &str = "position";

/// Conditions refer to this column. No scan returns it.
pub(crate) const DOCUMENT: &str = "document";

/// The key of `sort`: bytes that sort like the entities.
pub(crate) const ORDER: &str = "order";

/// The key of `dedup`: bytes that are equal for duplicates.
pub(crate) const GROUP: &str = "group";

pub(crate) fn field(name: &str) -> Field {
    Field::new(name, if name == POSITION { DataType::UInt64 } else { DataType::Binary }, false)
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Computed {
    pub order: Option<OrderSpec>,
    pub group: Option<GroupSpec>,
}
