//! The use cases, as owners, agents and operators meet them.

mod agents;
mod alternates;
mod binding;
mod changes;
mod diffs;
mod edits;
mod explain;
mod exports_ahead;
mod held;
mod maintenance;
mod refreshes;
mod tuning;
