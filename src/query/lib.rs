//! Runs a request as a DataFusion plan: `ReadRequest -> LogicalPlan -> positions -> documents`.
//!
//! 1. [`plan`] builds the logical plan, in the order of docs/reference/query-semantics.md, Steps. A few optimizer rules
//!    push predicates and limits into the scan.
//! 2. [`scan`] prunes row groups and evaluates predicates over indexed columns, the keyword index, and documents. Its
//!    output is the positions of the matching entities, in order.
//! 3. [`select`](QueryEngine::select) collects the positions: the selection. The selection is complete before the first
//!    byte of a response, and the memory pool accounts for it.
//! 4. [`fetch`] reads the selected documents last, page by page. If there are many in another order than the file, an
//!    external sort spills them to disk.
//!
//! All steps run in a [`QueryEngine`]. [`cost`] estimates the work of a request before it runs, and [`explain`] reports
//! the work done. Diffs read the fields of documents with [`fields`].

mod active_queries;
mod cached_response;
mod coop;
pub mod cost;
pub mod distribution;
pub mod engine;
pub mod error;
pub mod explain;
pub mod fetch;
pub mod fields;
pub mod plan;
pub mod principal_quota;
pub mod query_execution;
pub mod scan;
pub mod tasks;
pub mod tracked_vec;
pub mod unary_exec;

pub use engine::{QueryEngine, QueryEngineOptions};
pub use error::QueryError;
pub use fetch::selection::QueryOutcome;
pub use principal_quota::PrincipalShares;
pub use strata_limits::HashedPrincipal;
