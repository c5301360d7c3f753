//! Tables `webhooks` and `webhook_deliveries`: the webhook of each dataset, and its deliveries.
//!
//! A version's own transaction makes its delivery due. The claim is a commit before the request. After a crash an
//! unclaimed delivery is still due, and a claimed one is never sent again.
//!
//! - A delivery goes to the URL that is registered when it is claimed.
//! - Deleting a webhook drops its due deliveries, and keeps those that were sent.
//! - Each registration of a dataset has a new number. The outcome of a delivery is recorded only with the registration
//!   under which it was claimed.

use std::time::Duration;

use chrono::{DateTime, Utc};
use strata_types::ids::DatasetId;
use strata_types::limits;
use strata_types::secret::Secret;
use strata_types::user::Plan;
use strata_types::version::VersionNumber;

use super::attempts::kept_error;
use super::convert::{from_cursor, from_time, optional_text, text, to_time};
use super::engine::{Record, Row, Transaction, Value, select};
use super::{Catalog, CatalogError, Result};

/// How many deliveries of a dataset are kept, the newest. All due deliveries are kept, too.
const KEPT: i64 = limits::HISTORY as i64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    pub url: String,
    /// The secret that signs the payload; `None` leaves it unsigned.
    pub secret: Option<Secret>,
    pub is_active: bool,
    pub last_fired_at: Option<DateTime<Utc>>,
    /// The receiver's HTTP status on the last firing; `None` if none came.
    pub last_status: Option<u16>,
    pub created_at: DateTime<Utc>,
}

