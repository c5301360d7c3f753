//! Temporary files without a name, in a directory that somebody may remove.
//!
//! Whatever is wrong with the directory is told as [`NoTemporaryFiles`], or as [`DirectoryGone`] where the data
//! directory above it is missing.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{DirectoryGone, NoTemporaryFiles, durable};

/// Directories above the one of the files that are made again with it: that of all processes. The data directory is
/// none of them.
const ABOVE: usize = 1;

/// A file in `directory`, which is made again when it is missing. The system removes the file by itself.
///
/// # Errors
/// An [`io::Error`] that carries [`NoTemporaryFiles`] or [`DirectoryGone`].
pub fn file_in(directory: &Path) -> io::Result<File> {
    let file = match tempfile::tempfile_in(directory) {
        // Somebody has removed the directory.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            durable::restore_directory(directory, ABOVE).and_then(|()| tempfile::tempfile_in(directory))
        }
        outcome => outcome,
    };
    file.map_err(|error| refused(directory, error))
}

pub fn refused(directory: &Path, cause: io::Error) -> io::Error {
    if cause.get_ref().is_some_and(|inner| inner.is::<DirectoryGone>()) {
        return cause;
    }
    NoTemporaryFiles { directory: directory.to_owned(), cause: Arc::new(cause) }.into()
}

/// The same error for another one who waits for it, if it is one of these.
pub fn copy_of(error: &io::Error) -> Option<io::Error> {
    let inner = error.get_ref()?;
    match inner.downcast_ref::<NoTemporaryFiles>() {
        Some(refused) => Some(refused.clone().into()),
        None => inner.downcast_ref::<DirectoryGone>().map(|gone| (*gone).into()),
    }
}
