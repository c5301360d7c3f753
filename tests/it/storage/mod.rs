//! Version files.

mod disk_cache;
mod files;
mod indented;
mod keyword_index;
mod outline;
mod profile;
mod shapes;
mod stores;