/// A claimed delivery. Only its claimer sends it, once.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub dataset: DatasetId,
    pub dataset_name: String,
    pub owner_plan: Plan,
    pub version: VersionNumber,
    pub entity_count: u64,
    pub refreshed_at: DateTime<Utc>,
    pub url: String,
    pub secret: Option<Secret>,
    registration: i64,
    claimed_at: DateTime<Utc>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryOutcome {
    pub duration: Option<Duration>,
    /// The receiver's HTTP status, or why none came, for the owner.
    pub answer: Result<u16, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentDelivery {
    /// The version that was made. A dataset has one delivery of a version at most.
    pub version: VersionNumber,
    pub url: String,
    pub fired_at: DateTime<Utc>,
    /// The outcome; `None` during the delivery, and forever if its process ended.
    pub outcome: Option<DeliveryOutcome>,
}

impl Record for SentDelivery {
    fn from_row(row: &Row) -> Result<SentDelivery> {
        let status = to_status(row.get("status")?, "webhook_deliveries.status")?;
        let duration = row.optional_unsigned("webhook_deliveries.duration_ms")?.map(Duration::from_millis);
        let done_at: Option<i64> = row.get("done_at")?;
        let error: Option<String> = row.get("error")?;
        Ok(SentDelivery {
            version: VersionNumber::new(row.unsigned("webhook_deliveries.version_number")?),
            url: row.get("url")?,
            fired_at: row.time("webhook_deliveries.claimed_at")?,
            outcome: done_at.map(|_| DeliveryOutcome { duration, answer: status.ok_or(error.unwrap_or_default()) }),
        })
    }
}

fn to_status(status: Option<i64>, column: &'static str) -> Result<Option<u16>> {
    let corrupt = |status: i64| CatalogError::Corrupt { column, value: status.to_string() };
    status.map(|status| u16::try_from(status).map_err(|_| corrupt(status))).transpose()
}

impl Record for Webhook {
    fn from_row(row: &Row) -> Result<Webhook> {
        Ok(Webhook {
            url: row.get("url")?,
            secret: row.get::<Option<String>, _>("secret")?.map(Secret::from_stored),
            is_active: row.get("is_active")?,
            last_fired_at: row.optional_time("webhooks.last_fired_at")?,
            last_status: to_status(row.get("last_status")?, "webhooks.last_status")?,
            created_at: row.time("webhooks.created_at")?,
        })
    }
}

impl Record for Delivery {
    fn from_row(row: &Row) -> Result<Delivery> {
        Ok(Delivery {
            dataset: DatasetId::new(row.unsigned("webhook_deliveries.dataset_id")?),
            dataset_name: row.get("dataset_name")?,
            owner_plan: row.named("users.plan")?,
            version: VersionNumber::new(row.unsigned("webhook_deliveries.version_number")?),
            entity_count: row.unsigned("files.entity_count")?,
            refreshed_at: to_time(row.get("refreshed_at")?, "versions.created_at")?,
            url: row.get("url")?,
            secret: row.get::<Option<String>, _>("secret")?.map(Secret::from_stored),
            registration: row.get("registration")?,
            claimed_at: row.time("webhook_deliveries.claimed_at")?,
        })
    }
}

impl Catalog {
    /// Registers the dataset's webhook, in place of an existing one and its outcome. Due deliveries go to the new one.
    pub async fn register_webhook(&self, dataset: DatasetId, url: &str, secret: Option<&str>) -> Result<Webhook> {
        let mut transaction = self.engine.begin().await?;
        let sql = "UPDATE datasets SET webhook_registrations = webhook_registrations + 1 WHERE dataset_id = $1
                   RETURNING webhook_registrations";
        let registration: Option<(i64,)> = transaction.find(sql, &[dataset.into()]).await?;
        let (registration,) = registration.ok_or(CatalogError::NotFound)?;
        let sql = "INSERT INTO webhooks (dataset_id, url, secret, is_active, registration, created_at)
                   VALUES ($1, $2, $3, (1 = 1), $4, $5)
                   ON CONFLICT (dataset_id) DO UPDATE
                   SET url = EXCLUDED.url, secret = EXCLUDED.secret, is_active = EXCLUDED.is_active,
                       registration = EXCLUDED.registration, created_at = EXCLUDED.created_at,
                       last_fired_at = NULL, last_status = NULL
                   RETURNING url, secret, is_active, last_fired_at, last_status, created_at";
        let values = &[
            dataset.into(),
            text(url, "url")?,
            optional_text(secret, "secret")?,
            Value::Integer(Some(registration)),
            from_time(self.now()),
        ];
        let webhook = transaction.one(sql, values).await?;
        transaction.commit().await?;
        Ok(webhook)
    }

    pub async fn webhook(&self, dataset: DatasetId) -> Result<Option<Webhook>> {
        self.engine.find(select!(webhooks, "WHERE dataset_id = $1"), &[dataset.into()]).await
    }

    /// Removes the dataset's webhook and its due deliveries. A claimed delivery may still arrive.
    pub async fn delete_webhook(&self, dataset: DatasetId) -> Result<()> {
        // No version is published between the two deletions.
        let (mut transaction, _) = self.lock_dataset(dataset).await?;
        let sql = "DELETE FROM webhooks WHERE dataset_id = $1";
        transaction.execute_or(sql, &[dataset.into()], CatalogError::NoWebhook).await?;
        let sql = "DELETE FROM webhook_deliveries WHERE dataset_id = $1 AND claimed_at IS NULL";
        transaction.execute(sql, &[dataset.into()]).await?;
        transaction.commit().await
    }

    /// Claims the delivery that has been due the longest. No other call, in any process, ever returns the same.
    pub async fn claim_delivery(&self) -> Result<Option<Delivery>> {
        loop {
            let sql = "SELECT dataset_id, version_number FROM webhook_deliveries WHERE claimed_at IS NULL
                       ORDER BY due_at, dataset_id, version_number LIMIT 1";
            let next: Option<(i64, i64)> = self.engine.find(sql, &[]).await?;
            let Some((dataset, version)) = next else { return Ok(None) };

            let mut transaction = self.engine.begin().await?;
            let key = [Value::Integer(Some(dataset)), Value::Integer(Some(version))];
            let sql = "UPDATE webhook_deliveries SET claimed_at = $3
                       WHERE dataset_id = $1 AND version_number = $2 AND claimed_at IS NULL";
            if transaction.execute(sql, &[key[0], key[1], from_time(self.now())]).await? == 0 {
                continue;
            }
            let sql = "SELECT c.dataset_id, c.version_number, c.claimed_at, d.name AS dataset_name, u.plan,
                              f.entity_count, v.created_at AS refreshed_at, w.url, w.secret, w.registration
                       FROM webhook_deliveries c
                       JOIN versions v ON v.dataset_id = c.dataset_id AND v.version_number = c.version_number
                       JOIN files f ON f.file_id = v.file_id
                       JOIN datasets d ON d.dataset_id = v.dataset_id
                       JOIN users u ON u.user_id = d.owner_id
                       JOIN webhooks w ON w.dataset_id = v.dataset_id AND w.is_active
                       WHERE c.dataset_id = $1 AND c.version_number = $2";
            let delivery: Option<Delivery> = match transaction.find(sql, &key).await {
                // A record that cannot be read must not keep the deliveries after it from being sent.
                Err(error) if error.is_damage() => {
                    transaction.commit().await?;
                    return Err(error);
                }
                found => found?,
            };
            if let Some(delivery) = delivery.as_ref().filter(|delivery| delivery.owner_plan.has_webhooks()) {
                let sql = "UPDATE webhook_deliveries SET url = $3 WHERE dataset_id = $1 AND version_number = $2";
                transaction.execute(sql, &[key[0], key[1], Value::Text(Some(&delivery.url))]).await?;
            }
            transaction.commit().await?;
            // Without a webhook there is no receiver. The delivery is still claimed.
            if delivery.is_some() {
                return Ok(delivery);
            }
        }
    }

    /// Records the outcome of a delivery. The webhook shows its status with the time of the claim, unless it was
    /// registered again or a later delivery has reported already.
    pub async fn record_delivery(&self, delivery: &Delivery, outcome: &DeliveryOutcome) -> Result<()> {
        let status = outcome.answer.as_ref().ok().copied();
        let error = outcome.answer.as_ref().err().map(|error| kept_error(error));
        let duration_ms = outcome.duration.map(|span| i64::try_from(span.as_millis()).unwrap_or(i64::MAX));
        let mut transaction = self.engine.begin().await?;
        let sql = "UPDATE webhook_deliveries SET done_at = $3, duration_ms = $4, status = $5, error = $6
                   WHERE dataset_id = $1 AND version_number = $2";
        let values = &[
            delivery.dataset.into(),
            delivery.version.into(),
            from_time(self.now()),
            Value::Integer(duration_ms),
            Value::Integer(status.map(i64::from)),
            Value::Text(error.as_deref()),
        ];
        transaction.execute(sql, values).await?;
        let sql = "UPDATE webhooks SET last_fired_at = $3, last_status = $4
                   WHERE dataset_id = $1 AND registration = $2 AND (last_fired_at IS NULL OR last_fired_at <= $3)";
        let values = &[
            delivery.dataset.into(),
            Value::Integer(Some(delivery.registration)),
            from_time(delivery.claimed_at),
            Value::Integer(status.map(i64::from)),
        ];
        transaction.execute(sql, values).await?;
        transaction.commit().await
    }

    /// The newest of the stored deliveries that were sent, before a version, newest first, at most `limit`.
    pub async fn deliveries(
        &self,
        dataset: DatasetId,
        before: Option<VersionNumber>,
        limit: u32,
    ) -> Result<Vec<SentDelivery>> {
        let before = from_cursor(before.map(VersionNumber::get), i64::MAX);
        let sql = "SELECT version_number, url, claimed_at, done_at, duration_ms, status, error FROM webhook_deliveries
                   WHERE dataset_id = $1 AND version_number < $2 AND url IS NOT NULL AND claimed_at IS NOT NULL
                   ORDER BY version_number DESC LIMIT $3";
        self.engine.list(sql, &[dataset.into(), before, limit.into()]).await
    }
}

/// Makes the dataset's webhook, if any, due for the version that is published; forgets deliveries too old to keep.
pub(super) async fn record_due(
    transaction: &mut Transaction,
    dataset: DatasetId,
    version: VersionNumber,
    now: DateTime<Utc>,
) -> Result<()> {
    let sql = "INSERT INTO webhook_deliveries (dataset_id, version_number, due_at)
               SELECT dataset_id, $2, $3 FROM webhooks WHERE dataset_id = $1 AND is_active";
    let due = transaction.execute(sql, &[dataset.into(), version.into(), from_time(now)]).await?;
    if due > 0 {
        let sql = "DELETE FROM webhook_deliveries
                   WHERE dataset_id = $1 AND claimed_at IS NOT NULL AND version_number <= (
                       SELECT version_number FROM webhook_deliveries WHERE dataset_id = $1
                       ORDER BY version_number DESC LIMIT 1 OFFSET $2)";
        transaction.execute(sql, &[dataset.into(), Value::Integer(Some(KEPT))]).await?;
    }
    Ok(())
}
