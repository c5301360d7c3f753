//! Version files.

mod files;
mod profile;
mod stores;
