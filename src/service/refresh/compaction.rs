//! Compaction: rewrites a delta version whose reads have become expensive as a complete file.
//!
//! Each refresh with scattered changes adds extents to the list of the next version. For example, if each refresh of
//! 1,000,000 entities replaces 1,000 of them at random, version 76 has about 150,000 extents. A refresh that publishes
//! such a version requests its compaction:
//!
//! 1. One compaction of the process runs at a time. A dataset waits at most once, and only its newest version is
//!    compacted, because later refreshes use the complete file as their base.
//! 2. With a refresh permit and the spool quota of the owner, the entities are spooled. Their hash must equal the
//!    content hash of the version.
//! 3. The complete file is written to a new path, and one catalog transaction replaces the file of the version. If the
//!    version has another file by then, the new file is removed.
//!
//! Responses do not change, because both files have the same entities. Running reads continue with the old file, which
//! a sweep does not remove before its minimum age, nor while another version needs it as a base. If a compaction fails
//! or the process stops, the version keeps its file, and the next refresh requests the compaction again.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use strata_catalog::{Catalog, CatalogError};
use strata_format::editing::EditScript;
use strata_runtime::metrics::metrics;
use strata_types::dataset::Dataset;
use strata_types::error_chain::ErrorChain;
use strata_types::ids::DatasetId;
use strata_types::version::DatasetVersion;

use crate::LookupService;
use crate::refresh::error::RefreshError;
use crate::refresh::ingest::PushedEntities;
use crate::refresh::tasks::RefreshTasks;
use crate::refresh::version_file::{REFRESH_LIMITS, VersionFiles, WrittenFile};
use crate::refresh::version_spooler::VersionSpooler;

/// A version has more extents than this before it is compacted. Opening and reading so few costs less than a
/// millisecond, and any list can have them ([`DeltaFileLimits::max_extents_for`]).
///
/// [`DeltaFileLimits::max_extents_for`]: strata_format::editing::DeltaFileLimits::max_extents_for
const MIN_COMPACTED_EXTENTS: usize = 4_096;

/// A version is compacted if it has more than this share of the extents that it can have. Otherwise, versions with
/// scattered changes would reach the limit, and then a refresh writes all entities while its requester waits. Fewer
/// extents are not worth a complete file: `benches/storage` shows the cost of reads with one extent for 7 entities.
const MAX_EXTENTS_PERCENT: usize = 60;

/// Max datasets that wait. Requests of further datasets are dropped, and their next refreshes repeat them.
const MAX_WAITING_DATASETS: usize = 1_000;

pub(crate) struct Compactor {
    catalog: Catalog,
    files: Arc<VersionFiles>,
    spooler: Arc<VersionSpooler>,
    lookups: Arc<LookupService>,
    tasks: Arc<RefreshTasks>,
    waiting_datasets: Mutex<HashSet<DatasetId>>,
    /// Locked by the running compaction.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, thiserror::Error)]
enum CompactionError {
    #[error("the version file {path} or a base of it is damaged: its entities do not match their hash")]
    ContentMismatch { path: String },
    #[error("the version has another file now")]
    FileReplaced,
    #[error(transparent)]
    Refresh(#[from] RefreshError),
}

impl From<CatalogError> for CompactionError {
    fn from(error: CatalogError) -> CompactionError {
        match error {
            CatalogError::Conflict => CompactionError::FileReplaced,
            other => CompactionError::Refresh(other.into()),
        }
    }
}

/// Whether a complete file should replace the file of a version with this number of extents.
fn should_compact(extents: usize, entities: u64) -> bool {
    extents > MIN_COMPACTED_EXTENTS.max(REFRESH_LIMITS.max_extents_for(entities) * MAX_EXTENTS_PERCENT / 100)
}

impl Compactor {
    pub(crate) fn new(
        catalog: Catalog,
        files: Arc<VersionFiles>,
        spooler: Arc<VersionSpooler>,
        lookups: Arc<LookupService>,
        tasks: Arc<RefreshTasks>,
    ) -> Compactor {
        let waiting_datasets = Mutex::default();
        let turn = tokio::sync::Mutex::default();
        Compactor { catalog, files, spooler, lookups, tasks, waiting_datasets, turn }
    }

    /// Compacts the newest version of a dataset in the background, if that version has too many extents.
    pub(super) fn request(self: &Arc<Self>, dataset: DatasetId) {
        let mut waiting = self.waiting_datasets.lock();
        if waiting.len() >= MAX_WAITING_DATASETS || !waiting.insert(dataset) {
            return;
        }
        drop(waiting);
        let compactor = self.clone();
        self.tasks.spawn_refresh(async move { compactor.run_in_turn(dataset).await });
    }

