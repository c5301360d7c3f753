//! The sweep: removes files that nothing needs any more.
//!
//! 1. Records of files that no version and no alternate has named for long enough are removed, each under a check that
//!    still none does; then the files. A crash in between leaves an unnamed file, of which the second part takes care.
//! 2. Files of the store that are neither recorded nor reserved, which crashes and failures leave behind, are removed
//!    when they are old enough by the store's clock.
//!
//!    That nobody names a file must be so by the catalog's indexes, which answer at once, and by its tables: an index
//!    that is damaged may lack what its table holds. Candidates are gathered, so that a hundred cost one reading of a
//!    table.
//!
//! 3. So are files that a killed writer has begun, which no listing of the store has, where the store is a directory.
//! 4. Parquet exports that servers share in the store go when nobody has fetched them for long enough, or when they are
//!    more than `cache.shared_export_bytes`, the ones that were fetched least recently first. A server that is fetching
//!    one makes the rest. Objects in their folder that nothing names go as in 2, when they are old enough.
//! 5. Temporary files and exports of processes on this data directory that have ended are removed.
//!
//! A store that does not hold the catalog's identity ([`crate::maintenance::binding`]) is not swept: its files
//! may be another one's.
//!
//! A writer's reservation protects its file. A read has no reservation. The age protects it, because it is more than
//! the longest read takes ([`strata_config::Config::longest_read`]), and a read that still uses a file began when a
//! version named it. A hold (a backup, a check) stops all removals.
//!
//! Sweeps of several processes at once do no harm: each removal is checked by itself, and files that are gone already
//! are passed over.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectMeta, ObjectStoreExt};
use strata_catalog::{Catalog, CatalogError, ExportRoom};
use strata_config::{Config, SHARED_EXPORTS_FOLDER, VERSIONS_FOLDER};
use strata_runtime::metrics::metrics;
use strata_store::StorageError;
use strata_store::store::Store;

use crate::maintenance::scratch::{Abandoned, EXPORTS_FOLDER, TEMPORARY_FOLDER, remove_abandoned};
use crate::maintenance::{Maintenance, pages_of};

