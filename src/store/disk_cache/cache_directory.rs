//! A process's own directory below the cache's parent directory.
//!
//! Problem: several processes can have a cache in one data directory, but only one can write to a segment. Therefore,
//! each process locks a numbered directory while it runs. For example, the first process acquires `0`, and a second one
//! acquires `1`. When both have ended, the next process acquires `0` together with the ranges in it, and removes the
//! files in `1`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::fsync;

/// Max processes that can use a disk cache in one data directory at the same time.
const MAX_CACHE_DIRECTORIES: usize = 64;
const LOCK_FILE_NAME: &str = "lock";
/// Number of missing parents that are created again with a cache directory. The data directory is not one of them.
const MAX_RECREATED_PARENTS: usize = 1;

pub(super) struct CacheDirectory {
    pub(super) path: PathBuf,
    _lock: File,
}

impl CacheDirectory {
    /// Locks the first directory that no other process has locked. Fails if other processes use all directories.
    pub(super) fn acquire(parent: &Path) -> io::Result<CacheDirectory> {
        for number in 0..MAX_CACHE_DIRECTORIES {
            let path = parent.join(number.to_string());
            fsync::recreate_dir(&path, MAX_RECREATED_PARENTS)?;
            let lock = File::options().create(true).truncate(false).write(true).open(path.join(LOCK_FILE_NAME))?;
            if lock.try_lock().is_ok() {
                return Ok(CacheDirectory { path, _lock: lock });
            }
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "other processes are using all disk cache folders"))
    }

    /// Returns false if another program has deleted the directory.
    pub(super) fn exists(&self) -> bool {
        self.path.join(LOCK_FILE_NAME).exists()
    }

    /// Removes the cache files of stopped processes from sibling directories, unless another process has locked them.
    pub(super) fn clear_abandoned_directories(&self) {
        for path in self.path.parent().map(list_entries).unwrap_or_default() {
            let Ok(lock) = File::options().write(true).open(path.join(LOCK_FILE_NAME)) else { continue };
            if path == self.path || lock.try_lock().is_err() {
                continue;
            }
            for file in list_entries(&path).iter().filter(|file| !file.ends_with(LOCK_FILE_NAME)) {
                let _ = fs::remove_file(file);
            }
        }
    }
}

/// Returns the paths of all entries, and an empty list if the directory cannot be read.
pub(super) fn list_entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
