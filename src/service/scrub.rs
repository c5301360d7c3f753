//! The scrub: reads every recorded file at a bounded pace, and tells which no longer verify, before somebody asks for
//! what they hold.
//!
//! Files with checksums are read as bytes; older ones are decoded, and their columns computed anew, as a check does. No
//! files are held meanwhile, since a scrub may take days: one that the sweep has taken is passed over.
//!
//! Servers scrub by themselves (`scrub.interval_s`). Of all processes on a catalog one scrubs at a time, file after file,
//! and the catalog knows how far it is, so that a restart goes on where it was.

use std::time::Duration;

use tokio::time::Instant;

use super::App;
use super::check::{CheckError, Damage, REFERENCES, inspect_size};
use crate::catalog::FileReference;
use crate::metrics::metrics;
use crate::model::ids::FileId;
use crate::model::version::VersionFile;
use crate::storage::cache::PartCache;
use crate::storage::reader::{Pace, VersionReader};
use crate::storage::store::Store;
use crate::storage::verify;

/// Files that are listed at a time.
const PAGE: u32 = 500;

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
    /// The file.
    pub path: String,
    /// What is wrong with it.
    pub reason: String,
    /// Versions, alternates and clones that need it; none when it only waits for the sweep.
    pub versions: Vec<FileReference>,
    /// Another file of the store that holds the same entities and verifies.
    pub intact_copy: Option<String>,
}

/// What a scrub did in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Files that were read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that are damaged.
    pub damaged: u64,
}

/// Lets so many bytes pass a second on average; 0 is no bound.
struct BytesPerSecond {
    rate: u64,
    begun: Instant,
    bytes: u64,
}

impl BytesPerSecond {
    fn new(rate: u64) -> BytesPerSecond {
        BytesPerSecond { rate, begun: Instant::now(), bytes: 0 }
    }
}

#[async_trait::async_trait]
impl Pace for BytesPerSecond {
    async fn spent(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.rate > 0 {
            let due = Duration::from_secs_f64(self.bytes as f64 / self.rate as f64);
            tokio::time::sleep_until(self.begun + due).await;
        }
    }
}

/// Where a scrub begins.
#[derive(Clone, Copy)]
enum Begin {
    /// At the first file; nobody goes on with it.
    Anew,
    /// After this file, or at the first; the catalog learns how far it is.
    After(Option<FileId>),
}

impl App {
    /// Reads every recorded file at `bytes_per_s` (0 is no bound), and tells of each that is damaged. Begins at the
    /// first file, whatever other scrubs did.
    ///
    /// # Errors
    /// [`CheckError`]. A damaged file is no error.
    pub async fn scrub(
        &self,
        bytes_per_s: u64,
        tell: &mut (dyn FnMut(&DamagedFile) + Send),
    ) -> Result<Scrubbed, CheckError> {
        let scrubbed = self.scrub_from(Begin::Anew, bytes_per_s, tell).await?;
        self.catalog().finish_scrub().await?;
        Ok(scrubbed)
    }

    async fn scrub_from(
        &self,
        begin: Begin,
        bytes_per_s: u64,
        tell: &mut (dyn FnMut(&DamagedFile) + Send),
    ) -> Result<Scrubbed, CheckError> {
        let mut last = match begin {
            Begin::Anew => None,
            Begin::After(last) => last,
        };
        let mut scrubbed = Scrubbed::default();
        let mut pace = BytesPerSecond::new(bytes_per_s);
        loop {
            let page = self.catalog().files(last, PAGE).await?;
            let Some(end) = page.last() else { return Ok(scrubbed) };
            last = Some(end.file.id);
            for recorded in page {
                let file = recorded.file;
                let verified = verify_file(self.store(), &file, &mut pace).await;
                // One that a sweep has taken meanwhile is nobody's loss.
                let gone = verified.is_err() && self.catalog().file_at(&file.path).await?.is_none();
                if !gone {
                    scrubbed.files += 1;
                    scrubbed.bytes += file.size_bytes;
                    metrics().scrubbed_bytes.increment(file.size_bytes);
                }
                if let (Err(damage), false) = (verified, gone) {
                    scrubbed.damaged += 1;
                    metrics().scrubbed_damaged.increment(1);
                    tell(&self.damaged_file(&file, &damage, &mut pace).await?);
                }
                if let Begin::After(_) = begin {
                    self.catalog().advance_scrub(file.id).await?;
                }
            }
        }
    }

