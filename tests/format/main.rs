//! Version files.

mod disk_cache;
mod files;
mod indented;
mod keyword_index;
mod outline;
mod profile;
mod profile_reference;
mod shapes;
mod stores;
