//! Files that killed writers leave in a directory.
//!
//! `object_store` writes `NAME#1` (or `#2`, …) beside `NAME` and renames it when all of it is there. Its listings leave
//! such names out, so a file whose writer was killed would stay for ever.

use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// A file that is no object yet, and may never become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedFile {
    /// Its path below the directory, such as `versions/1f.parquet#1`.
    pub path: String,
    pub object: String,
    pub size_bytes: u64,
    pub modified: SystemTime,
}

/// Lists those directly in a folder of a directory; none where there is no such folder.
pub fn list(directory: &Path, folder: &str) -> io::Result<Vec<UnfinishedFile>> {
    let entries = match fs::read_dir(directory.join(folder)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        let Some(object) = object_of(&name) else { continue };
        let metadata = match entry.metadata() {
            // Finished meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            metadata => metadata?,
        };
        if metadata.is_file() {
            files.push(UnfinishedFile {
                object: format!("{folder}/{object}"),
                path: format!("{folder}/{name}"),
                size_bytes: metadata.len(),
                modified: metadata.modified()?,
            });
        }
    }
    Ok(files)
}

fn object_of(name: &str) -> Option<&str> {
    let (object, number) = name.rsplit_once('#')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !object.is_empty()).then_some(object)
}
