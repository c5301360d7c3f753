//! Scrubs all recorded files at a limited rate, to report damaged files before clients need them.
//!
//! A scrub compares the bytes of each file with its checksums, without decoding them. It can take days, so it does not
//! place a file hold, and skips files that a sweep has removed.
//!
//! Servers scrub every `scrub.interval_s`, one process per catalog at a time. The catalog records the progress, so that
//! another process can continue. If the store is unavailable, or the process lacks memory or descriptors, the scrub
//! stops, and later resumes with the same file.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::TryStreamExt;
use strata_catalog::{FileRecordResult, FileReference};
use strata_format::cache::PartCache;
use strata_format::reader::{ReadThrottle, VersionReader};
use strata_runtime::metrics::metrics;
use strata_store::StorageError;
use strata_store::store::Store;
use strata_types::ids::VersionFileId;
use strata_types::version::VersionFile;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::maintenance::integrity_check::{
    CheckError, FileDamage, describe_file_id, describe_references, inspect_file_size, none_if_damaged,
};
use crate::maintenance::{MaintenanceService, stream_recorded_files};

/// Maximum number of files with the same entities that are checked as possible replacements of a damaged file.
const MAX_ALIKE_FILES: u32 = 10;

const SCRUB_LEASE: Duration = Duration::from_secs(180);
const LEASE_RENEW_INTERVAL: Duration = Duration::from_secs(45);

/// Maximum time between checks whether a scrub is due.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFile {
    /// The path of the damaged file, or a description of its record if the record is damaged.
    pub path: String,
    pub reason: String,
    /// The versions that need the damaged file; `None` if the records of the versions are damaged.
    pub versions: Option<Vec<FileReference>>,
    /// The path of an intact file with the same entities as the damaged file.
    pub intact_copy: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubSummary {
    pub files: u64,
    pub bytes: u64,
    pub damaged: u64,
}

/// Minimum number of bytes that verifying a file counts as, because opening a file takes several requests.
const MIN_FILE_COST_BYTES: u64 = 64 << 10;

/// Maximum delay that a scrub makes up for after a stall, so that it does not read at full speed.
const MAX_CATCH_UP_TIME: Duration = Duration::from_secs(1);

/// Limits the average rate at which a scrub reads. A rate of 0 means no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BytePacer {
    bytes_per_s: u64,
    /// The time from which the bytes read so far do not exceed the rate.
    due_at: Instant,
}

impl BytePacer {
    pub(crate) fn new(bytes_per_s: u64) -> BytePacer {
        BytePacer { bytes_per_s, due_at: Instant::now() }
    }
}

#[async_trait::async_trait]
impl ReadThrottle for BytePacer {
    async fn throttle(&mut self, bytes: u64) {
        if self.bytes_per_s > 0 {
            let now = Instant::now();
            let earliest = now.checked_sub(MAX_CATCH_UP_TIME).unwrap_or(now);
            self.due_at = self.due_at.max(earliest) + Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64);
            tokio::time::sleep_until(self.due_at).await;
        }
    }
}

type DamagedFileCallback<'a> = &'a mut (dyn FnMut(&DamagedFile) + Send);

impl MaintenanceService {
    /// Reads all recorded files at `bytes_per_s` (0 means no limit), and reports damaged files and records to `report`.
    pub async fn scrub(&self, bytes_per_s: u64, report: DamagedFileCallback<'_>) -> Result<ScrubSummary, CheckError> {
        let summary = self.scrub_from(None, bytes_per_s, report, false).await?;
        self.catalog.finish_scrub_unless_running().await?;
        Ok(summary)
    }

    /// Scrubs the files after `last`. If `records_progress` is true, the catalog records the progress.
    async fn scrub_from(
        &self,
        last: Option<VersionFileId>,
        bytes_per_s: u64,
        report: DamagedFileCallback<'_>,
        records_progress: bool,
    ) -> Result<ScrubSummary, CheckError> {
        let mut summary = ScrubSummary::default();
        let mut pacer = BytePacer::new(bytes_per_s);
        let mut records = pin!(stream_recorded_files(&self.catalog, last));
        while let Some(FileRecordResult { id, file }) = records.try_next().await? {
            match file {
                Ok(recorded) => self.scrub_file(&recorded.file, &mut summary, &mut pacer, report).await?,
                Err(error) => {
                    summary.damaged += 1;
                    metrics().scrubbed_damaged_files.increment(1);
                    let versions = self.find_references(id).await?;
                    let reason = error.to_string();
                    report(&DamagedFile { path: describe_file_id(id), reason, versions, intact_copy: None });
                }
            }
            if records_progress {
                self.catalog.record_scrubbed_file(id).await?;
            }
        }
        Ok(summary)
    }