    async fn run_in_turn(&self, dataset: DatasetId) {
        let Some(_turn) = self.tasks.run_until_close(self.turn.lock()).await else { return };
        // From now on, a refresh that publishes a newer version can request another compaction.
        self.waiting_datasets.lock().remove(&dataset);
        let Some(compacted) = self.compact_newest_version(dataset).await else { return };
        let dataset_id = dataset.get();
        let outcome = match &compacted {
            Ok(DatasetVersion { number, file, .. }) => {
                tracing::info!(dataset_id, version = number.get(), path = file.path, "compacted version");
                "compacted"
            }
            Err(CompactionError::FileReplaced) => {
                tracing::info!(dataset_id, "discarded compacted version; the version has another file now");
                "conflict"
            }
            Err(error @ CompactionError::ContentMismatch { .. }) => {
                tracing::error!(dataset_id, %error, "found damaged version; not compacting it");
                "damaged"
            }
            Err(CompactionError::Refresh(error)) => {
                let error = ErrorChain(error);
                tracing::warn!(dataset_id, %error, "failed to compact version; retrying after the next refresh");
                "failed"
            }
        };
        metrics().compactions.with_label_values([outcome.into()]).increment(1);
    }

    /// Returns `None` if the newest version should not be compacted, or if the process is stopping.
    async fn compact_newest_version(&self, dataset: DatasetId) -> Option<Result<DatasetVersion, CompactionError>> {
        let prepared = self.tasks.run_until_close(self.write_complete_file(dataset)).await?;
        // The replacement is not stopped, so that its outcome is known.
        match prepared.transpose()? {
            Ok((version, file)) => Some(self.replace_file(&version, file).await),
            Err(error) => Some(Err(error)),
        }
    }

    /// Writes a complete file of the newest version. Returns `None` if the version should not be compacted.
    async fn write_complete_file(
        &self,
        dataset: DatasetId,
    ) -> Result<Option<(DatasetVersion, WrittenFile)>, CompactionError> {
        let Some(Dataset { owner, latest_version, .. }) = self.catalog.dataset(dataset).await? else { return Ok(None) };
        let Some(latest) = latest_version else { return Ok(None) };
        let version = self.catalog.version(dataset, latest).await?.version;
        // The shared cache usually has the footers already, because the refresh or a read has opened the file.
        let reader = self.files.open(&version.file).await.map_err(RefreshError::from)?;
        if reader.layout().overlay.is_none() || !should_compact(reader.extents().count(), reader.entity_count()) {
            return Ok(None);
        }
        let permit = self.spooler.ingest.acquire_permit(owner).await.map_err(RefreshError::from)?;
        let reader = self.files.open_for_sequential_read(&version.file).await.map_err(RefreshError::from)?;
        let index_settings = reader.layout().index.clone();
        let PushedEntities { spooled, permit } = self.spooler.spool(owner, reader, EditScript::new(), permit).await?;
        if spooled.content_sha256 != version.file.content_hash {
            return Err(CompactionError::ContentMismatch { path: version.file.path });
        }
        let reserved = self.files.reserve_path().await?;
        let file = reserved.write_version(spooled, None, index_settings, &permit, &Arc::default()).await?;
        Ok(Some((version, file)))
    }

    async fn replace_file(
        &self,
        version: &DatasetVersion,
        file: WrittenFile,
    ) -> Result<DatasetVersion, CompactionError> {
        let new = file.new.clone();
        let replacing = self.catalog.replace_version_file(version.dataset, version.number, version.file.id, &new);
        let replaced = file.record_in_catalog(replacing).await;
        // Caches are cleared even after a failure, because a failure can follow a commit.
        self.lookups.notify_catalog_change();
        Ok(replaced?.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_with_many_extents_is_compacted() {
        for (entities, max_extents) in [
            (0, 4_096),
            // Any list can have 4,096 extents, and this one cannot have more.
            (16_384, 4_096),
            (20_000, 4_096),
            // From about here on, 60 % of the limit of one extent for 4 entities.
            (100_000, 15_000),
            (1_000_000, 150_000),
            // 60 % of the limit for all lists.
            (1_000_000_000, 314_572),
        ] {
            assert!(!should_compact(max_extents, entities), "{entities}");
            assert!(should_compact(max_extents + 1, entities), "{entities}");
        }
    }
}
