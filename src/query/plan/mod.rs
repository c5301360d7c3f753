//! A request as a plan: `ReadRequest -> LogicalPlan -> ExecutionPlan`.
//!
//! | Module | Holds |
//! |---|---|
//! | `pipeline` | the steps of a read as one logical plan |
//! | `functions` | the functions that plans call |
//! | `table` | a version as a DataFusion table |
//! | `limit_pushdown`, `sorts` | the physical rules that these plans need besides DataFusion's |
//! | `planner` | DataFusion's planner with these rules |

mod functions;
mod limit_pushdown;
mod pipeline;
pub(crate) mod planner;
pub(crate) mod sorts;
mod table;
