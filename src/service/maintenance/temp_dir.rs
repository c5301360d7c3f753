//! Temporary directories of processes, for spools, spills and exports. They are in the data directory, because the
//! system's temporary directory can be in memory.
//!
//! Each process locks a file in its directory until it exits, so that later processes and sweeps can recognize and
//! remove the directories of killed processes.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;

use strata_store::fsync;

const PROCESS_DIR_PREFIX: &str = "process-";
const LOCK_FILE: &str = "lock";

/// Age at which a temporary directory without a lock file is abandoned: a running process locks its own much earlier.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3_600);

pub(crate) const TEMPORARY_FOLDER: &str = "tmp";

/// Number of missing parents that are created with a temporary directory: the folder, but not the data directory.
const MAX_CREATED_PARENTS: usize = 1;

pub(crate) const EXPORTS_FOLDER: &str = "exports";

/// The folder of the disk cache in the data directory ([`strata_store::disk_cache`]).
pub(crate) const RANGES_FOLDER: &str = "cache";

pub(crate) struct ProcessTempDir {
    path: PathBuf,
    /// The locked file in the directory; `None` while the directory does not exist.
    lock_file: Mutex<Option<File>>,
}

impl ProcessTempDir {
    /// Creates a process's temporary directory and a missing `parent`. Removes the directories of exited processes.
    pub(crate) fn create(parent: &Path) -> io::Result<ProcessTempDir> {
        let temp_dir = ProcessTempDir::with_random_name(parent);
        temp_dir.ensure_exists()?;
        Ok(temp_dir)
    }

    /// Like [`ProcessTempDir::create`], but if the disk fails, the directory is created on a later use.
    pub(crate) fn create_or_warn(parent: &Path) -> ProcessTempDir {
        let temp_dir = ProcessTempDir::with_random_name(parent);
        temp_dir.ensure_exists_or_warn();
        temp_dir
    }

    fn with_random_name(parent: &Path) -> ProcessTempDir {
        for AbandonedDirectory { name, failure, .. } in remove_abandoned_directories(parent) {
            if let Some(error) = failure {
                tracing::warn!(error, name, "failed to remove temporary files of an exited process");
            }
        }
        let path = parent.join(format!("{PROCESS_DIR_PREFIX}{}", hex::encode(rand::random::<[u8; 8]>())));
        ProcessTempDir { path, lock_file: Mutex::new(None) }
    }

    /// Creates a removed temporary directory again, but not the data directory. Costs one system call if it exists.
    pub(crate) fn ensure_exists(&self) -> io::Result<()> {
        let mut lock_file = self.lock_file.lock();
        let path = self.path.join(LOCK_FILE);
        if lock_file.is_some() && path.exists() {
            return Ok(());
        }
        *lock_file = None;
        fsync::recreate_dir(&self.path, MAX_CREATED_PARENTS)?;
        // The lock file is locked before it gets its name, so that other processes never see it unlocked.
        let unlocked = self.path.join("unlocked");
        let file = File::create(&unlocked)?;
        file.lock()?;
        fs::rename(&unlocked, &path)?;
        *lock_file = Some(file);
        Ok(())
    }

    pub(crate) fn ensure_exists_or_warn(&self) {
        if let Err(error) = self.ensure_exists() {
            tracing::warn!(%error, path = %self.path.display(), "failed to create the temporary file directory");
        }
    }

    /// Returns true if no other process has, or is creating, a temporary directory in the same folder.
    pub(crate) fn is_only_process_in_folder(&self) -> bool {
        let Some(Ok(entries)) = self.path().parent().map(fs::read_dir) else { return false };
        let own_name = self.path().file_name();
        entries.into_iter().all(|entry| {
            entry.is_ok_and(|entry| {
                let name = entry.file_name();
                !name.to_string_lossy().starts_with(PROCESS_DIR_PREFIX)
                    || Some(&*name) == own_name
                    || is_abandoned(&entry.path())
            })
        })
    }

