//! Version files: how the entities of one version lie in Parquet, written once through `object_store` and
//! read by page.
//!
//! [`writer`] writes the entities of a [`spool`] with the columns of a [`layout`], [`reader`] opens a file and returns
//! its parts, and [`cache`] keeps them. [`overlay`] explains versions that are edits of another file.

pub mod aux_index;
pub mod cache;
pub mod document_page;
pub mod editing;
mod extent_list;
pub mod fetched_range;
pub mod footer;
pub mod hash_index;
pub mod keywords;
pub mod layout;
mod outline;
pub mod overlay;
mod page_table;
pub mod parts;
pub mod profile;
pub mod reader;
pub mod reader_metrics;
pub mod shapes;
pub mod shred;
pub mod spool;
pub mod tree;
pub mod verify;
pub mod writer;
mod zstd_frame;
