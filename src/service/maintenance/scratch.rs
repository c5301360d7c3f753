//! The directory of a process's temporary files, such as spools and spilled sorts. It is in the data directory, because
//! the system's directory can be in memory.
//!
//! Each process locks a file in its directory until it ends. So the next process, or a sweep, recognizes and removes
//! the directories of killed processes.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use strata_store::durable;

use crate::locked;

const PREFIX: &str = "process-";

const LOCK: &str = "lock";

/// The time in which a process has locked its directory, unless it was killed before.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3_600);

/// The folder of spools and spilled sorts in the data directory.
pub(crate) const TEMPORARY_FOLDER: &str = "tmp";

/// Directories above the directory of a process that are created if they are missing: the folder, but not the data
/// directory.
const CREATED_PARENTS: usize = 1;

/// The folder of Parquet exports in the data directory.
pub(crate) const EXPORTS_FOLDER: &str = "exports";

/// The folder of ranges of version files in the data directory ([`strata_store::disk_cache`]).
pub(crate) const RANGES_FOLDER: &str = "cache";

pub(crate) struct Scratch {
    path: PathBuf,
    /// The lock; `None` while the directory does not exist.
    locked: Mutex<Option<File>>,
}

impl Scratch {
    /// Creates a directory in `parent`, and `parent` if it is missing. Removes the directories of ended processes.
    pub(crate) fn create(parent: &Path) -> io::Result<Scratch> {
        let scratch = Scratch::named(parent);
        scratch.restore()?;
        Ok(scratch)
    }

    /// As [`Scratch::create`], but if the disk fails, the directory does not exist until it can be created.
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

    /// Creates the directory if it was removed, but not the data directory. One system call if it exists.
    pub(crate) fn restore(&self) -> io::Result<()> {
        let mut locked = locked(&self.locked);
        let lock = self.path.join(LOCK);
        if locked.is_some() && lock.exists() {
            return Ok(());
        }
        *locked = None;
        durable::restore_directory(&self.path, CREATED_PARENTS)?;
        // Locked before it has the name that other processes look for.
        let unlocked = self.path.join("unlocked");
        let file = File::create(&unlocked)?;
        file.lock()?;
        fs::rename(&unlocked, &lock)?;
        *locked = Some(file);
        Ok(())
    }

    pub(crate) fn restore_or_warn(&self) {
        if let Err(error) = self.restore() {
            tracing::warn!(%error, path = %self.path.display(), "failed to create the temporary file directory");
        }
    }

    /// Whether no other process has, or is creating, a directory next to it.
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

    /// The name of this process among those with a directory in the same folder.
    pub(crate) fn process(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether the process of this name, which had a directory in the same folder, has ended.
    pub(crate) fn has_ended(&self, process: &str) -> bool {
        let is_name = process
            .strip_prefix(PREFIX)
            .is_some_and(|random| !random.is_empty() && random.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(parent) = self.path.parent().filter(|_| is_name && process != self.process()) else { return false };
        let directory = parent.join(process);
        // Another process can have removed the directory.
        matches!(directory.try_exists(), Ok(false)) || is_abandoned(&directory)
    }

    /// The path of the directory, which is created again if it was removed.
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
        // The next process removes what is left.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Abandoned {
    pub name: String,
    pub size_bytes: u64,
    /// Why it still exists; `None` if it was removed.
    pub failure: Option<String>,
}

/// Removes the directories of ended processes in `parent`, which need not exist.
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

/// Whether a running process has its directory in this one.
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
        // A directory without a lock is being created, or was being created when its process was killed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let modified = fs::metadata(directory).and_then(|metadata| metadata.modified());
            modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > LOCK_TIMEOUT))
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
    fn only_directories_of_ended_processes_are_removed() {
        let parent = tempfile::tempdir().expect("a directory");
        assert!(!is_in_use(parent.path()));
        let live = Scratch::create(parent.path()).expect("made");
        assert!(is_in_use(parent.path()));
        let abandoned = parent.path().join("process-abandoned");
        fs::create_dir(&abandoned).expect("made");
        fs::write(abandoned.join("spilled"), "x").expect("written");
        fs::write(abandoned.join("lock"), "").expect("written");
        // Killed before it could lock, long ago; and one that is being made.
        let [old, young] = ["process-old", "process-young"].map(|name| parent.path().join(name));
        for directory in [&old, &young] {
            fs::create_dir(directory).expect("made");
            fs::write(directory.join("unlocked"), "").expect("written");
        }
        let long_ago = std::time::SystemTime::now() - 2 * LOCK_TIMEOUT;
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
        let gone = live.path().to_owned();
        let process = live.process();
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
