//! What the benchmarks share.

pub mod binary;
pub mod blocking_client;
pub mod client;
pub mod copying;
pub mod entities;
pub mod import;
pub mod process;
pub mod samples;
pub mod sizes;
pub mod source;
