//! Tests of version files, the store, and the local disk.

mod aux_indexes;
mod cache;
mod checksums;
mod disk_cache;
mod extents;
mod files;
mod footer_index;
mod indented;
mod keyword_index;
mod keyword_segments;
mod local_disk;
mod posting_lists;
mod profile;
mod profile_reference;
mod segment_reader;
mod stored_profile;
mod stores;
mod tokenizer;
mod unavailable;
