//! The scan of a version: prunes row groups, evaluates predicates, and returns positions in order.
//!
//! Several row groups are processed at once and returned in order. Within a row group, the cheapest predicates run
//! first: indexed columns select rows, the full-text column selects rows that may match, and the path index decides
//! which hits count. Documents are read only for the rows that are left, and only if a predicate requires it.
//!
//! `spec` is what a scan reads and returns, `row_group` evaluates the conditions of a row group by their access paths
//! ([`access`]), `batches` returns the columns of the selected rows, and [`version_scan`] is the operator. Queries
//! build the indexes `hash_index`, `sort_index`, [`distinct_cache`] and `path_codes` in the cache.

pub mod access;
mod aux_index;
mod batches;
pub(crate) mod dedup_key;
mod dedup_source;
mod distinct;
pub mod distinct_cache;
mod equality_column;
mod full_text;
pub(crate) mod hash_index;
mod histogram;
mod indexed_column;
mod kernels;
mod key_column;
mod keyword_index;
mod metrics;
pub mod part;
mod path_codes;
pub mod predicate;
mod prefetch;
mod range_simplification;
pub mod report;
mod row_group;
mod row_group_scheduler;
mod row_selection;
pub mod schema;
mod shapes;
pub(crate) mod sort_index;
pub mod sort_key;
mod spec;
mod top_k;
mod verify;
pub mod version_scan;
