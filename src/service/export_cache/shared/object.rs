//! An export as an object of the store.
//!
//! The name of an object is the key of its export. All servers create the same bytes for a key, so any of them can
//! write the object, or overwrite it. The object is self-describing:
//!
//! ```text
//! the export | checksum of each block | entities | matches | checksum of the name and the trailer
//!              4 bytes each             8          8         4 bytes, little-endian as all numbers
//! ```
//!
//! The object's length determines the export's length. A trailer or block that does not match its checksum is damage.

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
use crate::export_cache::checksums::{BLOCK_BYTES, BlockChecksums};
use crate::export_cache::file::{ExportTotals, WrittenExport};
use crate::export_cache::reader::read_block;
use crate::export_cache::{ExportCache, MAX_EXPORT_FILES};

const UPLOAD_PART_BYTES: usize = 8 << 20;
const MAX_CONCURRENT_PARTS: usize = 2;
const CHECKSUM_BYTES: u64 = 4;
const TOTALS_BYTES: u64 = 20;
const MATCHES_ABSENT: u64 = u64::MAX;

#[derive(Debug, thiserror::Error)]
pub(super) enum SharedExportError {
    #[error("the object is damaged: {0}")]
    Damaged(&'static str),
    #[error(transparent)]
    Store(#[from] StorageError),
    #[error("timed out waiting for a store request slot")]
    Busy,
    #[error("failed to read the export file")]
    File(#[from] std::io::Error),
}

impl From<object_store::Error> for SharedExportError {
    fn from(error: object_store::Error) -> SharedExportError {
        SharedExportError::Store(error.into())
    }
}

impl SharedExportError {
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, SharedExportError::Store(StorageError::ObjectStore(object_store::Error::NotFound { .. })))
    }

    pub(super) fn is_permanent(&self) -> bool {
        matches!(self, SharedExportError::Damaged(_)) || self.is_missing()
    }

    pub(super) fn metric_outcome(&self) -> &'static str {
        match self {
            SharedExportError::Busy => "busy",
            error if error.is_permanent() => "damaged",
            _ => "failed",
        }
    }
}

pub(super) fn object_path(key: CacheKey) -> ObjectPath {
    let name = key.to_short_hex();
    ObjectPath::from(format!("{SHARED_EXPORTS_FOLDER}/{}/{name}.parquet", &name[..2]))
}

/// Returns the length of the export in an object of this length; `None` if the object is too short for a trailer.
fn export_bytes_from_object(object_bytes: u64) -> Option<u64> {
    let bytes = object_bytes.checked_sub(TOTALS_BYTES)?;
    bytes.checked_sub(CHECKSUM_BYTES * bytes.div_ceil(BLOCK_BYTES + CHECKSUM_BYTES))
}

fn encode_trailer(path: &ObjectPath, blocks: &BlockChecksums, totals: ExportTotals) -> Vec<u8> {
    let mut trailer: Vec<u8> = blocks.block_checksums().iter().flat_map(|crc| crc.to_le_bytes()).collect();
    trailer.extend(totals.total.to_le_bytes());
    trailer.extend(totals.matches.unwrap_or(MATCHES_ABSENT).to_le_bytes());
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(path.as_ref().as_bytes());
    checksum.update(&trailer);
    trailer.extend(checksum.finalize().to_le_bytes());
    trailer
}

#[derive(Clone)]
pub(super) struct SharedExport {
    store: Store,
    path: ObjectPath,
    pub(super) totals: ExportTotals,
    pub(super) checksums: BlockChecksums,
}

impl SharedExport {
    pub(super) async fn fetch_size_bytes(store: &Store, key: CacheKey) -> Result<u64, SharedExportError> {
        let object_bytes = fetch_object_bytes(store, &object_path(key)).await?;
        export_bytes_from_object(object_bytes).ok_or(SharedExportError::Damaged("it is too short"))
    }

    pub(super) async fn open(store: &Store, key: CacheKey) -> Result<SharedExport, SharedExportError> {
        let path = object_path(key);
        let object_bytes = fetch_object_bytes(store, &path).await?;
        let size_bytes = export_bytes_from_object(object_bytes).ok_or(SharedExportError::Damaged("it is too short"))?;
        let trailer = fetch_range(store, &path, size_bytes..object_bytes).await?;
        let (blocks, counts) = trailer.split_at(trailer.len() - TOTALS_BYTES as usize);
        let blocks = blocks.as_chunks::<4>().0.iter().map(|crc| u32::from_le_bytes(*crc));
        let checksums = BlockChecksums::from_blocks(size_bytes, blocks.collect());
        let number =
            |offset: usize| counts[offset..].first_chunk().map_or(MATCHES_ABSENT, |bytes| u64::from_le_bytes(*bytes));
        let totals =
            ExportTotals { total: number(0), matches: Some(number(8)).filter(|matches| *matches != MATCHES_ABSENT) };
        match encode_trailer(&path, &checksums, totals) == trailer {
            true => Ok(SharedExport { store: store.clone(), path, totals, checksums }),
            false => Err(SharedExportError::Damaged("its trailer does not match its checksum")),
        }
    }

