//! Runs checks on the active version of a dataset, so that owners can try checks before they set them.
//!
//! The work is limited like a refresh: it needs a permit of `sources.concurrent`, and its files on disk count toward
//! the space of the owner's sources. It is stopped after `query.diff_timeout_s`.

use strata_checks::{ActiveVersion, CheckReport, CheckSettings};
use strata_types::ids::{DatasetId, RefreshAttemptId};
use strata_types::user::User;
use strata_types::version::VersionNumber;

use crate::management::{ManageError, Result};
use crate::refresh::checks::{check_version, parse_checks};
use crate::refresh::error::RefreshError;
use crate::{DatasetService, OwnerReadError, ReadError};

pub struct CheckedVersion {
    pub version: VersionNumber,
    pub report: CheckReport,
}

impl DatasetService {
    /// Runs `checks` (JSON) on the active version, or the checks of the dataset if they are `None`. Nothing changes.
    pub async fn check_active_version(
        &self,
        owner: &User,
        id: DatasetId,
        checks: Option<String>,
    ) -> Result<CheckedVersion, OwnerReadError> {
        let dataset = self.catalog.owned_dataset(owner.id, id).await.map_err(ManageError::from)?;
        let json = match checks {
            Some(checks) => Some(checks),
            None => self.catalog.dataset_checks(id).await.map_err(ManageError::from)?,
        };
        let settings = match json {
            Some(json) => parse_checks(json)
                .await
                .map_err(ManageError::Storage)?
                .map_err(|error| ManageError::InvalidField { field: "checks", problem: error.to_string() })?,
            None => CheckSettings::default(),
        };
        let number = dataset.active_version().ok_or(ManageError::NoVersionYet)?;
        let file = self.catalog.version(id, number).await.map_err(ManageError::from)?.version.file;
        let ingest = &self.refreshes.ingest;
        let permit = ingest.acquire_permit(owner.id).await.map_err(ManageError::from)?;
        let reader = self.refreshes.files.open(&file).await.map_err(ReadError::from)?;
        let active = ActiveVersion { number, entity_count: reader.entity_count() };
        let run = ingest.new_check_run(owner.id, settings);
        let limit = self.engine.diff_timeout();
        let checking = check_version(reader, run, Some(active), permit);
        let report = match tokio::time::timeout(limit, checking).await {
            Err(_) => return Err(ManageError::CheckTimeout { seconds: limit.as_secs() }.into()),
            Ok(Err(RefreshError::Storage(error))) => return Err(ReadError::from(error).into()),
            Ok(Err(RefreshError::DiskQuotaExceeded(full))) => return Err(ManageError::CheckQuotaExceeded(full).into()),
            Ok(Err(error)) => return Err(ManageError::Internal(error.to_string()).into()),
            Ok(Ok(report)) => report,
        };
        Ok(CheckedVersion { version: number, report })
    }

    /// Returns the results of the checks of a refresh attempt that failed; `None` if there are none.
    pub async fn check_report(
        &self,
        owner: &User,
        id: DatasetId,
        attempt: RefreshAttemptId,
    ) -> Result<Option<CheckReport>> {
        self.catalog.owned_dataset(owner.id, id).await?;
        let json = self.catalog.check_report(id, attempt).await?;
        Ok(json.and_then(|json| serde_json::from_str(&json).ok()))
    }
}
