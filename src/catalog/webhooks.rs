//! Tables `webhooks` and `webhook_deliveries`: the webhook of each dataset, and its deliveries. The transaction that
//! publishes a version makes a delivery due. A claim is committed before the request is sent. After a crash, an
//! unclaimed delivery is still due, and a claimed one is never sent again.
//!
//! - A delivery uses the URL that is registered at the time of the claim.
//! - Deleting a webhook deletes its due deliveries, but not the sent ones.
//! - Each registration has a new number. The webhook shows the outcome of a delivery only if the registration is the
//!   same as at the time of the claim.

use std::time::Duration;

use chrono::{DateTime, Utc};
use strata_types::ids::DatasetId;
use strata_types::limits;
use strata_types::secret::Secret;
use strata_types::user::UserPlan;
use strata_types::version::VersionNumber;

use super::attempts::truncate_error;
use super::convert::{from_cursor, from_optional_text, from_text, from_time, to_time};
use super::database_engine::{CatalogTransaction, FromSqlRow, SqlRow, SqlValue, select};
use super::{Catalog, CatalogError, Result};

/// The number of sent deliveries that are stored for each dataset. Older ones are deleted.
const MAX_STORED_DELIVERIES: i64 = limits::MAX_HISTORY_ENTRIES as i64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    pub url: String,
    /// The key that signs the payload; `None` if the payload is not signed.
    pub secret: Option<Secret>,
    pub is_active: bool,
    pub last_fired_at: Option<DateTime<Utc>>,
    /// The receiver's HTTP status in the last delivery; `None` if there was no response.
    pub last_status: Option<u16>,
    pub created_at: DateTime<Utc>,
}

/// A claimed delivery. Only the process that claimed it sends it, once.
#[derive(Clone, Debug)]
pub struct ClaimedDelivery {
    pub dataset: DatasetId,
    pub dataset_name: String,
    pub owner_plan: UserPlan,
    pub version: VersionNumber,
    pub entity_count: u64,
    pub refreshed_at: DateTime<Utc>,
    pub url: String,
    pub secret: Option<Secret>,
    registration_number: i64,
    claimed_at: DateTime<Utc>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryOutcome {
    pub duration: Option<Duration>,
    /// The HTTP status that the receiver returned, or the reason why there was no response.
    pub response: Result<u16, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentDelivery {
    /// The published version. A dataset has at most one delivery for each version.
    pub version: VersionNumber,
    pub url: String,
    pub fired_at: DateTime<Utc>,
    /// The outcome of the delivery; `None` while it is in progress, and permanently if the process died.
    pub outcome: Option<DeliveryOutcome>,
}

impl FromSqlRow for SentDelivery {
    fn from_row(row: &SqlRow) -> Result<SentDelivery> {
        let status = to_http_status(row.get("status")?, "webhook_deliveries.status")?;
        let duration = row.get_optional_unsigned("webhook_deliveries.duration_ms")?.map(Duration::from_millis);
        let done_at: Option<i64> = row.get("done_at")?;
        let error: Option<String> = row.get("error")?;
        Ok(SentDelivery {
            version: VersionNumber::new(row.get_unsigned("webhook_deliveries.version_number")?),
            url: row.get("url")?,
            fired_at: row.get_time("webhook_deliveries.claimed_at")?,
            outcome: done_at.map(|_| DeliveryOutcome { duration, response: status.ok_or(error.unwrap_or_default()) }),
        })
    }
}

fn to_http_status(status: Option<i64>, column: &'static str) -> Result<Option<u16>> {
    status.map(|status| u16::try_from(status).map_err(|_| CatalogError::invalid_value(column, status))).transpose()
}

impl FromSqlRow for Webhook {
    fn from_row(row: &SqlRow) -> Result<Webhook> {
        Ok(Webhook {
            url: row.get("url")?,
            secret: row.get::<Option<String>, _>("secret")?.map(Secret::from_stored),
            is_active: row.get("is_active")?,
            last_fired_at: row.get_optional_time("webhooks.last_fired_at")?,
            last_status: to_http_status(row.get("last_status")?, "webhooks.last_status")?,
            created_at: row.get_time("webhooks.created_at")?,
        })
    }
}

impl FromSqlRow for ClaimedDelivery {
    fn from_row(row: &SqlRow) -> Result<ClaimedDelivery> {
        Ok(ClaimedDelivery {
            dataset: DatasetId::new(row.get_unsigned("webhook_deliveries.dataset_id")?),
            dataset_name: row.get("dataset_name")?,
            owner_plan: row.get_parsed("users.plan")?,
            version: VersionNumber::new(row.get_unsigned("webhook_deliveries.version_number")?),
            entity_count: row.get_unsigned("files.entity_count")?,
            refreshed_at: to_time(row.get("refreshed_at")?, "versions.created_at")?,
            url: row.get("url")?,
            secret: row.get::<Option<String>, _>("secret")?.map(Secret::from_stored),
            registration_number: row.get("registration")?,
            claimed_at: row.get_time("webhook_deliveries.claimed_at")?,
        })
    }
}

impl Catalog {
    /// Registers or replaces the webhook of a dataset. Due deliveries use the new registration.
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
            from_text(url, "url")?,
            from_optional_text(secret, "secret")?,
            SqlValue::Integer(Some(registration)),
            from_time(self.now()),
        ];
        let webhook = transaction.fetch_one(sql, values).await?;
        transaction.commit().await?;
        Ok(webhook)
    }

