//! The binary as a user meets it.

mod commands;
mod private_files;
