//! Description of a version file for other processes.

use object_store::path::Path as ObjectPath;
use serde::{Deserialize, Serialize};
use strata_store::store::Store;
use strata_store::{Result, StorageError};
use strata_types::version::VersionFile;

use super::version_reader::VersionReader;
use crate::cache::PartCache;

/// Information that another process of the service needs to open a version file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDescription {
    path: String,
    size_bytes: u64,
    entity_count: u64,
    content_hash: String,
}

impl From<&VersionFile> for FileDescription {
    fn from(file: &VersionFile) -> FileDescription {
        FileDescription {
            path: file.path.clone(),
            size_bytes: file.size_bytes,
            entity_count: file.entity_count,
            content_hash: file.content_hash.clone(),
        }
    }
}

impl VersionReader {
    /// Path in the store, which must not be shown to users.
    pub fn path(&self) -> &str {
        self.version_file().object_file.path.as_ref()
    }

    pub fn size_bytes(&self) -> u64 {
        self.version_file().object_file.size_bytes
    }

    pub fn size_bytes_with_bases(&self) -> u64 {
        let bases = self.layout().overlay.iter().flat_map(|overlay| &overlay.bases);
        self.size_bytes() + bases.map(|base| base.size_bytes).sum::<u64>()
    }

    pub fn description(&self) -> FileDescription {
        let layout = self.layout();
        FileDescription {
            path: self.path().to_owned(),
            size_bytes: self.size_bytes(),
            entity_count: layout.entity_count,
            content_hash: layout.content_sha256.clone(),
        }
    }

    pub async fn open_described(store: &Store, file: &FileDescription, cache: &PartCache) -> Result<VersionReader> {
        VersionReader::open_and_check_description(store, file, "another node", cache).await
    }

    pub(super) async fn open_and_check_description(
        store: &Store,
        file: &FileDescription,
        expected_by: &str,
        cache: &PartCache,
    ) -> Result<VersionReader> {
        let reader = VersionReader::open(store, &ObjectPath::from(&*file.path), file.size_bytes, cache).await?;
        let layout = reader.layout();
        let mismatch = if layout.entity_count != file.entity_count {
            format!("it contains {} entities, but {expected_by} expects {}", layout.entity_count, file.entity_count)
        } else if layout.content_sha256 != file.content_hash {
            format!("its content hash is not the hash that {expected_by} expects")
        } else {
            return Ok(reader);
        };
        Err(reader.version_file().object_file.report_damage("the footer", StorageError::InvalidFile(mismatch)))
    }
}
