//! The scan of a version: row groups pruned, predicates evaluated, positions given in order.
//!
//! Row groups are worked on several at once and given in order. Within one, predicates run from cheap to dear:
//! shredded columns select rows, the search text selects rows that may match, shapes tell which of its hits count, and
//! documents are read only for rows that are still selected and only when a predicate needs them.
//!
//! | Module | Holds |
//! |---|---|
//! | [`predicate`] | the conditions of a request, prepared |
//! | [`access`] | the access path of each condition: indexed column, full-text column, path index, documents |
//! | `row_group` | the evaluator: which rows of a row group match all conditions, and their columns |
//! | `indexed_column` | conditions on indexed columns: statistics, bloom filters, values |
//! | `full_text` | conditions on the full-text column |
//! | `keyword_index` | the rows that the keyword index lists for them |
//! | `shapes` | conditions on the path index: the path of each hit in the full-text column |
//! | `verify` | conditions on documents, many in one walk |
//! | `aux_index` | the build of indexes that the cache keeps |
//! | `kernels` | predicates over the Arrow arrays of a row group |
//! | `tightest` | the range filters that imply all others |
//! | `sort_key`, `dedup_key` | the keys of `sort` and `dedup` |
//! | `key_column`, `path_codes` | what keys of `dedup` are made of: values in shredded columns, and codes of values |
//! | `distinct` | which rows may be the first of their group |
//! | `kept_groups` | the first entities of all groups, kept in the cache |
//! | `kept_index` | which entities may match an exact filter, by a hash index of a column in the cache |
//! | `kept_order` | the order of a column, kept in the cache |
//! | `radix_sort` | how it is made |
//! | `schema` | the columns that a scan gives |
//! | `row_selection` | the selected rows of a row group |
//! | `top_k` | the threshold below which a row may be among the first of an order |
//! | `spec` | what a scan reads and gives |
//! | `spread` | how many numbers of a path are not below some limits |
//! | `wanted` | what its reader fetches ahead |
//! | `in_flight` | work on several row groups at once |
//! | `batches` | the columns of selected rows, in batches |
//! | `metrics`, [`report`] | the report of a scan, and how it is recorded |
//! | `version_scan` | the operator |
//! | `part` | parts of a scan, which other nodes run |

pub mod access;
mod aux_index;
mod batches;
pub(crate) mod dedup_key;
mod distinct;
mod full_text;
mod in_flight;
mod indexed_column;
pub mod kept_groups;
pub(crate) mod kept_index;
pub(crate) mod kept_order;
mod kernels;
mod key_column;
mod keyword_index;
mod metrics;
pub mod part;
mod path_codes;
pub mod predicate;
mod radix_sort;
pub mod report;
mod row_group;
mod row_selection;
pub mod schema;
mod shapes;
pub mod sort_key;
mod spec;
mod spread;
pub(crate) mod tightest;
mod top_k;
mod verify;
pub mod version_scan;
mod wanted;
