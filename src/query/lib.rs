//! A read as a DataFusion plan: `ReadRequest -> LogicalPlan -> positions -> documents`.
//!
//! Steps of one query:
//! 1. [`plan`] builds the logical plan, one step per file, in the order of docs/reference/query-semantics.md, Steps.
//!    The few optimizer rules that these plans need push predicates and limits into the scan.
//! 2. [`scan`] decides what to read per row group and evaluates predicates over shredded columns, search text and
//!    documents, giving positions in order.
//! 3. The positions are the selection: complete before the first byte of an answer, accounted to the memory pool.
//! 4. [`fetch`] reads the selected documents last, page by page, or by way of the disk where they are many and in
//!    another order than the file's.
//!
//! | Module | Holds |
//! |---|---|
//! | [`distribute`] | what is asked of who knows other nodes |
//! | [`engine`] | what queries run in: threads, memory, disk |
//! | `concurrency` | whether a query ran with no other |
//! | [`tenants`] | the shares of those for whom queries run |
//! | `error` | what can go wrong |
//! | `operator` | operators with one input, but for what they do |
//! | `pace` | points of giving way |
//! | `account` | lists that are accounted to the memory pool |
//! | `tasks` | work on row groups of two versions |
//! | [`fetch`] | documents of selected entities |
//! | [`scan`] | what is read per row group, and the predicates over it |
//! | `fields` | the fields of documents as numbers, for diffs |
//! | `kept` | requests whose answer the cache holds already |
//! | [`plan`] | requests as plans |
//! | [`select`] | the run of a plan |
//! | [`explain`] | what a query did |
//! | [`cost`] | how much work a request is, before it runs |
//!
//! Modules use those above them in this table.

pub mod account;
mod concurrency;
pub mod cost;
pub mod distribute;
pub mod engine;
pub mod error;
pub mod explain;
pub mod fetch;
pub mod fields;
mod kept;
pub mod operator;
mod pace;
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
