//! The fields of documents as numbers, by which diffs weigh and compare entities. Whoever looks at the documents of
//! many entities does so by row group, and other nodes may help.
//!
//! | Module | Holds |
//! |---|---|
//! | [`values`] | values of fields as numbers |
//! | [`row_group`] | the values, or the features, of entities of one row group |
//! | [`chosen`] | which entities are looked at |
//! | [`rows`] | values and features as rows, which nodes give |
//! | [`scan`] | the scan of two versions for them, as an operator |
//! | [`part`] | parts of it, which other nodes run |

pub(crate) mod chosen;
pub(crate) mod part;
pub(crate) mod row_group;
pub(crate) mod rows;
pub(crate) mod scan;
pub(crate) mod values;

/// The field by which diffs tell entities apart first. It has no weight.
pub(crate) const SOURCE: &str = "_source";
