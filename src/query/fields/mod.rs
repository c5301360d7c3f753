//! The fields of documents as hashes, which diffs compare. Other nodes can scan some row groups.

pub mod entity_counts;
pub mod field_hash;
pub mod field_scan;
pub mod partial_field_scan;
pub mod record_rows;
pub mod row_group_fields;

/// The field `_source`, by which diffs group entities first. It does not count when entities are compared later.
pub const SOURCE_FIELD: &str = "_source";
