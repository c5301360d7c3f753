//! Directories whose own entries outlive a power failure.
//!
//! A new file is found after a power failure only when its directory has been synchronised, and that directory only
//! when its parent has, and so on.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Makes a directory and those above it that are missing, and synchronises the entries of all of them: those made just
/// now, and those that an earlier process made and had no time to synchronise. Costs a system call per level where
/// nothing is new.
///
/// # Errors
/// When the disk refuses. Directories above that this process may not open are passed over: it did not make them.
pub fn create_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    // Links and relative names lead elsewhere than their text says.
    for directory in path.canonicalize()?.ancestors() {
        match synchronise_directory(directory) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            // Some file systems have nothing to synchronise in a directory.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

/// Waits until what was made, renamed or removed in a directory is on the disk.
///
/// # Errors
/// When the disk fails.
pub fn synchronise_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Waits until a new file is on the disk: its content, and its entry in each directory from its own up to `root`.
///
/// # Errors
/// When the disk fails.
pub fn synchronise_file(file: &Path, root: &Path) -> io::Result<()> {
    File::open(file)?.sync_all()?;
    for directory in file.ancestors().skip(1) {
        synchronise_directory(directory)?;
        if directory == root {
            break;
        }
    }
    Ok(())
}
