//! Directories whose own entries outlive a power failure.
//!
//! A new file is found after a power failure only when its directory has been synchronised, and that directory only
//! when its parent has, and so on.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::DirectoryGone;

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

/// Makes a directory again that somebody has removed, and at most so many above it that went with it. What lies above
/// them is never made: a disk may be mounted there.
///
/// # Errors
/// When the disk refuses; one of [`DirectoryGone`] where more is missing.
pub fn restore_directory(path: &Path, above: usize) -> io::Result<()> {
    let made = match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match path.parent() {
            Some(parent) if above > 0 => {
                restore_directory(parent, above - 1)?;
                fs::create_dir(path)
            }
            _ => Err(DirectoryGone.into()),
        },
        made => made,
    };
    // It may have been there, or another one has made it meanwhile.
    if path.is_dir() { Ok(()) } else { made }
}

/// Waits until what was made, renamed or removed in a directory is on the disk.
pub fn synchronise_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Waits until a new file is on the disk: its content, and its entry in each directory from its own up to `root`.
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
