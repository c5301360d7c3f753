//! The binary as a user meets it.

pub mod commands;
pub mod private_files;
