//! The file of an export, and how much of it is written.

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
    Written(Written),
    /// The file was deleted: there was no space for it, or the disk failed.
    GivenUp,
    Failed(ReadError),
}

impl Progress {
    /// The length of the export, if it is known.
    pub(super) fn size_bytes(&self) -> Option<u64> {
        match self {
            Progress::Written(written) if written.is_whole => Some(written.sums.bytes),
            Progress::Written(written) => written.file.size_bytes,
            Progress::Started | Progress::GivenUp | Progress::Failed(_) => None,
        }
    }

    /// The file, if it is complete.
    pub(super) fn whole(&self) -> Option<&Written> {
        match self {
            Progress::Written(written) if written.is_whole => Some(written),
            _ => None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.whole().is_some() || matches!(self, Progress::GivenUp | Progress::Failed(_))
    }
}

/// The first `sums.bytes` bytes of a file, which can be read.
#[derive(Clone)]
pub(super) struct Written {
    pub(super) file: Arc<CachedFile>,
    pub(super) sums: Sums,
    pub(super) is_whole: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub total: u64,
    /// Entities that match, if the request wants their number.
    pub matches: Option<u64>,
}

/// A file of the cache. It is removed when neither the cache nor a reader refers to it.
#[derive(Debug)]
pub(super) struct CachedFile {
    pub(super) path: Arc<Path>,
    pub(super) totals: Totals,
    /// The length of the export, if it is known before the file is written.
    pub(super) size_bytes: Option<u64>,
}

impl Drop for CachedFile {
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

/// The error of a job that ended without an outcome, for example by a panic, which is logged elsewhere.
pub(super) fn aborted() -> ReadError {
    unreadable(io::Error::other("the job that built the export ended unexpectedly"))
}

pub(super) fn unreadable(error: io::Error) -> ReadError {
    ReadError::from(StorageError::from(error))
}
