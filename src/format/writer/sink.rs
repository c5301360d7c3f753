//! A file's bytes to the object store, as they come.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::stream::{FuturesUnordered, TryStreamExt};
use object_store::path::Path as ObjectPath;
use object_store::{MultipartUpload, ObjectStoreExt};
use strata_store::checksums::{Seal, Tally};
use strata_store::store::Store;
use strata_store::{Result, StorageError};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, Receiver};
use tokio::task::JoinHandle;

const UPLOAD_PART_BYTES: usize = 8 << 20;

const UPLOADS: usize = 3;

/// Where the file's bytes go: summed, collected into parts, sent to an upload task.
pub(super) struct Sink {
    parts: mpsc::Sender<Part>,
    pending: Vec<u8>,
    size_bytes: u64,
    pub(super) passing: Arc<Mutex<Passing>>,
}

#[derive(Default)]
pub(super) struct Passing {
    pub(super) tally: Tally,
    /// Whether bytes are held, not sent: the file's end, until it is sealed.
    pub(super) held: bool,
    end: Vec<u8>,
}

pub(super) fn lock(passing: &Mutex<Passing>) -> MutexGuard<'_, Passing> {
    passing.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Part {
    More(Bytes),
    Last(Bytes),
}

impl Sink {
    /// Starts the upload on `runtime`. It makes the object only when the sink is finished.
    pub(super) fn start(store: Store, path: ObjectPath, runtime: &Handle) -> (Sink, JoinHandle<Result<()>>) {
        let (parts, receiver) = mpsc::channel(1);
        let upload = runtime.spawn(upload(store, path, receiver));
        (Sink { parts, pending: Vec::new(), size_bytes: 0, passing: Arc::default() }, upload)
    }

    fn send(&mut self, part: Part) -> std::io::Result<()> {
        // The receiver is gone only when the upload failed; its error is the one that is reported.
        self.parts.blocking_send(part).map_err(|_| std::io::Error::other("the upload ended early"))
    }

    pub(super) fn finish(mut self) -> Result<u64> {
        let mut end = std::mem::take(&mut lock(&self.passing).end);
        if !Seal::set(&mut end) {
            return Err(StorageError::Layout("its footer checksum cannot be set".to_owned()));
        }
        self.pending.append(&mut end);
        let rest = std::mem::take(&mut self.pending);
        self.send(Part::Last(rest.into()))?;
        Ok(self.size_bytes)
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.size_bytes += bytes.len() as u64;
        {
            let mut passing = lock(&self.passing);
            if passing.held {
                passing.end.extend_from_slice(bytes);
                return Ok(bytes.len());
            }
            passing.tally.update(bytes);
        }
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= UPLOAD_PART_BYTES {
            let part = std::mem::take(&mut self.pending);
            self.send(Part::More(part.into()))?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn upload(store: Store, path: ObjectPath, mut parts: Receiver<Part>) -> Result<()> {
    // A directory that is not there is not made anew.
    store.verify().await?;
    let first = match parts.recv().await {
        // A small file is one request.
        Some(Part::Last(bytes)) => {
            store.objects().put(&path, bytes.into()).await?;
            return Ok(());
        }
        Some(Part::More(bytes)) => bytes,
        None => return Err(StorageError::Worker),
    };
    let mut multipart = store.objects().put_multipart(&path).await?;
    match upload_parts(&mut *multipart, first, parts).await {
        Ok(()) => Ok(()),
        Err(error) => {
            // What was sent so far would otherwise be kept, and paid for, without ever being an object.
            if let Err(error) = multipart.abort().await {
                tracing::warn!(%error, "failed to remove parts of failed upload");
            }
            Err(error)
        }
    }
}

/// Sends parts, a few at once, until the last one makes the object.
async fn upload_parts(multipart: &mut dyn MultipartUpload, first: Bytes, mut parts: Receiver<Part>) -> Result<()> {
    let mut sending = FuturesUnordered::new();
    sending.push(multipart.put_part(first.into()));
    loop {
        while sending.len() >= UPLOADS {
            sending.try_next().await?;
        }
        match parts.recv().await {
            Some(Part::More(bytes)) => sending.push(multipart.put_part(bytes.into())),
            Some(Part::Last(bytes)) => {
                sending.push(multipart.put_part(bytes.into()));
                while sending.try_next().await?.is_some() {}
                multipart.complete().await?;
                return Ok(());
            }
            None => return Err(StorageError::Worker),
        }
    }
}
