//! Unnamed temporary files, in a directory that another program may delete.
//!
//! Problem: if a temporary file cannot be created, the error of the operating system does not show whether the file,
//! its directory, or the disk of the data directory is missing. Therefore, errors of the directory become
//! [`TempDirUnusableError`] or [`DataDirectoryMissingError`], and a deleted directory is created again.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{DataDirectoryMissingError, TempDirUnusableError, fsync};

/// Number of missing parents of the directory for temporary files that are created again. The data directory is not one
/// of them.
const MAX_RECREATED_PARENTS: usize = 1;

/// Creates an unnamed temporary file. Errors have the source [`TempDirUnusableError`] or [`DataDirectoryMissingError`].
pub fn create_temp_file(directory: &Path) -> io::Result<File> {
    let file = match tempfile::tempfile_in(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fsync::recreate_dir(directory, MAX_RECREATED_PARENTS).and_then(|()| tempfile::tempfile_in(directory))
        }
        outcome => outcome,
    };
    file.map_err(|error| temp_dir_error(directory, error))
}

/// Converts the error of an attempt to create a file in `directory` to one with the source [`TempDirUnusableError`].
/// Returns an error with the source [`DataDirectoryMissingError`] unchanged.
pub fn temp_dir_error(directory: &Path, cause: io::Error) -> io::Error {
    if cause.get_ref().is_some_and(|inner| inner.is::<DataDirectoryMissingError>()) {
        return cause;
    }
    TempDirUnusableError { directory: directory.to_owned(), cause: Arc::new(cause) }.into()
}

/// Copies an error of [`create_temp_file`] for another caller that waited for it. Returns `None` for other errors.
pub fn clone_temp_dir_error(error: &io::Error) -> Option<io::Error> {
    let inner = error.get_ref()?;
    match inner.downcast_ref::<TempDirUnusableError>() {
        Some(unusable) => Some(unusable.clone().into()),
        None => inner.downcast_ref::<DataDirectoryMissingError>().map(|missing| (*missing).into()),
    }
}
