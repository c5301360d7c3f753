//! Creates the new versions of datasets, for owners, pings, schedules and imports.
//!
//! 1. Acquire the dataset: an attempt with a lease that a heartbeat renews. Losing the lease stops the work.
//! 2. Receive the entire document; then wait for a permit, and decode the document into a spool (`ingest`).
//! 3. Write the version file to the path that was reserved with the lease. If the source or the content has not
//!    changed, the version shares the previous file, unless that was written with another index or is damaged. So it is
//!    read in full before it is shared.
//! 4. Publish the version in one transaction of the catalog, or record the error and remove the file.
//!
//! The work runs in a task, so that a caller who leaves cancels only a body that was not received in full, and
//! [`Refreshes::finish`] can wait for running work.

pub(crate) mod attempts;
pub(crate) mod decoding;
pub(crate) mod error;
pub(crate) mod former;
pub(crate) mod import;
pub(crate) mod ingest;
pub(crate) mod push;
pub(crate) mod running;
pub(crate) mod scheduler;
pub(crate) mod tasks;
pub(crate) mod version_file;

use std::sync::Arc;
use std::time::Duration;

use strata_catalog::{Catalog, FetchedState, PublishingAttempt, RefreshLease, VersionContent, VersionRecord};
use strata_ingest::{InferTypes, Opened, SourceError};
use strata_runtime::crash;
use strata_runtime::metrics::metrics;
use strata_types::dataset::{Dataset, DatasetSource, RefreshTrigger};
use strata_types::ids::{DatasetId, UserId};
use strata_types::path::Path as FieldPath;
use strata_types::source::Validators;
use strata_types::version::VersionFile;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::admission::Permit;
use crate::refresh::attempts::Attempts;
use crate::refresh::decoding::{ImportProgress, RefreshStage};
use crate::refresh::error::RefreshError;
use crate::refresh::import::ImportRequest;
use crate::refresh::ingest::{DATASET_ID, Decoded, Document, Ingest, Receiving, RefreshPermit};
use crate::refresh::running::Running;
use crate::refresh::tasks::RefreshTasks;
use crate::refresh::version_file::{VersionFiles, WrittenFile};

pub(crate) enum Entities {
    /// From the dataset's URL, with this slot for receiving, or one that the refresh waits for.
    Fetched(Option<Permit>),
    Imported(Box<ImportRequest>),
    Pushed {
        receiving: Box<Receiving>,
        /// Cancelled if the sender leaves while the body is received.
        left: CancellationToken,
        /// Whether the setting of the dataset decides about the types of cells.
        as_dataset: bool,
    },
    /// From a decoded document.
    Decoded(Box<Decoded>, RefreshPermit),
}

#[derive(Debug)]
pub struct Refreshed {
    pub record: VersionRecord,
    pub warnings: Vec<String>,
}

enum Content {
    New(WrittenFile),
    Shared(VersionFile),
}

struct Made {
    content: Content,
    /// The validators for the next request to the source.
    validators: Option<Validators>,
    warnings: Vec<String>,
}

pub struct Refreshes {
    pub(crate) catalog: Catalog,
    pub(crate) ingest: Arc<Ingest>,
    pub(crate) files: Arc<VersionFiles>,
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) tasks: Arc<RefreshTasks>,
    pub(crate) running: Arc<Running>,
    /// Whether owners and pings can request versions from this process.
    pub(crate) has_role: bool,
}

impl Refreshes {
    fn check_role(&self) -> Result<(), RefreshError> {
        if self.has_role { Ok(()) } else { Err(RefreshError::NotHere) }
    }

    /// Fetches the dataset's source, and creates a version. Dropping the future cancels nothing. On an error the
    /// dataset is unchanged, and the reason is recorded for the owner.
    pub async fn fetch(self: &Arc<Self>, owner: UserId, dataset: DatasetId) -> Result<Refreshed, RefreshError> {
        self.check_role()?;
        let dataset = self.catalog.owned_dataset(owner, dataset).await?;
        self.fetch_into(&dataset, RefreshTrigger::Manual).await
    }

    /// [`Refreshes::fetch`] by the token of the dataset's ping URL.
    pub async fn ping(self: &Arc<Self>, token: &str) -> Result<Refreshed, RefreshError> {
        self.check_role()?;
        let dataset = self.catalog.dataset_by_ping_token(token).await?.ok_or(RefreshError::NotFound)?;
        self.fetch_into(&dataset, RefreshTrigger::Ping).await
    }

