//! Creates new versions of datasets, for owners, pings, schedules and imports.
//!
//! 1. Acquire a lease of the dataset and renew it in the background. If the lease is lost, the refresh stops.
//! 2. Receive the entire document, wait for a permit, and decode the document into a spool.
//! 3. Run the checks of the dataset on the entities. If one fails, the refresh ends without a version.
//! 4. Write the version file to the path that the lease reserves, with only the new entities if the list shares most
//!    entities with the previous version ([`strata_format::delta`]). If the list equals that of an earlier version,
//!    both share the file, unless that file has other index settings or is damaged.
//! 5. Publish the version in one catalog transaction, or record the error and remove the file.
//! 6. If the version has too many extents, rewrite it as a complete file in the background ([`compaction`]).
//!
//! The work runs in a separate task. A dropped request cancels only the receiving of its body, and
//! [`RefreshService::finish`] can wait for running refreshes.

pub(crate) mod attempts;
pub(crate) mod checks;
pub(crate) mod compaction;
pub(crate) mod decoding;
pub(crate) mod error;
pub(crate) mod import;
pub(crate) mod ingest;
pub(crate) mod lease_recovery;
pub(crate) mod progress;
pub(crate) mod push;
pub(crate) mod scheduler;
pub(crate) mod tasks;
pub(crate) mod version_file;
pub(crate) mod version_spooler;

use std::sync::Arc;
use std::time::Duration;

use strata_catalog::{AttemptWithWarnings, Catalog, FetchedValidators, RefreshLease, VersionContent, VersionStatus};
use strata_ingest::egress::UrlQuery;
use strata_ingest::{FetchOutcome, SourceError, TypeInference};
use strata_runtime::failpoint;
use strata_runtime::metrics::metrics;
use strata_types::dataset::{Dataset, DatasetSource, RefreshTrigger};
use strata_types::field_path::FieldPath;
use strata_types::ids::{DatasetId, UserId};
use strata_types::source::SourceValidators;
use strata_types::version::VersionFile;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::admission::Permit;
use crate::refresh::attempts::RefreshAttempts;
use crate::refresh::checks::EntityChecks;
use crate::refresh::compaction::Compactor;
use crate::refresh::decoding::{RefreshCounters, RefreshStage};
use crate::refresh::error::{RefreshError, Result};
use crate::refresh::import::ImportRequest;
use crate::refresh::ingest::{
    DATASET_ID_MEMBER, DecodedEntities, DocumentReceiver, IngestService, RefreshPermit, SourceDocument,
};
use crate::refresh::progress::RunningRefreshes;
use crate::refresh::tasks::RefreshTasks;
use crate::refresh::version_file::{VersionFiles, WrittenFile};
use crate::refresh::version_spooler::VersionSpooler;

pub(crate) enum RefreshInput {
    /// The source is fetched from the dataset's URL. Without a permit, the refresh waits for a slot to receive it.
    Fetched(Option<Permit>),
    Imported(Box<ImportRequest>),
    Pushed {
        receiver: Box<DocumentReceiver>,
        /// Cancelled if the client disconnects before the pushed body is received.
        sender_left: CancellationToken,
        /// If true, the dataset's setting for the inference of csv and tsv types applies.
        uses_dataset_types: bool,
    },
    Decoded(Box<DecodedEntities>, RefreshPermit),
}

#[derive(Debug)]
pub struct RefreshedVersion {
    pub record: VersionStatus,
    pub warnings: Vec<String>,
}

enum PreparedFile {
    New(WrittenFile),
    Shared(VersionFile),
}

impl PreparedFile {
    fn may_be_delta_file(&self) -> bool {
        match self {
            PreparedFile::New(file) => !file.new.bases.is_empty(),
            PreparedFile::Shared(_) => true,
        }
    }
}

struct PreparedVersion {
    file: PreparedFile,
    /// The HTTP validators of the source, for a conditional request of the next refresh.
    validators: Option<SourceValidators>,
    warnings: Vec<String>,
}

pub struct RefreshService {
    pub(crate) catalog: Catalog,
    pub(crate) ingest: Arc<IngestService>,
    pub(crate) files: Arc<VersionFiles>,
    pub(crate) attempts: Arc<RefreshAttempts>,
    pub(crate) tasks: Arc<RefreshTasks>,
    pub(crate) spooler: Arc<VersionSpooler>,
    pub(crate) compactor: Arc<Compactor>,
    pub(crate) running_refreshes: Arc<RunningRefreshes>,
    /// True if this process refreshes datasets for owners and pings.
    pub(crate) has_refresh_role: bool,
}

