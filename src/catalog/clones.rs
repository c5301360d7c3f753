//! Clones: new datasets that start with the latest version of another dataset.

use strata_types::dataset::{Dataset, DatasetMetadata, DatasetSource, NewDataset, NewDatasetClone};
use strata_types::version::{DatasetVersion, VersionSelector};

use super::dataset_rows::lock_dataset;
use super::datasets::insert_dataset;
use super::users::lock_owner;
use super::version_rows::{ResolvedDataset, VersionStatus};
use super::versions::{add_version, find_version};
use super::{Catalog, CatalogError, Result, UserId, VersionFileIds};

impl Catalog {
    /// Returns the version that [`Catalog::clone_dataset`] would share, so that the caller can read the version's files
    /// before it creates the clone.
    pub async fn resolve_clone_source(&self, clone: &NewDatasetClone, active_limit: u64) -> Result<DatasetVersion> {
        let resolved = self.resolve_read(clone.source, VersionSelector::Latest).await?;
        let ResolvedDataset { dataset: source, version } = resolved.ok_or(CatalogError::NotFound)?;
        check_clone_source(&source, clone.owner)?;
        let version = version.ok_or(CatalogError::NoVersion)?;
        if self.dataset_by_name(clone.owner, &clone.name).await?.is_some() {
            return Err(CatalogError::NameTaken);
        }
        let (_, active) = self.count_all_and_active_datasets(clone.owner).await?;
        if active >= active_limit { Err(CatalogError::TooManyDatasets { limit: active_limit }) } else { Ok(version) }
    }

    /// Creates a dataset with the source `push`, whose version 1 shares the files of another dataset's latest version.
    /// Only the owner can clone a private dataset (else [`CatalogError::NotFound`]); the clone is private with a new
    /// key. Returns [`CatalogError::Conflict`] if the shared files are not the `expected` ones.
    pub async fn clone_dataset(
        &self,
        clone: &NewDatasetClone,
        active_limit: u64,
        expected: Option<VersionFileIds>,
    ) -> Result<(Dataset, VersionStatus)> {
        let mut transaction = self.engine.begin().await?;
        lock_owner(&mut transaction, clone.owner).await?;
        // The lock on the original dataset keeps its alternate (edited copy) until the clone refers to the same file.
        let source = lock_dataset(&mut transaction, clone.source).await?;
        check_clone_source(&source, clone.owner)?;
        let latest = source.latest_version.ok_or(CatalogError::NoVersion)?;
        let latest = find_version(&mut transaction, &source, latest).await?.version;
        if expected.is_some_and(|expected| expected != VersionFileIds::from_version(&latest)) {
            return Err(CatalogError::Conflict);
        }

        let new = NewDataset {
            owner: clone.owner,
            name: clone.name.clone(),
            // The clone has the same entities, so it gets the description and license, but only its owner can list it.
            metadata: DatasetMetadata { listed: false, ..source.metadata.clone() },
            private_key: source.is_private().then(|| clone.private_key.clone()),
            source: DatasetSource::Push,
            format: None,
            records_path: None,
            publish_query: false,
            schedule: clone.schedule.clone(),
            // Later versions of the clone should have the same types and indexes as the file that it shares.
            infer_types: source.infer_types,
            index: source.index.clone(),
            // The checks describe the source of the original dataset.
            checks: None,
            ping_token: clone.ping_token.clone(),
        };
        let now = self.now();
        let mut dataset = insert_dataset(&mut transaction, &new, active_limit, now).await?;
        let first = add_version(&mut transaction, &dataset, latest.file, latest.alternate, now).await?;
        transaction.commit().await?;
        dataset.latest_version = Some(first.version.number);
        Ok((dataset, first))
    }
}

fn check_clone_source(source: &Dataset, owner: UserId) -> Result<()> {
    match source.is_private() && source.owner != owner {
        true => Err(CatalogError::NotFound),
        false if source.frozen => Err(CatalogError::Frozen),
        false => Ok(()),
    }
}
