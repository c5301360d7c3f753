//! Version files.

mod disk_cache;
mod files;
mod keyword_index;
mod outline;
mod profile;
mod shapes;
mod stores;
