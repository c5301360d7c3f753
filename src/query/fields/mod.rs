//! The fields of documents as numbers, by which diffs weigh and compare entities. Whoever looks at the documents of
//! many entities does so by row group, and other nodes may help.

pub mod chosen;
pub mod part;
pub mod row_group;
pub mod rows;
pub mod scan;
pub mod values;

/// The field by which diffs tell entities apart first. It has no weight.
pub const SOURCE: &str = "_source";
