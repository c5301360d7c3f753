//! Version files: a version's entities in an immutable Parquet file, written through `object_store` and read by page.
//!
//! [`writer`] writes the entities of a [`spool`] with the columns of a [`layout`], [`reader`] opens a file and returns
//! its parts, and [`cache`] caches them. [`overlay`] explains versions that share
//! entities with other files.

pub mod aux_index;
pub mod cache;
pub mod cached_part;
pub mod delta;
pub mod document_page;
pub mod editing;
mod extent_codec;
mod extent_list;
pub mod fetched_range;
pub mod footer;
mod footer_index;
pub mod hash_index;
pub mod keywords;
pub mod layout;
pub mod overlay;
mod page_table;
pub mod path_tree;
pub mod profile;
pub mod reader;
pub mod reader_metrics;
pub mod shredder;
pub mod spool;
pub mod substring_search;
pub mod verify;
pub mod writer;
mod zstd_frame;
