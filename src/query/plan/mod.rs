//! A request as a plan: `ReadRequest -> LogicalPlan -> ExecutionPlan`.

mod functions;
mod limit_pushdown;
mod pipeline;
pub(crate) mod planner;
pub(crate) mod sorts;
mod table;
