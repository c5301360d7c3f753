//! Distributed queries: several nodes scan the row groups of one query. Only this module uses `datafusion-distributed`.
//!
//! 1. The coordinating node divides a query that must read more than `cluster.distribute_bytes` of uncached bytes into
//!    tasks, one for each node. Rendezvous hashing ([`crate::affinity`]) assigns each row group to a node.
//! 2. [`plan_split`] decides which operators run on the nodes and which on the coordinating node.
//! 3. Each node opens the file and scans its row groups, with its own limits for permits, memory and time.
//! 4. The coordinating node merges the rows by their columns. The order of batches and of tasks does not matter.
//! 5. If a task fails, the query runs again on the coordinating node only ([`strata_query::distribution`]).

mod auth;
mod channels;
mod connections;
mod coordinator;
mod end_marker;
mod gather;
mod partial_scan;
mod plan_split;
mod remote_task;
mod worker;

pub use coordinator::{DistributionOptions, LocalNode, PeerNode, QueryCoordinator};
