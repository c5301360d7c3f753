//! What entities pass on their way in: received whole, then decoded, then written.
//!
//! - **Received** by nobody's leave but a place among `sources.receiving`, shared between users: a sender that dawdles
//!   holds no thread and no permit. What was received is on disk, bounded for each user and in all (`SpoolBudget`).
//! - **Decoded and written** holding a permit, of which there are `sources.concurrent`. Users get theirs one after the
//!   other, so that one with many refreshes keeps nobody waiting for long.
//! - Decoding and writing have threads of their own, not those that everybody's blocking calls share.

use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::model::ids::{DatasetId, UserId};
use crate::service::admission::semaphore::{Bounds, FairSemaphore, Gate, Holder, Permit, Refused};
use crate::service::refresh::version_file::Document;
use crate::service::{App, RefreshError};
use crate::source::{EnvelopeFields, LeastRate, Receiver, SourceInput, envelope_of_head};
use crate::storage::budget::{SpoolBudget, SpoolLimits};

/// Bytes of a pushed body in which its dataset is looked for before the rest is received.
pub(in crate::service) const HEAD_BYTES: usize = 64 << 10;

/// The member of a pushed body that names its dataset.
pub(in crate::service) const DATASET_ID: &str = "dataset_id";

/// The gates on the way in, and the disk.
pub(in crate::service) struct Ingest {
    receiving: FairSemaphore,
    permits: FairSemaphore,
    budget: SpoolBudget,
}

/// The right to decode and write. Whoever waits for that and the threads that do it have clones: it is given back when
/// the last of them is gone, so that a thread whose client has left still counts.
#[derive(Clone)]
pub(in crate::service) struct RefreshPermit {
    _permit: Arc<Permit>,
}

impl Ingest {
    pub(in crate::service) fn new(config: &Config, directory: &std::path::Path) -> Ingest {
        let sources = &config.sources;
        // What waits has its own bounds: the time of a refresh, or of its client.
        let bounds = |units| Bounds::new(units, &config.fair, sources.queue, sources.timeout_s);
        let receiving = Gate { name: "receive", what: "sources and bodies being received (sources.receiving)" };
        let permits = Gate { name: "refresh", what: "refreshes (sources.concurrent, sources.queue)" };
        Ingest {
            receiving: FairSemaphore::new(receiving, &bounds(sources.receiving)),
            permits: FairSemaphore::new(permits, &bounds(sources.concurrent)),
            budget: SpoolBudget::new(SpoolLimits {
                bytes: sources.spool_bytes,
                user_bytes: sources.user_spool_bytes,
                share_percent: config.fair.space_percent,
                reserve_bytes: sources.disk_reserve_bytes,
                directory: directory.to_owned(),
            }),
        }
    }

    /// Waits for a permit.
    ///
    /// # Errors
    /// [`Refused`].
    pub(in crate::service) async fn permit(&self, user: UserId) -> Result<RefreshPermit, Refused> {
        Ok(RefreshPermit { _permit: Arc::new(self.permits.acquire(Holder::User(user), 1).await?) })
    }

    /// Permits that are held.
    #[cfg(test)]
    pub(in crate::service) fn permits_held(&self) -> u64 {
        self.permits.held()
    }

    /// Waits for a place among what is received.
    ///
    /// # Errors
    /// [`RefreshError::Refused`].
    pub(in crate::service) async fn place(&self, user: UserId) -> Result<Permit, RefreshError> {
        Ok(self.receiving.acquire(Holder::User(user), 1).await?)
    }

    /// A place among what is received, if there is one now.
    pub(in crate::service) fn try_place(&self, user: UserId) -> Option<Permit> {
        self.receiving.try_acquire(Holder::User(user), 1)
    }

    /// The disk that spools may take.
    pub(in crate::service) fn budget(&self) -> &SpoolBudget {
        &self.budget
    }

    /// Brings the metrics that show a state up to date.
    pub(in crate::service) fn update_metrics(&self) {
        self.receiving.update_metrics();
        self.permits.update_metrics();
        crate::metrics::metrics().spooled_bytes.set(self.budget.used_bytes() as f64);
    }
}

/// A document that is being received, and its place.
pub(in crate::service) struct Receiving {
    receiver: Receiver,
    /// All but the bytes.
    document: Document,
    /// `None` where nothing has to come.
    place: Option<Permit>,
}

impl Receiving {
    /// Receives the rest of the document.
    ///
    /// # Errors
    /// [`RefreshError::Source`], [`RefreshError::Full`], [`RefreshError::Storage`].
    pub(in crate::service) async fn receive(self) -> Result<Document, RefreshError> {
        let received = self.receiver.receive().await?;
        drop(self.place);
        Ok(Document { input: received.input, charge: received.charge, ..self.document })
    }

    /// The members of a pushed body that stand in its beginning, and whether all of it has come. Cancel safe.
    ///
    /// # Errors
    /// As [`Receiving::receive`].
    pub(in crate::service) async fn head(&mut self) -> Result<(EnvelopeFields, bool), RefreshError> {
        let ended = self.receiver.receive_head(HEAD_BYTES).await?;
        let members = self.document.envelope.unwrap_or_default();
        Ok((envelope_of_head(self.receiver.head(), members), ended))
    }
}

impl App {
    /// Begins to receive a document for a user, in a place that the caller has or that is waited for.
    ///
    /// # Errors
    /// [`RefreshError::Refused`].
    pub(in crate::service) async fn begin_receiving(
        &self,
        user: UserId,
        document: Document,
        place: Option<Permit>,
    ) -> Result<Receiving, RefreshError> {
        let place = match place {
            Some(place) => place,
            None => self.ingest().place(user).await?,
        };
        let Document { input, .. } = document;
        let (limit, directory) = (self.config().sources.max_bytes, self.temporary_directory());
        let receiver = Receiver::new(input, limit, self.ingest().budget(), user.get(), directory);
        let document = Document { input: SourceInput::stream(std::io::empty()), ..document };
        Ok(Receiving { receiver, document, place: Some(place) })
    }

    /// Bytes of disk that sources and pushed bodies take at the moment.
    pub fn spooled_bytes(&self) -> u64 {
        self.ingest().budget().used_bytes()
    }

    /// The least rate at which bodies of entities come.
    pub(in crate::service) fn least_rate(&self) -> LeastRate {
        let limits = &self.config().limits;
        let window = Duration::from_secs(limits.body_rate_window_s);
        LeastRate { bytes_per_s: limits.body_min_bytes_per_s, window }
    }

    /// Whether a dataset is the user's.
    ///
    /// # Errors
    /// [`RefreshError::NotFound`].
    pub async fn check_owned(&self, user: UserId, dataset: DatasetId) -> Result<(), RefreshError> {
        Ok(self.catalog().owned_dataset(user, dataset).await.map(drop)?)
    }

    /// Whether the beginning of a pushed body names a dataset that is not the user's, or cannot name one of the user's,
    /// who has none: then no more of it need come.
    ///
    /// # Errors
    /// [`RefreshError::NotFound`].
    pub(in crate::service) async fn check_head(
        &self,
        user: UserId,
        named: Option<DatasetId>,
        ended: bool,
    ) -> Result<(), RefreshError> {
        match named {
            Some(dataset) => self.check_owned(user, dataset).await?,
            None if ended => {}
            None if self.catalog().datasets_of(user, None, 1).await?.is_empty() => return Err(RefreshError::NotFound),
            None => {}
        }
        Ok(())
    }
}
