//! The webhooks of owners: registered, shown and deleted.

pub(crate) mod deliveries;
mod event;
mod send;

pub use event::{SIGNATURE_HEADER, WebhookPayload, sign};
pub use send::WebhookSender;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chrono::TimeDelta;
use strata_catalog::{Catalog, DeliveryOutcome, SentDelivery, Webhook};
use strata_config::Config;
use strata_ingest::net::{Outgoing, parse_http_url};
use strata_types::ids::DatasetId;
use strata_types::limits::WEBHOOK_SECRET_BYTES;
use strata_types::user::User;
use strata_types::version::VersionNumber;

use crate::manage::{ManageError, OwnerWrites};

/// The outcome of a delivery whose process ended before it recorded one.
const LOST: &str = "strata stopped or lost access to the metadata database before it recorded the response";

/// The time after its timeout after which a delivery counts as lost.
const LOST_AFTER: TimeDelta = TimeDelta::seconds(60);

pub struct Webhooks {
    pub(crate) config: Arc<Config>,
    pub(crate) catalog: Catalog,
    pub(crate) outgoing: Outgoing,
    pub(crate) writes: Arc<OwnerWrites>,
}

impl Webhooks {
    /// The newest deliveries of a dataset, for versions older than `before`, at most `limit`.
    pub async fn deliveries(
        &self,
        owner: &User,
        id: DatasetId,
        before: Option<VersionNumber>,
        limit: u32,
    ) -> Result<Vec<SentDelivery>, ManageError> {
        self.catalog.owned_dataset(owner.id, id).await?;
        let mut deliveries = self.catalog.deliveries(id, before, limit).await?;
        let timeout = Duration::from_secs(self.config.webhook.timeout_s);
        let late = LOST_AFTER + TimeDelta::from_std(timeout).unwrap_or(TimeDelta::MAX - LOST_AFTER);
        let now = self.catalog.now();
        for delivery in deliveries.iter_mut().filter(|delivery| delivery.outcome.is_none()) {
            if now.signed_duration_since(delivery.fired_at) > late {
                delivery.outcome = Some(DeliveryOutcome { duration: None, answer: Err(LOST.to_owned()) });
            }
        }
        Ok(deliveries)
    }

    /// The version, or the newest one, and its payload with the current name of the dataset; `None` before the first
    /// version.
    /// [`ManageError::DatasetNotFound`] also if there is no such version.
    pub async fn payload(
        &self,
        owner: &User,
        id: DatasetId,
        version: Option<VersionNumber>,
    ) -> Result<Option<(VersionNumber, Bytes)>, ManageError> {
        let dataset = self.catalog.owned_dataset(owner.id, id).await?;
        let Some(number) = version.or(dataset.latest_version) else { return Ok(None) };
        let version = self.catalog.version(id, number).await?.version;
        let payload = WebhookPayload {
            dataset_id: id.get(),
            dataset_name: dataset.name.as_str().to_owned(),
            version: number.get(),
            entity_count: version.file.entity_count,
            refreshed_at: version.created_at,
        };
        Ok(serde_json::to_vec(&payload).ok().map(|payload| (number, payload.into())))
    }

    /// Registers the webhook of a dataset, and replaces an existing one.
    pub async fn register(
        &self,
        owner: &User,
        id: DatasetId,
        url: &str,
        secret: Option<&str>,
    ) -> Result<(), ManageError> {
        let invalid = |field, problem: String| ManageError::Invalid { field, problem };
        if let Some(secret) = secret
            && (secret.is_empty() || secret.len() > WEBHOOK_SECRET_BYTES)
        {
            return Err(invalid("secret", format!("it must be 1 to {WEBHOOK_SECRET_BYTES} bytes long")));
        }
        let parsed = parse_http_url(url).map_err(|error| invalid("url", error.to_string()))?;
        let may_reach = self.outgoing.for_user(owner.id.get()).check(&parsed).await;
        may_reach.map_err(|error| invalid("url", error.to_string()))?;
        self.catalog.owned_dataset(owner.id, id).await?;
        if !owner.plan.has_webhooks() {
            return Err(ManageError::PlanWebhooks);
        }
        self.writes.run(owner.id, self.catalog.register_webhook(id, url, secret)).await.map(drop)
    }

    /// Deletes the webhook of a dataset, including pending deliveries.
    pub async fn delete(&self, owner: &User, id: DatasetId) -> Result<(), ManageError> {
        self.catalog.owned_dataset(owner.id, id).await?;
        self.writes.run(owner.id, self.catalog.delete_webhook(id)).await
    }

    pub async fn find(&self, owner: &User, id: DatasetId) -> Result<Option<Webhook>, ManageError> {
        self.catalog.owned_dataset(owner.id, id).await?;
        Ok(self.catalog.webhook(id).await?)
    }
}