    async fn fetch_into(
        self: &Arc<Self>,
        dataset: &Dataset,
        trigger: RefreshTrigger,
    ) -> Result<Refreshed, RefreshError> {
        if dataset.frozen {
            return Err(RefreshError::Frozen);
        }
        if dataset.source == DatasetSource::Push {
            return Err(RefreshError::NothingToFetch);
        }
        let refreshes = self.clone();
        let id = dataset.id;
        let entities = Entities::Fetched(None);
        self.tasks.run(async move { refreshes.make_version(id, trigger, entities, &Arc::default()).await }).await
    }

    pub(crate) async fn make_version(
        &self,
        dataset: DatasetId,
        trigger: RefreshTrigger,
        entities: Entities,
        progress: &Arc<ImportProgress>,
    ) -> Result<Refreshed, RefreshError> {
        let lease = self.attempts.acquire(dataset, trigger).await?;
        let started = Instant::now();
        // Only one attempt has the lease at a time.
        let _running = self.running.enter(dataset, progress);
        crash::point("refresh.leased");
        // The decoders do not know the dataset of what they log, at most at this level.
        let span = tracing::error_span!("refresh", dataset_id = dataset.get());
        let made = tokio::select! {
            made = self.make(&lease, entities, progress).instrument(span) => made,
            () = self.tasks.stopped() => Err(RefreshError::Stopping),
            () = self.attempts.hold(lease.attempt) => Err(RefreshError::LeaseLost),
        };
        let (published, warnings) = match made {
            Err(error) => (self.attempts.fail(&lease, error, None).await, Vec::new()),
            Ok(Made { content, validators, warnings }) => {
                progress.enter(RefreshStage::Publishing);
                (self.publish(&lease, content, validators.as_ref(), &warnings).await, warnings)
            }
        };
        let outcome = published.map(|record| Refreshed { record, warnings });
        // A write can precede a failure.
        self.attempts.show();
        let ended = if outcome.is_ok() { "published" } else { "failed" };
        metrics().refreshes.of([trigger.name().into(), ended.into()]).increment(1);
        metrics().refresh_seconds.record(started.elapsed());
        match &outcome {
            Ok(Refreshed { record, warnings }) => {
                tracing::info!(
                    dataset_id = dataset.get(),
                    trigger = trigger.name(),
                    version = record.version.number.get(),
                    entities = record.version.file.entity_count,
                    "published version"
                );
                log_warnings(dataset, warnings);
            }
            // The scheduler logs it at a higher level.
            Err(_) if trigger == RefreshTrigger::Schedule => {}
            Err(error) => {
                tracing::info!(
                    dataset_id = dataset.get(),
                    trigger = trigger.name(),
                    %error,
                    "failed to refresh dataset"
                );
            }
        }
        outcome
    }

    async fn make(
        &self,
        lease: &RefreshLease,
        entities: Entities,
        progress: &Arc<ImportProgress>,
    ) -> Result<Made, RefreshError> {
        let owner = lease.dataset.owner;
        let before = self.files.reusable(&lease.dataset).await?;
        let (document, validators) = match entities {
            Entities::Decoded(decoded, permit) => {
                return self.write_version(lease, *decoded, before, None, permit, progress).await;
            }
            Entities::Imported(request) => {
                // A command does not share the process, so it reads while it decodes.
                let permit = self.ingest.permit(owner).await?;
                let publish_query = request.publish_query || lease.dataset.publish_query;
                let request = ImportRequest { publish_query, ..*request };
                progress.enter(RefreshStage::Decoding);
                let document = self.ingest.open_import(owner, &request, infer_types(&lease.dataset)).await?;
                let decoded = self.ingest.decode(document, &permit, progress).await?;
                return self.write_version(lease, decoded, before, None, permit, progress).await;
            }
            Entities::Pushed { receiving, left, as_dataset } => {
                progress.receives(receiving.progress());
                let document = tokio::select! {
                    document = receiving.receive() => document?,
                    () = left.cancelled() => {
                        return Err(SourceError::Interrupted { reason: "the client disconnected".to_owned() }.into());
                    }
                };
                let records_path = match document.envelope {
                    Some(_) => None,
                    None => records_path(&lease.dataset)?,
                };
                let infer_types = if as_dataset { infer_types(&lease.dataset) } else { document.infer_types };
                (Document { records_path, infer_types, ..document }, None)
            }
            Entities::Fetched(slot) => {
                let DatasetSource::Url(url) = &lease.dataset.source else { return Err(RefreshError::NothingToFetch) };
                let known = match &before {
                    Some(_) => self.catalog.source_validators(lease.dataset.id).await?,
                    None => None,
                };
                let slot = match slot {
                    Some(slot) => slot,
                    None => self.ingest.slot(owner).await?,
                };
                let mut opened = self.ingest.source_client(owner).open(url, known.as_ref()).await?;
                if let Opened::NotModified(validators) = opened {
                    match before {
                        Some(file) if self.files.is_sound(&file).await? => {
                            return Ok(Made {
                                content: Content::Shared(file),
                                validators: Some(validators),
                                warnings: Vec::new(),
                            });
                        }
                        // The shared file is damaged.
                        Some(_) => opened = self.ingest.source_client(owner).open(url, None).await?,
                        None => return Err(not_asked().into()),
                    }
                }
                let Opened::Document(fetched) = opened else { return Err(not_asked().into()) };
                let url = fetched.published_url(lease.dataset.publish_query);
                let document = Document {
                    format: lease.dataset.format,
                    records_path: records_path(&lease.dataset)?,
                    infer_types: infer_types(&lease.dataset),
                    fetched_from: Some(url),
                    ..Document::new(fetched.input)
                };
                let receiving = self.ingest.begin_receiving(owner, document, slot);
                progress.receives(receiving.progress());
                (receiving.receive().await?, Some(fetched.validators))
            }
        };
        progress.enter(RefreshStage::Waiting);
        let permit = self.ingest.permit(owner).await?;
        progress.enter(RefreshStage::Decoding);
        let decoded = self.ingest.decode(document, &permit, progress).await?;
        let named = decoded.fields.as_ref().map(|fields| fields.integer(DATASET_ID)).transpose()?.flatten();
        if let Some(other) = named.map(DatasetId::new).filter(|other| *other != lease.dataset.id) {
            let reason = format!("the request is for dataset {}, but its body is for {other}", lease.dataset.id);
            return Err(SourceError::BadBody { reason }.into());
        }
        self.write_version(lease, decoded, before, validators, permit, progress).await
    }

