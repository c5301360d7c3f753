//! Sources and bodies that mean harm: dawdlers, names that nobody answers for.

mod bodies;
mod memory;
mod names;
mod queries;
