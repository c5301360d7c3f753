//! Version files.

mod files;
mod keyword_index;
mod profile;
mod shapes;
mod stores;
