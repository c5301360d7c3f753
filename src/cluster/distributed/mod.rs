//! Large queries of one node that others help with, on DataFusion's own distribution. A thin layer: all that knows the
//! library `datafusion-distributed` is here.
//!
//! 1. A query that has to read more than `cluster.distribute_bytes` which are not cached is cut into tasks, one for
//!    each node: a row group belongs to nodes by rendezvous hashing ([`crate::cluster::affinity`]).
//! 2. `cut` places the boundary between the nodes and the one that answers. The library would place none in plans of
//!    one partition.
//! 3. Each node opens the file and scans its row groups, within its own permits, memory and time.
//! 4. The node that answers merges what they give, by columns: neither the order of batches nor that of tasks counts.
//! 5. If anything fails, the query runs again without the others (`query::distribute`).
//!
//! | Module | Holds |
//! |---|---|
//! | `channels` | connections to other nodes |
//! | `connections` | those of other nodes, a bounded number |
//! | `guard` | what lets requests of nodes of this service through, and no others |
//! | `permits` | how many tasks of other nodes run at once |
//! | `task` | what a node does, as an operator: on the threads of queries, with a permit |
//! | `part_scan` | the scan of a node, as an operator: the file is opened when it runs |
//! | `gather` | what the nodes give, counted by node and checked, as an operator |
//! | `ending` | the last row of what a node gives: nothing that was cut looks whole |
//! | `codec` | these operators as bytes |
//! | `cut` | where plans are cut |
//! | `worker` | the sessions and the server of a node that helps |
//! | `coordinator` | which queries are distributed, and to whom |

mod channels;
mod codec;
mod connections;
mod coordinator;
mod cut;
mod ending;
mod gather;
mod guard;
mod part_scan;
mod permits;
mod task;
mod worker;

pub use coordinator::{Coordinator, DistributionOptions, OwnNode, Peer};

/// The version of the program. Nodes of another one do not help: plans and files may mean something else to them.
const VERSION: &str = env!("CARGO_PKG_VERSION");
