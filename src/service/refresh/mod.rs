//! The one way in which a dataset gets a new version, whoever asks for it: its owner, a ping, the schedule, an import.
//!
//! 1. Hold the dataset: an attempt with a lease that a heartbeat renews. Losing it stops the work.
//! 2. Fetch or take the document, all of it; then wait for a permit, and decode it into a spool (`ingest`).
//! 3. Write the version file under the path that was reserved with the lease. A source that says, or content that
//!    shows, that nothing has changed needs none: the version shares the file of the one before, unless that was
//!    written with another index, or is damaged: it is read whole before it is shared.
//! 4. Publish in one transaction of the catalog, or record why not and remove what was written.
//!
//! It all runs in a task of its own, so that a caller who leaves cancels nothing, but a body that has not come whole,
//! and [`Refreshes::finish`] can wait for what is under way when the process is to end.

pub(in crate::service) mod decoding;
pub(in crate::service) mod error;
pub(in crate::service) mod import;
pub(in crate::service) mod ingest;
pub(in crate::service) mod outgoing;
pub(in crate::service) mod scheduler;
pub(in crate::service) mod tasks;
pub(in crate::service) mod threads;
pub(in crate::service) mod version_file;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::catalog::{
    AttemptOutcome, Catalog, CatalogError, FetchedState, RefreshLease, VersionContent, VersionRecord,
};
use crate::crash;
use crate::metrics::metrics;
use crate::model::dataset::{Dataset, DatasetSource, RefreshTrigger};
use crate::model::ids::{AttemptId, DatasetId, UserId};
use crate::model::path::Path as FieldPath;
use crate::model::source::{SourceFormat, Validators};
use crate::model::version::VersionFile;
use crate::service::admission::semaphore::Permit;
use crate::service::lookup::Lookups;
use crate::service::refresh::decoding::{Decoding, Document, ImportProgress};
use crate::service::refresh::error::RefreshError;
use crate::service::refresh::import::ImportRequest;
use crate::service::refresh::ingest::{DATASET_ID, Ingest, Receiving, RefreshPermit};
use crate::service::refresh::tasks::RefreshTasks;
use crate::service::refresh::version_file::{VersionFiles, WrittenFile, new_path};
use crate::service::webhook::deliveries::Deliveries;
use crate::source::{Opened, SourceError};
use crate::storage::budget::SpoolCharge;
use crate::storage::spool::Spooled;

/// How long an attempt holds its dataset without a sign of life.
const LEASE: Duration = Duration::from_secs(60);

/// How often it gives one.
const HEARTBEAT: Duration = Duration::from_secs(20);

/// How often the end of an attempt is tried again to be recorded, at first and at most.
const RECORD_AGAIN: std::ops::Range<Duration> = Duration::from_millis(50)..Duration::from_secs(1);

/// How many attempts whose end is not recorded are remembered.
const UNRECORDED: usize = 1_000;

/// How many attempts of a dataset are looked through for one: as many as the catalog keeps.
const ATTEMPTS: u32 = 50;

/// Entities that an owner sends.
pub struct Push<S> {
    /// The dataset, where the request names it; otherwise the body does.
    pub dataset: Option<DatasetId>,
    /// The body as it comes.
    pub body: S,
    /// What the body is announced as.
    pub content_type: Option<String>,
    /// The format of the body; `None` detects it.
    pub format: Option<SourceFormat>,
    /// Whether the body is an object with a member `entities`, and perhaps `dataset_id`.
    pub enveloped: bool,
}

/// Where the entities of a refresh come from.
pub(in crate::service) enum Entities {
    /// From the dataset's URL, in this place among what is received, or in one that is waited for.
    Fetched(Option<Permit>),
    /// From what is imported.
    Imported(Box<ImportRequest>),
    /// From a body that still comes. While it does, the token tells that its sender has left.
    Pushed(Box<Receiving>, CancellationToken),
    /// From a document that has been decoded; the permit is held.
    Decoded(Box<Decoding>, RefreshPermit),
}

