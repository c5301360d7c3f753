//! A source to a new version of a dataset.
//!
//! Steps: decode the source into a spool (nothing is known to anyone yet); write the version file; then, with
//! the file durable, create the dataset if it is new and publish the version in one transaction. A failure at
//! any step leaves no version, no dataset and no file behind.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;

use super::App;
use crate::catalog::{CatalogError, VersionContent};
use crate::config::VERSIONS_FOLDER;
use crate::model::dataset::{
    DEFAULT_SCHEDULE, Dataset, DatasetName, DatasetSource, InvalidDatasetName, NewDataset, RefreshTrigger,
};
use crate::model::ids::{AttemptId, DatasetId};
use crate::model::path::Path as FieldPath;
use crate::model::secret::Secret;
use crate::model::source::SourceFormat;
use crate::model::user::{Plan, User};
use crate::model::version::{NewFile, Version, VersionNumber};
use crate::refresh::{self, DecodeOptions, Opened, Progress, SourceError, SourceInput};
use crate::storage::StorageError;
use crate::storage::spool::{Spool, Spooled};
use crate::storage::writer::{self, WriteOptions, Written};

/// What to import, and for whom.
#[derive(Clone, Debug)]
pub struct ImportRequest {
    /// A path of a local file, or the URL of a source: http, https, s3 or store.
    pub source: String,
    /// The dataset's name. The owner's dataset of that name is refreshed; otherwise one is created.
    pub name: String,
    /// The owner.
    pub owner_email: String,
    /// Whether a dataset that is created is private.
    pub private: bool,
    /// The source's format; `None` detects it.
    pub format: Option<SourceFormat>,
    /// Where the array of entities lies in a JSON document.
    pub records_path: Option<FieldPath>,
}

/// A version that was imported.
#[derive(Clone, Debug)]
pub struct Imported {
    /// Its dataset.
    pub dataset_id: DatasetId,
    /// The dataset's name in URLs.
    pub name_slug: String,
    /// Its number.
    pub version: VersionNumber,
    /// Its entities.
    pub entity_count: u64,
    /// The key for reading the dataset, where it is private.
    pub private_key: Option<Secret>,
}

/// How far an import is. Two phases: decoding the source, then writing the version.
#[derive(Debug, Default)]
pub struct ImportProgress {
    /// Bytes read from the source.
    pub bytes_read: AtomicU64,
    /// Bytes of the source; 0 while unknown.
    pub bytes_total: AtomicU64,
    /// Entities decoded.
    pub entities_decoded: AtomicU64,
    /// Entities written.
    pub entities_written: AtomicU64,
}