    async fn damaged_file(
        &self,
        file: &VersionFile,
        damage: &Damage,
        pace: &mut BytesPerSecond,
    ) -> Result<DamagedFile, CheckError> {
        let versions = self.catalog().references_to(file.id, REFERENCES).await?;
        let mut intact_copy = None;
        for other in self.catalog().files_alike(file, ALIKE).await? {
            if verify_file(self.store(), &other, pace).await.is_ok() {
                intact_copy = Some(other.path);
                break;
            }
        }
        Ok(DamagedFile { path: file.path.clone(), reason: damage.to_string(), versions, intact_copy })
    }

    /// Whether every byte of a file that a read may use is what was written. Reads it whole, past the cache.
    pub(super) async fn is_sound(&self, file: &VersionFile) -> bool {
        match verify_file(self.store(), file, &mut BytesPerSecond::new(0)).await {
            Ok(()) => true,
            Err(damage) => {
                tracing::warn!(path = file.path, cause = %damage, "a version file is damaged, and is not shared");
                false
            }
        }
    }

    /// Scrubs when it is due, for ever, and logs what it finds.
    pub async fn scrub_periodically(&self) {
        let options = &self.config().scrub;
        if options.interval_s == 0 {
            return;
        }
        let interval = Duration::from_secs(options.interval_s);
        loop {
            tokio::time::sleep(interval.min(LOOKED)).await;
            match self.catalog().take_scrub(interval, TAKEN).await {
                Ok(None) => {}
                Ok(Some(last)) => self.scrub_taken(last, options.bytes_per_s).await,
                Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "the scrub cannot begin"),
            }
        }
    }

    async fn scrub_taken(&self, last: Option<FileId>, bytes_per_s: u64) {
        let mut tell = |damaged: &DamagedFile| {
            let versions: Vec<String> = damaged.versions.iter().map(ToString::to_string).collect();
            tracing::error!(
                path = damaged.path,
                cause = damaged.reason,
                versions = versions.join(", "),
                intact_copy = damaged.intact_copy,
                "the scrub found a damaged version file; its versions answer 500 until it is restored"
            );
        };
        let scrubbed = tokio::select! {
            scrubbed = self.scrub_from(Begin::After(last), bytes_per_s, &mut tell) => scrubbed,
            never = self.keep_scrub() => match never {},
        };
        let ended = match scrubbed {
            Ok(Scrubbed { files, bytes, damaged }) => {
                tracing::info!(files, bytes, damaged, "scrubbed");
                self.catalog().finish_scrub().await
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the scrub broke off");
                self.catalog().release_scrub().await
            }
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "the end of a scrub could not be recorded");
        }
    }

    async fn keep_scrub(&self) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(RENEWED).await;
            if let Err(error) = self.catalog().keep_scrub(TAKEN).await {
                tracing::warn!(%error, "the scrub could not be kept");
            }
        }
    }
}

/// Whether a file of the store is what its record says, to the last byte that a read may use.
async fn verify_file(store: &Store, file: &VersionFile, pace: &mut BytesPerSecond) -> Result<(), Damage> {
    inspect_size(store, file).await?;
    let reader = VersionReader::open_recorded(store, file, &PartCache::new(0)).await?;
    if reader.has_checksums() {
        return Ok(reader.verify_checksums(pace).await?);
    }
    match verify::verify(&reader, pace).await? == file.content_hash {
        true => Ok(()),
        false => Err(Damage::Content),
    }
}