impl RefreshService {
    fn check_refresh_role(&self) -> Result<()> {
        if self.has_refresh_role { Ok(()) } else { Err(RefreshError::RoleDisabled) }
    }

    /// Fetches the dataset's source and creates a version. The work continues if the future is dropped.
    pub async fn refresh_from_source(self: &Arc<Self>, owner: UserId, dataset: DatasetId) -> Result<RefreshedVersion> {
        self.check_refresh_role()?;
        let dataset = self.catalog.owned_dataset(owner, dataset).await?;
        self.refresh_dataset(&dataset, RefreshTrigger::Manual).await
    }

    /// Like [`RefreshService::refresh_from_source`], with the token of the dataset's ping URL.
    pub async fn refresh_by_ping(self: &Arc<Self>, token: &str) -> Result<RefreshedVersion> {
        self.check_refresh_role()?;
        let dataset = self.catalog.dataset_by_ping_token(token).await?.ok_or(RefreshError::DatasetNotFound)?;
        self.refresh_dataset(&dataset, RefreshTrigger::Ping).await
    }

    async fn refresh_dataset(self: &Arc<Self>, dataset: &Dataset, trigger: RefreshTrigger) -> Result<RefreshedVersion> {
        if dataset.frozen {
            return Err(RefreshError::Frozen);
        }
        if dataset.source == DatasetSource::Push {
            return Err(RefreshError::NothingToFetch);
        }
        let refreshes = self.clone();
        let id = dataset.id;
        let input = RefreshInput::Fetched(None);
        self.tasks.run(async move { refreshes.create_version(id, trigger, input, &Arc::default()).await }).await
    }

    pub(crate) async fn create_version(
        &self,
        dataset: DatasetId,
        trigger: RefreshTrigger,
        input: RefreshInput,
        progress: &Arc<RefreshCounters>,
    ) -> Result<RefreshedVersion> {
        let lease = self.attempts.acquire_lease(dataset, trigger).await?;
        let started = Instant::now();
        // Only one attempt has the lease of a dataset at a time, so the registration replaces no running refresh.
        let _running = self.running_refreshes.register(dataset, progress);
        failpoint::trigger_failpoint("refresh.leased");
        // The span adds the dataset to the log lines of the decoders, and must have the highest of their levels.
        let span = tracing::error_span!("refresh", dataset_id = dataset.get());
        let prepared = tokio::select! {
            prepared = self.prepare_version(&lease, input, progress).instrument(span) => prepared,
            () = self.tasks.wait_for_stop() => Err(RefreshError::Stopping),
            () = self.attempts.renew_lease_until_lost(lease.attempt) => Err(RefreshError::LeaseLost),
        };
        // The process of an import would end before a compaction does.
        let may_compact = trigger != RefreshTrigger::Import
            && prepared.as_ref().is_ok_and(|prepared| prepared.file.may_be_delta_file());
        let (published, warnings) = match prepared {
            Err(error) => (self.attempts.record_failure(&lease, error, None).await, Vec::new()),
            Ok(PreparedVersion { file, validators, warnings }) => {
                progress.enter_stage(RefreshStage::Publishing);
                (self.publish(&lease, file, validators.as_ref(), &warnings).await, warnings)
            }
        };
        if may_compact && published.is_ok() {
            self.compactor.request(dataset);
        }
        let result = published.map(|record| RefreshedVersion { record, warnings });
        // The end is announced to caches and webhooks even after a failure, because a failure can follow a commit.
        self.attempts.notify_attempt_end();
        let outcome = if result.is_ok() { "published" } else { "failed" };
        metrics().refreshes.with_label_values([trigger.name().into(), outcome.into()]).increment(1);
        metrics().refresh_seconds.record(started.elapsed());
        match &result {
            Ok(RefreshedVersion { record, warnings }) => {
                tracing::info!(
                    dataset_id = dataset.get(),
                    trigger = trigger.name(),
                    version = record.version.number.get(),
                    entities = record.version.file.entity_count,
                    "published version"
                );
                log_warnings(dataset, warnings);
            }
            // The scheduler logs the error of a scheduled refresh at a higher level.
            Err(_) if trigger == RefreshTrigger::Schedule => {}
            Err(error) => {
                let trigger = trigger.name();
                tracing::info!(dataset_id = dataset.get(), trigger, %error, "failed to refresh dataset");
            }
        }
        result
    }

