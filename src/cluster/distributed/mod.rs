//! Large queries of one node that others help with. All that knows the library `datafusion-distributed` is here.
//!
//! 1. A query that has to read more than `cluster.distribute_bytes` which are not cached is cut into tasks, one for
//!    each node: a row group belongs to nodes by rendezvous hashing ([`crate::affinity`]).
//! 2. `cut` places the boundary between the nodes and the one that answers.
//! 3. Each node opens the file and scans its row groups, within its own permits, memory and time.
//! 4. The node that answers merges the rows by columns: neither the order of batches nor that of tasks counts.
//! 5. If anything fails, the query runs again without the others (`query::distribute`).

mod channels;
mod connections;
mod coordinator;
mod cut;
mod ending;
mod gather;
mod guard;
mod part_scan;
mod task;
mod worker;

pub use coordinator::{Coordinator, DistributionOptions, OwnNode, Peer};

/// The version of the program. Nodes of another one do not help: plans and files may mean something else to them.
const VERSION: &str = env!("CARGO_PKG_VERSION");
