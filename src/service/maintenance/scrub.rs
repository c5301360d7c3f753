//! The scrub: reads every recorded file at a bounded pace, and tells which no longer verify, before somebody asks for
//! what they hold.
//!
//! It compares the bytes of files with their checksums, and decodes nothing. It holds no files, because a scrub can
//! take days: it skips a file that the sweep has removed.
//!
//! Servers scrub by themselves (`scrub.interval_s`). Of all processes on a catalog one scrubs at a time, file after
//! file, and the catalog knows how far it is, so that a restart goes on where it was.
//!
//! A store that does not answer, or a process without memory or descriptors, says nothing of a file: the scrub ends
//! there, and goes on with the same file later.

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

/// Other files of the same entities that are looked at when one is damaged.
const ALIKE: u32 = 10;

/// How long a process has the scrub without a sign of life.
const TAKEN: Duration = Duration::from_secs(180);

/// How often it gives one.
const RENEWED: Duration = Duration::from_secs(45);

/// How often a server asks whether a scrub is due, at most.
const LOOKED: Duration = Duration::from_secs(600);

/// A file that no longer verifies: what to restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFile {
    /// The file; where its record cannot be read, which record that is.
    pub path: String,
    pub reason: String,
    /// Versions that need it; none if it waits for the sweep. `None` if the catalog cannot tell.
    pub versions: Option<Vec<FileReference>>,
    /// Another file of the store that holds the same entities and verifies.
    pub intact_copy: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    pub files: u64,
    pub bytes: u64,
    pub damaged: u64,
}

/// What a file costs at least, in bytes of the rate: opening it takes requests, however small it is.
const LEAST_BYTES: u64 = 64 << 10;

/// How far a scrub may catch up after it was slower than its rate.
const CATCHES_UP: Duration = Duration::from_secs(1);

/// Bytes a second on average; 0 is no bound. What a slow store left unused is lost: no burst follows a stall.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BytesPerSecond {
    rate: u64,
    /// When what was spent so far has been paid.
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
            let earliest = now.checked_sub(CATCHES_UP).unwrap_or(now);
            self.due = self.due.max(earliest) + Duration::from_secs_f64(bytes as f64 / self.rate as f64);
            tokio::time::sleep_until(self.due).await;
        }
    }
}

type Tell<'a> = &'a mut (dyn FnMut(&DamagedFile) + Send);

impl Maintenance {
    /// Reads every recorded file at `bytes_per_s` (0 is no bound), and tells of each that is damaged. Begins at the
    /// first file, whatever other scrubs did, and leaves one that another process is at alone.
    /// A damaged file, or a damaged record of one, is no error.
    pub async fn scrub(&self, bytes_per_s: u64, tell: Tell<'_>) -> Result<Scrubbed, CheckError> {
        let scrubbed = self.scrub_after(None, bytes_per_s, tell, false).await?;
        self.catalog.finish_idle_scrub().await?;
        Ok(scrubbed)
    }

    /// Begins after a file, or at the first. The catalog learns how far it is if another process may go on with it.
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
                    let (path, reason) = (record_name(id), error.to_string());
                    tell(&DamagedFile { path, reason, versions, intact_copy: None });
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
        // One that a sweep has taken meanwhile is nobody's loss.
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
        let alike = unless_damaged(self.catalog.files_alike(file, ALIKE).await)?;
        for other in alike.unwrap_or_default() {
            if verify_apart(&self.store, &other, pace).await.map_err(CheckError::Unavailable)?.is_ok() {
                intact_copy = Some(other.path);
                break;
            }
        }
        Ok(DamagedFile { path: file.path.clone(), reason: damage.to_string(), versions, intact_copy })
    }

    /// Scrubs when it is due, for ever, and logs what it finds.
    pub async fn scrub_periodically(self: Arc<Self>) {
        let options = &self.config.scrub;
        if options.interval_s == 0 {
            return;
        }
        let interval = Duration::from_secs(options.interval_s);
        loop {
            tokio::time::sleep(interval.min(LOOKED)).await;
            match self.catalog.take_scrub(interval, TAKEN).await {
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
            tokio::time::sleep(RENEWED).await;
            if let Err(error) = self.catalog.keep_scrub(TAKEN).await {
                tracing::warn!(%error, "failed to renew the scrub lease");
            }
        }
    }
}

/// [`verify_file`] on a task of its own: what panics there says that the file is damaged, and ends nothing else.
/// An error says nothing of the file: it cannot be read at the moment.
pub(crate) async fn verify_apart(
    store: &Store,
    file: &VersionFile,
    pace: &mut BytesPerSecond,
) -> Result<Result<(), Damage>, StorageError> {
    let (store, file, mut own) = (store.clone(), file.clone(), *pace);
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

/// Whether a file of the store is what its record says, to the last byte that a read may use.
async fn verify_file(store: &Store, file: &VersionFile, pace: &mut BytesPerSecond) -> Result<(), Damage> {
    pace.spent(LEAST_BYTES.saturating_sub(file.size_bytes)).await;
    inspect_size(store, file).await?;
    let reader = VersionReader::open_recorded(store, file, &PartCache::new(0)).await?;
    Ok(reader.verify_checksums(pace).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stall_is_not_followed_by_a_burst() {
        let begun = Instant::now();
        let stalled = begun.checked_sub(Duration::from_secs(20)).expect("the machine has run for so long");
        let mut pace = BytesPerSecond { rate: 1_000, due: stalled };
        // A second is caught up with.
        pace.spent(1_000).await;
        assert!(begun.elapsed() < Duration::from_millis(200));
        pace.spent(300).await;
        assert!(begun.elapsed() >= Duration::from_millis(290), "{:?}", begun.elapsed());
    }
}
