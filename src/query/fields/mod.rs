//! The fields of documents as numbers, with which diffs weigh and compare entities. Other nodes can read some row
//! groups.

pub mod chosen;
pub mod part;
pub mod row_group;
pub mod rows;
pub mod scan;
pub mod values;

/// The field that diffs compare first. It has no weight.
pub const SOURCE: &str = "_source";
