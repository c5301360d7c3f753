//! Sweeps: remove unused files.
//!
//! 1. Records of files that no version and no alternate has named for long enough are removed, each under a check that
//!    this is still so; then the files. After a crash in between, the second part removes the file.
//! 2. Files in the store that are neither recorded nor reserved, which crashes and failures leave, are removed when
//!    they are old enough by the store's clock. The catalog's tables must confirm its indexes, because a damaged index
//!    can lack rows of its table. Checks of candidates are batched, because each reads an entire table.
//! 3. If the store is a directory, so are files that killed writers began, which listings of the store do not contain.
//! 4. Shared Parquet exports in the store are removed when they are old enough, or exceed `cache.shared_export_bytes`,
//!    the oldest first. A node that is fetching one builds the rest of it.
//! 5. Temporary files and exports of ended processes in this data directory are removed.
//!
//! A store without the catalog's identity ([`crate::maintenance::binding`]) is not swept.
//!
//! A writer's reservation protects its file. The age protects reads, because it is more than the longest read takes
//! ([`strata_config::Config::longest_read`]). A hold (a backup, a check) stops all removals. Several processes can
//! sweep at once: each removal is checked separately, and missing files are skipped.

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

use crate::export_cache::surplus;
use crate::maintenance::scratch::{Abandoned, EXPORTS_FOLDER, TEMPORARY_FOLDER, remove_abandoned};
use crate::maintenance::{Maintenance, pages_of};

/// Files of one catalog query.
const PAGE: u32 = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweptFile {
    /// The path in the store, or in the data directory for an abandoned directory.
    pub path: String,
    pub size_bytes: u64,
    pub reason: SweepReason,
    /// Why it still exists; `None` if it was removed.
    pub failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepReason {
    Unreferenced,
    Unnamed,
    /// An export that is old, or for which there is no space.
    Unused,
    Unfinished,
    /// A temporary directory of an ended process.
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
    /// Whether a backup or a check prevented removals.
    pub held: bool,
}

/// Why a sweep stopped. The next sweep removes the rest.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error("the metadata database")]
    Catalog(#[from] CatalogError),
    #[error("the store")]
    Store(#[from] StorageError),
}

type Tell<'a> = &'a mut (dyn FnMut(&SweptFile) + Send);

impl Maintenance {
    /// Removes files that were unused for longer than `older_than`, and reports each to `tell`, also if it cannot be
    /// removed. Lists the store's `versions/` folder once, in bounded memory.
    ///
    /// While anything reads, `older_than` must be at least [`strata_config::Config::longest_read`], because a read that
    /// takes longer loses its file.
    pub async fn sweep(&self, older_than: Duration, tell: Tell<'_>) -> Result<Swept, SweepError> {
        // Files that this catalog does not name can belong to another one.
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

    /// Sweeps every `sweep.interval_s`, from a random time on so that processes do not sweep together. Never returns.
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
        // An expired reservation still allows its file to be recorded.
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

    /// Removes candidates that the catalog's tables do not name, either. Returns `false` if files are held.
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

    /// The paths that the catalog's tables name, although its indexes do not.
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
            // A running writer has a reservation, even if its last write was long ago.
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
                let path = file.path.clone();
                let reason = SweepReason::Unfinished;
                self.count(SweptFile { path, size_bytes: file.size_bytes, reason, failure });
            }
        }
        Ok(())
    }

    async fn shared_exports(&mut self) -> Result<(), SweepError> {
        let room_bytes = self.config.cache.shared_export_bytes;
        let age = TimeDelta::from_std(self.older_than).unwrap_or(TimeDelta::MAX);
        let since = self.catalog.now().checked_sub_signed(age).unwrap_or(DateTime::<Utc>::MIN_UTC);
        for object in surplus(self.store, room_bytes, since).await? {
            self.remove(object.location.as_ref(), object.size, SweepReason::Unused).await;
        }
        Ok(())
    }

    async fn abandoned(&mut self) {
        for folder in [TEMPORARY_FOLDER, EXPORTS_FOLDER] {
            let parent = self.config.data.directory.join(folder);
            let removed = tokio::task::spawn_blocking(move || remove_abandoned(&parent)).await.unwrap_or_default();
            for Abandoned { name, size_bytes, failure } in removed {
                let path = format!("{folder}/{name}");
                self.count(SweptFile { path, size_bytes, reason: SweepReason::Abandoned, failure });
            }
        }
    }

    async fn remove(&mut self, path: &str, size_bytes: u64, reason: SweepReason) {
        let failure = match self.store.objects().delete(&ObjectPath::from(path)).await {
            Ok(()) => None,
            // Another sweep was faster, or the file never existed.
            Err(object_store::Error::NotFound { .. }) => None,
            Err(error) => Some(error.to_string()),
        };
        self.count(SweptFile { path: path.to_owned(), size_bytes, reason, failure });
    }

    /// Counts and reports a file.
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
        // A time in the future, by another clock, is not older.
        self.catalog.now().signed_duration_since(modified).to_std().is_ok_and(|age| age > self.older_than)
    }
}
