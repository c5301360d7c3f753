//! The scan of a version: row groups pruned, predicates evaluated, positions given in order.
//!
//! Row groups are worked on several at once and given in order. Within one, predicates run from cheap to dear:
//! shredded columns select rows, the search text selects rows that may match, and documents are read only for rows that
//! are still selected and only when a predicate needs them.
//!
//! | Module | Holds |
//! |---|---|
//! | [`predicate`] | the conditions of a request, prepared |
//! | [`access`] | how each is answered: decided apart from answering it |
//! | `keyword_index` | what the keyword index says of them |
//! | `kernels` | predicates over the Arrow arrays of a row group |
//! | `sort_key`, `dedup_key` | the keys of `sort` and `dedup` |
//! | `schema` | the columns that a scan gives |
//! | `row_selection` | the selected rows of a row group |
//! | `top_k` | the threshold below which a row may be among the first of an order |
//! | `spec` | what a scan reads and gives |
//! | `wanted` | what its reader fetches ahead |
//! | `in_flight` | work on several row groups at once |
//! | `row_group` | what it gives of one row group |
//! | `metrics`, [`report`] | what it has done: counters, and plain data |
//! | `version_scan` | the operator |

pub mod access;
pub(in crate::query) mod dedup_key;
mod in_flight;
mod kernels;
mod keyword_index;
mod metrics;
pub mod predicate;
pub mod report;
mod row_group;
mod row_selection;
pub(in crate::query) mod schema;
pub(crate) mod sort_key;
mod spec;
mod top_k;
pub(in crate::query) mod version_scan;
mod wanted;