/// Files that are looked up, or whose records are removed, at a time.
const PAGE: u32 = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweptFile {
    /// Its path in the store; of an abandoned directory, in the data directory.
    pub path: String,
    pub size_bytes: u64,
    pub reason: SweepReason,
    /// Why it is still there; `None` when it was removed.
    pub failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepReason {
    Unreferenced,
    Unnamed,
    /// It is an export that nobody has fetched for long, or that there is no room for.
    Unused,
    Unfinished,
    /// The process whose temporary directory it is has ended.
    Abandoned,
}

impl SweepReason {
    pub fn name(self) -> &'static str {
        match self {
            SweepReason::Unreferenced => "unreferenced",
            SweepReason::Unnamed => "unnamed",
            SweepReason::Unused => "unused",
            SweepReason::Unfinished => "unfinished",
            SweepReason::Abandoned => "abandoned",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub removed: u64,
    pub removed_bytes: u64,
    pub failed: u64,
    /// Whether a backup or a check kept the sweep from removing all that it would.
    pub held: bool,
}

/// Why a sweep stopped. What it removed is gone; the rest is left for the next.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error("the metadata database")]
    Catalog(#[from] CatalogError),
    #[error("the store")]
    Store(#[from] StorageError),
}

type Tell<'a> = &'a mut (dyn FnMut(&SweptFile) + Send);

impl Maintenance {
    /// Removes files that nothing has needed for longer than `older_than`, and tells of each. Memory is bounded,
    /// whatever the number of files; the store's `versions/` folder is listed once.
    ///
    /// A read that is still at work when `older_than` has passed since it began loses its file: give at least
    /// [`strata_config::Config::longest_read`] while anything reads.
    ///
    /// A file that cannot be removed is no error, it is told of.
    pub async fn sweep(&self, older_than: Duration, tell: Tell<'_>) -> Result<Swept, SweepError> {
        // What this catalog does not name may be another one's.
        self.binding.verify().await?;
        let Maintenance { config, catalog, store, .. } = self;
        let mut sweep = Sweep { config, catalog, store, older_than, swept: Swept::default(), tell };
        sweep.unreferenced().await?;
        sweep.unnamed().await?;
        sweep.unfinished().await?;
        sweep.shared_exports().await?;
        sweep.abandoned().await;
        Ok(sweep.swept)
    }

    /// Sweeps every `sweep.interval_s`, for ever, beginning at a random time so that processes are spread.
    pub async fn sweep_periodically(self: Arc<Self>) {
        let options = &self.config.sweep;
        if options.interval_s == 0 {
            return;
        }
        let interval = Duration::from_secs(options.interval_s);
        let older_than = Duration::from_secs(options.older_than_s);
        tokio::time::sleep(interval.mul_f64(rand::random())).await;
        loop {
            let mut tell = |file: &SweptFile| match &file.failure {
                None => tracing::info!(path = file.path, reason = file.reason.name(), "removed file"),
                Some(error) => tracing::warn!(path = file.path, error, "failed to remove file"),
            };
            match self.sweep(older_than, &mut tell).await {
                Ok(swept) if swept == Swept::default() => {}
                Ok(Swept { removed, removed_bytes, failed, held }) => {
                    tracing::info!(removed, removed_bytes, failed, held, "completed sweep");
                }
                Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "failed to complete sweep"),
            }
            tokio::time::sleep(interval).await;
        }
    }
}

struct Sweep<'a> {
    config: &'a Config,
    catalog: &'a Catalog,
    store: &'a Store,
    older_than: Duration,
    swept: Swept,
    tell: Tell<'a>,
}

impl Sweep<'_> {
    async fn unreferenced(&mut self) -> Result<(), SweepError> {
        loop {
            let found = self.catalog.unreferenced_files(self.older_than, PAGE).await?;
            let ids: Vec<_> = found.iter().map(|file| file.id).collect();
            let files = self.catalog.remove_file_records(&ids, self.older_than).await?;
            if files.is_empty() {
                self.swept.held |= self.catalog.files_held().await?;
                return Ok(());
            }
            for file in files {
                self.remove(&file.path, file.size_bytes, SweepReason::Unreferenced).await;
            }
        }
    }

    async fn unnamed(&mut self) -> Result<(), SweepError> {
        // First, for an expired reservation still allows its file to be recorded.
        self.catalog.expire_reservations().await?;
        let mut pages = pin!(pages_of(self.store, VERSIONS_FOLDER, PAGE as usize));
        let mut unnamed: Vec<ObjectMeta> = Vec::new();
        while let Some(mut old) = pages.try_next().await? {
            old.retain(|object| self.is_older(object.last_modified));
            let paths: Vec<&str> = old.iter().map(|object| object.location.as_ref()).collect();
            let named = self.catalog.files_named(&paths).await?;
            unnamed.extend(old.into_iter().filter(|object| !named.contains(object.location.as_ref())));
            if unnamed.len() >= PAGE as usize && !self.remove_unnamed(&mut unnamed).await? {
                return Ok(());
            }
        }
        self.remove_unnamed(&mut unnamed).await?;
        Ok(())
    }

    /// Removes candidates that the catalog's tables do not name either; `false` when files are held.
    async fn remove_unnamed(&mut self, candidates: &mut Vec<ObjectMeta>) -> Result<bool, SweepError> {
        let paths: Vec<&str> = candidates.iter().map(|object| object.location.as_ref()).collect();
        let named = self.named_in_tables(&paths).await?;
        for object in candidates.drain(..).filter(|object| !named.contains(object.location.as_ref())) {
            if self.catalog.files_held().await? {
                self.swept.held = true;
                return Ok(false);
            }
            self.remove(object.location.as_ref(), object.size, SweepReason::Unnamed).await;
        }
        Ok(true)
    }

    /// Which of these paths the catalog's tables name, though its indexes do not.
    async fn named_in_tables(&mut self, paths: &[&str]) -> Result<HashSet<String>, CatalogError> {
        let named = self.catalog.files_named_in_tables(paths).await?;
        for path in &named {
            tracing::error!(
                path,
                "found a damaged index in the metadata database; keeping the file; run `strata check` for details"
            );
        }
        Ok(named)
    }

    async fn unfinished(&mut self) -> Result<(), SweepError> {
        let mut old = self.store.unfinished(VERSIONS_FOLDER).await?;
        old.retain(|file| self.is_older(file.modified.into()));
        for page in old.chunks(PAGE as usize) {
            // A writer that is at work has reserved its file, however long ago its last byte was.
            let objects: Vec<&str> = page.iter().map(|file| file.object.as_str()).collect();
            let named = self.catalog.files_named(&objects).await?;
            let mut unnamed = page.to_vec();
            unnamed.retain(|file| !named.contains(&file.object));
            let objects: Vec<&str> = unnamed.iter().map(|file| file.object.as_str()).collect();
            let named = self.named_in_tables(&objects).await?;
            for file in unnamed.iter().filter(|file| !named.contains(&file.object)) {
                if self.catalog.files_held().await? {
                    self.swept.held = true;
                    return Ok(());
                }
                let failure = self.store.remove_unfinished(file).await.err().map(|error| error.to_string());
                let (path, size_bytes, reason) = (file.path.clone(), file.size_bytes, SweepReason::Unfinished);
                self.count(SweptFile { path, size_bytes, reason, failure });
            }
        }
        Ok(())
    }

    async fn shared_exports(&mut self) -> Result<(), SweepError> {
        let room = ExportRoom::of_bytes(self.config.cache.shared_export_bytes);
        loop {
            let dropped = self.catalog.forget_unused_exports(self.older_than, room).await?;
            if dropped.is_empty() {
                break;
            }
            for export in dropped {
                self.remove(&export.path, export.size_bytes, SweepReason::Unused).await;
            }
        }
        let mut pages = pin!(pages_of(self.store, SHARED_EXPORTS_FOLDER, PAGE as usize));
        while let Some(mut old) = pages.try_next().await? {
            old.retain(|object| self.is_older(object.last_modified));
            let paths: Vec<&str> = old.iter().map(|object| object.location.as_ref()).collect();
            // One that is lost by a damaged index is made again.
            let named = self.catalog.shared_exports_named(&paths).await?;
            for object in old.iter().filter(|object| !named.contains(object.location.as_ref())) {
                self.remove(object.location.as_ref(), object.size, SweepReason::Unnamed).await;
            }
        }
        Ok(())
    }

    async fn abandoned(&mut self) {
        for folder in [TEMPORARY_FOLDER, EXPORTS_FOLDER] {
            let parent = self.config.data.directory.join(folder);
            let removed = tokio::task::spawn_blocking(move || remove_abandoned(&parent)).await.unwrap_or_default();
            for Abandoned { name, size_bytes, failure } in removed {
                let (path, reason) = (format!("{folder}/{name}"), SweepReason::Abandoned);
                self.count(SweptFile { path, size_bytes, reason, failure });
            }
        }
    }

    async fn remove(&mut self, path: &str, size_bytes: u64, reason: SweepReason) {
        let failure = match self.store.objects().delete(&ObjectPath::from(path)).await {
            Ok(()) => None,
            // Another sweep was faster, or the file was never there.
            Err(object_store::Error::NotFound { .. }) => None,
            Err(error) => Some(error.to_string()),
        };
        self.count(SweptFile { path: path.to_owned(), size_bytes, reason, failure });
    }

    /// Counts a file that was to go, and tells of it.
    fn count(&mut self, file: SweptFile) {
        let outcome = match file.failure {
            None => {
                self.swept.removed += 1;
                self.swept.removed_bytes += file.size_bytes;
                "removed"
            }
            Some(_) => {
                self.swept.failed += 1;
                "failed"
            }
        };
        metrics().swept_files.of([outcome.into()]).increment(1);
        (self.tell)(&file);
    }

    fn is_older(&self, modified: DateTime<Utc>) -> bool {
        // One from the future, by another clock, is not.
        self.catalog.now().signed_duration_since(modified).to_std().is_ok_and(|age| age > self.older_than)
    }
}