/// The entities of the version to be.
enum Made {
    New(WrittenFile),
    Shared(VersionFile),
}

/// Makes versions.
pub struct Refreshes {
    catalog: Catalog,
    lookups: Arc<Lookups>,
    deliveries: Arc<Deliveries>,
    ingest: Arc<Ingest>,
    files: Arc<VersionFiles>,
    tasks: Arc<RefreshTasks>,
    /// Attempts that have ended, with the reason, and hold their datasets all the same: the catalog did not take it.
    unrecorded: Mutex<HashMap<DatasetId, (AttemptId, String)>>,
}

impl Refreshes {
    pub(in crate::service) fn new(
        catalog: Catalog,
        lookups: Arc<Lookups>,
        deliveries: Arc<Deliveries>,
        ingest: Arc<Ingest>,
        files: Arc<VersionFiles>,
        tasks: Arc<RefreshTasks>,
    ) -> Refreshes {
        Refreshes { catalog, lookups, deliveries, ingest, files, tasks, unrecorded: Mutex::default() }
    }

    fn unrecorded(&self) -> MutexGuard<'_, HashMap<DatasetId, (AttemptId, String)>> {
        // Nothing panics between two changes that belong together.
        self.unrecorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets an attempt whose end was not recorded.
    fn forget(&self, dataset: DatasetId, attempt: AttemptId) {
        let mut unrecorded = self.unrecorded();
        if unrecorded.get(&dataset).is_some_and(|(unrecorded, _)| *unrecorded == attempt) {
            unrecorded.remove(&dataset);
        }
    }

    /// Fetches the dataset's source anew and makes a version of it. Ends when that is over; dropping it cancels
    /// nothing.
    ///
    /// # Errors
    /// [`RefreshError`]; the dataset is as it was then, and the reason is recorded for the owner.
    pub async fn fetch(self: &Arc<Self>, owner: UserId, dataset: DatasetId) -> Result<VersionRecord, RefreshError> {
        let dataset = self.catalog.owned_dataset(owner, dataset).await?;
        self.fetch_into(&dataset, RefreshTrigger::Manual).await
    }

    /// [`Refreshes::fetch`], asked for by whoever has the dataset's ping URL.
    ///
    /// # Errors
    /// As there; [`RefreshError::NotFound`] for an unknown token.
    pub async fn ping(self: &Arc<Self>, token: &str) -> Result<VersionRecord, RefreshError> {
        let dataset = self.catalog.dataset_by_ping_token(token).await?.ok_or(RefreshError::NotFound)?;
        self.fetch_into(&dataset, RefreshTrigger::Ping).await
    }

    async fn fetch_into(
        self: &Arc<Self>,
        dataset: &Dataset,
        trigger: RefreshTrigger,
    ) -> Result<VersionRecord, RefreshError> {
        if dataset.frozen {
            return Err(RefreshError::Frozen);
        }
        if dataset.source == DatasetSource::Push {
            return Err(RefreshError::NothingToFetch);
        }
        let (refreshes, id) = (self.clone(), dataset.id);
        let entities = Entities::Fetched(None);
        self.tasks.run(async move { refreshes.make_version(id, trigger, entities).await }).await
    }

