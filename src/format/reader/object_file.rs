//! A file in the store: its bytes fetched, and what is wrong with it reported.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use strata_runtime::blocking::with_blocking_calls;
use strata_runtime::metrics::metrics;
use strata_store::checksums::verify;
use strata_store::directory;
use strata_store::disk_cache::{DiskCache, FileId};
use strata_store::store::Store;
use strata_store::{Result, StorageError};

use super::readahead::ReadAhead;
use crate::cache::{Loss, PartCache};
use crate::fetched_range::FetchedRange;

/// How long a store that has just failed is asked for an object's size.
const SIZE_WAIT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(super) struct ObjectFile {
    pub(super) store: Store,
    pub(super) path: ObjectPath,
    pub(super) size_bytes: u64,
    pub(super) cache: PartCache,
    pub(super) ahead: Option<Arc<ReadAhead>>,
}

impl ObjectFile {
    /// These bytes, all of them: as they were fetched ahead, or with one request.
    pub(super) async fn fetch(&self, range: Range<u64>) -> Result<bytes::Bytes> {
        let Some(ahead) = &self.ahead else { return self.request(range).await };
        let _waiting = ahead.waits();
        match ahead.take(&range).await {
            Some(bytes) => Ok(bytes),
            None => self.request(range).await,
        }
    }

    /// These bytes, which have this checksum.
    pub(super) async fn fetch_verified(&self, range: Range<u64>, checksum: u32) -> Result<FetchedRange> {
        let run = FetchedRange { start: range.start, bytes: self.fetch(range).await? };
        verify(&run.bytes, checksum)?;
        Ok(run)
    }

    /// Begins to fetch these ranges ahead, if this file is read so. A single one would not come sooner.
    pub(super) fn fetch_ahead(&self, ranges: Vec<Range<u64>>) {
        let Some(ahead) = self.ahead.as_ref().filter(|_| ranges.len() > 1) else { return };
        ahead.start(ranges, |range| {
            let file = ObjectFile { ahead: None, ..self.clone() };
            // A failure shows where the bytes are asked for, if they are.
            async move { file.request(range).await.ok() }
        });
    }

    /// These bytes: from the disk, where a cache there has them, or from the store.
    async fn request(&self, range: Range<u64>) -> Result<bytes::Bytes> {
        match self.disk() {
            Some((disk, id)) => {
                let asked = self.ask(range.clone());
                Box::pin(disk.get_or_fetch(id, range, directory::place(), asked)).await
            }
            None => self.ask(range).await,
        }
    }

    fn disk(&self) -> Option<(&DiskCache, FileId)> {
        let disk = self.cache.disk().filter(|_| !self.store.is_local())?;
        Some((disk, FileId::new(self.path.as_ref(), self.size_bytes)))
    }

    async fn ask(&self, range: Range<u64>) -> Result<bytes::Bytes> {
        let expected = range.end - range.start;
        metrics().store_requests.increment(1);
        metrics().store_bytes.increment(expected);
        if let Some(reader) = &self.cache.reader_metrics {
            reader.fetched(expected);
        }
        let objects = self.store.objects().clone();
        let path = self.path.clone();
        // A directory's files are read on threads that the library asks for.
        let asked = async move { with_blocking_calls(objects.get_range(&path, range)).await }.boxed();
        let answer = match self.store.file_of(&self.path) {
            Some(file) => directory::ask(file, asked).await?,
            None => asked.await,
        };
        let bytes = match answer? {
            Ok(bytes) => bytes,
            Err(error) => match self.is_cut(&error).await {
                Some(cut) => return Err(cut),
                None => return Err(self.store.meaning(error.into()).await),
            },
        };
        match bytes.len() as u64 == expected {
            true => Ok(bytes),
            false => Err(StorageError::Layout(format!("the file is truncated: {} of {expected} bytes", bytes.len()))),
        }
    }

    /// Whether a range cannot be fetched because the object is shorter. An S3 server's answer to that looks like one
    /// that it cannot give at the moment, so the server is asked for the size.
    async fn is_cut(&self, error: &object_store::Error) -> Option<StorageError> {
        let object_store::Error::Generic { store: "S3", .. } = error else { return None };
        match tokio::time::timeout(SIZE_WAIT, self.store.objects().head(&self.path)).await {
            Ok(Ok(object)) if object.size != self.size_bytes => Some(StorageError::Layout(format!(
                "the file is truncated: it has {} of {} bytes",
                object.size, self.size_bytes
            ))),
            _ => None,
        }
    }

    /// The error that names this file, where its part is at fault; reports it.
    pub(super) fn blame(&self, part: &str, error: StorageError) -> StorageError {
        self.blame_for(Loss::Answers, part, error)
    }

    /// The same of a part that only saves time: reads answer without it.
    pub(super) fn blame_accelerator(&self, part: &str, error: StorageError) -> StorageError {
        self.blame_for(Loss::Time, part, error)
    }

    fn blame_for(&self, mut loss: Loss, part: &str, error: StorageError) -> StorageError {
        let path = self.path.to_string();
        let damaged = |cause: String| StorageError::Damaged { path: path.clone(), part: part.to_owned(), cause };
        let error = match error {
            StorageError::Store(object_store::Error::NotFound { .. }) => {
                loss = Loss::Answers;
                damaged("the file is missing".to_owned())
            }
            StorageError::Store(source) => StorageError::Unreadable { path: path.clone(), source },
            StorageError::Parquet(error) => damaged(error.to_string()),
            StorageError::Arrow(error) => damaged(error.to_string()),
            StorageError::Layout(cause) => damaged(cause),
            other => other,
        };
        // A shortage, as of descriptors, is not the file's fault, and passes.
        if error.is_damage() {
            if let Some((disk, id)) = self.disk() {
                disk.forget(id);
            }
            self.cache.report(&path, error.to_string(), loss);
        }
        error
    }
}