    async fn scrub_file(
        &self,
        file: &VersionFile,
        summary: &mut ScrubSummary,
        pacer: &mut BytePacer,
        report: DamagedFileCallback<'_>,
    ) -> Result<(), CheckError> {
        let result = verify_file_in_task(&self.store, file, pacer).await.map_err(CheckError::Unavailable)?;
        // If verification fails, a sweep can have removed the file. A file without a record is not damaged.
        if result.is_err() && matches!(none_if_damaged(self.catalog.recorded_file(file.id).await)?, Some(None)) {
            return Ok(());
        }
        summary.files += 1;
        summary.bytes += file.size_bytes;
        metrics().scrubbed_bytes.increment(file.size_bytes);
        if let Err(damage) = result {
            let versions = self.find_references(file.id).await?;
            if damage.is_loss_of_unreferenced_file(versions.as_deref()) {
                return Ok(());
            }
            summary.damaged += 1;
            metrics().scrubbed_damaged_files.increment(1);
            report(&self.describe_damaged_file(file, &damage, versions, pacer).await?);
        }
        Ok(())
    }

    async fn describe_damaged_file(
        &self,
        file: &VersionFile,
        damage: &FileDamage,
        versions: Option<Vec<FileReference>>,
        pacer: &mut BytePacer,
    ) -> Result<DamagedFile, CheckError> {
        let mut intact_copy = None;
        let alike = none_if_damaged(self.catalog.files_with_same_content(file, MAX_ALIKE_FILES).await)?;
        for other in alike.unwrap_or_default() {
            if verify_file_in_task(&self.store, &other, pacer).await.map_err(CheckError::Unavailable)?.is_ok() {
                intact_copy = Some(other.path);
                break;
            }
        }
        Ok(DamagedFile { path: file.path.clone(), reason: damage.to_string(), versions, intact_copy })
    }

    /// Runs a scrub whenever one is due, and logs damaged files. Returns only if periodic scrubs are disabled.
    pub async fn scrub_periodically(self: Arc<Self>) {
        let options = &self.config.scrub;
        if options.interval_s == 0 {
            return;
        }
        let interval = Duration::from_secs(options.interval_s);
        loop {
            tokio::time::sleep(interval.min(MAX_POLL_INTERVAL)).await;
            match self.catalog.try_acquire_scrub(interval, SCRUB_LEASE).await {
                Ok(None) => {}
                Ok(Some(last)) => self.run_claimed_scrub(last, options.bytes_per_s).await,
                Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "failed to start scrub"),
            }
        }
    }

    async fn run_claimed_scrub(&self, last: Option<VersionFileId>, bytes_per_s: u64) {
        let mut report = |damaged: &DamagedFile| {
            tracing::error!(
                path = damaged.path,
                error = damaged.reason,
                versions = describe_references(damaged.versions.as_deref()),
                intact_copy = damaged.intact_copy,
                "found a damaged version file; its versions return 500 until you restore the file"
            );
        };
        let result = tokio::select! {
            result = self.scrub_from(last, bytes_per_s, &mut report, true) => result,
            never = self.renew_scrub_lease() => match never {},
        };
        let recorded = match result {
            Ok(ScrubSummary { files, bytes, damaged }) => {
                tracing::info!(files, bytes, damaged, "completed scrub");
                self.catalog.finish_scrub().await
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "failed to complete scrub");
                self.catalog.release_scrub().await
            }
        };
        if let Err(error) = recorded {
            tracing::warn!(%error, "failed to record the end of the scrub");
        }
    }

    async fn renew_scrub_lease(&self) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(LEASE_RENEW_INTERVAL).await;
            if let Err(error) = self.catalog.renew_scrub(SCRUB_LEASE).await {
                tracing::warn!(%error, "failed to renew the scrub lease");
            }
        }
    }
}

/// Verifies a version file in a task. A panic of the task counts as damage. The outer error is a temporary failure.
pub(crate) async fn verify_file_in_task(
    store: &Store,
    file: &VersionFile,
    pacer: &mut BytePacer,
) -> Result<Result<(), FileDamage>, StorageError> {
    let store = store.clone();
    let file = file.clone();
    let mut task_pacer = *pacer;
    let task = tokio::spawn(async move {
        let result = verify_file(&store, &file, &mut task_pacer).await;
        (result, task_pacer)
    });
    let result = match AbortOnDropHandle::new(task).await {
        Ok((result, task_pacer)) => {
            *pacer = task_pacer;
            result
        }
        Err(error) => Err(FileDamage::Unreadable(StorageError::from_join_error(error))),
    };
    result.map_or_else(|damage| damage.into_permanent_damage().map(Err), |()| Ok(Ok(())))
}

/// Compares the size and all checksums of a file with its record.
async fn verify_file(store: &Store, file: &VersionFile, pacer: &mut BytePacer) -> Result<(), FileDamage> {
    pacer.throttle(MIN_FILE_COST_BYTES.saturating_sub(file.size_bytes)).await;
    inspect_file_size(store, file).await?;
    let reader = VersionReader::open_recorded(store, file, &PartCache::new(0)).await?;
    Ok(reader.verify_checksums(pacer).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stall_is_not_followed_by_burst() {
        let begun = Instant::now();
        let stalled = begun.checked_sub(Duration::from_secs(20)).expect("failed to subtract 20 s from uptime");
        let mut pacer = BytePacer { bytes_per_s: 1_000, due_at: stalled };
        // After a stall of 20 s, the pacer makes up for only one second.
        pacer.throttle(1_000).await;
        assert!(begun.elapsed() < Duration::from_millis(200));
        pacer.throttle(300).await;
        assert!(begun.elapsed() >= Duration::from_millis(290), "{:?}", begun.elapsed());
    }
}
