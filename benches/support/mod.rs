//! Modules that several benchmarks share.

pub mod binary;
pub mod blocking_client;
pub mod client;
pub mod copying;
pub mod entities;
pub mod import;
pub mod load;
pub mod mixed;
pub mod process;
pub mod requests;
pub mod samples;
pub mod sizes;
pub mod source;
pub mod table;
