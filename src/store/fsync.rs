//! Durable directories and files.
//!
//! Problem: a new file survives a power failure only if its directory was synced, and that directory only if its parent
//! was synced, and so on. For example, [`sync_file`] for `/store/versions/1f.parquet` with the root `/store` syncs the
//! file, `/store/versions`, and `/store`. When a store is opened, [`create_dir_synced`] syncs `/store` and its parents.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::DataDirectoryMissingError;

/// Creates a directory and syncs all ancestors, because an earlier process may have created them without syncing.
/// Ancestors that this process may not open are skipped: the process did not create them.
pub fn create_dir_synced(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    // The path is canonicalized, because symbolic links and relative paths have other ancestors than their text shows.
    for directory in path.canonicalize()?.ancestors() {
        match sync_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            // Some file systems do not support syncing a directory.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

/// Creates a deleted directory again, and at most `max_missing_parents` of its parents. Further parents are never
/// created, because a disk may have to be mounted there; the error is then [`DataDirectoryMissingError`].
pub fn recreate_dir(path: &Path, max_missing_parents: usize) -> io::Result<()> {
    let result = match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match path.parent() {
            Some(parent) if max_missing_parents > 0 => {
                recreate_dir(parent, max_missing_parents - 1)?;
                fs::create_dir(path)
            }
            _ => Err(DataDirectoryMissingError.into()),
        },
        result => result,
    };
    // The directory may have existed, or another thread has created it.
    if path.is_dir() { Ok(()) } else { result }
}

/// Waits until the entries of a directory are on the disk.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Waits until a new file is on the disk: its content, and its entry in each directory up to `root`.
pub fn sync_file(file: &Path, root: &Path) -> io::Result<()> {
    File::open(file)?.sync_all()?;
    for directory in file.ancestors().skip(1) {
        sync_dir(directory)?;
        if directory == root {
            break;
        }
    }
    Ok(())
}
