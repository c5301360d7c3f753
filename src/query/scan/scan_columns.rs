//! The columns that a scan returns.

use arrow::datatypes::{DataType, Field};

use crate::scan::dedup_spec::DedupSpec;
use crate::scan::sort_key::OrderSpec;

/// Output column with the position of an entity in the version, from 0.
pub const POSITION_COLUMN: &str = "position";
/// Column name to which predicates refer. No scan returns the column.
pub(crate) const DOCUMENT_COLUMN: &str = "document";
/// Output column with the key of `sort`: bytes that sort like the entities.
pub(crate) const ORDER_COLUMN: &str = "order";
/// Output column with the key of `dedup`: bytes that are equal for duplicates.
pub(crate) const GROUP_COLUMN: &str = "group";

pub(crate) fn scan_column_field(name: &str) -> Field {
    Field::new(name, if name == POSITION_COLUMN { DataType::UInt64 } else { DataType::Binary }, false)
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ComputedColumns {
    pub order: Option<OrderSpec>,
    pub group: Option<DedupSpec>,
}
