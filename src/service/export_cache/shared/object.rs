//! An export as an object of the store.
//!
//! The key of an export is the name of its object. All servers create the same bytes for a key, so it does not matter
//! which of them writes the object, or how often. The object describes itself:
//!
//! ```text
//! the export | checksum of each block | entities | matches | checksum of the name and the trailer
//!              4 bytes each             8          8         4 bytes, little-endian as all numbers
//! ```
//!
//! The length of the object determines the length of the export. A trailer that does not match its checksum, and a
//! block that does not match its own, is damage.

use std::cmp::Reverse;
use std::ops::Range;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::buffered::BufWriter;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectMeta, ObjectStoreExt};
use strata_config::SHARED_EXPORTS_FOLDER;
use strata_runtime::metrics::metrics;
use strata_store::StorageError;
use strata_store::store::Store;
use tokio::io::AsyncWriteExt;

use crate::CacheKey;
use crate::export_cache::checksums::{BLOCK_BYTES, Sums};
use crate::export_cache::file::{Totals, Written};
use crate::export_cache::reader::read_block;
use crate::export_cache::{Exports, MAX_FILES};

/// Bytes of a part of an upload.
const PART_BYTES: usize = 8 << 20;

/// Parts of an upload at once.
const PARTS: usize = 2;

/// Bytes of the checksum of a block.
const SUM_BYTES: u64 = 4;

/// Bytes of the trailer after the checksums of the blocks.
const COUNTS_BYTES: u64 = 20;

/// How the trailer contains that the number of matches is not part of the response.
const NO_MATCHES: u64 = u64::MAX;

#[derive(Debug, thiserror::Error)]
pub(super) enum ObjectError {
    #[error("the object is damaged: {0}")]
    Damaged(&'static str),
    #[error(transparent)]
    Store(#[from] StorageError),
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
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, ObjectError::Store(StorageError::Store(object_store::Error::NotFound { .. })))
    }

    /// Whether another request would fail, too.
    pub(super) fn is_for_good(&self) -> bool {
        matches!(self, ObjectError::Damaged(_)) || self.is_missing()
    }

    /// The outcome in the metric of shared exports.
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            ObjectError::Busy => "busy",
            error if error.is_for_good() => "damaged",
            _ => "failed",
        }
    }
}

pub(super) fn path_of(key: CacheKey) -> ObjectPath {
    let name = key.short();
    ObjectPath::from(format!("{SHARED_EXPORTS_FOLDER}/{}/{name}.parquet", &name[..2]))
}

/// The length of the export in an object of this length; `None` if the object is too short to have a trailer.
fn export_bytes(object_bytes: u64) -> Option<u64> {
    let bytes = object_bytes.checked_sub(COUNTS_BYTES)?;
    bytes.checked_sub(SUM_BYTES * bytes.div_ceil(BLOCK_BYTES + SUM_BYTES))
}

fn trailer(path: &ObjectPath, sums: &Sums, totals: Totals) -> Vec<u8> {
    let mut trailer: Vec<u8> = sums.blocks().iter().flat_map(|sum| sum.to_le_bytes()).collect();
    trailer.extend(totals.total.to_le_bytes());
    trailer.extend(totals.matches.unwrap_or(NO_MATCHES).to_le_bytes());
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(path.as_ref().as_bytes());
    checksum.update(&trailer);
    trailer.extend(checksum.finalize().to_le_bytes());
    trailer
}

/// An export in the store.
#[derive(Clone)]
pub(super) struct SharedExport {
    store: Store,
    path: ObjectPath,
    pub(super) totals: Totals,
    pub(super) sums: Sums,
}

impl SharedExport {
    /// The length of the export of a key.
    pub(super) async fn size_bytes(store: &Store, key: CacheKey) -> Result<u64, ObjectError> {
        let object_bytes = object_bytes(store, &path_of(key)).await?;
        export_bytes(object_bytes).ok_or(ObjectError::Damaged("it is too short"))
    }

    /// Fetches the trailer of the export of a key.
    pub(super) async fn open(store: &Store, key: CacheKey) -> Result<SharedExport, ObjectError> {
        let path = path_of(key);
        let object_bytes = object_bytes(store, &path).await?;
        let bytes = export_bytes(object_bytes).ok_or(ObjectError::Damaged("it is too short"))?;
        let fetched = fetch(store, &path, bytes..object_bytes).await?;
        let (blocks, counts) = fetched.split_at(fetched.len() - COUNTS_BYTES as usize);
        let blocks = blocks.as_chunks::<4>().0.iter().map(|sum| u32::from_le_bytes(*sum));
        let sums = Sums::from_blocks(bytes, blocks.collect());
        let number = |at: usize| counts[at..].first_chunk().map_or(NO_MATCHES, |bytes| u64::from_le_bytes(*bytes));
        let totals = Totals { total: number(0), matches: Some(number(8)).filter(|matches| *matches != NO_MATCHES) };
        match trailer(&path, &sums, totals) == fetched {
            true => Ok(SharedExport { store: store.clone(), path, totals, sums }),
            false => Err(ObjectError::Damaged("its trailer does not match its checksum")),
        }
    }

