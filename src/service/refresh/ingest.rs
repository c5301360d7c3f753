//! The stages of incoming entities: they are received in full, then decoded, then written.
//!
//! - **Receiving** requires one of the `sources.receiving` slots, which users share fairly, but no thread and no
//!   permit, because a sender can be slow. The received bytes are on disk, limited for each user and in total
//!   (`SpoolBudget`).
//! - **Decoding and writing** require one of the `sources.concurrent` permits. Users take turns, so that a user with
//!   many refreshes does not delay others for long.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use strata_catalog::Catalog;
use strata_config::Config;
use strata_format::spool::{Spool, Spooled};
use strata_ingest::net::{AddressPolicy, LookUpLimits, Outgoing, Resolver};
use strata_ingest::{
    EnvelopeFields, FetchLimits, InferTypes, LeastRate, ObjectSources, Progress, Receiver, SourceClient, SourceInput,
    envelope_of_head,
};
use strata_limits::{FairLimit, LimitName};
use strata_store::StorageError;
use strata_store::budget::{SpoolBudget, SpoolCharge, SpoolLimits};
use strata_store::free_space::DiskReserve;
use strata_store::store::Store;
use strata_types::ids::{DatasetId, UserId};
use strata_types::path::Path as FieldPath;
use strata_types::source::SourceFormat;

use crate::admission::{Permit, fair_limit};
use crate::maintenance::scratch::Scratch;
use crate::refresh::error::RefreshError;
use crate::{Overloaded, Principal};

/// The beginning of a pushed body in which its dataset is found before the rest is received.
pub(crate) const HEAD_BYTES: usize = 64 << 10;

/// The member of a pushed body that names its dataset.
pub(crate) const DATASET_ID: &str = "dataset_id";

pub(crate) struct Document {
    pub input: SourceInput,
    /// The format; `None` detects it.
    pub format: Option<SourceFormat>,
    /// The path of the array of entities in a JSON document.
    pub records_path: Option<FieldPath>,
    /// Whether cells of csv and tsv become numbers, booleans and nulls.
    pub infer_types: InferTypes,
    /// The `_source` of entities without one.
    pub fetched_from: Option<String>,
    /// The disk space of the bytes and of their decoded entities.
    pub charge: SpoolCharge,
    /// The members next to the entities, if the document is a pushed JSON object.
    pub envelope: Option<&'static [&'static str]>,
}

impl Document {
    pub(crate) fn new(input: SourceInput) -> Document {
        Document {
            input,
            format: None,
            records_path: None,
            infer_types: InferTypes::No,
            fetched_from: None,
            charge: SpoolCharge::unbounded(),
            envelope: None,
        }
    }
}

/// Receives and decodes entities within the limits of users.
pub struct Ingest {
    pub(crate) config: Arc<Config>,
    pub(super) catalog: Catalog,
    pub(super) store: Store,
    pub(super) outgoing: Outgoing,
    pub(super) scratch: Arc<Scratch>,
    receiving: FairLimit,
    permits: FairLimit,
    pub(super) budget: SpoolBudget,
}

pub(crate) struct Decoded {
    pub spooled: Spooled,
    pub warnings: Vec<String>,
    /// The members of the envelope, if the document has one.
    pub fields: Option<EnvelopeFields>,
}

/// The permit to decode and write. The threads that do it have clones, so that a thread whose client has left counts.
pub(crate) type RefreshPermit = Arc<Permit>;

impl Ingest {
    pub(crate) fn new(
        config: Arc<Config>,
        catalog: Catalog,
        store: Store,
        outgoing: Outgoing,
        scratch: Arc<Scratch>,
        disk: DiskReserve,
    ) -> Ingest {
        let sources = &config.sources;
        let limit = |name, what, units| {
            fair_limit(LimitName { name, what }, units, &config.fair, sources.queue, sources.timeout_s)
        };
        let receiving = limit("receive", "source downloads and uploads (sources.receiving)", sources.receiving);
        let permits = limit("refresh", "refreshes (sources.concurrent, sources.queue)", sources.concurrent);
        let budget = SpoolBudget::new(SpoolLimits {
            bytes: sources.spool_bytes,
            user_bytes: sources.user_spool_bytes,
            share_percent: config.fair.space_percent,
            disk,
        });
        Ingest { config, catalog, store, outgoing, scratch, receiving, permits, budget }
    }

    pub(crate) async fn permit(&self, user: UserId) -> Result<RefreshPermit, Overloaded> {
        Ok(Arc::new(self.permits.acquire(Principal::User(user), 1).await?))
    }

    #[cfg(test)]
    pub(crate) fn permits_held(&self) -> u64 {
        self.permits.used_units()
    }

    /// A slot for receiving.
    pub(crate) async fn slot(&self, user: UserId) -> Result<Permit, RefreshError> {
        Ok(self.receiving.acquire(Principal::User(user), 1).await?)
    }

    pub(crate) fn try_slot(&self, user: UserId) -> Option<Permit> {
        self.receiving.try_acquire(Principal::User(user), 1).ok()
    }

    pub(crate) fn spool(&self, user: UserId) -> Result<Spool, StorageError> {
        Spool::create(self.scratch.restored_path(), self.budget.charge(user.get()))
    }

