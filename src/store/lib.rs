//! The object store of version files, and the local disk: caches, checksums, timeouts, and what is wrong with either.

pub mod budget;
pub mod checksums;
pub mod directory;
pub mod disk_cache;
pub mod durable;
pub mod error;
pub mod free_space;
pub mod shortage;
pub mod store;
pub mod temporary;
pub mod unfinished;

pub use error::{BASE, DirectoryGone, NoTemporaryFiles, Result, StorageError, StoreGone, StoreSilent};
