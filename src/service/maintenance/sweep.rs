//! Sweeps: removes files that nothing refers to.
//!
//! 1. Unreferenced files: the record is removed in a transaction that checks for references again, then the file.
//! 2. Unrecorded files, which crashes leave in the store: removed if they are neither recorded nor reserved. Because a
//!    damaged index can lack rows, a scan of the catalog's tables must confirm that; scans are batched.
//! 3. Staged uploads of killed writers, if the store is a directory.
//! 4. Shared Parquet exports that are old or exceed `cache.shared_export_bytes`, oldest first. A node that is
//!    downloading such an export builds the rest of it.
//! 5. Temporary files and exports of exited processes in the data directory.
//!
//! A store without the catalog's identity ([`crate::maintenance::store_identity`]) is not swept. A reservation protects
//! the file of a running writer. The minimum age protects running reads. A file hold (of a backup or a check) stops all
//! removals. Several processes can sweep at once, because each removal is checked separately.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::TryStreamExt;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectMeta, ObjectStoreExt};
use strata_catalog::{Catalog, CatalogError};
use strata_config::{Config, VERSIONS_FOLDER};
use strata_runtime::metrics::metrics;
use strata_store::StorageError;
use strata_store::store::Store;

use crate::export_cache::find_surplus_exports;
use crate::maintenance::temp_dir::{
    AbandonedDirectory, EXPORTS_FOLDER, TEMPORARY_FOLDER, remove_abandoned_directories,
};
use crate::maintenance::{MaintenanceService, list_object_pages};

