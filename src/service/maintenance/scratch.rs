//! The directory of a process's temporary files: spools, spilled sorts. Beside the data, not in a directory that may be
//! in memory.
//!
//! Each process has one of its own and holds a lock on a file in it for as long as it lives, so that what a killed
//! process left behind is told from what another one uses, and removed by the next that starts, or by a sweep.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use strata_store::durable;

use crate::locked;

const PREFIX: &str = "process-";

const LOCK: &str = "lock";

/// A process has locked its directory within this time, or was killed before it could.
const LOCKED_WITHIN: Duration = Duration::from_secs(3_600);

/// The folder of spools and spilled sorts in the data directory.
pub(crate) const TEMPORARY_FOLDER: &str = "tmp";

/// Directories above a process's that are made when missing: the folder. The data directory is none of them.
const ABOVE: usize = 1;

/// The folder of Parquet exports in the data directory.
pub(crate) const EXPORTS_FOLDER: &str = "exports";

/// The folder of ranges of version files in the data directory. Processes have folders in it that the next ones take
/// over ([`strata_store::disk_cache`]).
pub(crate) const RANGES_FOLDER: &str = "cache";

pub(crate) struct Scratch {
    path: PathBuf,
    /// The lock; `None` while the directory is not there.
    locked: Mutex<Option<File>>,
}

impl Scratch {
    /// A new directory in `parent`, which is made when missing. Removes those of processes that are no more.
    pub(crate) fn create(parent: &Path) -> io::Result<Scratch> {
        let scratch = Scratch::named(parent);
        scratch.restore()?;
        Ok(scratch)
    }

    /// As [`Scratch::create`]; while the disk refuses, the directory is not there.
    pub(crate) fn create_or_later(parent: &Path) -> Scratch {
        let scratch = Scratch::named(parent);
        scratch.restore_or_warn();
        scratch
    }

    fn named(parent: &Path) -> Scratch {
        for Abandoned { name, failure, .. } in remove_abandoned(parent) {
            if let Some(error) = failure {
                tracing::warn!(error, name, "failed to remove temporary files of an exited process");
            }
        }
        let path = parent.join(format!("{PREFIX}{}", hex::encode(rand::random::<[u8; 8]>())));
        Scratch { path, locked: Mutex::new(None) }
    }

    /// Makes the directory if somebody has removed it, but not the data directory. One system call if it is there.
    pub(crate) fn restore(&self) -> io::Result<()> {
        let mut locked = locked(&self.locked);
        let lock = self.path.join(LOCK);
        if locked.is_some() && lock.exists() {
            return Ok(());
        }
        *locked = None;
        durable::restore_directory(&self.path, ABOVE)?;
        // Locked before it has the name by which others look for it.
        let unlocked = self.path.join("unlocked");
        let file = File::create(&unlocked)?;
        file.lock()?;
        fs::rename(&unlocked, &lock)?;
        *locked = Some(file);
        Ok(())
    }

    /// As [`Scratch::restore`]; who uses the directory learns of the failure, too.
    pub(crate) fn restore_or_warn(&self) {
        if let Err(error) = self.restore() {
            tracing::warn!(%error, path = %self.path.display(), "failed to create the temporary file directory");
        }
    }

    /// Whether no other process has a directory beside it, or is about to.
    pub(crate) fn is_alone(&self) -> bool {
        let Some(Ok(beside)) = self.path().parent().map(fs::read_dir) else { return false };
        let own = self.path().file_name();
        beside.into_iter().all(|directory| {
            directory.is_ok_and(|directory| {
                let name = directory.file_name();
                !name.to_string_lossy().starts_with(PREFIX) || Some(&*name) == own || is_abandoned(&directory.path())
            })
        })
    }

