//! Table `refresh_attempts`: the attempts to refresh a dataset, with their outcomes.

use chrono::{DateTime, Utc};
use strata_types::dataset::RefreshTrigger;
use strata_types::limits;

use super::convert::{from_cursor, from_optional_id, from_time, to_unsigned};
use super::database_engine::{CatalogTransaction, FromSqlRow, SqlRow, SqlValue};
use super::{Catalog, CatalogError, DatasetId, RefreshAttemptId, Result, VersionNumber};

const MAX_ERROR_CHARACTERS: usize = 2_000;
const MAX_STORED_ATTEMPTS: i64 = limits::MAX_HISTORY_ENTRIES as i64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefreshAttempt {
    pub id: RefreshAttemptId,
    pub trigger: RefreshTrigger,
    pub started_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
    pub outcome: Option<AttemptOutcome>,
    /// The number of checks that ran on the new list of entities; `None` if there were none.
    pub check_count: Option<u64>,
    pub warnings: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct AttemptWithWarnings<'a> {
    pub id: RefreshAttemptId,
    pub warnings: &'a [String],
}

impl From<RefreshAttemptId> for AttemptWithWarnings<'_> {
    fn from(id: RefreshAttemptId) -> Self {
        AttemptWithWarnings { id, warnings: &[] }
    }
}

/// The first refresh attempt of a new dataset, recorded together with the dataset and its first version.
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
        /// The error message for the owner of the dataset, truncated to 2,000 characters.
        error: String,
    },
}

impl FromSqlRow for RefreshAttempt {
    fn from_row(row: &SqlRow) -> Result<RefreshAttempt> {
        let finished_at = row.get_optional_time("refresh_attempts.finished_at")?;
        let version = row.get_optional_unsigned("refresh_attempts.version_number")?;
        let error: Option<String> = row.get("error")?;
        let warnings: Option<&str> = row.get("warnings")?;
        let outcome = finished_at.map(|_| match version {
            Some(number) => AttemptOutcome::Published(VersionNumber::new(number)),
            None => AttemptOutcome::Failed { error: error.unwrap_or_default() },
        });
        Ok(RefreshAttempt {
            id: RefreshAttemptId::new(row.get_unsigned("refresh_attempts.attempt_id")?),
            trigger: row.get_parsed("refresh_attempts.trigger_name")?,
            started_at: row.get_time("refresh_attempts.started_at")?,
            finished_at,
            outcome,
            check_count: row.get_optional_unsigned("refresh_attempts.check_count")?,
            warnings: warnings.and_then(|warnings| serde_json::from_str(warnings).ok()).unwrap_or_default(),
        })
    }
}

/// Selects the newest `$2` attempts of the dataset `$1` with ids less than `$3`, newest first.
pub(super) const LAST_ATTEMPTS_SQL: &str =
    "SELECT attempt_id, trigger_name, started_at, finished_at, version_number, error, check_count,
            warnings
     FROM refresh_attempts WHERE dataset_id = $1 AND attempt_id < $3
     ORDER BY attempt_id DESC LIMIT $2";

impl Catalog {
    pub async fn attempts(
        &self,
        dataset: DatasetId,
        before: Option<RefreshAttemptId>,
        limit: u32,
    ) -> Result<Vec<RefreshAttempt>> {
        let values = &[dataset.into(), limit.into(), from_cursor(before.map(RefreshAttemptId::get), i64::MAX)];
        self.engine.list(LAST_ATTEMPTS_SQL, values).await
    }
}

pub(super) async fn start_attempt(
    transaction: &mut CatalogTransaction,
    dataset: DatasetId,
    trigger: RefreshTrigger,
    now: DateTime<Utc>,
) -> Result<RefreshAttemptId> {
    let sql = "INSERT INTO refresh_attempts (dataset_id, trigger_name, started_at)
               VALUES ($1, $2, $3)
               RETURNING attempt_id";
    let (attempt_id,): (i64,) =
        transaction.fetch_one(sql, &[dataset.into(), SqlValue::Text(Some(trigger.name())), from_time(now)]).await?;
    // Deletes the dataset's oldest refresh attempts beyond the maximum, but never a running one.
    let sql = "DELETE FROM refresh_attempts
               WHERE dataset_id = $1 AND finished_at IS NOT NULL AND attempt_id <= (
                   SELECT attempt_id FROM refresh_attempts WHERE dataset_id = $1
                   ORDER BY attempt_id DESC LIMIT 1 OFFSET $2)";
    transaction.execute(sql, &[dataset.into(), SqlValue::Integer(Some(MAX_STORED_ATTEMPTS))]).await?;
    Ok(RefreshAttemptId::new(to_unsigned(attempt_id, "refresh_attempts.attempt_id")?))
}

pub(super) async fn finish_attempt(
    transaction: &mut CatalogTransaction,
    attempt: AttemptWithWarnings<'_>,
    outcome: &AttemptOutcome,
    now: DateTime<Utc>,
) -> Result<()> {
    // Warnings are stored as JSON, which escapes U+0000, because PostgreSQL cannot store it.
    let warnings = (!attempt.warnings.is_empty()).then(|| serde_json::json!(attempt.warnings).to_string());
    let (version, error) = match outcome {
        AttemptOutcome::Published(number) => (Some(*number), None),
        AttemptOutcome::Failed { error } => (None, Some(truncate_error(error))),
    };
    let sql = "UPDATE refresh_attempts SET finished_at = $2, ok = $3, version_number = $4, error = $5, warnings = $6
               WHERE attempt_id = $1 AND finished_at IS NULL";
    let values = &[
        attempt.id.into(),
        from_time(now),
        SqlValue::Boolean(Some(version.is_some())),
        from_optional_id(version),
        SqlValue::Text(error.as_deref()),
        SqlValue::Text(warnings.as_deref()),
    ];
    transaction.execute_or_error(sql, values, CatalogError::LeaseLost).await
}

/// Truncates an error message and replaces U+0000, which PostgreSQL cannot store.
pub(super) fn truncate_error(error: &str) -> String {
    let beginning: String = error.chars().take(MAX_ERROR_CHARACTERS).collect();
    beginning.replace('\0', "\u{fffd}")
}
