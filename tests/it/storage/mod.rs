//! Version files.

mod files;
mod keyword_index;
mod outline;
mod profile;
mod shapes;
mod stores;
