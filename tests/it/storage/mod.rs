//! Version files.

pub mod files;
pub mod profile;
