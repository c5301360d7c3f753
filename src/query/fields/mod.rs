//! The fields of documents as numbers, by which diffs weigh and compare entities. Whoever looks at the documents of
//! many entities does so by row group, and other nodes may help.

pub(crate) mod chosen;
pub(crate) mod part;
pub(crate) mod row_group;
pub(crate) mod rows;
pub(crate) mod scan;
pub(crate) mod values;

/// The field by which diffs tell entities apart first. It has no weight.
pub(crate) const SOURCE: &str = "_source";
