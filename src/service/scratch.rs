//! The directory of a process's temporary files: spools, spilled sorts. Beside the data, not in a directory that may be
//! in memory.
//!
//! Each process has one of its own and holds a lock on a file beside it for as long as it lives, so that what a killed
//! process left behind is told from what another one uses, and removed by the next that starts.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// What the name of a lock adds to that of its directory.
const LOCK: &str = ".lock";

/// A directory that is removed with all that is in it.
pub struct Scratch {
    directory: TempDir,
    lock: PathBuf,
    _locked: File,
}

impl Scratch {
    /// A new directory in `parent`, which is made when missing. Removes those of processes that are no more.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn create(parent: &Path) -> io::Result<Scratch> {
        fs::create_dir_all(parent)?;
        remove_abandoned(parent);
        let directory = tempfile::Builder::new().prefix("process-").tempdir_in(parent)?;
        let beside = |suffix: &str| {
            let mut path = directory.path().as_os_str().to_owned();
            path.push(suffix);
            PathBuf::from(path)
        };
        // Locked before it has the name by which others look for it.
        let (unlocked, lock) = (beside(".new"), beside(LOCK));
        let locked = File::create_new(&unlocked)?;
        locked.lock()?;
        fs::rename(&unlocked, &lock)?;
        Ok(Scratch { directory, lock, _locked: locked })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.lock) {
            tracing::debug!(%error, path = %self.lock.display(), "a lock of temporary files stays behind");
        }
    }
}

/// Removes directories whose lock nobody holds. One that cannot be removed is left for the next start.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for lock in entries.flatten().map(|entry| entry.path()) {
        let Some(directory) = lock.to_str().and_then(|path| path.strip_suffix(LOCK)) else { continue };
        let removed = File::open(&lock).and_then(|file| match file.try_lock() {
            Ok(()) => {
                if Path::new(directory).exists() {
                    fs::remove_dir_all(directory)?;
                }
                fs::remove_file(&lock)
            }
            Err(TryLockError::WouldBlock) => Ok(()),
            Err(TryLockError::Error(error)) => Err(error),
        });
        if let Err(error) = removed {
            tracing::warn!(%error, path = directory, "temporary files of an ended process stay behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_processes_left_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().expect("a directory");
        let live = Scratch::create(parent.path()).expect("made");
        let abandoned = parent.path().join("process-abandoned");
        fs::create_dir(&abandoned).expect("made");
        fs::write(abandoned.join("spilled"), "x").expect("written");
        fs::write(parent.path().join("process-abandoned.lock"), "").expect("written");
        let other = parent.path().join("something-else");
        fs::create_dir(&other).expect("made");

        let next = Scratch::create(parent.path()).expect("made");
        assert!(live.path().exists() && next.path().exists() && other.exists());
        assert!(!abandoned.exists());

        let gone = live.path().to_owned();
        drop(live);
        assert!(!gone.exists());
        assert_eq!(fs::read_dir(parent.path()).expect("readable").count(), 3);
    }
}
