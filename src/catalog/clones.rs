//! Clones: a new dataset that begins with the latest version of another one.

use strata_types::dataset::{About, Dataset, DatasetSource, NewClone, NewDataset};
use strata_types::version::{Version, VersionSelector};

use super::dataset_rows::lock_dataset;
use super::datasets::insert;
use super::users::lock_owner;
use super::version_rows::{Resolved, VersionRecord};
use super::versions::{add_version, find_version};
use super::{AlternateBase, Catalog, CatalogError, Result, UserId};

impl Catalog {
    /// The version that [`Catalog::clone_dataset`] would share. Ask this before you read the files. Four look-ups.
    pub async fn check_clone(&self, clone: &NewClone, active_limit: u64) -> Result<Version> {
        let resolved = self.resolve_read(clone.source, VersionSelector::Latest).await?;
        let Resolved { dataset: source, version } = resolved.ok_or(CatalogError::NotFound)?;
        check_source(&source, clone.owner)?;
        let version = version.ok_or(CatalogError::NoVersion)?;
        if self.dataset_by_name(clone.owner, &clone.name).await?.is_some() {
            return Err(CatalogError::NameTaken);
        }
        let (_, active) = self.count_datasets(clone.owner).await?;
        if active >= active_limit { Err(CatalogError::PlanLimit { limit: active_limit }) } else { Ok(version) }
    }

    /// Creates a dataset whose version 1 is the latest version of another, with its alternate. They share immutable
    /// files; everything later is independent. The clone's source is `push`. Only its owner can clone a private dataset
    /// ([`CatalogError::NotFound`]), and the clone is then private with a key of its own. [`CatalogError::Conflict`] if
    /// the version's files are not as `expected`.
    pub async fn clone_dataset(
        &self,
        clone: &NewClone,
        active_limit: u64,
        expected: Option<AlternateBase>,
    ) -> Result<(Dataset, VersionRecord)> {
        let mut transaction = self.engine.begin().await?;
        lock_owner(&mut transaction, clone.owner).await?;
        // Its alternate must not be removed while the clone begins to share it.
        let source = lock_dataset(&mut transaction, clone.source).await?;
        check_source(&source, clone.owner)?;
        let latest = source.latest_version.ok_or(CatalogError::NoVersion)?;
        let latest = find_version(&mut transaction, &source, latest).await?.version;
        if expected.is_some_and(|expected| expected != AlternateBase::of(&latest)) {
            return Err(CatalogError::Conflict);
        }

        let new = NewDataset {
            owner: clone.owner,
            name: clone.name.clone(),
            // What the entities are, and on which terms, goes with them. To list the clone is for its owner to say.
            about: About { listed: false, ..source.about.clone() },
            private_key: source.is_private().then(|| clone.private_key.clone()),
            source: DatasetSource::Push,
            format: None,
            records_path: None,
            publish_query: false,
            schedule: clone.schedule.clone(),
            // The shared file was written with these, and later files should be alike.
            infer_types: source.infer_types,
            index: source.index.clone(),
            ping_token: clone.ping_token.clone(),
        };
        let now = self.now();
        let mut dataset = insert(&mut transaction, &new, active_limit, now).await?;
        let first = add_version(&mut transaction, &dataset, latest.file, latest.alt, now).await?;
        transaction.commit().await?;
        dataset.latest_version = Some(first.version.number);
        Ok((dataset, first))
    }
}

fn check_source(source: &Dataset, owner: UserId) -> Result<()> {
    match source.is_private() && source.owner != owner {
        true => Err(CatalogError::NotFound),
        false if source.frozen => Err(CatalogError::Frozen),
        false => Ok(()),
    }
}
