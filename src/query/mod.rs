//! A read as a DataFusion plan: `ReadRequest -> LogicalPlan -> positions -> documents`.
//!
//! Steps of one query:
//! 1. [`pipeline`] builds the logical plan, one step per file, in the order of docs/semantics.md, Steps.
//! 2. The few optimizer rules that these plans need push predicates and limits into the scan ([`engine`]).
//! 3. [`scan`] decides what to read per row group ([`access`]) and evaluates predicates over shredded columns, search
//!    text and documents ([`kernels`]), giving positions in order.
//! 4. The positions are the [`selection`]: settled before the first byte of an answer, accounted to the memory pool.
//! 5. [`documents`] fetches the selected documents last, page by page, or by way of the disk (`reorder`) where they
//!    are many and in another order than the file's.
//!
//! What queries hold is accounted to whom they run for ([`tenants`]). [`explain`] tells what a query did. [`diff`]
//! compares two versions on the same engine.

pub mod cost;
pub mod engine;
pub(crate) mod error;
pub mod explain;
pub mod fetch;
mod pace;
pub mod plan;
pub mod scan;
pub mod tenants;

pub use engine::{Engine, EngineOptions};
pub use error::QueryError;
pub use tenants::{Tenant, TenantShares};