/// An import failed; nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// There is no such owner.
    #[error("there is no user {0}; add one with `strata user add`")]
    NoOwner(String),
    /// The name cannot be a dataset's.
    #[error("--name: {0}")]
    Name(#[from] InvalidDatasetName),
    /// The dataset exists and is public, so it cannot become private this way.
    #[error("the dataset exists and is public: --private is for new datasets")]
    NotPrivate,
    /// The dataset is frozen.
    #[error("the dataset is frozen: unfreeze it before refreshing it")]
    Frozen,
    /// The owner's plan allows no more datasets.
    #[error("the owner's plan allows at most {limit} active datasets")]
    PlanLimit {
        /// The limit.
        limit: u64,
    },
    /// The source cannot be read or used.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The version file cannot be written.
    #[error("writing the version")]
    Storage(#[from] StorageError),
    /// The catalog failed.
    #[error("the catalog")]
    Catalog(#[source] CatalogError),
    /// A worker ended early.
    #[error("the import's worker ended early")]
    Worker,
}

impl From<CatalogError> for ImportError {
    fn from(error: CatalogError) -> ImportError {
        match error {
            CatalogError::Frozen => ImportError::Frozen,
            CatalogError::PlanLimit { limit } => ImportError::PlanLimit { limit },
            other => ImportError::Catalog(other),
        }
    }
}

/// How long an import may take before another may refresh the dataset and a sweep may remove its file.
const RESERVED: Duration = Duration::from_secs(3_600);

/// Lines handed from the decoding thread to the spooling one at a time.
const BLOCK_BYTES: usize = 1 << 20;

impl App {
    /// Makes a new version of the owner's dataset of that name from a source, creating the dataset when needed.
    ///
    /// # Errors
    /// [`ImportError`]. A failed refresh of an existing dataset is recorded with its reason.
    pub async fn import(&self, request: ImportRequest, progress: Arc<ImportProgress>) -> Result<Imported, ImportError> {
        let imported = self.import_unseen(request, progress).await;
        // Also after a failure, which may have come after a write.
        self.catalog_changed();
        imported
    }

    /// [`App::import`], up to making it seen at once.
    async fn import_unseen(
        &self,
        request: ImportRequest,
        progress: Arc<ImportProgress>,
    ) -> Result<Imported, ImportError> {
        let owner = self.catalog().user_by_email(&request.owner_email).await?;
        let owner = owner.ok_or_else(|| ImportError::NoOwner(request.owner_email.clone()))?;
        let name: DatasetName = request.name.parse()?;
        let Some(dataset) = self.catalog().dataset_by_name(owner.id, &name).await? else {
            let (path, written) = self.make_file(&request, &progress, None).await?;
            let published = self.publish_new(&owner, name, &request, &path, &written).await;
            return self.or_remove(&path, published).await;
        };
        if request.private && !dataset.is_private() {
            return Err(ImportError::NotPrivate);
        }
        if dataset.frozen {
            return Err(ImportError::Frozen);
        }
        let lease = self.catalog().acquire_refresh(dataset.id, RefreshTrigger::Import, RESERVED).await?;
        let attempt = lease.attempt;
        let result = async {
            let (path, written) = self.make_file(&request, &progress, Some(attempt)).await?;
            let file = new_file(&path, &written);
            let published = self.catalog().publish_version(dataset.id, VersionContent::New(&file), attempt).await;
            let published = self.or_remove(&path, published.map_err(ImportError::from)).await?;
            Ok(imported(dataset, &published.version))
        };
        let result = result.await;
        if let Err(error) = &result {
            let recorded = self.catalog().fail_refresh(attempt, &with_causes(error)).await;
            if let Err(error) = recorded {
                tracing::warn!(%error, "a failed import could not be recorded");
            }
        }
        result
    }

    /// The source's entities as a version file that no record names yet.
    async fn make_file(
        &self,
        request: &ImportRequest,
        progress: &Arc<ImportProgress>,
        attempt: Option<AttemptId>,
    ) -> Result<(ObjectPath, Written), ImportError> {
        let (input, fetched_from) = self.open_source(&request.source).await?;
        let options = DecodeOptions {
            format: request.format,
            records_path: request.records_path.clone(),
            fetched_from,
            entity_limit_bytes: usize::try_from(self.config().limits.entity_bytes).unwrap_or(usize::MAX),
            source_limit_bytes: self.config().sources.max_bytes,
            spool_directory: self.temporary_directory().to_owned(),
            ..DecodeOptions::default()
        };
        let path = ObjectPath::from(format!("{VERSIONS_FOLDER}/{}.parquet", hex::encode(rand::random::<[u8; 16]>())));
        self.catalog().reserve_file(path.as_ref(), attempt, RESERVED).await?;
        let store = self.store().clone();
        let directory = self.temporary_directory().to_owned();
        let runtime = tokio::runtime::Handle::current();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let (target, progress) = (path.clone(), progress.clone());
        let work = move || {
            let spooled = decode(input, &options, &directory, &progress)?;
            let write = WriteOptions { threads, ..WriteOptions::default() };
            let report = |entities| progress.entities_written.store(entities, Ordering::Relaxed);
            let written = writer::write_version(&store, &target, spooled, &write, &runtime, &report)?;
            Ok::<Written, ImportError>(written)
        };
        let written = tokio::task::spawn_blocking(work).await.map_err(|_| ImportError::Worker)??;
        Ok((path, written))
    }

    async fn open_source(&self, source: &str) -> Result<(SourceInput, Option<String>), ImportError> {
        if let Some(path) = local_path(source) {
            return Ok((SourceInput::open_file(&path)?, None));
        }
        match self.source_client().open(source, None).await? {
            Opened::Document(fetched) => Ok((fetched.input, Some(fetched.source_url))),
            Opened::NotModified(_) => Err(ImportError::Source(SourceError::Unreachable {
                reason: "it says that it has not changed, which it was not asked".to_owned(),
            })),
        }
    }

    async fn publish_new(
        &self,
        owner: &User,
        name: DatasetName,
        request: &ImportRequest,
        path: &ObjectPath,
        written: &Written,
    ) -> Result<Imported, ImportError> {
        let url = is_url(&request.source);
        let new = NewDataset {
            owner: owner.id,
            name,
            private_key: request.private.then(|| Secret::private_key(rand::random())),
            source: if url { DatasetSource::Url(request.source.clone()) } else { DatasetSource::Push },
            format: request.format,
            records_path: request.records_path.as_ref().map(ToString::to_string),
            // What was read from a file cannot be fetched again by a schedule.
            schedule: url.then(|| DEFAULT_SCHEDULE.to_owned()),
            ping_token: Secret::ping_token(rand::random()),
        };
        let limit = self.active_limit(owner.plan);
        let file = new_file(path, written);
        let (dataset, published) =
            self.catalog().create_dataset_with_version(&new, limit, RefreshTrigger::Import, &file).await?;
        Ok(imported(dataset, &published.version))
    }

    /// How many active datasets a plan allows.
    fn active_limit(&self, plan: Plan) -> u64 {
        let plans = &self.config().plans;
        match plan {
            Plan::Free => plans.free_active_datasets,
            Plan::Pro => plans.pro_active_datasets,
            Plan::Scale => plans.scale_active_datasets,
        }
    }

    /// Removes a file that was not published.
    async fn or_remove<T>(&self, path: &ObjectPath, published: Result<T, ImportError>) -> Result<T, ImportError> {
        if published.is_err()
            && let Err(error) = self.store().objects().delete(path).await
        {
            tracing::warn!(%error, "a version file that was not published could not be removed");
        }
        published
    }
}

/// Decodes a source into a spool: the decoder on a thread of its own, the profile on this one.
fn decode(
    input: SourceInput,
    options: &DecodeOptions,
    directory: &Path,
    progress: &ImportProgress,
) -> Result<Spooled, ImportError> {
    let read: Progress = input.progress();
    progress.bytes_total.store(read.total_bytes().unwrap_or(0), Ordering::Relaxed);
    let mut spool = Spool::create(directory)?;
    let (blocks, received) = sync_channel::<Vec<u8>>(2);
    std::thread::scope(|scope| {
        let decoding = scope.spawn(move || -> Result<(), SourceError> {
            let (mut decoder, _) = refresh::open(input, options)?;
            let mut block = Vec::with_capacity(BLOCK_BYTES + BLOCK_BYTES / 8);
            loop {
                let more = decoder.next(&mut block)?;
                if more {
                    block.push(b'\n');
                }
                if block.len() >= BLOCK_BYTES || !more {
                    let fresh = Vec::with_capacity(BLOCK_BYTES + BLOCK_BYTES / 8);
                    // The other side is gone only when it failed; its error is the one that is reported.
                    if blocks.send(std::mem::replace(&mut block, fresh)).is_err() || !more {
                        return Ok(());
                    }
                }
            }
        });
        let spooled: Result<(), StorageError> = received.into_iter().try_for_each(|block| {
            spool.add_lines(&block)?;
            progress.bytes_read.store(read.read_bytes(), Ordering::Relaxed);
            progress.entities_decoded.store(spool.entities(), Ordering::Relaxed);
            Ok(())
        });
        decoding.join().map_err(|_| ImportError::Worker)??;
        Ok::<(), ImportError>(spooled?)
    })?;
    Ok(spool.finish()?)
}

/// The local file that a source is: a path, or a `file:` URL, which no dataset may have as its source.
fn local_path(source: &str) -> Option<PathBuf> {
    let from_url = url::Url::parse(source).ok().filter(|url| url.scheme() == "file");
    match from_url.and_then(|url| url.to_file_path().ok()) {
        None => (!is_url(source)).then(|| PathBuf::from(source)),
        path => path,
    }
}

fn is_url(source: &str) -> bool {
    let scheme = source.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("http" | "https" | "s3" | "store"))
}

fn new_file(path: &ObjectPath, written: &Written) -> NewFile {
    NewFile {
        path: path.to_string(),
        size_bytes: written.size_bytes,
        entity_count: written.entity_count,
        content_hash: written.content_sha256.clone(),
    }
}

fn imported(dataset: Dataset, version: &Version) -> Imported {
    Imported {
        dataset_id: dataset.id,
        name_slug: dataset.name.slug().to_owned(),
        version: version.number,
        entity_count: version.file.entity_count,
        private_key: dataset.private_key,
    }
}

/// An error and what caused it, on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
