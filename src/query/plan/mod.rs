//! A request as a plan.

pub(super) mod compact;
pub mod functions;
pub mod limit_pushdown;
pub mod pipeline;
pub mod table;
