//! Table `refresh_attempts`: what was tried to refresh a dataset, and how it ended.

use crate::model::dataset::RefreshTrigger;

use super::convert::{from_time, now, to_unsigned};
use super::engine::{Transaction, Value};
use super::{AttemptId, Catalog, CatalogError, DatasetId, VersionNumber};

/// The longest reason that is kept; what exceeds it is cut off.
const MAX_ERROR_CHARACTERS: usize = 2_000;

/// How a refresh ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// It made this version.
    Published(VersionNumber),
    /// It made nothing.
    Failed {
        /// The reason, for the owner. It is cut at 2,000 characters.
        error: String,
    },
}

impl Catalog {
    /// Records that a refresh of the dataset begins.
    ///
    /// # Errors
    ///
    /// [`CatalogError::NotFound`] if there is no such dataset.
    pub async fn start_attempt(&self, dataset: DatasetId, trigger: RefreshTrigger) -> Result<AttemptId, CatalogError> {
        let mut transaction = self.engine.begin().await?;
        let (attempt_id,): (i64,) = transaction
            .fetch_one(
                "INSERT INTO refresh_attempts (dataset_id, trigger_name, started_at)
                 VALUES ($1, $2, $3)
                 RETURNING attempt_id",
                &[dataset.into(), Value::Text(trigger.name()), from_time(now())],
            )
            .await
            .map_err(CatalogError::of_insert)?;
        transaction.commit().await?;
        Ok(AttemptId::new(to_unsigned(attempt_id, "refresh_attempts.attempt_id")?))
    }

    /// Records how a refresh ended. One that published a version is recorded as such by
    /// [`Catalog::publish_version`], in the same transaction, and needs no call of this.
    ///
    /// # Errors
    ///
    /// [`CatalogError::NotFound`] if there is no such attempt or it has ended before.
    pub async fn finish_attempt(&self, attempt: AttemptId, outcome: &AttemptOutcome) -> Result<(), CatalogError> {
        let mut transaction = self.engine.begin().await?;
        finish(&mut transaction, attempt, outcome).await?;
        transaction.commit().await?;
        Ok(())
    }
}

/// Records how a refresh ended, as a part of `transaction`.
pub(super) async fn finish(
    transaction: &mut Transaction,
    attempt: AttemptId,
    outcome: &AttemptOutcome,
) -> Result<(), CatalogError> {
    let (version, error) = match outcome {
        AttemptOutcome::Published(number) => (Some(*number), None),
        AttemptOutcome::Failed { error } => (None, Some(kept_error(error))),
    };
    let finished = transaction
        .execute(
            "UPDATE refresh_attempts SET finished_at = $2, ok = $3, version_number = $4, error = $5
             WHERE attempt_id = $1 AND finished_at IS NULL",
            &[
                attempt.into(),
                from_time(now()),
                Value::Boolean(version.is_some()),
                version.map_or(Value::OptionalInteger(None), Value::from),
                Value::OptionalText(error.as_deref()),
            ],
        )
        .await?;
    match finished {
        0 => Err(CatalogError::NotFound),
        _ => Ok(()),
    }
}

/// The reason in the form in which it is kept: bounded, and without U+0000, which may stand in a source
/// that the reason quotes but which PostgreSQL cannot store.
fn kept_error(error: &str) -> String {
    error
        .chars()
        .take(MAX_ERROR_CHARACTERS)
        .map(|character| match character {
            '\0' => char::REPLACEMENT_CHARACTER,
            other => other,
        })
        .collect()
}
