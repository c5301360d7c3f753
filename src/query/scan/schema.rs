//! The columns that a scan gives.

use crate::query::scan::dedup_key::GroupSpec;
use crate::query::scan::sort_key::OrderSpec;

/// The column that holds an entity's position in the version, from 0: the order of rows, as data.
pub(crate) const POSITION: &str = "position";

pub(crate) const DOCUMENT: &str = "document";

/// The column that holds the key of `sort`, where there is one: bytes that order as the entities shall.
pub(crate) const ORDER: &str = "order";

/// The column that holds the key of `dedup`, where there is one: bytes that are equal for duplicates.
pub(crate) const GROUP: &str = "group";

#[derive(Clone, Debug, Default)]
pub(crate) struct Computed {
    pub order: Option<OrderSpec>,
    pub group: Option<GroupSpec>,
}
