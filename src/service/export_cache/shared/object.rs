//! An export as an object of the store: its bytes, and behind them the checksum of each of its blocks, four bytes each,
//! the lowest first. The catalog has the checksum of these.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::ObjectStoreExt;
use object_store::buffered::BufWriter;
use object_store::path::Path as ObjectPath;
use strata_catalog::SharedExport;
use strata_config::SHARED_EXPORTS_FOLDER;
use strata_runtime::metrics::metrics;
use strata_store::StorageError;
use strata_store::store::Store;
use tokio::io::AsyncWriteExt;

use crate::export_cache::Exports;
use crate::export_cache::checksums::{BLOCK_BYTES, Sums};
use crate::export_cache::file::{Written, aborted, unreadable};
use crate::export_cache::reader::read_block;
use crate::export_cache::writer::{Chunks, Taker};

/// Bytes of a part of an upload, and parts at once.
const PART_BYTES: usize = 8 << 20;
const PARTS: usize = 2;

/// Bytes that the service fetches with a request, and requests at once.
const FETCH_BYTES: u64 = 16 * BLOCK_BYTES;
const FETCHES: usize = 3;

/// Bytes that are fetched for a client alone with a request, one at a time.
const CLIENT_BYTES: u64 = 4 * BLOCK_BYTES;

