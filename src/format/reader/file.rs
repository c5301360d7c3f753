//! One file, ready to be read: its footer, and its parts by its own row groups.

use std::sync::Arc;

use object_store::path::Path as ObjectPath;
use strata_runtime::blocking::blocking;
use strata_runtime::priority::Priority;
use strata_store::store::Store;
use strata_store::{Result, StorageError};

use super::footer_load;
use super::object_file::ObjectFile;
use crate::cache::PartCache;
use crate::footer::Footer;
use crate::parts::{Part, PartKey};

#[derive(Clone)]
pub(crate) struct FileReader {
    pub(super) file: ObjectFile,
    pub(crate) footer: Arc<Footer>,
}

impl FileReader {
    pub(crate) async fn open(store: &Store, path: &ObjectPath, size_bytes: u64, cache: &PartCache) -> Result<Self> {
        let file =
            ObjectFile { store: store.clone(), path: path.clone(), size_bytes, cache: cache.clone(), ahead: None };
        let load = || async {
            store.check_regular(path).await.map_err(|error| file.blame("the file", error))?;
            let footer = footer_load::load_footer(&file).await.map_err(|error| file.blame("the footer", error))?;
            if let Some(cause) = &footer.misplaced {
                file.blame_accelerator("the footer", StorageError::Layout(cause.clone()));
            }
            Ok(Part::Footer(Arc::new(footer)))
        };
        let key = PartKey::Footer(path.as_ref().into());
        let Part::Footer(footer) = cache.get_or_load(key, load).await? else { return Err(StorageError::wrong_part()) };
        Ok(FileReader { file, footer })
    }

    pub(crate) async fn verify_end(&self) -> Result<()> {
        if let Some(cause) = &self.footer.misplaced {
            return Err(self.file.blame_accelerator("the footer", StorageError::Layout(cause.clone())));
        }
        if !self.footer.has_outline {
            return Ok(());
        }
        let same = async {
            let decoded = footer_load::load_parquet_footer(&self.file).await?;
            match decoded.outline.bytes == self.footer.outline.bytes {
                true => Ok(()),
                false => Err(StorageError::Layout("its footer index does not match its footer".to_owned())),
            }
        };
        same.await.map_err(|error| self.file.blame_accelerator("the footer", error))
    }

    pub(super) async fn load_profile<T: Send + 'static>(&self, decode: fn(&[u8]) -> Result<T>) -> Result<T> {
        let location = self.footer.profile.clone();
        let load = async {
            let bytes = match &self.footer.profile_bytes {
                Some(bytes) => bytes.clone(),
                None => self.file.fetch(location.offset..location.offset + location.length).await?,
            };
            let decode = move || if location.is_of(&bytes) { decode(&bytes) } else { Err(StorageError::unverified()) };
            // A thread of lower priority is no thread that serves connections.
            match Priority::current() {
                Priority::Short => blocking(decode).await?,
                Priority::Medium | Priority::Heavy | Priority::Long => decode(),
            }
        };
        load.await.map_err(|error| self.file.blame_accelerator("the profile", error))
    }

    pub(crate) fn stored_bytes(&self, row_group: usize) -> u64 {
        let outline = &self.footer.outline;
        (0..outline.columns).map(|column| u64::from(outline.chunk(row_group, column).stored_bytes)).sum()
    }
}
