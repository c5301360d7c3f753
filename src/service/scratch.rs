//! The directory of a process's temporary files: spools, spilled sorts. Beside the data, not in a directory that may be
//! in memory.
//!
//! Each process has one of its own and holds a lock on a file in it for as long as it lives, so that what a killed
//! process left behind is told from what another one uses, and removed by the next that starts.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use tempfile::TempDir;

/// What the names of directories begin with.
const PREFIX: &str = "process-";

/// The name of the lock in a directory.
const LOCK: &str = "lock";

/// A directory that is removed with all that is in it.
pub struct Scratch {
    directory: TempDir,
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
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        // Locked before it has the name by which others look for it.
        let (unlocked, lock) = (directory.path().join("unlocked"), directory.path().join(LOCK));
        let locked = File::create_new(&unlocked)?;
        locked.lock()?;
        fs::rename(&unlocked, &lock)?;
        Ok(Scratch { directory, _locked: locked })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes directories whose lock nobody holds. One that cannot be removed is left for the next start.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for directory in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let path = directory.path();
        // One without a lock is being made.
        let Ok(lock) = File::open(path.join(LOCK)) else { continue };
        let removed = match lock.try_lock() {
            Ok(()) => fs::remove_dir_all(&path),
            Err(TryLockError::WouldBlock) => Ok(()),
            Err(TryLockError::Error(error)) => Err(error),
        };
        if let Err(error) = removed {
            tracing::warn!(%error, path = %path.display(), "temporary files of an ended process stay behind");
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
        fs::write(abandoned.join("lock"), "").expect("written");
        let other = parent.path().join("something-else");
        fs::create_dir(&other).expect("made");

        let next = Scratch::create(parent.path()).expect("made");
        assert!(live.path().exists() && next.path().exists() && other.exists());
        assert!(!abandoned.exists());

        let gone = live.path().to_owned();
        drop(live);
        assert!(!gone.exists());
        assert_eq!(fs::read_dir(parent.path()).expect("readable").count(), 2);
    }
}
