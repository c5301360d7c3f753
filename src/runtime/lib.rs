//! What a process of strata is made of: threads and their priorities, blocking calls, memory, metrics.

pub mod blocking;
pub mod crash;
pub mod memory;
pub mod metrics;
pub mod priority;
