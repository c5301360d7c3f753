//! The binary as a user meets it.

mod addresses;
mod catalog_file;
mod commands;
mod private_files;
mod restore;
