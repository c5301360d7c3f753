//! The use cases, as owners, agents and operators meet them.

pub mod agents;
pub mod alternates;
pub mod binding;
pub mod diffs;
pub mod explain;
pub mod held;
pub mod maintenance;
pub mod refreshes;
pub mod tuning;
