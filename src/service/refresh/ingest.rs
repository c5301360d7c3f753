//! Receives and decodes incoming entities within the limits of users.
//!
//! - **Receiving** requires one of the `sources.receiving` slots, but no thread and no refresh permit, because a sender
//!   can be slow. The received bytes are on disk, limited per user and in total ([`SpoolQuota`]).
//! - **Decoding and writing** require one of the `sources.concurrent` permits.
//!
//! Users share slots and permits fairly, so that a user with many refreshes does not delay other users for long.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use strata_catalog::Catalog;
use strata_config::Config;
use strata_format::spool::{FinishedSpool, SpoolWriter};
use strata_ingest::egress::{AddressPolicy, DnsLookupLimits, DnsResolver, EgressClient};
use strata_ingest::{
    BodyReceiver, EnvelopeFields, FetchLimits, MinTransferRate, ObjectSourceStore, ReadProgress, SourceClient,
    SourceInput, TypeInference, parse_envelope_head,
};
use strata_limits::{FairLimit, LimitName};
use strata_store::StorageError;
use strata_store::free_space::DiskReserve;
use strata_store::spool_quota::{SpoolLimits, SpoolQuota, SpoolReservation};
use strata_store::store::Store;
use strata_types::field_path::FieldPath;
use strata_types::ids::{DatasetId, UserId};
use strata_types::source::SourceFormat;

use crate::admission::{Permit, fair_limit};
use crate::maintenance::temp_dir::ProcessTempDir;
use crate::refresh::checks::EntityChecks;
use crate::refresh::error::{RefreshError, Result};
use crate::{Overloaded, Principal};

/// Maximum bytes at the start of a pushed body that are searched for `dataset_id` before the rest is received.
pub(crate) const MAX_HEAD_BYTES: usize = 64 << 10;

pub(crate) const DATASET_ID_MEMBER: &str = "dataset_id";

pub(crate) struct SourceDocument {
    pub input: SourceInput,
    /// The format of the document; `None` detects it.
    pub format: Option<SourceFormat>,
    /// The path of the array of entities in a JSON document.
    pub records_path: Option<FieldPath>,
    pub infer_types: TypeInference,
    /// The default `_source` of the entities in the document.
    pub fetched_from: Option<String>,
    /// The reservation of disk space for the document and for its decoded entities.
    pub disk_reservation: SpoolReservation,
    /// The allowed members next to `entities`, if the document is a pushed JSON object.
    pub envelope_members: Option<&'static [&'static str]>,
}

impl SourceDocument {
    pub(crate) fn new(input: SourceInput) -> SourceDocument {
        SourceDocument {
            input,
            format: None,
            records_path: None,
            infer_types: TypeInference::Off,
            fetched_from: None,
            disk_reservation: SpoolReservation::unbounded(),
            envelope_members: None,
        }
    }
}

pub struct IngestService {
    pub(crate) config: Arc<Config>,
    pub(super) catalog: Catalog,
    pub(super) store: Store,
    pub(super) outgoing: EgressClient,
    pub(super) temp_dir: Arc<ProcessTempDir>,
    receive_limit: FairLimit,
    refresh_limit: FairLimit,
    pub(super) spool_quota: SpoolQuota,
}

pub(crate) struct DecodedEntities {
    pub spooled: FinishedSpool,
    pub warnings: Vec<String>,
    pub envelope_fields: Option<EnvelopeFields>,
    /// The checks that the entities must pass before they become a version.
    pub checks: Option<EntityChecks>,
}

/// The permit to decode and write. Threads have clones of it, so that they count even after their request was dropped.
pub(crate) type RefreshPermit = Arc<Permit>;

impl IngestService {
    pub(crate) fn new(
        config: Arc<Config>,
        catalog: Catalog,
        store: Store,
        outgoing: EgressClient,
        temp_dir: Arc<ProcessTempDir>,
        disk_reserve: DiskReserve,
    ) -> IngestService {
        let sources = &config.sources;
        let limit = |name, requests, units| {
            fair_limit(LimitName { name, requests }, units, &config.fair, sources.queue, sources.timeout_s)
        };
        let receive_limit = limit("receive", "source downloads and uploads (sources.receiving)", sources.receiving);
        let refresh_limit = limit("refresh", "refreshes (sources.concurrent, sources.queue)", sources.concurrent);
        let spool_quota = SpoolQuota::new(SpoolLimits {
            total_bytes: sources.spool_bytes,
            user_bytes: sources.user_spool_bytes,
            share_percent: config.fair.space_percent,
            disk_reserve,
        });
        IngestService { config, catalog, store, outgoing, temp_dir, receive_limit, refresh_limit, spool_quota }
    }

    pub(crate) async fn acquire_permit(&self, user: UserId) -> Result<RefreshPermit, Overloaded> {
        Ok(Arc::new(self.refresh_limit.acquire(Principal::User(user), 1).await?))
    }

    #[cfg(test)]
    pub(crate) fn used_permits(&self) -> u64 {
        self.refresh_limit.used_units()
    }

    pub(crate) async fn acquire_receive_slot(&self, user: UserId) -> Result<Permit> {
        Ok(self.receive_limit.acquire(Principal::User(user), 1).await?)
    }

    pub(crate) fn try_acquire_receive_slot(&self, user: UserId) -> Option<Permit> {
        self.receive_limit.try_acquire(Principal::User(user), 1).ok()
    }