#[derive(Debug, thiserror::Error)]
pub(super) enum ObjectError {
    #[error("the object is damaged: {0}")]
    Damaged(&'static str),
    #[error(transparent)]
    Store(#[from] StorageError),
    /// Others are on their way, and hold all places for too long.
    #[error("timed out waiting for a store request slot")]
    Busy,
    #[error("failed to read the export file")]
    File(#[from] std::io::Error),
}

impl From<object_store::Error> for ObjectError {
    fn from(error: object_store::Error) -> ObjectError {
        ObjectError::Store(error.into())
    }
}

impl ObjectError {
    pub(super) fn is_for_good(&self) -> bool {
        match self {
            ObjectError::Damaged(_) | ObjectError::Store(StorageError::Store(object_store::Error::NotFound { .. })) => {
                true
            }
            ObjectError::Store(_) | ObjectError::Busy | ObjectError::File(_) => false,
        }
    }
}

pub(super) fn new_path() -> String {
    let name = hex::encode(rand::random::<[u8; 16]>());
    format!("{SHARED_EXPORTS_FOLDER}/{}/{name}.parquet", &name[..2])
}

/// The checksums behind the bytes of an export.
fn trailer(sums: &Sums) -> Vec<u8> {
    sums.blocks().iter().flat_map(|sum| sum.to_le_bytes()).collect()
}

pub(super) fn checksum(sums: &Sums) -> u32 {
    crc32fast::hash(&trailer(sums))
}

/// Writes a file as an object. Each block is verified as it is read.
pub(super) async fn write(store: &Store, path: &str, exports: &Exports, whole: &Written) -> Result<(), ObjectError> {
    // A directory that is not there is not created again.
    store.verify().await?;
    let objects = store.objects().clone();
    let mut writer = BufWriter::with_capacity(objects, ObjectPath::from(path), PART_BYTES).with_max_concurrency(PARTS);
    let written = write_to(&mut writer, exports, whole).await;
    if written.is_err()
        && let Err(error) = writer.abort().await
    {
        // Nothing was begun, or it takes space until the store's own rule removes it.
        tracing::debug!(%error, "failed to remove uploaded parts");
    }
    written
}

async fn write_to(writer: &mut BufWriter, exports: &Exports, whole: &Written) -> Result<(), ObjectError> {
    let mut at = 0;
    while at < whole.sums.bytes {
        let turn = exports.reads.clone().acquire_owned().await.map_err(std::io::Error::other)?;
        let block = read_block(turn, whole.file.path.clone(), whole.sums.clone(), at).await?;
        at += block.len() as u64;
        writer.put(block).await?;
    }
    writer.put(trailer(&whole.sums).into()).await?;
    writer.shutdown().await.map_err(StorageError::from)?;
    Ok(())
}

/// Removes an object; a sweep does it later if that fails.
pub(super) async fn remove(store: &Store, path: &str) {
    match store.objects().delete(&ObjectPath::from(path)).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
        Err(error) => tracing::debug!(%error, path, "failed to remove export from the store"),
    }
}

/// The bytes of an export, verified, as they are fetched from the store.
pub(super) struct Blocks {
    pub(super) sums: Sums,
    pub(super) pieces: BoxStream<'static, Result<Bytes, ObjectError>>,
}

impl Blocks {
    /// Fetches the checksums. The bytes are fetched as they are taken, which keeps what is `held` for it.
    pub(super) async fn open(
        store: &Store,
        export: &SharedExport,
        taker: Taker,
        held: impl Send + 'static,
    ) -> Result<Blocks, ObjectError> {
        let path = ObjectPath::from(&*export.path);
        let bytes = export.size_bytes;
        let trailer = fetch(store.clone(), path.clone(), bytes..bytes + 4 * bytes.div_ceil(BLOCK_BYTES)).await?;
        if crc32fast::hash(&trailer) != export.checksum {
            return Err(ObjectError::Damaged("its checksum list does not match the recorded checksum"));
        }
        let blocks = trailer.as_chunks::<4>().0.iter().map(|sum| u32::from_le_bytes(*sum));
        let sums = Sums::from_blocks(bytes, blocks.collect());
        let (piece_bytes, at_once) = match taker {
            Taker::Client => (CLIENT_BYTES, 1),
            Taker::Service => (FETCH_BYTES, FETCHES),
        };
        let store = store.clone();
        let own = sums.clone();
        let pieces = stream::iter((0..bytes.div_ceil(piece_bytes)).map(move |number| {
            let start = number * piece_bytes;
            let (store, path, sums) = (store.clone(), path.clone(), own.clone());
            async move {
                let piece = fetch(store, path, start..bytes.min(start + piece_bytes)).await?;
                match sums.verify(start, &piece) {
                    true => Ok(piece),
                    false => Err(ObjectError::Damaged("a block does not match its checksum")),
                }
            }
        }));
        let pieces = pieces.buffered(at_once).inspect(move |_| {
            let _ = &held;
        });
        Ok(Blocks { sums, pieces: pieces.boxed() })
    }
}

async fn fetch(store: Store, path: ObjectPath, range: Range<u64>) -> Result<Bytes, ObjectError> {
    let (expected, end) = (range.end - range.start, range.end);
    metrics().store_requests.increment(1);
    metrics().store_bytes.increment(expected);
    match store.objects().get_range(&path, range).await {
        Ok(bytes) if bytes.len() as u64 == expected => Ok(bytes),
        Ok(_) => Err(ObjectError::Damaged("it is too short")),
        Err(error @ object_store::Error::NotFound { .. }) => Err(error.into()),
        // An S3 server's answer to a range beyond the end looks like one that it cannot give at the moment.
        Err(error) => match store.objects().head(&path).await {
            Ok(object) if object.size < end => Err(ObjectError::Damaged("it is too short")),
            _ => Err(error.into()),
        },
    }
}

/// The bytes from the beginning of a block to the end, as long as they are those of the checksums.
pub(super) fn verified(chunks: Chunks, sums: Sums, start: u64) -> Chunks {
    let state = (chunks, BytesMut::new(), start);
    let blocks = stream::try_unfold(state, move |(mut chunks, mut pending, at)| {
        let sums = sums.clone();
        async move {
            let block_bytes = usize::try_from(BLOCK_BYTES.min(sums.bytes - at)).map_err(|_| aborted())?;
            // Of the end, nothing more may come.
            while pending.len() < block_bytes.max(1) {
                match chunks.try_next().await? {
                    Some(chunk) => pending.extend_from_slice(&chunk),
                    None => break,
                }
            }
            if block_bytes == 0 && pending.is_empty() {
                return Ok(None);
            }
            let block = pending.split_to(block_bytes.min(pending.len())).freeze();
            match block.len() == block_bytes && block_bytes > 0 && sums.verify(at, &block) {
                true => Ok(Some((block, (chunks, pending, at + block_bytes as u64)))),
                false => Err(unreadable(std::io::Error::other("the rebuilt export differs from the previous one"))),
            }
        }
    });
    blocks.boxed()
}
