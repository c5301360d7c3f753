//! The binary as a user meets it.

mod addresses;
mod catalog_file;
mod certificates;
mod commands;
mod memory;
mod private_files;
mod restore;
