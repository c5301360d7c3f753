//! The object store of version files, and the local disk: caches, checksums, timeouts, and errors.

pub mod checksums;
pub mod disk_cache;
pub mod error;
pub mod free_space;
pub mod fs_timeout;
pub mod fsync;
pub mod spool_quota;
pub mod staged_uploads;
pub mod store;
pub mod temp_file;
pub mod unavailable;

pub use error::{
    BASE_PART_NAME, DataDirectoryMissingError, Result, StorageError, StoreMissingError, StoreUnresponsiveError,
    TempDirUnusableError,
};
