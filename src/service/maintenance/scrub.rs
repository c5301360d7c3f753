//! Scrubs: read every recorded file at a limited rate, and report damaged files before clients need them.
//!
//! A scrub compares the bytes of files with their checksums, and decodes nothing. It holds no files, because it can
//! take days, so it skips files that a sweep has removed.
//!
//! Servers scrub regularly (`scrub.interval_s`). One process at a time scrubs a catalog, which contains the progress,
//! so that another process can continue. If the store does not respond, or the process lacks memory or descriptors, the
//! scrub stops, and continues with the same file later.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::TryStreamExt;
use strata_catalog::{FileReference, ListedFile};
use strata_format::cache::PartCache;
use strata_format::reader::{Pace, VersionReader};
use strata_runtime::metrics::metrics;
use strata_store::StorageError;
use strata_store::store::Store;
use strata_types::ids::FileId;
use strata_types::version::VersionFile;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::maintenance::check::{CheckError, Damage, for_people, inspect_size, record_name, unless_damaged};
use crate::maintenance::{Maintenance, recorded_files};

/// The maximum number of other files with the same entities that are checked if a file is damaged.
const MAX_ALIKE: u32 = 10;

/// The lease of the process that scrubs.
const LEASE: Duration = Duration::from_secs(180);

/// How often the process renews the lease.
const RENEW_INTERVAL: Duration = Duration::from_secs(45);

/// The maximum time between checks whether a scrub is due.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFile {
    /// The file, or its record if the record cannot be read.
    pub path: String,
    pub reason: String,
    /// The versions that need the file; `None` if the catalog cannot be read.
    pub versions: Option<Vec<FileReference>>,
    /// An intact file with the same entities.
    pub intact_copy: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    pub files: u64,
    pub bytes: u64,
    pub damaged: u64,
}

/// The minimum cost of a file, because opening it takes requests.
const MIN_FILE_BYTES: u64 = 64 << 10;

/// The part of the rate that a scrub can catch up with after a stall.
const MAX_CATCH_UP: Duration = Duration::from_secs(1);

/// Average bytes per second; 0 means no limit. No burst follows a stall.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BytesPerSecond {
    rate: u64,
    /// The time at which the bytes so far are within the rate.
    due: Instant,
}

impl BytesPerSecond {
    pub(crate) fn new(rate: u64) -> BytesPerSecond {
        BytesPerSecond { rate, due: Instant::now() }
    }
}

#[async_trait::async_trait]
impl Pace for BytesPerSecond {
    async fn spent(&mut self, bytes: u64) {
        if self.rate > 0 {
            let now = Instant::now();
            let earliest = now.checked_sub(MAX_CATCH_UP).unwrap_or(now);
            self.due = self.due.max(earliest) + Duration::from_secs_f64(bytes as f64 / self.rate as f64);
            tokio::time::sleep_until(self.due).await;
        }
    }
}

type Tell<'a> = &'a mut (dyn FnMut(&DamagedFile) + Send);

impl Maintenance {
    /// Reads every recorded file at `bytes_per_s` (0 means no limit), independently of other scrubs, and reports
    /// damaged files and records to `tell`.
    pub async fn scrub(&self, bytes_per_s: u64, tell: Tell<'_>) -> Result<Scrubbed, CheckError> {
        let scrubbed = self.scrub_after(None, bytes_per_s, tell, false).await?;
        self.catalog.finish_idle_scrub().await?;
        Ok(scrubbed)
    }

    /// Begins after the file `last`. If `is_shared`, the catalog records the progress, so that another process can
    /// continue.
    async fn scrub_after(
        &self,
        last: Option<FileId>,
        bytes_per_s: u64,
        tell: Tell<'_>,
        is_shared: bool,
    ) -> Result<Scrubbed, CheckError> {
        let mut scrubbed = Scrubbed::default();
        let mut pace = BytesPerSecond::new(bytes_per_s);
        let mut listed = pin!(recorded_files(&self.catalog, last));
        while let Some(ListedFile { id, file }) = listed.try_next().await? {
            match file {
                Ok(recorded) => self.scrub_file(&recorded.file, &mut scrubbed, &mut pace, tell).await?,
                Err(error) => {
                    scrubbed.damaged += 1;
                    metrics().scrubbed_damaged.increment(1);
                    let versions = self.known_references(id).await?;
                    let reason = error.to_string();
                    tell(&DamagedFile { path: record_name(id), reason, versions, intact_copy: None });
                }
            }
            if is_shared {
                self.catalog.advance_scrub(id).await?;
            }
        }
        Ok(scrubbed)
    }

