//! Files that killed writers leave in a directory store.
//!
//! Problem: `object_store` writes `NAME#1` (or `#2`, …) next to `NAME` and renames the file when it is complete.
//! Listings omit such names, so the file of a killed writer would stay forever. For example, a writer that was killed
//! during the upload of `versions/1f.parquet` leaves `versions/1f.parquet#1`.

use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// An incomplete upload to a directory store. If its writer was killed, the upload never becomes an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedUpload {
    /// Path relative to the store's directory, such as `versions/1f.parquet#1`.
    pub path: String,
    /// Path of the object that the upload would have become, such as `versions/1f.parquet`.
    pub object_path: String,
    pub size_bytes: u64,
    pub modified: SystemTime,
}

/// Lists the staged uploads directly in `folder`. Returns an empty list if the folder does not exist.
pub fn list_staged_uploads(directory: &Path, folder: &str) -> io::Result<Vec<StagedUpload>> {
    let entries = match fs::read_dir(directory.join(folder)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        let Some(object) = target_object_name(&name) else { continue };
        let metadata = match entry.metadata() {
            // The writer of the upload has just renamed or removed the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            metadata => metadata?,
        };
        if metadata.is_file() {
            files.push(StagedUpload {
                object_path: format!("{folder}/{object}"),
                path: format!("{folder}/{name}"),
                size_bytes: metadata.len(),
                modified: metadata.modified()?,
            });
        }
    }
    Ok(files)
}

/// Returns the name of the object for the name of a staged upload, and `None` for other names.
fn target_object_name(staged_name: &str) -> Option<&str> {
    let (object, number) = staged_name.rsplit_once('#')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !object.is_empty()).then_some(object)
}