    /// Returns the previous version's file if it has the same entities, or writes a new one.
    async fn write_version(
        &self,
        lease: &RefreshLease,
        Decoded { spooled, warnings, .. }: Decoded,
        before: Option<VersionFile>,
        validators: Option<Validators>,
        permit: RefreshPermit,
        progress: &Arc<ImportProgress>,
    ) -> Result<Made, RefreshError> {
        crash::point("refresh.spooled");
        progress.enter(RefreshStage::Writing);
        let alike = before.filter(|file| file.content_hash == spooled.content_sha256);
        if let Some(file) = alike
            && self.files.is_sound(&file).await?
        {
            return Ok(Made { content: Content::Shared(file), validators, warnings });
        }
        let reserved = self.files.reserved_with(lease);
        let file = reserved.write(spooled, lease.dataset.index.clone(), &permit, progress).await?;
        Ok(Made { content: Content::New(file), validators, warnings })
    }

    async fn publish(
        &self,
        lease: &RefreshLease,
        made: Content,
        validators: Option<&Validators>,
        warnings: &[String],
    ) -> Result<VersionRecord, RefreshError> {
        let content = match &made {
            Content::New(file) => VersionContent::New(&file.new),
            Content::Shared(file) => VersionContent::Shared { file: file.id, content_hash: &file.content_hash },
        };
        let fetched = validators.map(|validators| FetchedState { dataset: &lease.dataset, validators });
        let publishing = async {
            // If the store's directory is gone, so is the new file.
            self.files.binding.verify().await?;
            let attempt = PublishingAttempt { id: lease.attempt, warnings };
            Ok::<_, RefreshError>(self.catalog.publish_version(lease.dataset.id, content, fetched, attempt).await?)
        };
        let published = publishing.await;
        let file = match made {
            Content::New(file) => Some(file),
            Content::Shared(_) => None,
        };
        match published {
            Ok(record) => {
                if let Some(file) = file {
                    file.leave();
                }
                Ok(record)
            }
            Err(error) => self.attempts.fail(lease, error, file).await,
        }
    }

    /// Starts no more refreshes, waits `limit` for running ones, and then stops the others, which record that.
    pub async fn finish(&self, limit: Duration) {
        self.tasks.finish(limit).await;
    }
}

pub(crate) fn log_warnings(dataset: DatasetId, warnings: &[String]) {
    for warning in warnings {
        tracing::warn!(dataset_id = dataset.get(), %warning, "refreshed dataset with warning");
    }
}

fn infer_types(dataset: &Dataset) -> InferTypes {
    if dataset.infer_types { InferTypes::Tables } else { InferTypes::No }
}

fn records_path(dataset: &Dataset) -> Result<Option<FieldPath>, RefreshError> {
    Ok(dataset.records_path.as_deref().map(FieldPath::parse).transpose()?)
}

pub(crate) fn not_asked() -> SourceError {
    SourceError::Unreachable { reason: "it returned 304 Not Modified to an unconditional request".to_owned() }
}
