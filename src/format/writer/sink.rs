//! Uploads the bytes of a file to the object store while the file is written.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{FuturesUnordered, TryStreamExt};
use object_store::path::Path as ObjectPath;
use object_store::{MultipartUpload, ObjectStoreExt};
use parking_lot::Mutex;
use strata_store::checksums::{FooterChecksum, StreamingChecksums};
use strata_store::store::Store;
use strata_store::{Result, StorageError};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, Receiver};
use tokio::task::JoinHandle;

const UPLOAD_PART_BYTES: usize = 8 << 20;
const MAX_CONCURRENT_UPLOADS: usize = 3;

/// Writer that computes checksums, collects the bytes into parts, and sends the parts to an upload task.
pub(super) struct UploadSink {
    parts: mpsc::Sender<UploadPart>,
    pending: Vec<u8>,
    size_bytes: u64,
    pub(super) state: Arc<Mutex<SinkState>>,
}

#[derive(Default)]
pub(super) struct SinkState {
    pub(super) checksums: StreamingChecksums,
    /// Set while the end of the file is retained in `tail` until the footer checksum is known.
    pub(super) is_holding_tail: bool,
    tail: Vec<u8>,
}

enum UploadPart {
    More(Bytes),
    Last(Bytes),
}

impl UploadSink {
    pub(super) fn start_upload(
        store: Store,
        path: ObjectPath,
        runtime: &Handle,
    ) -> (UploadSink, JoinHandle<Result<()>>) {
        let (parts, receiver) = mpsc::channel(1);
        let upload = runtime.spawn(run_upload(store, path, receiver));
        (UploadSink { parts, pending: Vec::new(), size_bytes: 0, state: Arc::default() }, upload)
    }

    fn send(&mut self, part: UploadPart) -> std::io::Result<()> {
        // The upload drops its receiver only after it has failed. Callers then report the upload's error.
        self.parts.blocking_send(part).map_err(|_| std::io::Error::other("the upload ended early"))
    }

    pub(super) fn finish(mut self) -> Result<u64> {
        let mut end = std::mem::take(&mut self.state.lock().tail);
        if !FooterChecksum::write_checksum(&mut end) {
            return Err(StorageError::InvalidFile("its footer checksum cannot be set".to_owned()));
        }
        self.pending.append(&mut end);
        let rest = std::mem::take(&mut self.pending);
        self.send(UploadPart::Last(rest.into()))?;
        Ok(self.size_bytes)
    }
}

impl Write for UploadSink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.size_bytes += bytes.len() as u64;
        {
            let mut state = self.state.lock();
            if state.is_holding_tail {
                state.tail.extend_from_slice(bytes);
                return Ok(bytes.len());
            }
            state.checksums.update(bytes);
        }
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= UPLOAD_PART_BYTES {
            let part = std::mem::take(&mut self.pending);
            self.send(UploadPart::More(part.into()))?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn run_upload(store: Store, path: ObjectPath, mut parts: Receiver<UploadPart>) -> Result<()> {
    // This check fails if the directory of the store is missing. Otherwise, the upload would create it.
    store.verify_identity().await?;
    let first = match parts.recv().await {
        Some(UploadPart::Last(bytes)) => {
            store.object_store().put(&path, bytes.into()).await?;
            return Ok(());
        }
        Some(UploadPart::More(bytes)) => bytes,
        None => return Err(StorageError::WorkerStopped),
    };
    let mut multipart = store.object_store().put_multipart(&path).await?;
    let uploaded = upload_parts(&mut *multipart, first, parts).await;
    // Without an abort, the store would keep and charge for parts that never become an object.
    if uploaded.is_err()
        && let Err(error) = multipart.abort().await
    {
        tracing::warn!(%error, "failed to remove parts of failed upload");
    }
    uploaded
}

async fn upload_parts(
    multipart: &mut dyn MultipartUpload,
    first: Bytes,
    mut parts: Receiver<UploadPart>,
) -> Result<()> {
    let mut sending = FuturesUnordered::new();
    sending.push(multipart.put_part(first.into()));
    loop {
        while sending.len() >= MAX_CONCURRENT_UPLOADS {
            sending.try_next().await?;
        }
        match parts.recv().await {
            Some(UploadPart::More(bytes)) => sending.push(multipart.put_part(bytes.into())),
            Some(UploadPart::Last(bytes)) => {
                sending.push(multipart.put_part(bytes.into()));
                while sending.try_next().await?.is_some() {}
                multipart.complete().await?;
                return Ok(());
            }
            None => return Err(StorageError::WorkerStopped),
        }
    }
}