    /// Fetches `concurrency` chunks at the same time. The stream keeps `permit` until it is dropped.
    pub(super) fn fetch_all(
        &self,
        chunk_blocks: u64,
        concurrency: usize,
        permit: impl Send + 'static,
    ) -> BoxStream<'static, Result<Bytes, SharedExportError>> {
        let export = self.clone();
        let chunk_bytes = chunk_blocks * BLOCK_BYTES;
        let chunks = stream::iter((0..self.checksums.size_bytes).step_by(chunk_bytes as usize)).map(move |start| {
            let export = export.clone();
            async move { export.fetch_blocks(start..export.checksums.size_bytes.min(start + chunk_bytes)).await }
        });
        let chunks = chunks.buffered(concurrency).inspect(move |_| {
            let _ = &permit;
        });
        chunks.boxed()
    }

    async fn fetch_blocks(&self, range: Range<u64>) -> Result<Bytes, SharedExportError> {
        let start = range.start;
        let bytes = fetch_range(&self.store, &self.path, range).await?;
        match self.checksums.verify(start, &bytes) {
            true => Ok(bytes),
            false => Err(SharedExportError::Damaged("a block does not match its checksum")),
        }
    }
}

async fn fetch_object_bytes(store: &Store, path: &ObjectPath) -> Result<u64, SharedExportError> {
    metrics().store_requests.increment(1);
    Ok(store.object_store().head(path).await?.size)
}

async fn fetch_range(store: &Store, path: &ObjectPath, range: Range<u64>) -> Result<Bytes, SharedExportError> {
    let expected = range.end - range.start;
    metrics().store_requests.increment(1);
    metrics().store_bytes.increment(expected);
    let bytes = store.object_store().get_range(path, range).await?;
    if bytes.len() as u64 == expected { Ok(bytes) } else { Err(SharedExportError::Damaged("it is too short")) }
}

pub(super) async fn write_object(
    store: &Store,
    key: CacheKey,
    exports: &ExportCache,
    written: &WrittenExport,
) -> Result<(), SharedExportError> {
    // The identity of the store is verified first, so that no directory is created for a store that is not mounted.
    store.verify_identity().await?;
    let path = object_path(key);
    let objects = store.object_store().clone();
    let mut writer =
        BufWriter::with_capacity(objects, path.clone(), UPLOAD_PART_BYTES).with_max_concurrency(MAX_CONCURRENT_PARTS);
    let write = async {
        let mut offset = 0;
        while offset < written.checksums.size_bytes {
            let permit = exports.read_permits.clone().acquire_owned().await.map_err(std::io::Error::other)?;
            let block = read_block(permit, written.file.path.clone(), written.checksums.clone(), offset).await?;
            offset += block.len() as u64;
            writer.put(block).await?;
        }
        writer.put(encode_trailer(&path, &written.checksums, written.file.totals).into()).await?;
        Ok(writer.shutdown().await.map_err(StorageError::from)?)
    };
    let result = write.await;
    if result.is_err()
        && let Err(error) = writer.abort().await
    {
        // Parts that were uploaded but not removed use space until a lifecycle rule of the store removes them.
        tracing::debug!(%error, "failed to remove uploaded parts");
    }
    result
}

pub(super) async fn remove_object(store: &Store, path: &ObjectPath) {
    match store.object_store().delete(path).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
        Err(error) => tracing::debug!(%error, %path, "failed to remove export from the store"),
    }
}

/// Returns the oldest shared exports to remove: the rest has at most `max_bytes` and was written after `since`.
pub(crate) async fn find_surplus_exports(
    store: &Store,
    max_bytes: u64,
    since: DateTime<Utc>,
) -> Result<Vec<ObjectMeta>, StorageError> {
    let folder = ObjectPath::from(SHARED_EXPORTS_FOLDER);
    let mut objects: Vec<ObjectMeta> = store.object_store().list(Some(&folder)).try_collect().await?;
    objects.sort_unstable_by_key(|object| Reverse(object.last_modified));
    let mut bytes = 0;
    let retained = objects.iter().take(MAX_EXPORT_FILES).take_while(|object| {
        bytes += object.size;
        bytes <= max_bytes && object.last_modified >= since
    });
    Ok(objects.split_off(retained.count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn export_length_follows_from_object_length() {
        for bytes in [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 9 * BLOCK_BYTES] {
            let mut checksums = BlockChecksums::default();
            checksums.update(&vec![7; bytes as usize]);
            let trailer = encode_trailer(&ObjectPath::from("x"), &checksums, ExportTotals { total: 1, matches: None });
            assert_eq!(export_bytes_from_object(bytes + trailer.len() as u64), Some(bytes));
        }
        assert_eq!(export_bytes_from_object(TOTALS_BYTES - 1), None);
    }
}
