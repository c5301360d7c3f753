//! The checks of a dataset (docs/reference/refresh-checks.md), as JSON, and their results in a refresh attempt.
//!
//! The checks are not part of a [`Dataset`](strata_types::dataset::Dataset), because they can be large, and every read
//! looks up a dataset. Their checksum is their own, too.

use super::convert::to_saturating_i64;
use super::database_engine::{CatalogTransaction, SqlValue};
use super::record_checksum::RecordChecksum;
use super::{Catalog, DatasetId, RefreshAttemptId, Result};

type StoredChecks = (Option<String>, Option<String>);

const CHECKS_SQL: &str = "SELECT checks, checks_checksum FROM datasets WHERE dataset_id = $1";

impl Catalog {
    /// Returns the checks of a dataset as JSON; `None` if there are none or the dataset does not exist.
    pub async fn dataset_checks(&self, dataset: DatasetId) -> Result<Option<String>> {
        decode_checks(dataset, self.engine.find(CHECKS_SQL, &[dataset.into()]).await?)
    }

    /// Records the results of the checks of a running attempt. `report` is set if a check failed.
    pub async fn record_check_results(
        &self,
        attempt: RefreshAttemptId,
        check_count: u64,
        report: Option<&str>,
    ) -> Result<()> {
        let sql = "UPDATE refresh_attempts SET check_count = $2, check_report = $3
                   WHERE attempt_id = $1 AND finished_at IS NULL";
        let count = SqlValue::Integer(Some(to_saturating_i64(check_count)));
        self.engine.write(sql, &[attempt.into(), count, SqlValue::Text(report)]).await.map(drop)
    }

    /// Returns the results of a dataset's attempt whose checks failed.
    pub async fn check_report(&self, dataset: DatasetId, attempt: RefreshAttemptId) -> Result<Option<String>> {
        let sql = "SELECT check_report FROM refresh_attempts WHERE dataset_id = $1 AND attempt_id = $2";
        let report: Option<(Option<String>,)> = self.engine.find(sql, &[dataset.into(), attempt.into()]).await?;
        Ok(report.and_then(|(report,)| report))
    }
}

pub(super) async fn find_checks(transaction: &mut CatalogTransaction, dataset: DatasetId) -> Result<Option<String>> {
    decode_checks(dataset, transaction.find(CHECKS_SQL, &[dataset.into()]).await?)
}

fn decode_checks(dataset: DatasetId, stored: Option<StoredChecks>) -> Result<Option<String>> {
    let Some((Some(checks), checksum)) = stored else { return Ok(None) };
    verify_checks(to_saturating_i64(dataset.get()), Some(&checks), checksum.as_deref())?;
    Ok(Some(checks))
}

/// Stores the checks of a dataset. The JSON escapes U+0000, which PostgreSQL cannot store.
pub(super) async fn store_checks(
    transaction: &mut CatalogTransaction,
    dataset: DatasetId,
    checks: Option<&str>,
) -> Result<()> {
    let checksum = checks.map(|checks| checks_checksum(to_saturating_i64(dataset.get()), Some(checks)).into_stored());
    let sql = "UPDATE datasets SET checks = $2, checks_checksum = $3 WHERE dataset_id = $1";
    let values = &[dataset.into(), SqlValue::Text(checks), SqlValue::Text(checksum.as_deref())];
    transaction.execute(sql, values).await.map(drop)
}

fn checks_checksum(dataset: i64, checks: Option<&str>) -> RecordChecksum {
    RecordChecksum::for_table("checks").with_number(dataset).with_optional_text(checks)
}

/// Returns an error if the checks of a dataset do not match their checksum.
pub(super) fn verify_checks(dataset: i64, checks: Option<&str>, stored: Option<&str>) -> Result<()> {
    checks_checksum(dataset, checks).verify(stored, || format!("dataset {dataset}'s checks"))
}