    pub(crate) fn process_name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns true if the process with this [`ProcessTempDir::process_name`] has exited.
    pub(crate) fn has_process_exited(&self, process: &str) -> bool {
        let is_name = process
            .strip_prefix(PROCESS_DIR_PREFIX)
            .is_some_and(|random| !random.is_empty() && random.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(parent) = self.path.parent().filter(|_| is_name && process != self.process_name()) else {
            return false;
        };
        let directory = parent.join(process);
        // If another process has removed the directory, its process has exited.
        matches!(directory.try_exists(), Ok(false)) || is_abandoned(&directory)
    }

    /// Returns the path of the temporary directory, which is created again if it was removed.
    pub(crate) fn ensured_path(&self) -> &Path {
        self.ensure_exists_or_warn();
        &self.path
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ProcessTempDir {
    fn drop(&mut self) {
        // If the removal of the temporary directory fails, the next process removes the rest.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AbandonedDirectory {
    pub name: String,
    pub size_bytes: u64,
    /// The error of removing the abandoned directory; `None` if it was removed.
    pub failure: Option<String>,
}

/// Removes the directories of exited processes in `parent`, which need not exist.
pub(crate) fn remove_abandoned_directories(parent: &Path) -> Vec<AbandonedDirectory> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let mut abandoned = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if !name.starts_with(PROCESS_DIR_PREFIX) || !is_abandoned(&path) {
            continue;
        }
        let size_bytes = directory_size_bytes(&path);
        let failure = match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Some(error.to_string()),
            Ok(()) | Err(_) => None,
        };
        abandoned.push(AbandonedDirectory { name, size_bytes, failure });
    }
    abandoned
}

/// Returns true if a running process has its temporary directory in `parent`.
pub(crate) fn has_running_process(parent: &Path) -> bool {
    let Ok(entries) = fs::read_dir(parent) else { return false };
    entries.flatten().any(|entry| {
        let lock = File::open(entry.path().join(LOCK_FILE));
        entry.file_name().to_string_lossy().starts_with(PROCESS_DIR_PREFIX)
            && lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
    })
}

fn is_abandoned(directory: &Path) -> bool {
    match File::open(directory.join(LOCK_FILE)) {
        Ok(lock) => match lock.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => {
                tracing::warn!(%error, path = %directory.display(), "failed to check whether temporary files are in use");
                false
            }
        },
        // Without a lock file, a process is creating the directory, or was killed before it locked the file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let modified = fs::metadata(directory).and_then(|metadata| metadata.modified());
            modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > LOCK_TIMEOUT))
        }
        Err(_) => false,
    }
}

fn directory_size_bytes(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => directory_size_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_exited_processes_are_removed() {
        let parent = tempfile::tempdir().expect("failed to create directory");
        assert!(!has_running_process(parent.path()));
        let live = ProcessTempDir::create(parent.path()).expect("failed to create directory");
        assert!(has_running_process(parent.path()));
        let abandoned = parent.path().join("process-abandoned");
        fs::create_dir(&abandoned).expect("failed to create directory");
        fs::write(abandoned.join("spilled"), "x").expect("failed to write file");
        fs::write(abandoned.join("lock"), "").expect("failed to write file");
        // The process of `old` was killed before it locked its lock file; the process of `young` is still starting.
        let [old, young] = ["process-old", "process-young"].map(|name| parent.path().join(name));
        for directory in [&old, &young] {
            fs::create_dir(directory).expect("failed to create directory");
            fs::write(directory.join("unlocked"), "").expect("failed to write file");
        }
        let long_ago = std::time::SystemTime::now() - 2 * LOCK_TIMEOUT;
        File::open(&old)
            .expect("failed to open directory")
            .set_modified(long_ago)
            .expect("failed to set modification time");
        let other = parent.path().join("something-else");
        fs::create_dir(&other).expect("failed to create directory");

        assert!(!live.is_only_process_in_folder(), "a process without a lock can still be starting");
        fs::remove_dir_all(&young).expect("failed to remove directory");
        assert!(live.is_only_process_in_folder());
        fs::create_dir(&young).expect("failed to create directory");

        let next = ProcessTempDir::create(parent.path()).expect("failed to create directory");
        assert!(!live.is_only_process_in_folder() && !next.is_only_process_in_folder());
        assert!(live.path().exists() && next.path().exists() && other.exists());
        assert!(!abandoned.exists() && !old.exists() && young.exists());

        assert!(!live.has_process_exited(&live.process_name()) && !live.has_process_exited(&next.process_name()));
        for invalid in ["", "process-", "process-../x", "something-else"] {
            assert!(!next.has_process_exited(invalid), "{invalid}");
        }
        let dropped = live.path().to_owned();
        let process = live.process_name();
        drop(live);
        assert!(next.has_process_exited(&process));
        let killed = parent.path().join("process-0123");
        fs::create_dir(&killed).expect("failed to create directory");
        assert!(!next.has_process_exited("process-0123"), "the process can still be starting");
        fs::write(killed.join("lock"), "").expect("failed to write file");
        assert!(next.has_process_exited("process-0123"));
        fs::remove_dir_all(&killed).expect("failed to remove directory");
        assert!(!dropped.exists());
        assert_eq!(fs::read_dir(parent.path()).expect("failed to read directory").count(), 3);
    }
}
