//! How far the making of an export is, and the file that it makes.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use strata_store::StorageError;

use crate::export_cache::checksums::Sums;
use crate::lookup::error::ReadError;

#[derive(Clone)]
pub(super) enum Progress {
    Started,
    Writing {
        head: Head,
        sums: Sums,
    },
    Made(Arc<MadeFile>),
    /// It is not kept: it does not fit, or the disk failed.
    GivenUp,
    Failed(ReadError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub total: u64,
    /// Those that match, where the request asks for them.
    pub matches: Option<u64>,
}

/// What is known of an answer before its first byte, and where the file is in the making.
#[derive(Clone)]
pub(super) struct Head {
    pub(super) totals: Totals,
    pub(super) bytes: Option<u64>,
    pub(super) partial: Arc<Path>,
    pub(super) whole: Arc<Path>,
}

/// A file of the cache. It is removed when the cache has dropped it and nobody reads it any more.
#[derive(Debug)]
pub(super) struct MadeFile {
    pub(super) path: Arc<Path>,
    pub(super) bytes: u64,
    pub(super) totals: Totals,
    pub(super) sums: Sums,
}

impl Drop for MadeFile {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

pub(super) fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %path.display(), "failed to remove cached export");
        }
        _ => {}
    }
}

/// The making ended without a word, as by a panic, which is logged where it arose.
pub(super) fn vanished() -> ReadError {
    unreadable(io::Error::other("the job that built the export ended unexpectedly"))
}

pub(super) fn unreadable(error: io::Error) -> ReadError {
    ReadError::from(StorageError::from(error))
}
