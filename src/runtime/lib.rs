//! Basics of a strata process: threads and their priorities, blocking calls, memory, and metrics.

pub mod blocking;
pub mod failpoint;
pub mod memory;
pub mod metrics;
pub mod priority;
