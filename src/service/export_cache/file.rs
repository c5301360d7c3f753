//! The file of an export and the progress of writing it.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use strata_store::StorageError;

use crate::export_cache::checksums::BlockChecksums;
use crate::lookup::error::ReadError;

#[derive(Clone)]
pub(super) enum ExportProgress {
    Started,
    Written(WrittenExport),
    /// The file of the export was deleted: there was no space for it, or the disk failed.
    Abandoned,
    Failed(ReadError),
}

impl ExportProgress {
    pub(super) fn size_bytes(&self) -> Option<u64> {
        match self {
            ExportProgress::Written(written) if written.is_complete => Some(written.checksums.size_bytes),
            ExportProgress::Written(written) => written.file.size_bytes,
            ExportProgress::Started | ExportProgress::Abandoned | ExportProgress::Failed(_) => None,
        }
    }

    pub(super) fn complete_file(&self) -> Option<&WrittenExport> {
        match self {
            ExportProgress::Written(written) if written.is_complete => Some(written),
            _ => None,
        }
    }

    pub(super) fn sha256(&self) -> Option<[u8; 32]> {
        self.complete_file().and_then(|written| written.sha256)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.complete_file().is_some() || matches!(self, ExportProgress::Abandoned | ExportProgress::Failed(_))
    }
}

#[derive(Clone)]
pub(super) struct WrittenExport {
    pub(super) file: Arc<CachedExportFile>,
    pub(super) checksums: BlockChecksums,
    pub(super) is_complete: bool,
    /// The SHA-256 of the whole file; `None` until the file is complete.
    pub(super) sha256: Option<[u8; 32]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExportTotals {
    pub total: u64,
    pub matches: Option<u64>,
}

/// A file of the export cache, which is removed when neither the cache nor a reader refers to it.
#[derive(Debug)]
pub(super) struct CachedExportFile {
    pub(super) path: Arc<Path>,
    pub(super) totals: ExportTotals,
    pub(super) size_bytes: Option<u64>,
}

impl Drop for CachedExportFile {
    fn drop(&mut self) {
        remove_file(&self.path);
    }
}

pub(super) fn remove_file(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %path.display(), "failed to remove cached export");
        }
        _ => {}
    }
}

pub(super) fn export_job_error() -> ReadError {
    export_unreadable_error(io::Error::other("the job that built the export ended unexpectedly"))
}

pub(super) fn export_unreadable_error(error: io::Error) -> ReadError {
    ReadError::from(StorageError::from(error))
}
