//! Tests of the use cases of owners, agents and operators.

mod agents;
mod alternates;
mod binding;
mod changes;
mod checks;
mod compaction;
mod delta_files;
mod diffs;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod disk_cache;
mod edited_files;
mod edits;
mod explain;
mod exports_ahead;
mod hanging_store;
mod maintenance;
mod refreshes;
mod shared_exports;
mod tuning;
