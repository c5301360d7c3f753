//! Scans a version: prunes row groups, evaluates predicates, and returns positions in order.
//!
//! Several row groups are processed at once. Within a row group, the cheapest predicates run first: indexed columns
//! select rows, and the keyword index lists rows that contain a text or can contain it. Documents are read only for the
//! remaining rows, and only if a predicate requires it.
//!
//! [`version_scan`] is the operator, `scan_spec` its plan, `row_group_evaluator` evaluates the predicates of a row
//! group by their access paths ([`access_path`]), and `row_group_output` returns the columns of the selected rows.
//! Queries build the indexes `hash_index`, `sort_index`, [`distinct_cache`] and `path_codes` in the cache.

pub mod access_path;
mod arrow_kernels;
mod aux_index_build;
mod dedup_key_column;
mod dedup_key_source;
pub(crate) mod dedup_spec;
pub mod distinct_cache;
mod distinct_filter;
mod document_verifier;
mod equality_column;
pub(crate) mod hash_index;
mod histogram;
mod indexed_comparison;
mod keyword_index;
pub mod partial_scan;
mod path_codes;
pub mod predicate;
mod prefetch;
mod range_simplification;
mod row_group_evaluator;
mod row_group_output;
mod row_group_scheduler;
mod row_selection;
pub mod scan_columns;
mod scan_metrics;
pub mod scan_report;
mod scan_spec;
pub(crate) mod sort_index;
pub mod sort_key;
mod sort_rank;
mod top_k_threshold;
pub mod version_scan;
