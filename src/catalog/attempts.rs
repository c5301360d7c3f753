//! Table `refresh_attempts`: the attempts to refresh a dataset, and how each ended.

use chrono::{DateTime, Utc};
use strata_types::dataset::RefreshTrigger;
use strata_types::limits;

use super::convert::{from_cursor, from_optional, from_time, to_unsigned};
use super::engine::{Record, Row, Transaction, Value};
use super::{AttemptId, Catalog, CatalogError, DatasetId, Result, VersionNumber};

const MAX_ERROR_CHARACTERS: usize = 2_000;

const KEPT: i64 = limits::HISTORY as i64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub id: AttemptId,
    pub trigger: RefreshTrigger,
    pub started_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
    pub outcome: Option<AttemptOutcome>,
    pub warnings: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct PublishingAttempt<'a> {
    pub id: AttemptId,
    /// Warnings for the owner of the dataset. The caller bounds their number and size.
    pub warnings: &'a [String],
}

impl From<AttemptId> for PublishingAttempt<'_> {
    fn from(id: AttemptId) -> Self {
        PublishingAttempt { id, warnings: &[] }
    }
}

/// An attempt that is recorded when it has made its dataset and a version.
#[derive(Clone, Copy, Debug)]
pub struct FirstAttempt<'a> {
    pub trigger: RefreshTrigger,
    pub started_at: DateTime<Utc>,
    pub warnings: &'a [String],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    Published(VersionNumber),
    Failed {
        /// The reason, for the owner. It is cut at 2,000 characters.
        error: String,
    },
}

impl Record for Attempt {
    fn from_row(row: &Row) -> Result<Attempt> {
        let finished_at = row.optional_time("refresh_attempts.finished_at")?;
        let version = row.optional_unsigned("refresh_attempts.version_number")?;
        let error: Option<String> = row.get("error")?;
        let warnings: Option<&str> = row.get("warnings")?;
        let outcome = finished_at.map(|_| match version {
            Some(number) => AttemptOutcome::Published(VersionNumber::new(number)),
            None => AttemptOutcome::Failed { error: error.unwrap_or_default() },
        });
        Ok(Attempt {
            id: AttemptId::new(row.unsigned("refresh_attempts.attempt_id")?),
            trigger: row.named("refresh_attempts.trigger_name")?,
            started_at: row.time("refresh_attempts.started_at")?,
            finished_at,
            outcome,
            warnings: warnings.and_then(|warnings| serde_json::from_str(warnings).ok()).unwrap_or_default(),
        })
    }
}

/// The newest `$2` attempts of the dataset `$1` with ids less than `$3`, newest first.
pub(super) const LAST_ATTEMPTS: &str =
    "SELECT attempt_id, trigger_name, started_at, finished_at, version_number, error, warnings
     FROM refresh_attempts WHERE dataset_id = $1 AND attempt_id < $3
     ORDER BY attempt_id DESC LIMIT $2";

impl Catalog {
    /// The newest of the stored attempts before one, newest first, at most `limit`. One range of an index.
    pub async fn attempts(&self, dataset: DatasetId, before: Option<AttemptId>, limit: u32) -> Result<Vec<Attempt>> {
        let before = from_cursor(before.map(AttemptId::get), i64::MAX);
        let values = &[dataset.into(), limit.into(), before];
        self.engine.list(LAST_ATTEMPTS, values).await
    }
}

/// Records that an attempt begins, and forgets those that are too old to keep.
pub(super) async fn start(
    transaction: &mut Transaction,
    dataset: DatasetId,
    trigger: RefreshTrigger,
    now: DateTime<Utc>,
) -> Result<AttemptId> {
    let sql = "INSERT INTO refresh_attempts (dataset_id, trigger_name, started_at)
               VALUES ($1, $2, $3)
               RETURNING attempt_id";
    let (attempt_id,): (i64,) =
        transaction.one(sql, &[dataset.into(), Value::Text(Some(trigger.name())), from_time(now)]).await?;
    // At most one attempt runs, and it is among the newest.
    let sql = "DELETE FROM refresh_attempts
               WHERE dataset_id = $1 AND finished_at IS NOT NULL AND attempt_id <= (
                   SELECT attempt_id FROM refresh_attempts WHERE dataset_id = $1
                   ORDER BY attempt_id DESC LIMIT 1 OFFSET $2)";
    transaction.execute(sql, &[dataset.into(), Value::Integer(Some(KEPT))]).await?;
    Ok(AttemptId::new(to_unsigned(attempt_id, "refresh_attempts.attempt_id")?))
}

pub(super) async fn finish(
    transaction: &mut Transaction,
    attempt: PublishingAttempt<'_>,
    outcome: &AttemptOutcome,
    now: DateTime<Utc>,
) -> Result<()> {
    // No U+0000 as such, which PostgreSQL cannot store: JSON escapes it.
    let warnings = (!attempt.warnings.is_empty()).then(|| serde_json::json!(attempt.warnings).to_string());
    let (version, error) = match outcome {
        AttemptOutcome::Published(number) => (Some(*number), None),
        AttemptOutcome::Failed { error } => (None, Some(kept_error(error))),
    };
    let sql = "UPDATE refresh_attempts SET finished_at = $2, ok = $3, version_number = $4, error = $5, warnings = $6
               WHERE attempt_id = $1 AND finished_at IS NULL";
    let values = &[
        attempt.id.into(),
        from_time(now),
        Value::Boolean(Some(version.is_some())),
        from_optional(version),
        Value::Text(error.as_deref()),
        Value::Text(warnings.as_deref()),
    ];
    transaction.execute_or(sql, values, CatalogError::LeaseLost).await
}

/// The reason in its stored form: bounded, and without U+0000, which a source may contain and PostgreSQL cannot store.
pub(super) fn kept_error(error: &str) -> String {
    let beginning: String = error.chars().take(MAX_ERROR_CHARACTERS).collect();
    beginning.replace('\0', "\u{fffd}")
}
