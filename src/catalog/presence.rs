//! Look-ups that must find something.
//!
//! References show which rows are lost. Versions are never deleted, so each number up to the dataset's latest must
//! exist. So must a dataset that has versions, and a file that a version names.

use super::rows::version::{Resolved, VersionRecord};
use super::{Catalog, CatalogError, DatasetId, VersionNumber};
use crate::model::dataset::Dataset;
use crate::model::version::VersionSelector;

impl Catalog {
    /// Tells a record that does not exist from one that was only not found.
    pub(super) async fn check_found(
        &self,
        id: DatasetId,
        selector: VersionSelector,
        resolved: Option<&Resolved>,
    ) -> Result<(), CatalogError> {
        let Some(resolved) = resolved else { return self.check_no_dataset(id).await };
        if resolved.version.is_some() {
            return Ok(());
        }
        match (resolved.dataset.latest_version, selector) {
            (None, _) => self.check_no_dataset(id).await,
            (Some(latest), VersionSelector::Number(number)) if number > latest || number < VersionNumber::new(1) => {
                Ok(())
            }
            (Some(_), _) => Err(CatalogError::Unverified { record: format!("a version of dataset {id}") }),
        }
    }

    /// Checks that a dataset that was not found, or has no version, really has no version.
    pub(super) async fn check_no_dataset(&self, id: DatasetId) -> Result<(), CatalogError> {
        // One statement: the first version may have been published since the dataset was read.
        let sql = "SELECT v.version_number FROM versions v LEFT JOIN datasets d ON d.dataset_id = v.dataset_id
                   WHERE v.dataset_id = $1 AND (d.dataset_id IS NULL OR d.latest_version IS NULL) LIMIT 1";
        let version: Option<(i64,)> = self.engine.fetch_optional(sql, &[id.into()]).await?;
        match version {
            None => Ok(()),
            Some(_) => Err(CatalogError::Unverified { record: format!("dataset {id}") }),
        }
    }
}

/// Checks that these are all versions of the dataset, newest first.
pub(super) fn check_all_versions(dataset: &Dataset, versions: &[VersionRecord]) -> Result<(), CatalogError> {
    let latest = dataset.latest_version.map_or(0, VersionNumber::get);
    let numbers = versions.iter().map(|record| record.version.number.get());
    match numbers.eq((1..=latest).rev()) {
        true => Ok(()),
        false => Err(CatalogError::Unverified { record: format!("a version of dataset {}", dataset.id) }),
    }
}

/// The error for a version that was not found, under the lock of its dataset with this latest version: it is lost, or
/// never existed.
pub(super) fn no_version(dataset: DatasetId, latest: Option<VersionNumber>, number: VersionNumber) -> CatalogError {
    match latest {
        Some(latest) if (VersionNumber::new(1)..=latest).contains(&number) => {
            CatalogError::Unverified { record: format!("version {number} of dataset {dataset}") }
        }
        _ => CatalogError::NoVersion,
    }
}
