//! Version files.

mod aux_indexes;
mod cache;
mod checksums;
mod disk_cache;
mod extents;
mod files;
mod indented;
mod keyword_index;
mod keyword_segments;
mod local_disk;
mod outline;
mod posting_lists;
mod profile;
mod profile_reference;
mod segment_reader;
mod shapes;
mod shortage;
mod stored_profile;
mod stores;
mod tokenizer;
