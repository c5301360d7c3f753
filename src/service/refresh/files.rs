//! Version files that no refresh holds: those of alternates, and of datasets that are not there yet.
//!
//! 1. Entities are received, and decoded into a spool, of which nobody knows.
//! 2. The file's path is reserved, so that no sweep takes the file for one that a crash left behind; then it is
//!    written. The reservation is renewed for as long as that takes.
//! 3. The catalog records the file, which ends the reservation; or the file is abandoned ([`App::abandon_file`]).
//!
//! Whatever happens in between, a killed process too, the file ends up recorded, removed, or neither recorded nor
//! reserved, so that the next sweep finds it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use tokio::time::Instant;

use crate::catalog::CatalogError;
use crate::model::ids::{DatasetId, UserId};
use crate::model::index::IndexSettings;
use crate::service::refresh::ingest::{DATASET_ID, RefreshPermit};
use crate::service::refresh::version_file::{Document, ImportProgress, UnpublishedFile, new_path};
use crate::service::{App, RefreshError};
use crate::source::EnvelopeFields;
use crate::storage::StorageError;
use crate::storage::budget::SpoolCharge;
use crate::storage::spool::Spooled;

/// How long a path stays reserved without a sign of life from its writer.
const RESERVED: Duration = Duration::from_secs(300);

/// How often a writer gives one.
const RENEWED: Duration = Duration::from_secs(75);

/// Entities that were received whole, and the right to write them.
pub struct PushedEntities {
    pub(in crate::service) spooled: Spooled,
    pub(in crate::service) permit: RefreshPermit,
}

/// A pushed JSON body that was received and decoded whole.
pub struct Pushed {
    /// Its members beside the entities.
    pub members: EnvelopeFields,
    /// Its entities.
    pub entities: PushedEntities,
}

impl App {
    /// Receives a JSON object with the member `entities` and these others, `dataset_id` among them, of any size within
    /// `sources.max_bytes`. Dropping it ends the work. What begins with a dataset that is not the owner's is refused at
    /// once.
    ///
    /// # Errors
    /// [`RefreshError::NotFound`], [`RefreshError::Source`] for the body, [`RefreshError::Full`] and
    /// [`RefreshError::Refused`] when there is no room for it.
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
        let input = self.pushed_input(body);
        let envelope = Some(members);
        let charge = SpoolCharge::unbounded();
        let document = Document { input, format: None, records_path: None, fetched_from: None, charge, envelope };
        let mut receiving = self.begin_receiving(owner, document, None).await?;
        let (head, ended) = receiving.head().await?;
        // One that is no number is told when the body is decoded.
        let named = head.integer(DATASET_ID).ok().flatten().map(DatasetId::new);
        self.check_head(owner, named, ended).await?;
        let document = receiving.receive().await?;
        let permit = self.ingest().permit(owner).await?;
        let mut decoding = self.decode(document, &permit, &Arc::default());
        let members = decoding.fields().await;
        let spooled = decoding.finish().await?;
        let members = members.ok_or(RefreshError::Worker)?;
        Ok(Pushed { members, entities: PushedEntities { spooled, permit } })
    }

    /// Writes entities to a new file of the store, holding the permit, reserved until it is recorded or abandoned.
    ///
    /// # Errors
    /// [`RefreshError`]; the file is abandoned then.
    pub(in crate::service) async fn write_reserved(
        &self,
        entities: Spooled,
        index: IndexSettings,
        permit: &RefreshPermit,
        progress: &Arc<ImportProgress>,
    ) -> Result<UnpublishedFile, RefreshError> {
        let path = new_path();
        self.catalog().reserve_file(path.as_ref(), RESERVED).await?;
        let written = tokio::select! {
            written = self.write_there(entities, path.clone(), index, permit, progress) => written,
            error = self.keep_reserved(path.as_ref()) => Err(error),
        };
        if written.is_err() {
            self.abandon_file(path.as_ref()).await;
        }
        written
    }

    /// Writes a file, and makes sure that the store that has it now is the catalog's.
    async fn write_there(
        &self,
        entities: Spooled,
        path: ObjectPath,
        index: IndexSettings,
        permit: &RefreshPermit,
        progress: &Arc<ImportProgress>,
    ) -> Result<UnpublishedFile, RefreshError> {
        let file = self.write_file(entities, path, index, permit, progress).await?;
        match self.verify_store().await {
            Ok(()) => Ok(file),
            Err(error) => Err(error.into()),
        }
    }

    /// Renews a reservation for ever; the error is that it can have been lost.
    async fn keep_reserved(&self, path: &str) -> RefreshError {
        let mut reserved = Instant::now();
        loop {
            tokio::time::sleep(RENEWED).await;
            // Reserving again what expired would hide that a sweep may have removed the file meanwhile.
            if reserved.elapsed() >= RESERVED {
                return CatalogError::ReservationLost.into();
            }
            let asked = Instant::now();
            match self.catalog().reserve_file(path, RESERVED).await {
                Ok(()) => reserved = asked,
                Err(error) => tracing::warn!(%error, path, "a reservation could not be renewed"),
            }
        }
    }

    /// Gives up a file whose recording failed or was never tried: removes it, unless it is recorded after all, as a
    /// commit may succeed whose answer is lost. What cannot be removed now is left for the sweep.
    pub(in crate::service) async fn abandon_file(&self, path: &str) {
        if let Err(error) = self.try_abandon(path).await {
            tracing::warn!(cause = ?error, path, "an unused version file stays for the sweep");
        }
    }

    async fn try_abandon(&self, path: &str) -> Result<(), RefreshError> {
        // Waits for a transaction that records the file, if one is still under way: it holds the reservation's row.
        self.catalog().release_file(path).await?;
        if !self.catalog().files_named(&[path]).await?.is_empty() {
            return Ok(());
        }
        match self.store().objects().delete(&ObjectPath::from(path)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(StorageError::from(error).into()),
        }
    }
}