    /// The bytes of the export, verified, in pieces of `piece_blocks` blocks, `at_once` of which are fetched at the
    /// same time. `held` is dropped with the stream.
    pub(super) fn pieces(
        &self,
        piece_blocks: u64,
        at_once: usize,
        held: impl Send + 'static,
    ) -> BoxStream<'static, Result<Bytes, ObjectError>> {
        let export = self.clone();
        let piece_bytes = piece_blocks * BLOCK_BYTES;
        let pieces = stream::iter((0..self.sums.bytes).step_by(piece_bytes as usize)).map(move |start| {
            let export = export.clone();
            async move { export.piece(start..export.sums.bytes.min(start + piece_bytes)).await }
        });
        let pieces = pieces.buffered(at_once).inspect(move |_| {
            let _ = &held;
        });
        pieces.boxed()
    }

    /// Some blocks of the export.
    async fn piece(&self, range: Range<u64>) -> Result<Bytes, ObjectError> {
        let start = range.start;
        let piece = fetch(&self.store, &self.path, range).await?;
        match self.sums.verify(start, &piece) {
            true => Ok(piece),
            false => Err(ObjectError::Damaged("a block does not match its checksum")),
        }
    }
}

async fn object_bytes(store: &Store, path: &ObjectPath) -> Result<u64, ObjectError> {
    metrics().store_requests.increment(1);
    Ok(store.objects().head(path).await?.size)
}

async fn fetch(store: &Store, path: &ObjectPath, range: Range<u64>) -> Result<Bytes, ObjectError> {
    let expected = range.end - range.start;
    metrics().store_requests.increment(1);
    metrics().store_bytes.increment(expected);
    let bytes = store.objects().get_range(path, range).await?;
    match bytes.len() as u64 == expected {
        true => Ok(bytes),
        false => Err(ObjectError::Damaged("it is too short")),
    }
}

/// Writes a file as the object of a key. Each block is verified as it is read.
pub(super) async fn write(store: &Store, key: CacheKey, exports: &Exports, whole: &Written) -> Result<(), ObjectError> {
    // A directory that is not there is not created again.
    store.verify().await?;
    let path = path_of(key);
    let objects = store.objects().clone();
    let mut writer = BufWriter::with_capacity(objects, path.clone(), PART_BYTES).with_max_concurrency(PARTS);
    let write = async {
        let mut at = 0;
        while at < whole.sums.bytes {
            let turn = exports.reads.clone().acquire_owned().await.map_err(std::io::Error::other)?;
            let block = read_block(turn, whole.file.path.clone(), whole.sums.clone(), at).await?;
            at += block.len() as u64;
            writer.put(block).await?;
        }
        writer.put(trailer(&path, &whole.sums, whole.file.totals).into()).await?;
        Ok(writer.shutdown().await.map_err(StorageError::from)?)
    };
    let written = write.await;
    if written.is_err()
        && let Err(error) = writer.abort().await
    {
        // Nothing was begun, or it takes space until the store's own rule removes it.
        tracing::debug!(%error, "failed to remove uploaded parts");
    }
    written
}

/// Removes an object; a sweep does it later if that fails.
pub(super) async fn remove(store: &Store, path: &ObjectPath) {
    match store.objects().delete(path).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
        Err(error) => tracing::debug!(%error, %path, "failed to remove export from the store"),
    }
}

/// The objects that must be removed so that the others take at most `room_bytes`, and none of them was written before
/// `since`: the oldest ones.
pub(crate) async fn surplus(
    store: &Store,
    room_bytes: u64,
    since: DateTime<Utc>,
) -> Result<Vec<ObjectMeta>, StorageError> {
    let folder = ObjectPath::from(SHARED_EXPORTS_FOLDER);
    let mut objects: Vec<ObjectMeta> = store.objects().list(Some(&folder)).try_collect().await?;
    objects.sort_unstable_by_key(|object| Reverse(object.last_modified));
    let mut bytes = 0;
    let retained = objects.iter().take(MAX_FILES).take_while(|object| {
        bytes += object.size;
        bytes <= room_bytes && object.last_modified >= since
    });
    Ok(objects.split_off(retained.count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn export_length_follows_from_object_length() {
        for bytes in [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 9 * BLOCK_BYTES] {
            let mut sums = Sums::default();
            sums.update(&vec![7; bytes as usize]);
            let trailer = trailer(&ObjectPath::from("x"), &sums, Totals { total: 1, matches: None });
            assert_eq!(export_bytes(bytes + trailer.len() as u64), Some(bytes));
        }
        assert_eq!(export_bytes(COUNTS_BYTES - 1), None);
    }
}
