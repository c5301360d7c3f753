//! Registers, shows and deletes the webhooks of owners, and lists their deliveries.

pub(crate) mod dispatcher;
mod payload;
mod sender;

pub use payload::{SIGNATURE_HEADER, WebhookPayload, sign_body};
pub use sender::WebhookSender;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chrono::TimeDelta;
use strata_catalog::{Catalog, DeliveryOutcome, SentDelivery, Webhook};
use strata_config::Config;
use strata_ingest::egress::{EgressClient, parse_http_url};
use strata_types::ids::DatasetId;
use strata_types::limits::MAX_WEBHOOK_SECRET_BYTES;
use strata_types::user::User;
use strata_types::version::VersionNumber;

use crate::management::{ManageError, OwnerWriter, Result};

/// The error of a webhook delivery without a recorded outcome.
const LOST_DELIVERY_MESSAGE: &str =
    "strata stopped or lost access to the metadata database before it recorded the response";

/// Time after the timeout of a webhook delivery after which it counts as lost if it has no recorded outcome.
const LOST_DELIVERY_GRACE: TimeDelta = TimeDelta::seconds(60);

pub struct WebhookService {
    pub(crate) config: Arc<Config>,
    pub(crate) catalog: Catalog,
    pub(crate) outgoing: EgressClient,
    pub(crate) owner_writer: Arc<OwnerWriter>,
}

impl WebhookService {
    /// Lists at most `limit` deliveries of a dataset for versions before `before`, newest first.
    pub async fn list_deliveries(
        &self,
        owner: &User,
        id: DatasetId,
        before: Option<VersionNumber>,
        limit: u32,
    ) -> Result<Vec<SentDelivery>> {
        self.catalog.owned_dataset(owner.id, id).await?;
        let mut deliveries = self.catalog.sent_webhook_deliveries(id, before, limit).await?;
        let timeout = Duration::from_secs(self.config.webhook.timeout_s);
        let late = LOST_DELIVERY_GRACE + TimeDelta::from_std(timeout).unwrap_or(TimeDelta::MAX - LOST_DELIVERY_GRACE);
        let now = self.catalog.now();
        for delivery in deliveries.iter_mut().filter(|delivery| delivery.outcome.is_none()) {
            if now.signed_duration_since(delivery.fired_at) > late {
                delivery.outcome =
                    Some(DeliveryOutcome { duration: None, response: Err(LOST_DELIVERY_MESSAGE.to_owned()) });
            }
        }
        Ok(deliveries)
    }

    /// Returns the webhook payload for a version (by default, the newest) and its number; `None` without versions.
    pub async fn build_payload(
        &self,
        owner: &User,
        id: DatasetId,
        version: Option<VersionNumber>,
    ) -> Result<Option<(VersionNumber, Bytes)>> {
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

    /// Registers or replaces the webhook of a dataset.
    pub async fn register(&self, owner: &User, id: DatasetId, url: &str, secret: Option<&str>) -> Result<()> {
        let invalid = |field, problem: String| ManageError::InvalidField { field, problem };
        if let Some(secret) = secret
            && (secret.is_empty() || secret.len() > MAX_WEBHOOK_SECRET_BYTES)
        {
            return Err(invalid("secret", format!("it must be 1 to {MAX_WEBHOOK_SECRET_BYTES} bytes long")));
        }
        let parsed = parse_http_url(url).map_err(|error| invalid("url", error.to_string()))?;
        let check = self.outgoing.for_user(owner.id.get()).check_url(&parsed).await;
        check.map_err(|error| invalid("url", error.to_string()))?;
        self.catalog.owned_dataset(owner.id, id).await?;
        if !owner.plan.has_webhooks() {
            return Err(ManageError::PlanWebhooks);
        }
        self.owner_writer.run_write(owner.id, self.catalog.register_webhook(id, url, secret)).await.map(drop)
    }

    pub async fn delete(&self, owner: &User, id: DatasetId) -> Result<()> {
        self.catalog.owned_dataset(owner.id, id).await?;
        self.owner_writer.run_write(owner.id, self.catalog.delete_webhook(id)).await
    }

    pub async fn find_webhook(&self, owner: &User, id: DatasetId) -> Result<Option<Webhook>> {
        self.catalog.owned_dataset(owner.id, id).await?;
        Ok(self.catalog.webhook(id).await?)
    }
}