    async fn scrub_file(
        &self,
        file: &VersionFile,
        scrubbed: &mut Scrubbed,
        pace: &mut BytesPerSecond,
        tell: Tell<'_>,
    ) -> Result<(), CheckError> {
        let verified = verify_apart(&self.store, file, pace).await.map_err(CheckError::Unavailable)?;
        // A sweep can have removed the file.
        if verified.is_err() && matches!(unless_damaged(self.catalog.recorded_file(file.id).await)?, Some(None)) {
            return Ok(());
        }
        scrubbed.files += 1;
        scrubbed.bytes += file.size_bytes;
        metrics().scrubbed_bytes.increment(file.size_bytes);
        if let Err(damage) = verified {
            let versions = self.known_references(file.id).await?;
            if damage.is_loss_of_nobody(versions.as_deref()) {
                return Ok(());
            }
            scrubbed.damaged += 1;
            metrics().scrubbed_damaged.increment(1);
            tell(&self.damaged_file(file, &damage, versions, pace).await?);
        }
        Ok(())
    }

    async fn damaged_file(
        &self,
        file: &VersionFile,
        damage: &Damage,
        versions: Option<Vec<FileReference>>,
        pace: &mut BytesPerSecond,
    ) -> Result<DamagedFile, CheckError> {
        let mut intact_copy = None;
        let alike = unless_damaged(self.catalog.files_alike(file, MAX_ALIKE).await)?;
        for other in alike.unwrap_or_default() {
            if verify_apart(&self.store, &other, pace).await.map_err(CheckError::Unavailable)?.is_ok() {
                intact_copy = Some(other.path);
                break;
            }
        }
        Ok(DamagedFile { path: file.path.clone(), reason: damage.to_string(), versions, intact_copy })
    }

    /// Scrubs whenever a scrub is due, and logs damage. Never returns.
    pub async fn scrub_periodically(self: Arc<Self>) {
        let options = &self.config.scrub;
        if options.interval_s == 0 {
            return;
        }
        let interval = Duration::from_secs(options.interval_s);
        loop {
            tokio::time::sleep(interval.min(MAX_POLL_INTERVAL)).await;
            match self.catalog.take_scrub(interval, LEASE).await {
                Ok(None) => {}
                Ok(Some(last)) => self.scrub_taken(last, options.bytes_per_s).await,
                Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "failed to start scrub"),
            }
        }
    }

    async fn scrub_taken(&self, last: Option<FileId>, bytes_per_s: u64) {
        let mut tell = |damaged: &DamagedFile| {
            tracing::error!(
                path = damaged.path,
                error = damaged.reason,
                versions = for_people(damaged.versions.as_deref()),
                intact_copy = damaged.intact_copy,
                "found a damaged version file; its versions return 500 until you restore the file"
            );
        };
        let scrubbed = tokio::select! {
            scrubbed = self.scrub_after(last, bytes_per_s, &mut tell, true) => scrubbed,
            never = self.keep_scrub() => match never {},
        };
        let ended = match scrubbed {
            Ok(Scrubbed { files, bytes, damaged }) => {
                tracing::info!(files, bytes, damaged, "completed scrub");
                self.catalog.finish_scrub().await
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "failed to complete scrub");
                self.catalog.release_scrub().await
            }
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "failed to record the end of the scrub");
        }
    }

    async fn keep_scrub(&self) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(RENEW_INTERVAL).await;
            if let Err(error) = self.catalog.keep_scrub(LEASE).await {
                tracing::warn!(%error, "failed to renew the scrub lease");
            }
        }
    }
}

/// Verifies a file in a separate task, in which a panic means that the file is damaged. The outer error means that the
/// file cannot be read at the moment.
pub(crate) async fn verify_apart(
    store: &Store,
    file: &VersionFile,
    pace: &mut BytesPerSecond,
) -> Result<Result<(), Damage>, StorageError> {
    let store = store.clone();
    let file = file.clone();
    let mut own = *pace;
    let task = tokio::spawn(async move {
        let verified = verify_file(&store, &file, &mut own).await;
        (verified, own)
    });
    let verified = match AbortOnDropHandle::new(task).await {
        Ok((verified, spent)) => {
            *pace = spent;
            verified
        }
        Err(ended) => Err(Damage::Unreadable(StorageError::of_task(ended))),
    };
    match verified {
        Ok(()) => Ok(Ok(())),
        Err(damage) => damage.lasting().map(Err),
    }
}

/// Compares a file with its record, including every byte that a read can use.
async fn verify_file(store: &Store, file: &VersionFile, pace: &mut BytesPerSecond) -> Result<(), Damage> {
    pace.spent(MIN_FILE_BYTES.saturating_sub(file.size_bytes)).await;
    inspect_size(store, file).await?;
    let reader = VersionReader::open_recorded(store, file, &PartCache::new(0)).await?;
    Ok(reader.verify_checksums(pace).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stall_is_not_followed_by_burst() {
        let begun = Instant::now();
        let stalled = begun.checked_sub(Duration::from_secs(20)).expect("the machine has run for so long");
        let mut pace = BytesPerSecond { rate: 1_000, due: stalled };
        // The pace catches up with one second.
        pace.spent(1_000).await;
        assert!(begun.elapsed() < Duration::from_millis(200));
        pace.spent(300).await;
        assert!(begun.elapsed() >= Duration::from_millis(290), "{:?}", begun.elapsed());
    }
}