    pub(crate) fn create_spool(&self, user: UserId) -> Result<SpoolWriter, StorageError> {
        SpoolWriter::create(self.temp_dir.ensured_path(), self.spool_quota.reservation_for_user(user))
    }

    pub(crate) fn update_metrics(&self) {
        self.receive_limit.update_metrics();
        self.refresh_limit.update_metrics();
        strata_runtime::metrics::metrics().spooled_bytes.set(self.spool_quota.used_bytes() as f64);
    }
}

pub struct PushedEntities {
    pub(crate) spooled: FinishedSpool,
    pub(crate) permit: RefreshPermit,
}

pub struct PushedBody {
    pub members: EnvelopeFields,
    pub entities: PushedEntities,
}

pub(crate) struct PushedBodyHead {
    pub fields: EnvelopeFields,
    pub is_whole_body: bool,
}

pub(crate) struct DocumentReceiver {
    receiver: BodyReceiver,
    document: SourceDocument,
    slot: Permit,
}

impl DocumentReceiver {
    pub(crate) fn progress(&self) -> ReadProgress {
        self.receiver.progress()
    }

    pub(crate) async fn receive(self) -> Result<SourceDocument> {
        let received = self.receiver.receive().await?;
        drop(self.slot);
        Ok(SourceDocument { input: received.input, disk_reservation: received.disk_reservation, ..self.document })
    }

    /// Receives the start of a pushed body. Cancel safe.
    pub(crate) async fn receive_head(&mut self) -> Result<PushedBodyHead> {
        let is_whole_body = self.receiver.receive_head_and_check_end(MAX_HEAD_BYTES).await?;
        let members = self.document.envelope_members.unwrap_or_default();
        Ok(PushedBodyHead { fields: parse_envelope_head(self.receiver.head(), members), is_whole_body })
    }
}

impl IngestService {
    pub(crate) fn source_client(&self, user: UserId) -> SourceClient {
        let sources = &self.config.sources;
        let objects = ObjectSourceStore {
            store: self.store.object_store().clone(),
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
        let min_rate = MinTransferRate { bytes_per_s: limits.body_min_bytes_per_s, window };
        SourceInput::from_request_body(body, Duration::from_secs(sources.idle_timeout_s))
            .with_total_timeout(Duration::from_secs(sources.timeout_s))
            .with_min_rate(min_rate)
    }

    /// Receives and decodes a JSON object with the member `entities` and `members`, which include `dataset_id`. If the
    /// body starts with the id of another user's dataset, it is rejected early. To cancel the work, drop the future.
    pub async fn receive_entities<S, E>(
        &self,
        owner: UserId,
        body: S,
        members: &'static [&'static str],
    ) -> Result<PushedBody>
    where
        S: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        let document =
            SourceDocument { envelope_members: Some(members), ..SourceDocument::new(self.pushed_input(body)) };
        let mut receiver = self.start_receiving(owner, document, self.acquire_receive_slot(owner).await?);
        let head = receiver.receive_head().await?;
        // An invalid `dataset_id` is reported when the body is decoded.
        let dataset = head.fields.integer(DATASET_ID_MEMBER).ok().flatten().map(DatasetId::new);
        self.authorize_body_start(owner, dataset, head.is_whole_body).await?;
        let document = receiver.receive().await?;
        let permit = self.acquire_permit(owner).await?;
        let DecodedEntities { spooled, envelope_fields, .. } =
            self.decode(document, None, &permit, &Arc::default()).await?;
        let members = envelope_fields.ok_or(RefreshError::WorkerStopped)?;
        Ok(PushedBody { members, entities: PushedEntities { spooled, permit } })
    }

    pub(crate) fn start_receiving(&self, user: UserId, document: SourceDocument, slot: Permit) -> DocumentReceiver {
        let SourceDocument { input, .. } = document;
        let directory = self.temp_dir.ensured_path();
        let receiver = BodyReceiver::new(input, self.config.sources.max_bytes, &self.spool_quota, user, directory);
        let document = SourceDocument { input: SourceInput::from_reader(std::io::empty()), ..document };
        DocumentReceiver { receiver, document, slot }
    }

    pub fn spooled_bytes(&self) -> u64 {
        self.spool_quota.used_bytes()
    }

    pub async fn check_owner(&self, user: UserId, dataset: DatasetId) -> Result<()> {
        Ok(self.catalog.owned_dataset(user, dataset).await.map(drop)?)
    }

    /// Rejects a body whose `dataset` belongs to another user, and any incomplete body of a user without datasets.
    pub(crate) async fn authorize_body_start(
        &self,
        user: UserId,
        dataset: Option<DatasetId>,
        is_whole_body: bool,
    ) -> Result<()> {
        match dataset {
            Some(dataset) => self.check_owner(user, dataset).await?,
            None if is_whole_body => {}
            None if self.catalog.datasets_by_owner(user, None, 1).await?.is_empty() => {
                return Err(RefreshError::DatasetNotFound);
            }
            None => {}
        }
        Ok(())
    }
}

pub(crate) fn outgoing_client(config: &Config) -> EgressClient {
    let net = &config.net;
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let limits = DnsLookupLimits {
        max_concurrent: number(net.look_ups),
        max_concurrent_per_user: number(net.user_look_ups),
        timeout: Duration::from_secs(net.look_up_timeout_s),
    };
    let policy = AddressPolicy::new(net.allow.as_slice().iter().copied());
    EgressClient::with_resolver(policy, DnsResolver::new(net.name_servers.as_slice())).with_lookup_limits(limits)
}
