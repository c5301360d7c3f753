//! An owner's webhooks: registering, looking at and deleting them.

pub(in crate::service) mod deliveries;

use crate::catalog::Webhook;
use crate::model::ids::DatasetId;
use crate::model::limits;
use crate::model::user::User;
use crate::net::parse_http_url;
use crate::service::App;
use crate::service::dataset::manage::ManageError;

/// The longest signing secret, in bytes.
const SECRET_BYTES: usize = limits::WEBHOOK_SECRET_BYTES;

impl App {
    /// Registers the webhook of a dataset, in place of the one that is there.
    ///
    /// # Errors
    /// [`ManageError::Invalid`], [`ManageError::DatasetNotFound`], [`ManageError::PlanWebhooks`].
    pub async fn register_webhook(
        &self,
        owner: &User,
        id: DatasetId,
        url: &str,
        secret: Option<&str>,
    ) -> Result<(), ManageError> {
        let invalid = |field, problem: String| ManageError::Invalid { field, problem };
        if let Some(secret) = secret
            && (secret.is_empty() || secret.len() > SECRET_BYTES)
        {
            return Err(invalid("secret", format!("it must have 1 to {SECRET_BYTES} bytes")));
        }
        let parsed = parse_http_url(url).map_err(|error| invalid("url", error.to_string()))?;
        self.outgoing()
            .for_user(owner.id.get())
            .check(&parsed)
            .await
            .map_err(|error| invalid("url", error.to_string()))?;
        self.catalog().owned_dataset(owner.id, id).await?;
        if !owner.plan.has_webhooks() {
            return Err(ManageError::PlanWebhooks);
        }
        self.write(owner.id, self.catalog().register_webhook(id, url, secret)).await.map(drop)
    }

    /// Deletes the webhook of a dataset; what is due is not sent.
    ///
    /// # Errors
    /// [`ManageError::DatasetNotFound`], [`ManageError::WebhookNotFound`].
    pub async fn delete_webhook(&self, owner: &User, id: DatasetId) -> Result<(), ManageError> {
        self.catalog().owned_dataset(owner.id, id).await?;
        self.write(owner.id, self.catalog().delete_webhook(id)).await
    }

    /// The webhook of a dataset, if there is one.
    ///
    /// # Errors
    /// [`ManageError::DatasetNotFound`].
    pub async fn webhook(&self, owner: &User, id: DatasetId) -> Result<Option<Webhook>, ManageError> {
        self.catalog().owned_dataset(owner.id, id).await?;
        Ok(self.catalog().webhook(id).await?)
    }
}
