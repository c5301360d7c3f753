//! The binary from a user's view.

mod addresses;
mod catalog_file;
mod certificates;
mod commands;
mod memory;
mod private_files;
mod restore;
mod verify;
