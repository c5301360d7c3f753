//! Planning: `ReadRequest -> LogicalPlan -> ExecutionPlan`.

mod functions;
mod limit_pushdown;
mod logical_plan;
pub(crate) mod planner;
pub(crate) mod spilling_sorts;
mod version_table;