const FILES_PER_QUERY: u32 = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweptFile {
    /// The path of the file in the store, or of an abandoned directory in the data directory.
    pub path: String,
    pub size_bytes: u64,
    pub reason: SweepReason,
    /// The error of removing the file; `None` if it was removed.
    pub failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepReason {
    Unreferenced,
    Unrecorded,
    UnusedExport,
    StagedUpload,
    AbandonedDirectory,
}

impl SweepReason {
    pub fn name(self) -> &'static str {
        match self {
            SweepReason::Unreferenced => "unreferenced",
            SweepReason::Unrecorded => "unnamed",
            SweepReason::UnusedExport => "unused",
            SweepReason::StagedUpload => "unfinished",
            SweepReason::AbandonedDirectory => "abandoned",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepSummary {
    pub removed: u64,
    pub removed_bytes: u64,
    pub failed: u64,
    /// True if the file hold of a backup or a check prevented removals.
    pub was_held: bool,
}

/// An error that stopped a sweep. The next sweep removes the remaining files.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error("the metadata database")]
    Catalog(#[from] CatalogError),
    #[error("the store")]
    Store(#[from] StorageError),
}

type SweptFileCallback<'a> = &'a mut (dyn FnMut(&SweptFile) + Send);

impl MaintenanceService {
    /// Removes files that were unused for longer than `older_than`, and reports each file, also if its removal failed.
    /// If `older_than` is less than [`strata_config::Config::max_read_duration`], running reads can fail.
    pub async fn sweep(&self, older_than: Duration, report: SweptFileCallback<'_>) -> Result<SweepSummary, SweepError> {
        // In the store of another catalog, a sweep would remove all files, because this catalog does not record them.
        self.store_identity.verify().await?;
        let MaintenanceService { config, catalog, store, .. } = self;
        let mut sweep = SweepRun { config, catalog, store, older_than, summary: SweepSummary::default(), report };
        let unreferenced = match sweep.remove_unreferenced().await {
            // The other steps do not need the damaged record.
            Err(error @ SweepError::Catalog(CatalogError::DamagedRecord { .. })) => Err(error),
            result => Ok(result?),
        };
        sweep.remove_unrecorded().await?;
        sweep.remove_staged_uploads().await?;
        sweep.remove_shared_exports().await?;
        sweep.remove_abandoned_directories().await;
        unreferenced.map(|()| sweep.summary)
    }

    /// Sweeps every `sweep.interval_s`. The start is random, so that processes do not sweep at the same time.
    pub async fn sweep_periodically(self: Arc<Self>) {
        let options = &self.config.sweep;
        if options.interval_s == 0 {
            return;
        }
        let interval = Duration::from_secs(options.interval_s);
        let older_than = Duration::from_secs(options.older_than_s);
        tokio::time::sleep(interval.mul_f64(rand::random())).await;
        loop {
            let mut report = |file: &SweptFile| match &file.failure {
                None => tracing::info!(path = file.path, reason = file.reason.name(), "removed file"),
                Some(error) => tracing::warn!(path = file.path, error, "failed to remove file"),
            };
            match self.sweep(older_than, &mut report).await {
                Ok(summary) if summary == SweepSummary::default() => {}
                Ok(SweepSummary { removed, removed_bytes, failed, was_held }) => {
                    tracing::info!(removed, removed_bytes, failed, held = was_held, "completed sweep");
                }
                Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "failed to complete sweep"),
            }
            tokio::time::sleep(interval).await;
        }
    }
}

struct SweepRun<'a> {
    config: &'a Config,
    catalog: &'a Catalog,
    store: &'a Store,
    older_than: Duration,
    summary: SweepSummary,
    report: SweptFileCallback<'a>,
}

impl SweepRun<'_> {
    async fn remove_unreferenced(&mut self) -> Result<(), SweepError> {
        loop {
            let found = self.catalog.unreferenced_files(self.older_than, FILES_PER_QUERY).await?;
            let ids: Vec<_> = found.iter().map(|file| file.id).collect();
            let files = self.catalog.remove_file_records(&ids, self.older_than).await?;
            if files.is_empty() {
                self.summary.was_held |= self.catalog.has_file_holds().await?;
                return Ok(());
            }
            for file in files {
                self.remove_file(&file.path, file.size_bytes, SweepReason::Unreferenced).await;
            }
        }
    }

    async fn remove_unrecorded(&mut self) -> Result<(), SweepError> {
        // A writer with an expired reservation could otherwise still record its file while the sweep removes it.
        self.catalog.expire_reservations().await?;
        let mut pages = pin!(list_object_pages(self.store, VERSIONS_FOLDER, FILES_PER_QUERY as usize));
        let mut candidates: Vec<ObjectMeta> = Vec::new();
        while let Some(mut old) = pages.try_next().await? {
            old.retain(|object| self.is_older(object.last_modified));
            let paths: Vec<&str> = old.iter().map(|object| object.location.as_ref()).collect();
            let known = self.catalog.find_known_paths(&paths).await?;
            candidates.extend(old.into_iter().filter(|object| !known.contains(object.location.as_ref())));
            if candidates.len() >= FILES_PER_QUERY as usize && !self.remove_if_unrecorded(&mut candidates).await? {
                return Ok(());
            }
        }
        self.remove_if_unrecorded(&mut candidates).await?;
        Ok(())
    }

    /// Removes candidate files that a scan of the catalog's tables does not find, or returns `false` if files are held.
    async fn remove_if_unrecorded(&mut self, candidates: &mut Vec<ObjectMeta>) -> Result<bool, SweepError> {
        let paths: Vec<&str> = candidates.iter().map(|object| object.location.as_ref()).collect();
        let known = self.find_paths_by_table_scan(&paths).await?;
        for object in candidates.drain(..).filter(|object| !known.contains(object.location.as_ref())) {
            if self.catalog.has_file_holds().await? {
                self.summary.was_held = true;
                return Ok(false);
            }
            self.remove_file(object.location.as_ref(), object.size, SweepReason::Unrecorded).await;
        }
        Ok(true)
    }

    /// Returns the paths that the catalog's tables contain, but its damaged indexes do not.
    async fn find_paths_by_table_scan(&mut self, paths: &[&str]) -> Result<HashSet<String>, CatalogError> {
        let known = self.catalog.find_known_paths_by_scan(paths).await?;
        for path in &known {
            tracing::error!(
                path,
                "found a damaged index in the metadata database; keeping the file; run `strata check` for details"
            );
        }
        Ok(known)
    }

    async fn remove_staged_uploads(&mut self) -> Result<(), SweepError> {
        let mut old = self.store.list_staged_uploads(VERSIONS_FOLDER).await?;
        old.retain(|file| self.is_older(file.modified.into()));
        for page in old.chunks(FILES_PER_QUERY as usize) {
            // An upload of a running writer has a reservation, even if the last write was long ago.
            let paths: Vec<&str> = page.iter().map(|file| file.object_path.as_str()).collect();
            let known = self.catalog.find_known_paths(&paths).await?;
            let mut candidates = page.to_vec();
            candidates.retain(|file| !known.contains(&file.object_path));
            let paths: Vec<&str> = candidates.iter().map(|file| file.object_path.as_str()).collect();
            let known = self.find_paths_by_table_scan(&paths).await?;
            for file in candidates.iter().filter(|file| !known.contains(&file.object_path)) {
                if self.catalog.has_file_holds().await? {
                    self.summary.was_held = true;
                    return Ok(());
                }
                let failure = self.store.remove_staged_upload(file).await.err().map(|error| error.to_string());
                let path = file.path.clone();
                let reason = SweepReason::StagedUpload;
                self.record_outcome(SweptFile { path, size_bytes: file.size_bytes, reason, failure });
            }
        }
        Ok(())
    }

    async fn remove_shared_exports(&mut self) -> Result<(), SweepError> {
        let max_bytes = self.config.cache.shared_export_bytes;
        let age = TimeDelta::from_std(self.older_than).unwrap_or(TimeDelta::MAX);
        let since = self.catalog.now().checked_sub_signed(age).unwrap_or(DateTime::<Utc>::MIN_UTC);
        for object in find_surplus_exports(self.store, max_bytes, since).await? {
            self.remove_file(object.location.as_ref(), object.size, SweepReason::UnusedExport).await;
        }
        Ok(())
    }

    async fn remove_abandoned_directories(&mut self) {
        for folder in [TEMPORARY_FOLDER, EXPORTS_FOLDER] {
            let parent = self.config.data.directory.join(folder);
            let removed =
                tokio::task::spawn_blocking(move || remove_abandoned_directories(&parent)).await.unwrap_or_default();
            for AbandonedDirectory { name, size_bytes, failure } in removed {
                let path = format!("{folder}/{name}");
                self.record_outcome(SweptFile { path, size_bytes, reason: SweepReason::AbandonedDirectory, failure });
            }
        }
    }

    async fn remove_file(&mut self, path: &str, size_bytes: u64, reason: SweepReason) {
        let failure = match self.store.object_store().delete(&ObjectPath::from(path)).await {
            // If the file does not exist, another sweep has removed it, or it never existed.
            Ok(()) | Err(object_store::Error::NotFound { .. }) => None,
            Err(error) => Some(error.to_string()),
        };
        self.record_outcome(SweptFile { path: path.to_owned(), size_bytes, reason, failure });
    }

    fn record_outcome(&mut self, file: SweptFile) {
        let outcome = match file.failure {
            None => {
                self.summary.removed += 1;
                self.summary.removed_bytes += file.size_bytes;
                "removed"
            }
            Some(_) => {
                self.summary.failed += 1;
                "failed"
            }
        };
        metrics().swept_files.with_label_values([outcome.into()]).increment(1);
        (self.report)(&file);
    }

    fn is_older(&self, modified: DateTime<Utc>) -> bool {
        // A modification time in the future, caused by clock differences, never counts as old.
        self.catalog.now().signed_duration_since(modified).to_std().is_ok_and(|age| age > self.older_than)
    }
}