    /// Makes a version of what the owner sends. Dropping it before the whole body is there ends the work; from then on
    /// it cancels nothing. A dataset that is not the owner's is refused before the body is read, or, where the body
    /// names it, after its beginning.
    ///
    /// # Errors
    /// As [`Refreshes::fetch`]. A body that does not say which dataset it is for leaves no record.
    pub async fn push<S, E>(self: &Arc<Self>, owner: UserId, push: Push<S>) -> Result<VersionRecord, RefreshError>
    where
        S: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        if let Some(dataset) = push.dataset {
            self.pushed_to(owner, dataset).await?;
        }
        let mut input = self.ingest.pushed_input(push.body);
        if let Some(content_type) = push.content_type {
            input = input.with_content_type(content_type);
        }
        let envelope: Option<&'static [&'static str]> = if push.enveloped { Some(&[DATASET_ID]) } else { None };
        let charge = SpoolCharge::unbounded();
        let document =
            Document { input, format: push.format, records_path: None, fetched_from: None, charge, envelope };
        let mut receiving = self.ingest.begin_receiving(owner, document, None).await?;
        let mut dataset = push.dataset;
        if dataset.is_none() && push.enveloped {
            let (head, ended) = receiving.head().await?;
            // One that is no number is told when the body is decoded.
            dataset = head.integer(DATASET_ID).ok().flatten().map(DatasetId::new);
            self.ingest.check_head(owner, dataset, ended).await?;
            if let Some(dataset) = dataset {
                self.pushed_to(owner, dataset).await?;
            }
        }
        let refreshes = self.clone();
        match dataset {
            Some(dataset) => {
                let left = CancellationToken::new();
                let leaving = left.clone().drop_guard();
                let entities = Entities::Pushed(Box::new(receiving), left);
                let trigger = RefreshTrigger::Manual;
                let made = async move { refreshes.make_version(dataset, trigger, entities).await };
                let made = self.tasks.run(made).await;
                leaving.disarm();
                made
            }
            None => {
                let document = tokio::select! {
                    document = receiving.receive() => document?,
                    () = self.tasks.stopped() => return Err(RefreshError::Stopping),
                };
                self.tasks.run(async move { refreshes.push_unnamed(owner, document).await }).await
            }
        }
    }

    /// Makes a version of a body that names its dataset behind its beginning.
    async fn push_unnamed(self: &Arc<Self>, owner: UserId, document: Document) -> Result<VersionRecord, RefreshError> {
        let permit = self.ingest.permit(owner).await?;
        let mut decoding = self.ingest.decode(document, &permit, &Arc::default());
        let fields = decoding.fields().await;
        if let Some(fields) = &fields {
            fields.integer(DATASET_ID)?;
        }
        decoding.wait().await?;
        let found = fields.ok_or(RefreshError::Worker)?.integer(DATASET_ID)?;
        let dataset = found.map(DatasetId::new).ok_or_else(|| {
            let reason = "dataset_id is missing: the number of the dataset to refresh".to_owned();
            SourceError::BadBody { reason }
        })?;
        self.pushed_to(owner, dataset).await?;
        self.make_version(dataset, RefreshTrigger::Manual, Entities::Decoded(Box::new(decoding), permit)).await
    }

    /// The dataset, if it takes what this owner pushes.
    async fn pushed_to(&self, owner: UserId, dataset: DatasetId) -> Result<(), RefreshError> {
        let dataset = self.catalog.owned_dataset(owner, dataset).await?;
        match dataset.source {
            _ if dataset.frozen => Err(RefreshError::Frozen),
            DatasetSource::Push => Ok(()),
            DatasetSource::Url(_) => Err(RefreshError::NotPushed),
        }
    }

    /// From holding the dataset to its new version, or to the record of a failure.
    pub(in crate::service) async fn make_version(
        self: &Arc<Self>,
        dataset: DatasetId,
        trigger: RefreshTrigger,
        entities: Entities,
    ) -> Result<VersionRecord, RefreshError> {
        self.make_version_reporting(dataset, trigger, entities, &Arc::default()).await
    }

    /// [`Refreshes::make_version`], telling how far it is.
    pub(in crate::service) async fn make_version_reporting(
        self: &Arc<Self>,
        dataset: DatasetId,
        trigger: RefreshTrigger,
        entities: Entities,
        progress: &Arc<ImportProgress>,
    ) -> Result<VersionRecord, RefreshError> {
        let lease = self.acquire(dataset, trigger).await?;
        let started = Instant::now();
        crash::point("refresh.leased");
        let made = tokio::select! {
            made = self.make(&lease, entities, progress) => made,
            () = self.tasks.stopped() => Err(RefreshError::Stopping),
            () = self.hold(lease.attempt) => Err(RefreshError::LeaseLost),
        };
        let outcome = match made {
            Err(error) => self.settle(&lease, error, None).await,
            Ok((made, validators)) => self.publish(&lease, made, validators.as_ref()).await,
        };
        // Also after a failure, which may have come after a write.
        self.lookups.catalog_changed();
        self.deliveries.wake();
        let ended = if outcome.is_ok() { "published" } else { "failed" };
        metrics().refreshes.of([trigger.name().into(), ended.into()]).increment(1);
        metrics().refresh_seconds.record(started.elapsed());
        match &outcome {
            Ok(record) => tracing::info!(
                dataset_id = dataset.get(),
                trigger = trigger.name(),
                version = record.version.number.get(),
                entities = record.version.file.entity_count,
                "a new version"
            ),
            Err(error) => {
                tracing::info!(
                    dataset_id = dataset.get(),
                    trigger = trigger.name(),
                    %error,
                    "a refresh made nothing"
                );
            }
        }
        outcome
    }

    /// Holds the dataset, also where an attempt of this process holds it that has ended.
    async fn acquire(&self, dataset: DatasetId, trigger: RefreshTrigger) -> Result<RefreshLease, RefreshError> {
        let unrecorded = self.unrecorded().get(&dataset).map(|(attempt, _)| *attempt);
        if let Some(attempt) = unrecorded {
            self.record_end(dataset, attempt).await?;
        }
        Ok(self.catalog.acquire_refresh(dataset, trigger, new_path().as_ref(), LEASE).await?)
    }

    /// Remembers an attempt whose end the catalog did not take, and goes on trying until it does, or the lease has
    /// expired.
    fn record_end_later(self: &Arc<Self>, lease: &RefreshLease, reason: String) {
        let (dataset, attempt) = (lease.dataset.id, lease.attempt);
        let mut unrecorded = self.unrecorded();
        if unrecorded.len() >= UNRECORDED {
            return;
        }
        unrecorded.insert(dataset, (attempt, reason));
        drop(unrecorded);
        let refreshes = self.clone();
        self.tasks.begin_aftermath(async move {
            let (expired, mut pause) = (Instant::now() + LEASE, RECORD_AGAIN.start);
            while refreshes.record_end(dataset, attempt).await.is_err() && Instant::now() < expired {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = refreshes.tasks.stopped() => break,
                }
                pause = (pause * 2).min(RECORD_AGAIN.end);
            }
            refreshes.forget(dataset, attempt);
        });
    }

    /// Records the end of an attempt that is remembered, and gives its dataset back.
    async fn record_end(&self, dataset: DatasetId, attempt: AttemptId) -> Result<(), CatalogError> {
        let reason = match self.unrecorded().get(&dataset) {
            Some((unrecorded, reason)) if *unrecorded == attempt => reason.clone(),
            // Recorded meanwhile.
            _ => return Ok(()),
        };
        match self.catalog.fail_refresh(attempt, &reason).await {
            // It had ended before: with a version, or because another took over.
            Ok(()) | Err(CatalogError::LeaseLost) => {
                self.forget(dataset, attempt);
                self.lookups.catalog_changed();
                self.deliveries.wake();
                tracing::info!(dataset_id = dataset.get(), "the end of a refresh is recorded");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Gives signs of life; ends when the lease is lost, or must be taken for lost.
    async fn hold(&self, attempt: AttemptId) {
        let mut held_until = Instant::now() + LEASE;
        loop {
            tokio::time::sleep(HEARTBEAT).await;
            let asked = Instant::now();
            match tokio::time::timeout_at(held_until, self.catalog.renew_refresh(attempt, LEASE)).await {
                Ok(Ok(())) => held_until = asked + LEASE,
                Ok(Err(CatalogError::LeaseLost)) | Err(_) => return,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "a refresh could not renew its lease");
                    if Instant::now() >= held_until {
                        return;
                    }
                }
            }
        }
    }

    /// The content of the next version, and what to ask its source by next time.
    async fn make(
        &self,
        lease: &RefreshLease,
        entities: Entities,
        progress: &Arc<ImportProgress>,
    ) -> Result<(Made, Option<Validators>), RefreshError> {
        let owner = lease.dataset.owner;
        let before = self.files.reusable(&lease.dataset).await?;
        let (document, validators) = match entities {
            Entities::Decoded(decoding, permit) => {
                return self.write_version(lease, decoding.finish().await?, before, None, permit, progress).await;
            }
            Entities::Imported(request) => {
                // A command has the process to itself, and reads while it decodes.
                let permit = self.ingest.permit(owner).await?;
                let publish_query = request.publish_query || lease.dataset.publish_query;
                let document = self.ingest.open_import(owner, &request, publish_query).await?;
                let decoding = self.ingest.decode(document, &permit, progress);
                return self.write_version(lease, decoding.finish().await?, before, None, permit, progress).await;
            }
            Entities::Pushed(receiving, left) => {
                let document = tokio::select! {
                    document = receiving.receive() => document?,
                    () = left.cancelled() => {
                        return Err(SourceError::Interrupted { reason: "its sender left".to_owned() }.into());
                    }
                };
                (document, None)
            }
            Entities::Fetched(place) => {
                let DatasetSource::Url(url) = &lease.dataset.source else { return Err(RefreshError::NothingToFetch) };
                let known = match &before {
                    Some(_) => self.catalog.source_validators(lease.dataset.id).await?,
                    None => None,
                };
                let place = match place {
                    Some(place) => place,
                    None => self.ingest.place(owner).await?,
                };
                let mut opened = self.ingest.source_client(owner).open(url, known.as_ref()).await?;
                if let Opened::NotModified(validators) = opened {
                    match before {
                        Some(file) if self.files.is_sound(&file).await? => {
                            return Ok((Made::Shared(file), Some(validators)));
                        }
                        // What the source would give again is needed now.
                        Some(_) => opened = self.ingest.source_client(owner).open(url, None).await?,
                        None => return Err(not_asked().into()),
                    }
                }
                match opened {
                    Opened::NotModified(_) => return Err(not_asked().into()),
                    Opened::Document(fetched) => {
                        let url = fetched.published_url(lease.dataset.publish_query);
                        let document = Document {
                            input: fetched.input,
                            format: lease.dataset.format,
                            records_path: lease.dataset.records_path.as_deref().map(FieldPath::parse).transpose()?,
                            fetched_from: Some(url),
                            charge: SpoolCharge::unbounded(),
                            envelope: None,
                        };
                        let receiving = self.ingest.begin_receiving(owner, document, Some(place)).await?;
                        (receiving.receive().await?, Some(fetched.validators))
                    }
                }
            }
        };
        let permit = self.ingest.permit(owner).await?;
        let mut decoding = self.ingest.decode(document, &permit, progress);
        let fields = decoding.fields().await;
        let spooled = decoding.finish().await?;
        let named = fields.map(|fields| fields.integer(DATASET_ID)).transpose()?.flatten();
        if let Some(other) = named.map(DatasetId::new).filter(|other| *other != lease.dataset.id) {
            let reason =
                format!("the request is for the dataset {}, and the body names the dataset {other}", lease.dataset.id);
            return Err(SourceError::BadBody { reason }.into());
        }
        self.write_version(lease, spooled, before, validators, permit, progress).await
    }

    /// The entities as a file, written holding the permit: the one of the version before, or a new one.
    async fn write_version(
        &self,
        lease: &RefreshLease,
        spooled: Spooled,
        before: Option<VersionFile>,
        validators: Option<Validators>,
        permit: RefreshPermit,
        progress: &Arc<ImportProgress>,
    ) -> Result<(Made, Option<Validators>), RefreshError> {
        crash::point("refresh.spooled");
        let alike = before.filter(|file| file.content_hash == spooled.content_sha256());
        if let Some(file) = alike
            && self.files.is_sound(&file).await?
        {
            return Ok((Made::Shared(file), validators));
        }
        let reserved = self.files.reserved_with(lease);
        let file = reserved.write(spooled, lease.dataset.index.clone(), &permit, progress).await?;
        Ok((Made::New(file), validators))
    }

    async fn publish(
        self: &Arc<Self>,
        lease: &RefreshLease,
        made: Made,
        validators: Option<&Validators>,
    ) -> Result<VersionRecord, RefreshError> {
        let content = match &made {
            Made::New(file) => VersionContent::New(&file.new),
            Made::Shared(file) => VersionContent::Shared { file: file.id, content_hash: &file.content_hash },
        };
        let fetched = validators.map(|validators| FetchedState { dataset: &lease.dataset, validators });
        // Where a directory is gone, what was written is, too.
        let published = match self.files.verify_store().await {
            Ok(()) => {
                let published = self.catalog.publish_version(lease.dataset.id, content, fetched, lease.attempt).await;
                published.map_err(RefreshError::from)
            }
            Err(error) => Err(error.into()),
        };
        let file = match made {
            Made::New(file) => Some(file),
            Made::Shared(_) => None,
        };
        match published {
            Ok(record) => {
                if let Some(file) = file {
                    file.leave();
                }
                Ok(record)
            }
            Err(error) => self.settle(lease, error, file).await,
        }
    }

    /// Ends an attempt that failed: records why, gives the dataset back, and only then removes the file. Where an error
    /// hid a commit that took place after all, gives the version.
    async fn settle(
        self: &Arc<Self>,
        lease: &RefreshLease,
        error: RefreshError,
        file: Option<WrittenFile>,
    ) -> Result<VersionRecord, RefreshError> {
        let reason = error.for_the_owner();
        let published = match self.catalog.fail_refresh(lease.attempt, &reason).await {
            Ok(()) => Ok(None),
            // It has ended before: with a version, or because another took over.
            Err(CatalogError::LeaseLost) => self.published_by(lease).await,
            Err(error) => Err(error),
        };
        match (&published, file) {
            (Ok(None), Some(file)) => file.abandon().await,
            // A record names it; or whether one does is not known, and the sweep will find out.
            (Ok(Some(_)) | Err(_), Some(file)) => file.leave(),
            (_, None) => {}
        }
        match published {
            Ok(Some(record)) => Ok(record),
            Ok(None) => Err(error),
            Err(failed) => {
                tracing::warn!(error = %failed, "the end of a refresh could not be recorded; it is tried again");
                self.record_end_later(lease, reason);
                Err(error)
            }
        }
    }

    /// The version that an attempt ended with.
    async fn published_by(&self, lease: &RefreshLease) -> Result<Option<VersionRecord>, CatalogError> {
        let attempts = self.catalog.last_attempts(lease.dataset.id, ATTEMPTS).await?;
        let outcome =
            attempts.into_iter().find(|attempt| attempt.id == lease.attempt).and_then(|attempt| attempt.outcome);
        match outcome {
            Some(AttemptOutcome::Published(number)) => Ok(Some(self.catalog.version(lease.dataset.id, number).await?)),
            Some(AttemptOutcome::Failed { .. }) | None => Ok(None),
        }
    }

    /// Begins no more refreshes, and waits for those that run: for `limit`, then tells them to stop and to record it.
    pub async fn finish(&self, limit: Duration) {
        self.tasks.finish(limit).await;
    }
}

/// A source that answers a question that was not put.
pub(in crate::service) fn not_asked() -> SourceError {
    SourceError::Unreachable { reason: "it says that it has not changed, which it was not asked".to_owned() }
}
