//! Fetches bytes of a file in the store, and reports damage of the file.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use strata_runtime::blocking::catch_thread_exhaustion;
use strata_runtime::metrics::metrics;
use strata_store::checksums::verify_checksum;
use strata_store::disk_cache::{DiskCache, VersionFileId};
use strata_store::store::Store;
use strata_store::{Result, StorageError, fs_timeout};

use super::readahead::FileReadahead;
use crate::cache::{DamageImpact, PartCache};
use crate::fetched_range::FetchedRange;

/// Timeout for requesting the size of an object after another request to the store has failed.
const SIZE_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(super) struct ObjectFile {
    pub(super) store: Store,
    pub(super) path: ObjectPath,
    pub(super) size_bytes: u64,
    pub(super) cache: PartCache,
    pub(super) readahead: Option<Arc<FileReadahead>>,
}

impl ObjectFile {
    pub(super) async fn fetch(&self, range: Range<u64>) -> Result<bytes::Bytes> {
        let Some(readahead) = &self.readahead else { return self.fetch_through_disk_cache(range).await };
        let _waiting = readahead.register_waiter();
        match readahead.take_range(&range).await {
            Some(bytes) => Ok(bytes),
            None => self.fetch_through_disk_cache(range).await,
        }
    }

    pub(super) async fn fetch_verified(&self, range: Range<u64>, checksum: u32) -> Result<FetchedRange> {
        let fetched = FetchedRange { start: range.start, bytes: self.fetch(range).await? };
        verify_checksum(&fetched.bytes, checksum)?;
        Ok(fetched)
    }

    /// Prefetches ranges if the file has a readahead. Does nothing for a single range, which would not arrive earlier.
    pub(super) fn fetch_ahead(&self, ranges: Vec<Range<u64>>) {
        let Some(readahead) = self.readahead.as_ref().filter(|_| ranges.len() > 1) else { return };
        readahead.start_fetches(ranges, |range| {
            let file = ObjectFile { readahead: None, ..self.clone() };
            // Errors of prefetching are dropped: a reader that needs the bytes fetches them again.
            async move { file.fetch_through_disk_cache(range).await.ok() }
        });
    }

    async fn fetch_through_disk_cache(&self, range: Range<u64>) -> Result<bytes::Bytes> {
        match self.disk_cache() {
            Some((disk, id)) => {
                let request = self.fetch_from_store(range.clone());
                Box::pin(disk.get_or_fetch(id, range, fs_timeout::acquire_directory_permit(), request)).await
            }
            None => self.fetch_from_store(range).await,
        }
    }

    fn disk_cache(&self) -> Option<(&DiskCache, VersionFileId)> {
        let disk = self.cache.disk_cache().filter(|_| !self.store.is_local())?;
        Some((disk, VersionFileId::new(self.path.as_ref(), self.size_bytes)))
    }

    async fn fetch_from_store(&self, range: Range<u64>) -> Result<bytes::Bytes> {
        let expected = range.end - range.start;
        metrics().store_requests.increment(1);
        metrics().store_bytes.increment(expected);
        if let Some(reader) = &self.cache.reader_metrics {
            reader.count_fetch(expected);
        }
        let object_store = self.store.object_store().clone();
        let path = self.path.clone();
        // A local store starts threads to read its files, and panics if no thread can be started.
        let request = async move { catch_thread_exhaustion(object_store.get_range(&path, range)).await }.boxed();
        let response = match self.store.local_path(&self.path) {
            Some(file) => fs_timeout::with_timeout(file, request).await?,
            None => request.await,
        };
        let bytes = match response? {
            Ok(bytes) => bytes,
            Err(error) => match self.detect_truncation(&error).await {
                Some(truncated) => return Err(truncated),
                None => return Err(self.store.detect_missing_store(error.into()).await),
            },
        };
        if bytes.len() as u64 != expected {
            let cause = format!("the file is truncated: {} of {expected} bytes", bytes.len());
            return Err(StorageError::InvalidFile(cause));
        }
        Ok(bytes)
    }

    /// For a truncated object, S3 returns an error that looks temporary, so this function requests the object's size.
    async fn detect_truncation(&self, error: &object_store::Error) -> Option<StorageError> {
        let object_store::Error::Generic { store: "S3", .. } = error else { return None };
        match tokio::time::timeout(SIZE_REQUEST_TIMEOUT, self.store.object_store().head(&self.path)).await {
            Ok(Ok(object)) if object.size != self.size_bytes => Some(StorageError::InvalidFile(format!(
                "the file is truncated: it has {} of {} bytes",
                object.size, self.size_bytes
            ))),
            _ => None,
        }
    }

    /// Converts an error into one that names the file and the part, and reports damage.
    pub(super) fn report_damage(&self, part: &str, error: StorageError) -> StorageError {
        self.report_damage_with_impact(DamageImpact::ReadsFail, part, error)
    }

    /// Like [`ObjectFile::report_damage`], for a part that readers can do without.
    pub(super) fn report_index_damage(&self, part: &str, error: StorageError) -> StorageError {
        self.report_damage_with_impact(DamageImpact::ReadsSlower, part, error)
    }

    fn report_damage_with_impact(&self, mut impact: DamageImpact, part: &str, error: StorageError) -> StorageError {
        let path = self.path.to_string();
        let damaged = |cause: String| StorageError::Damaged { path: path.clone(), part: part.to_owned(), cause };
        let error = match error {
            StorageError::ObjectStore(object_store::Error::NotFound { .. }) => {
                impact = DamageImpact::ReadsFail;
                damaged("the file is missing".to_owned())
            }
            StorageError::ObjectStore(source) => StorageError::Unreadable { path: path.clone(), source },
            StorageError::Parquet(error) => damaged(error.to_string()),
            StorageError::Arrow(error) => damaged(error.to_string()),
            StorageError::InvalidFile(cause) => damaged(cause),
            other => other,
        };
        // Exhausted resources, such as file descriptors, are not damage.
        if error.is_file_damage() {
            if let Some((disk, id)) = self.disk_cache() {
                disk.invalidate(id);
            }
            self.cache.report_damage(&path, error.to_string(), impact);
        }
        error
    }
}
