//! A process's own directory below the cache's parent directory. The process locks the directory while it runs. The
//! next process acquires the directory together with the ranges in it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::fsync;

/// Max processes that can use a cache in one data directory at the same time.
const MAX_CACHE_DIRECTORIES: usize = 64;
const LOCK_FILE_NAME: &str = "lock";
/// Missing levels above a process's directory that are created again. The data directory is not one of them.
const MAX_RECREATED_PARENTS: usize = 1;

pub(super) struct CacheDirectory {
    pub(super) path: PathBuf,
    _lock: File,
}

impl CacheDirectory {
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

    pub(super) fn exists(&self) -> bool {
        self.path.join(LOCK_FILE_NAME).exists()
    }

    /// Removes the files that stopped processes left in sibling directories, unless another process has locked them.
    pub(super) fn clear_abandoned(&self) {
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

pub(super) fn list_entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