    pub async fn webhook(&self, dataset: DatasetId) -> Result<Option<Webhook>> {
        self.engine.find(select!(webhooks, "WHERE dataset_id = $1"), &[dataset.into()]).await
    }

    /// Deletes the webhook and its due deliveries. A claimed delivery might still arrive.
    pub async fn delete_webhook(&self, dataset: DatasetId) -> Result<()> {
        // The lock on the dataset prevents new versions between the deletions of the webhook and its deliveries.
        let (mut transaction, _) = self.lock_dataset(dataset).await?;
        let sql = "DELETE FROM webhooks WHERE dataset_id = $1";
        transaction.execute_or_error(sql, &[dataset.into()], CatalogError::NoWebhook).await?;
        let sql = "DELETE FROM webhook_deliveries WHERE dataset_id = $1 AND claimed_at IS NULL";
        transaction.execute(sql, &[dataset.into()]).await?;
        transaction.commit().await
    }

    /// Claims the delivery that has been due the longest. No other call, in any process, returns the same delivery.
    pub async fn claim_webhook_delivery(&self) -> Result<Option<ClaimedDelivery>> {
        loop {
            let sql = "SELECT dataset_id, version_number FROM webhook_deliveries WHERE claimed_at IS NULL
                       ORDER BY due_at, dataset_id, version_number LIMIT 1";
            let next: Option<(i64, i64)> = self.engine.find(sql, &[]).await?;
            let Some((dataset, version)) = next else { return Ok(None) };

            let mut transaction = self.engine.begin().await?;
            let key = [SqlValue::Integer(Some(dataset)), SqlValue::Integer(Some(version))];
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
            let delivery: Option<ClaimedDelivery> = match transaction.find(sql, &key).await {
                // The claim of an unreadable record is committed, so that the record does not block later deliveries.
                Err(error) if error.is_corruption() => {
                    transaction.commit().await?;
                    return Err(error);
                }
                delivery => delivery?,
            };
            if let Some(delivery) = delivery.as_ref().filter(|delivery| delivery.owner_plan.has_webhooks()) {
                let sql = "UPDATE webhook_deliveries SET url = $3 WHERE dataset_id = $1 AND version_number = $2";
                transaction.execute(sql, &[key[0], key[1], SqlValue::Text(Some(&delivery.url))]).await?;
            }
            transaction.commit().await?;
            // A delivery without an active webhook has no receiver, so it counts as claimed, and the loop continues.
            if delivery.is_some() {
                return Ok(delivery);
            }
        }
    }

    /// Records the outcome of a delivery. The webhook shows the latest outcome of its current registration.
    pub async fn record_delivery_outcome(&self, delivery: &ClaimedDelivery, outcome: &DeliveryOutcome) -> Result<()> {
        let status = outcome.response.as_ref().ok().copied();
        let error = outcome.response.as_ref().err().map(|error| truncate_error(error));
        let duration_ms = outcome.duration.map(|duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX));
        let mut transaction = self.engine.begin().await?;
        let sql = "UPDATE webhook_deliveries SET done_at = $3, duration_ms = $4, status = $5, error = $6
                   WHERE dataset_id = $1 AND version_number = $2";
        let values = &[
            delivery.dataset.into(),
            delivery.version.into(),
            from_time(self.now()),
            SqlValue::Integer(duration_ms),
            SqlValue::Integer(status.map(i64::from)),
            SqlValue::Text(error.as_deref()),
        ];
        transaction.execute(sql, values).await?;
        let sql = "UPDATE webhooks SET last_fired_at = $3, last_status = $4
                   WHERE dataset_id = $1 AND registration = $2 AND (last_fired_at IS NULL OR last_fired_at <= $3)";
        let values = &[
            delivery.dataset.into(),
            SqlValue::Integer(Some(delivery.registration_number)),
            from_time(delivery.claimed_at),
            SqlValue::Integer(status.map(i64::from)),
        ];
        transaction.execute(sql, values).await?;
        transaction.commit().await
    }

    pub async fn sent_webhook_deliveries(
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

/// Makes a delivery of the dataset's webhook due, if there is a webhook, and deletes old deliveries.
pub(super) async fn record_due_webhook_delivery(
    transaction: &mut CatalogTransaction,
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
        transaction.execute(sql, &[dataset.into(), SqlValue::Integer(Some(MAX_STORED_DELIVERIES))]).await?;
    }
    Ok(())
}
