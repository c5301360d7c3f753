//! Reader of one file, addressed by the file's own row groups.

use std::sync::Arc;

use object_store::path::Path as ObjectPath;
use strata_runtime::blocking::run_blocking;
use strata_runtime::priority::ThreadPriority;
use strata_store::store::Store;
use strata_store::{Result, StorageError};

use super::footer_load;
use super::object_file::ObjectFile;
use crate::cache::PartCache;
use crate::cached_part::{CachedPart, PartKey};
use crate::footer::FileFooter;

#[derive(Clone)]
pub(crate) struct FileReader {
    pub(super) object_file: ObjectFile,
    pub(crate) footer: Arc<FileFooter>,
}

impl FileReader {
    pub(crate) async fn open(store: &Store, path: &ObjectPath, size_bytes: u64, cache: &PartCache) -> Result<Self> {
        let object_file =
            ObjectFile { store: store.clone(), path: path.clone(), size_bytes, cache: cache.clone(), readahead: None };
        let load = || async {
            store.ensure_regular_file(path).await.map_err(|error| object_file.report_damage("the file", error))?;
            let footer = footer_load::load_footer(&object_file).await;
            let footer = footer.map_err(|error| object_file.report_damage("the footer", error))?;
            if let Some(cause) = &footer.index_damage {
                object_file.report_index_damage("the footer", StorageError::InvalidFile(cause.clone()));
            }
            Ok(CachedPart::Footer(Arc::new(footer)))
        };
        let loaded = cache.get_or_load(PartKey::Footer(path.as_ref().into()), load).await?;
        let CachedPart::Footer(footer) = loaded else { return Err(StorageError::wrong_part_kind()) };
        Ok(FileReader { object_file, footer })
    }

    pub(crate) async fn verify_footer_index(&self) -> Result<()> {
        if let Some(cause) = &self.footer.index_damage {
            return Err(self.object_file.report_index_damage("the footer", StorageError::InvalidFile(cause.clone())));
        }
        if !self.footer.has_footer_index {
            return Ok(());
        }
        let error = match footer_load::load_parquet_footer(&self.object_file).await {
            Ok(decoded) if decoded.footer_index.bytes == self.footer.footer_index.bytes => return Ok(()),
            Ok(_) => StorageError::InvalidFile("its footer index does not match its footer".to_owned()),
            Err(error) => error,
        };
        Err(self.object_file.report_index_damage("the footer", error))
    }

    pub(super) async fn load_profile<T: Send + 'static>(&self, decode: fn(&[u8]) -> Result<T>) -> Result<T> {
        let location = self.footer.profile_location.clone();
        let load = async {
            let bytes = match &self.footer.profile_bytes {
                Some(bytes) => bytes.clone(),
                None => self.object_file.fetch(location.offset..location.offset + location.length).await?,
            };
            let decode =
                move || if location.matches(&bytes) { decode(&bytes) } else { Err(StorageError::checksum_mismatch()) };
            // Only threads with the priority `Short` serve connections, so others may block while decoding the profile.
            match ThreadPriority::current() {
                ThreadPriority::Short => run_blocking(decode).await?,
                ThreadPriority::Medium | ThreadPriority::Heavy | ThreadPriority::Long => decode(),
            }
        };
        load.await.map_err(|error| self.object_file.report_index_damage("the profile", error))
    }

    pub(crate) fn stored_bytes(&self, row_group: usize) -> u64 {
        let footer_index = &self.footer.footer_index;
        (0..footer_index.columns).map(|column| u64::from(footer_index.chunk(row_group, column).stored_bytes)).sum()
    }
}