    async fn prepare_version(
        &self,
        lease: &RefreshLease,
        input: RefreshInput,
        progress: &Arc<RefreshCounters>,
    ) -> Result<PreparedVersion> {
        let owner = lease.dataset.owner;
        let previous = self.files.find_reusable(&lease.dataset).await?;
        let checks = self.load_checks(&lease.dataset).await?;
        let active = checks.as_ref().and_then(|checks| checks.active);
        let (document, validators) = match input {
            RefreshInput::Decoded(decoded, permit) => {
                let checks = checks.map(|checks| EntityChecks::Unstarted(checks.run));
                let decoded = DecodedEntities { checks, ..*decoded };
                let decoded = self.finish_checks(lease, decoded, active, &permit).await?;
                return self.write_or_reuse_file(lease, decoded, previous, None, permit, progress).await;
            }
            RefreshInput::Imported(request) => {
                // Only the command line imports sources, without other users, so a slow source can occupy a permit.
                let permit = self.ingest.acquire_permit(owner).await?;
                let publish_query = request.publish_query || lease.dataset.publish_query;
                let request = ImportRequest { publish_query, ..*request };
                progress.enter_stage(RefreshStage::Decoding);
                let document = self.ingest.open_import_source(owner, &request, inference_for(&lease.dataset)).await?;
                let run = checks.map(|checks| checks.run);
                let decoded = self.ingest.decode(document, run, &permit, progress).await?;
                let decoded = self.finish_checks(lease, decoded, active, &permit).await?;
                return self.write_or_reuse_file(lease, decoded, previous, None, permit, progress).await;
            }
            RefreshInput::Pushed { receiver, sender_left, uses_dataset_types } => {
                progress.start_receiving(receiver.progress());
                let document = tokio::select! {
                    document = receiver.receive() => document?,
                    () = sender_left.cancelled() => {
                        return Err(SourceError::Interrupted { reason: "the client disconnected".to_owned() }.into());
                    }
                };
                let records_path = match document.envelope_members {
                    Some(_) => None,
                    None => records_path(&lease.dataset)?,
                };
                let infer_types = if uses_dataset_types { inference_for(&lease.dataset) } else { document.infer_types };
                (SourceDocument { records_path, infer_types, ..document }, None)
            }
            RefreshInput::Fetched(slot) => {
                let DatasetSource::Url(url) = &lease.dataset.source else { return Err(RefreshError::NothingToFetch) };
                let known = match &previous {
                    Some(_) => self.catalog.source_validators(lease.dataset.id).await?,
                    None => None,
                };
                let slot = match slot {
                    Some(slot) => slot,
                    None => self.ingest.acquire_receive_slot(owner).await?,
                };
                let mut outcome = self.ingest.source_client(owner).open(url, known.as_ref()).await?;
                if let FetchOutcome::NotModified(validators) = outcome {
                    match previous {
                        Some(file) if self.files.is_intact(&file).await? => {
                            if let Some(checks) = checks {
                                self.check_unchanged(lease, &file, checks).await?;
                            }
                            return Ok(PreparedVersion {
                                file: PreparedFile::Shared(file),
                                validators: Some(validators),
                                warnings: Vec::new(),
                            });
                        }
                        // The source is unchanged, but fetched again, because the previous version's file is damaged.
                        Some(_) => outcome = self.ingest.source_client(owner).open(url, None).await?,
                        None => return Err(unexpected_not_modified().into()),
                    }
                }
                let FetchOutcome::Document(fetched) = outcome else { return Err(unexpected_not_modified().into()) };
                let url = fetched.published_url(UrlQuery::from_publish_query(lease.dataset.publish_query));
                let document = SourceDocument {
                    format: lease.dataset.format,
                    records_path: records_path(&lease.dataset)?,
                    infer_types: inference_for(&lease.dataset),
                    fetched_from: Some(url),
                    ..SourceDocument::new(fetched.input)
                };
                let receiver = self.ingest.start_receiving(owner, document, slot);
                progress.start_receiving(receiver.progress());
                (receiver.receive().await?, Some(fetched.validators))
            }
        };
        progress.enter_stage(RefreshStage::Waiting);
        let permit = self.ingest.acquire_permit(owner).await?;
        progress.enter_stage(RefreshStage::Decoding);
        let run = checks.map(|checks| checks.run);
        let decoded = self.ingest.decode(document, run, &permit, progress).await?;
        let body_dataset =
            decoded.envelope_fields.as_ref().map(|fields| fields.integer(DATASET_ID_MEMBER)).transpose()?.flatten();
        if let Some(other) = body_dataset.map(DatasetId::new).filter(|other| *other != lease.dataset.id) {
            let reason = format!("the request is for dataset {}, but its body is for {other}", lease.dataset.id);
            return Err(SourceError::InvalidBody { reason }.into());
        }
        let decoded = self.finish_checks(lease, decoded, active, &permit).await?;
        self.write_or_reuse_file(lease, decoded, previous, validators, permit, progress).await
    }

