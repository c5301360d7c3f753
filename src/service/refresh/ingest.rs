//! The stages of incoming entities: received whole, then decoded, then written.
//!
//! - **Received** by nobody's leave but a place among `sources.receiving`, shared between users: a sender that dawdles
//!   holds no thread and no permit. What was received is on disk, bounded for each user and in all (`SpoolBudget`).
//! - **Decoded and written** holding a permit, of which there are `sources.concurrent`. Users get theirs one after the
//!   other, so that one with many refreshes keeps nobody waiting for long.
//! - Decoding and writing have threads of their own, not those that everybody's blocking calls share.

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

/// Bytes of a pushed body in which its dataset is looked for before the rest is received.
pub(crate) const HEAD_BYTES: usize = 64 << 10;

/// The member of a pushed body that names its dataset.
pub(crate) const DATASET_ID: &str = "dataset_id";

pub(crate) struct Document {
    pub input: SourceInput,
    /// The format; `None` detects it.
    pub format: Option<SourceFormat>,
    /// Where the array of entities lies in a JSON document.
    pub records_path: Option<FieldPath>,
    /// Whether cells of csv and tsv become numbers, booleans and nulls.
    pub infer_types: InferTypes,
    /// What entities without `_source` get as one.
    pub fetched_from: Option<String>,
    /// The disk that the bytes take; what is decoded of them is added.
    pub charge: SpoolCharge,
    /// The members beside the entities, if the document is a pushed JSON body that holds more than them.
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

/// The way in: sources, gates and the disk.
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

/// The right to decode and write. Whoever waits for that and the threads that do it have clones: it is given back when
/// the last of them is gone, so that a thread whose client has left still counts.
pub(crate) type RefreshPermit = Arc<Permit>;

impl Ingest {
    pub(crate) fn new(
        config: Arc<Config>,
        catalog: Catalog,
        store: Store,
        outgoing: Outgoing,
        (scratch, disk): (Arc<Scratch>, DiskReserve),
    ) -> Ingest {
        let sources = &config.sources;
        // What waits has its own bounds: the time of a refresh, or of its client.
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

    pub(crate) async fn place(&self, user: UserId) -> Result<Permit, RefreshError> {
        Ok(self.receiving.acquire(Principal::User(user), 1).await?)
    }

    pub(crate) fn try_place(&self, user: UserId) -> Option<Permit> {
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
    place: Option<Permit>,
}

impl Receiving {
    pub(crate) fn progress(&self) -> Progress {
        self.receiver.progress()
    }

    pub(crate) async fn receive(self) -> Result<Document, RefreshError> {
        let received = self.receiver.receive().await?;
        drop(self.place);
        Ok(Document { input: received.input, charge: received.charge, ..self.document })
    }

    /// The members of a pushed body that stand in its beginning, and whether all of it has come. Cancel safe.
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

    /// Receives a JSON object with the member `entities` and these others, `dataset_id` among them, of any size within
    /// `sources.max_bytes`. Dropping it ends the work. What begins with a dataset that is not the owner's is refused at
    /// once.
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
        let mut receiving = self.begin_receiving(owner, document, None).await?;
        let (head, ended) = receiving.head().await?;
        // One that is no number is told when the body is decoded.
        let named = head.integer(DATASET_ID).ok().flatten().map(DatasetId::new);
        self.check_head(owner, named, ended).await?;
        let document = receiving.receive().await?;
        let permit = self.permit(owner).await?;
        let mut decoding = self.decode(document, &permit, &Arc::default());
        let members = decoding.fields().await;
        let spooled = decoding.finish().await?.spooled;
        let members = members.ok_or(RefreshError::Worker)?;
        Ok(Pushed { members, entities: PushedEntities { spooled, permit } })
    }

    /// Begins to receive a document for a user, in a place that the caller has or that is waited for.
    pub(crate) async fn begin_receiving(
        &self,
        user: UserId,
        document: Document,
        place: Option<Permit>,
    ) -> Result<Receiving, RefreshError> {
        let place = match place {
            Some(place) => place,
            None => self.place(user).await?,
        };
        let Document { input, .. } = document;
        let (limit, directory) = (self.config.sources.max_bytes, self.scratch.restored_path());
        let receiver = Receiver::new(input, limit, &self.budget, user.get(), directory);
        let document = Document { input: SourceInput::stream(std::io::empty()), ..document };
        Ok(Receiving { receiver, document, place: Some(place) })
    }

    /// Bytes of disk that sources and pushed bodies take at the moment.
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

/// The way out, by the operator's `net.*`.
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