    /// The name of this process among those that have, or had, a directory beside it.
    pub(crate) fn process(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether the process of that name, which had a directory beside this one, has ended.
    pub(crate) fn has_ended(&self, process: &str) -> bool {
        let is_name = process
            .strip_prefix(PREFIX)
            .is_some_and(|random| !random.is_empty() && random.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(parent) = self.path.parent().filter(|_| is_name && process != self.process()) else { return false };
        let directory = parent.join(process);
        // Whoever finds it abandoned removes it.
        matches!(directory.try_exists(), Ok(false)) || is_abandoned(&directory)
    }

    /// Where it is, made anew if somebody has removed it.
    pub(crate) fn restored_path(&self) -> &Path {
        self.restore_or_warn();
        &self.path
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is removed by the next process.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Abandoned {
    pub name: String,
    pub size_bytes: u64,
    /// Why it is still there; `None` when it was removed.
    pub failure: Option<String>,
}

/// Removes directories of ended processes. `parent` need not exist; what cannot be removed is left for later.
pub(crate) fn remove_abandoned(parent: &Path) -> Vec<Abandoned> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let mut found = Vec::new();
    for directory in entries.flatten() {
        let name = directory.file_name().to_string_lossy().into_owned();
        let path = directory.path();
        if !name.starts_with(PREFIX) || !is_abandoned(&path) {
            continue;
        }
        let size_bytes = size_of(&path);
        let failure = match fs::remove_dir_all(&path) {
            Ok(()) => None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(error.to_string()),
        };
        found.push(Abandoned { name, size_bytes, failure });
    }
    found
}

/// Whether a process lives that has its directory in this one.
pub(crate) fn is_in_use(parent: &Path) -> bool {
    let Ok(directories) = fs::read_dir(parent) else { return false };
    directories.flatten().any(|directory| {
        let lock = File::open(directory.path().join(LOCK));
        directory.file_name().to_string_lossy().starts_with(PREFIX)
            && lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
    })
}

fn is_abandoned(directory: &Path) -> bool {
    match File::open(directory.join(LOCK)) {
        Ok(lock) => match lock.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => {
                tracing::warn!(%error, path = %directory.display(), "failed to check whether temporary files are in use");
                false
            }
        },
        // One without a lock is being made, or was when its process was killed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let modified = fs::metadata(directory).and_then(|metadata| metadata.modified());
            modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > LOCKED_WITHIN))
        }
        Err(_) => false,
    }
}

fn size_of(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_of(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_processes_left_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().expect("a directory");
        assert!(!is_in_use(parent.path()));
        let live = Scratch::create(parent.path()).expect("made");
        assert!(is_in_use(parent.path()));
        let abandoned = parent.path().join("process-abandoned");
        fs::create_dir(&abandoned).expect("made");
        fs::write(abandoned.join("spilled"), "x").expect("written");
        fs::write(abandoned.join("lock"), "").expect("written");
        // Killed before it could lock, long ago; and one that is being made.
        let (old, young) = (parent.path().join("process-old"), parent.path().join("process-young"));
        for directory in [&old, &young] {
            fs::create_dir(directory).expect("made");
            fs::write(directory.join("unlocked"), "").expect("written");
        }
        let long_ago = std::time::SystemTime::now() - 2 * LOCKED_WITHIN;
        File::open(&old).expect("opened").set_modified(long_ago).expect("set");
        let other = parent.path().join("something-else");
        fs::create_dir(&other).expect("made");

        assert!(!live.is_alone(), "of one that is being made it is not known");
        fs::remove_dir_all(&young).expect("removed");
        assert!(live.is_alone());
        fs::create_dir(&young).expect("made");

        let next = Scratch::create(parent.path()).expect("made");
        assert!(!live.is_alone() && !next.is_alone());
        assert!(live.path().exists() && next.path().exists() && other.exists());
        assert!(!abandoned.exists() && !old.exists() && young.exists());

        assert!(!live.has_ended(&live.process()) && !live.has_ended(&next.process()));
        for no_name in ["", "process-", "process-../x", "something-else"] {
            assert!(!next.has_ended(no_name), "{no_name}");
        }
        let (gone, process) = (live.path().to_owned(), live.process());
        drop(live);
        assert!(next.has_ended(&process));
        let killed = parent.path().join("process-0123");
        fs::create_dir(&killed).expect("made");
        assert!(!next.has_ended("process-0123"), "it is being made");
        fs::write(killed.join("lock"), "").expect("written");
        assert!(next.has_ended("process-0123"));
        fs::remove_dir_all(&killed).expect("removed");
        assert!(!gone.exists());
        assert_eq!(fs::read_dir(parent.path()).expect("readable").count(), 3);
    }
}
