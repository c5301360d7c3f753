//! A range of a version file that was fetched with one request.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use parquet::file::reader::{ChunkReader, Length};
use strata_store::{Result, StorageError};

/// Bytes of a file that start at offset `start`. Parquet readers address them with offsets in the file.
#[derive(Clone, Debug)]
pub struct FetchedRange {
    pub start: u64,
    pub bytes: Bytes,
}

impl FetchedRange {
    pub(super) fn slice(&self, range: Range<u64>) -> parquet::errors::Result<Bytes> {
        let local = |offset: u64| offset.checked_sub(self.start).and_then(|local| usize::try_from(local).ok());
        match (local(range.start), local(range.end)) {
            (Some(start), Some(end)) if start <= end && end <= self.bytes.len() => Ok(self.bytes.slice(start..end)),
            _ => Err(parquet::errors::ParquetError::EOF(format!("bytes {range:?} were not fetched"))),
        }
    }
}

impl Length for FetchedRange {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for FetchedRange {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        Ok(bytes::Buf::reader(self.slice(start..self.len())?))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        self.slice(start..start + length as u64)
    }
}

/// Calls a Parquet decoder and catches its panics: decoders trust some lengths, which can be damaged.
pub(super) fn decode_catching_panics<T>(decoder: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(decoder)).unwrap_or_else(|_| Err(StorageError::undecodable()))
}