    /// Returns the file of an earlier version if it is intact and has the same entities; otherwise writes a new one.
    async fn write_or_reuse_file(
        &self,
        lease: &RefreshLease,
        DecodedEntities { spooled, warnings, .. }: DecodedEntities,
        previous: Option<VersionFile>,
        validators: Option<SourceValidators>,
        permit: RefreshPermit,
        progress: &Arc<RefreshCounters>,
    ) -> Result<PreparedVersion> {
        failpoint::trigger_failpoint("refresh.spooled");
        progress.enter_stage(RefreshStage::Writing);
        let unchanged = match &previous {
            Some(file) if file.content_hash == spooled.content_sha256 => Some(file.clone()),
            _ => self.files.find_reusable_with_content(&lease.dataset, &spooled.content_sha256).await?,
        };
        if let Some(file) = unchanged
            && self.files.is_intact(&file).await?
        {
            return Ok(PreparedVersion { file: PreparedFile::Shared(file), validators, warnings });
        }
        let reserved = self.files.file_reserved_by_lease(lease);
        let previous = previous.filter(|file| file.content_hash != spooled.content_sha256);
        let file = reserved.write_version(spooled, previous, lease.dataset.index.clone(), &permit, progress).await?;
        Ok(PreparedVersion { file: PreparedFile::New(file), validators, warnings })
    }

    async fn publish(
        &self,
        lease: &RefreshLease,
        file: PreparedFile,
        validators: Option<&SourceValidators>,
        warnings: &[String],
    ) -> Result<VersionStatus> {
        let content = match &file {
            PreparedFile::New(file) => VersionContent::New(&file.new),
            PreparedFile::Shared(file) => VersionContent::Shared { file: file.id, content_hash: &file.content_hash },
        };
        let fetched = validators.map(|validators| FetchedValidators { dataset: &lease.dataset, validators });
        let publishing = async {
            // The store is verified before the commit: if it was replaced, it does not contain the new file.
            self.files.store_identity.verify().await?;
            let attempt = AttemptWithWarnings { id: lease.attempt, warnings };
            Ok::<_, RefreshError>(self.catalog.publish_version(lease.dataset.id, content, fetched, attempt).await?)
        };
        let published = publishing.await;
        let new_file = match file {
            PreparedFile::New(file) => Some(file),
            PreparedFile::Shared(_) => None,
        };
        match published {
            Ok(record) => {
                if let Some(file) = new_file {
                    file.leave_in_store();
                }
                Ok(record)
            }
            Err(error) => self.attempts.record_failure(lease, error, new_file).await,
        }
    }

    /// Rejects new refreshes, waits at most `limit` for running ones, then stops the rest and records their failure.
    pub async fn finish_or_stop_refreshes(&self, limit: Duration) {
        self.tasks.finish_or_stop_refreshes(limit).await;
    }
}

pub(crate) fn log_warnings(dataset: DatasetId, warnings: &[String]) {
    for warning in warnings {
        tracing::warn!(dataset_id = dataset.get(), %warning, "refreshed dataset with warning");
    }
}

fn inference_for(dataset: &Dataset) -> TypeInference {
    if dataset.infer_types { TypeInference::Tables } else { TypeInference::Off }
}

fn records_path(dataset: &Dataset) -> Result<Option<FieldPath>> {
    Ok(dataset.records_path.as_deref().map(FieldPath::parse).transpose()?)
}

pub(crate) fn unexpected_not_modified() -> SourceError {
    SourceError::Unreachable { reason: "it returned 304 Not Modified to an unconditional request".to_owned() }
}