    pub(crate) fn update_metrics(&self) {
        self.receiving.update_metrics();
        self.permits.update_metrics();
        strata_runtime::metrics::metrics().spooled_bytes.set(self.budget.used_bytes() as f64);
    }
}

pub struct PushedEntities {
    pub(crate) spooled: Spooled,
    pub(crate) permit: RefreshPermit,
}

pub struct Pushed {
    pub members: EnvelopeFields,
    pub entities: PushedEntities,
}

pub(crate) struct Receiving {
    receiver: Receiver,
    document: Document,
    slot: Permit,
}

impl Receiving {
    pub(crate) fn progress(&self) -> Progress {
        self.receiver.progress()
    }

    pub(crate) async fn receive(self) -> Result<Document, RefreshError> {
        let received = self.receiver.receive().await?;
        drop(self.slot);
        Ok(Document { input: received.input, charge: received.charge, ..self.document })
    }

    /// The members in the beginning of a pushed body, and whether the body has ended. Cancel safe.
    pub(crate) async fn head(&mut self) -> Result<(EnvelopeFields, bool), RefreshError> {
        let ended = self.receiver.receive_head(HEAD_BYTES).await?;
        let members = self.document.envelope.unwrap_or_default();
        Ok((envelope_of_head(self.receiver.head(), members), ended))
    }
}

impl Ingest {
    pub(crate) fn source_client(&self, user: UserId) -> SourceClient {
        let sources = &self.config.sources;
        let objects = ObjectSources {
            store: self.store.objects().clone(),
            store_url: self.config.store_url(),
            prefix: sources.prefix.as_ref().map(|prefix| prefix.as_str().to_owned()),
        };
        SourceClient::new(self.outgoing.for_user(user.get()), FetchLimits::from(sources), Some(objects))
    }

    pub(crate) fn pushed_input<S, E>(&self, body: S) -> SourceInput
    where
        S: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        let Config { sources, limits, .. } = &*self.config;
        let window = Duration::from_secs(limits.body_rate_window_s);
        let least_rate = LeastRate { bytes_per_s: limits.body_min_bytes_per_s, window };
        SourceInput::pushed(body, Duration::from_secs(sources.idle_timeout_s))
            .with_total_timeout(Duration::from_secs(sources.timeout_s))
            .with_least_rate(least_rate)
    }

    /// Receives and decodes a JSON object of at most `sources.max_bytes`, with the member `entities` and these members,
    /// including `dataset_id`. Refuses a body that begins with a dataset of another owner at once. Dropping the future
    /// ends the work.
    pub async fn receive<S, E>(
        &self,
        owner: UserId,
        body: S,
        members: &'static [&'static str],
    ) -> Result<Pushed, RefreshError>
    where
        S: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        let document = Document { envelope: Some(members), ..Document::new(self.pushed_input(body)) };
        let mut receiving = self.begin_receiving(owner, document, self.slot(owner).await?);
        let (head, ended) = receiving.head().await?;
        // Decoding reports an invalid number.
        let named = head.integer(DATASET_ID).ok().flatten().map(DatasetId::new);
        self.check_head(owner, named, ended).await?;
        let document = receiving.receive().await?;
        let permit = self.permit(owner).await?;
        let Decoded { spooled, fields, .. } = self.decode(document, &permit, &Arc::default()).await?;
        let members = fields.ok_or(RefreshError::Worker)?;
        Ok(Pushed { members, entities: PushedEntities { spooled, permit } })
    }

    pub(crate) fn begin_receiving(&self, user: UserId, document: Document, slot: Permit) -> Receiving {
        let Document { input, .. } = document;
        let directory = self.scratch.restored_path();
        let receiver = Receiver::new(input, self.config.sources.max_bytes, &self.budget, user.get(), directory);
        let document = Document { input: SourceInput::stream(std::io::empty()), ..document };
        Receiving { receiver, document, slot }
    }

    /// The disk space that sources and pushed bodies take at the moment.
    pub fn spooled_bytes(&self) -> u64 {
        self.budget.used_bytes()
    }

    pub async fn check_owned(&self, user: UserId, dataset: DatasetId) -> Result<(), RefreshError> {
        Ok(self.catalog.owned_dataset(user, dataset).await.map(drop)?)
    }

    /// Refuses a body that names a dataset of another user, or any body of a user without datasets.
    pub(crate) async fn check_head(
        &self,
        user: UserId,
        named: Option<DatasetId>,
        ended: bool,
    ) -> Result<(), RefreshError> {
        match named {
            Some(dataset) => self.check_owned(user, dataset).await?,
            None if ended => {}
            None if self.catalog.datasets_of(user, None, 1).await?.is_empty() => return Err(RefreshError::NotFound),
            None => {}
        }
        Ok(())
    }
}

/// Creates the client for outgoing connections from the options `net.*`.
pub(crate) fn outgoing(config: &Config) -> Outgoing {
    let net = &config.net;
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let limits = LookUpLimits {
        at_once: number(net.look_ups),
        at_once_for_one: number(net.user_look_ups),
        timeout: Duration::from_secs(net.look_up_timeout_s),
    };
    let policy = AddressPolicy::new(net.allow.as_slice().iter().copied());
    Outgoing::with_look_up(policy, Resolver::new(net.name_servers.as_slice())).with_limits(limits)
}
