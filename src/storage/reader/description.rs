//! What another process needs to open the same file.

use object_store::path::Path as ObjectPath;
use serde::{Deserialize, Serialize};

use super::VersionReader;
use crate::model::version::VersionFile;
use crate::storage::StorageError;
use crate::storage::cache::PartCache;
use crate::storage::store::Store;

/// A version file as another process of the same service opens it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDescription {
    path: String,
    size_bytes: u64,
    entity_count: u64,
    content_hash: String,
}

impl From<&VersionFile> for Expected {
    fn from(file: &VersionFile) -> Expected {
        let VersionFile { entity_count, content_hash, .. } = file;
        Expected { entity_count: *entity_count, content_hash: content_hash.clone(), source: "the catalog" }
    }
}

pub(super) struct Expected {
    pub(super) entity_count: u64,
    pub(super) content_hash: String,
    pub(super) source: &'static str,
}

impl VersionReader {
    /// Where the file lies in the store; never shown to the public.
    pub fn path(&self) -> &str {
        self.own().file.path.as_ref()
    }

    pub fn size_bytes(&self) -> u64 {
        self.own().file.size_bytes
    }

    /// Bytes of the file, and of the base of an edited one.
    pub fn size_bytes_with_base(&self) -> u64 {
        self.size_bytes() + self.layout().edit.as_ref().map_or(0, |edit| edit.base.size_bytes)
    }

    pub fn description(&self) -> FileDescription {
        let layout = self.layout();
        FileDescription {
            path: self.own().file.path.as_ref().to_owned(),
            size_bytes: self.own().file.size_bytes,
            entity_count: layout.entity_count,
            content_hash: layout.content_sha256.clone(),
        }
    }

    /// Opens the file that another process has described.
    pub async fn open_described(
        store: &Store,
        file: &FileDescription,
        cache: &PartCache,
    ) -> Result<VersionReader, StorageError> {
        let FileDescription { path, size_bytes, entity_count, content_hash } = file;
        let path = ObjectPath::from(path.as_str());
        let reader = VersionReader::open(store, &path, *size_bytes, cache).await?;
        let content_hash = content_hash.clone();
        reader.expect(&Expected { entity_count: *entity_count, content_hash, source: "another node" })?;
        Ok(reader)
    }

    /// Compares what the footer says with what is known of the file.
    pub(super) fn expect(&self, expected: &Expected) -> Result<(), StorageError> {
        let (layout, Expected { entity_count, content_hash, source }) = (self.layout(), expected);
        let other = |what: String| Err(self.own().file.blame("the footer", StorageError::Layout(what)));
        if layout.entity_count != *entity_count {
            return other(format!("it holds {} entities, and {source} says {entity_count}", layout.entity_count));
        }
        if layout.content_sha256 != *content_hash {
            return other(format!("it tells another content than {source}"));
        }
        Ok(())
    }
}
