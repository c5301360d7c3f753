//! The folder of a process in the folder of the cache. Each process has one alone for as long as it lives; the next
//! process takes it over with all that is in it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::durable;

/// Processes with one data directory that have a cache at a time.
const MAX_FOLDERS: usize = 64;

const LOCK: &str = "lock";

/// Directories above a process's folder that are made when missing. The data directory is none of them.
const ABOVE: usize = 1;

pub(super) struct Folder {
    pub(super) path: PathBuf,
    _lock: File,
}

impl Folder {
    pub(super) fn take(parent: &Path) -> io::Result<Folder> {
        for number in 0..MAX_FOLDERS {
            let path = parent.join(number.to_string());
            durable::restore_directory(&path, ABOVE)?;
            let lock = File::options().create(true).truncate(false).write(true).open(path.join(LOCK))?;
            if lock.try_lock().is_ok() {
                return Ok(Folder { path, _lock: lock });
            }
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "other processes are using all disk cache folders"))
    }

    pub(super) fn is_there(&self) -> bool {
        self.path.join(LOCK).exists()
    }

    /// Removes what ended processes left in folders beside this one, which nobody has taken over.
    pub(super) fn clear_others(&self) {
        for path in self.path.parent().map(entries).unwrap_or_default() {
            let Ok(lock) = File::options().write(true).open(path.join(LOCK)) else { continue };
            if path == self.path || lock.try_lock().is_err() {
                continue;
            }
            for file in entries(&path).iter().filter(|file| !file.ends_with(LOCK)) {
                // The next process tries again.
                let _ = fs::remove_file(file);
            }
        }
    }
}

pub(super) fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
