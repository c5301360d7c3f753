//! Sources and bodies that mean harm: bombs, dawdlers, names that nobody answers for.

mod bodies;
mod bombs;
mod forge;
mod memory;
mod names;
mod parquet;
mod queries;
