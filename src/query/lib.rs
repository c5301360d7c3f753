//! A read as a DataFusion plan: `ReadRequest -> LogicalPlan -> positions -> documents`.
//!
//! 1. [`plan`] builds the logical plan, in the order of docs/reference/query-semantics.md, Steps. A few optimizer rules
//!    push predicates and limits into the scan.
//! 2. [`scan`] decides what to read of each row group, and evaluates predicates over indexed columns, the full-text
//!    column and documents. It returns positions in order.
//! 3. [`select`] collects the positions: the selection. It is complete before the first byte of a response, and the
//!    memory pool accounts for it.
//! 4. [`fetch`] reads the selected documents last, page by page. If they are many and in another order than the file,
//!    it sorts them on disk.
//!
//! All of it runs in an [`engine`]. [`cost`] estimates the work of a request before it runs, and [`explain`] reports
//! what it did. Diffs read the fields of documents with [`fields`].

pub mod account;
mod cached_answer;
mod concurrency;
mod coop;
pub mod cost;
pub mod distribute;
pub mod engine;
pub mod error;
pub mod explain;
pub mod fetch;
pub mod fields;
pub mod operator;
pub mod plan;
pub mod scan;
pub mod select;
pub mod tasks;
pub mod tenants;

pub use engine::{Engine, EngineOptions};
pub use error::QueryError;
pub use fetch::selection::Outcome;
pub use strata_limits::HashedPrincipal as Tenant;
pub use tenants::TenantShares;
