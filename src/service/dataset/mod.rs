//! Creates, changes, lists and deletes the datasets of owners, and pins and freezes their versions.

pub(crate) mod alternate_edits;
pub(crate) mod alternates;
pub(crate) mod changes;
pub(crate) mod checks;
pub(crate) mod clones;
pub(crate) mod comparison_cache;
pub(crate) mod diffs;
pub(crate) mod entity_pull;
pub(crate) mod profile;

use std::sync::Arc;

use strata_catalog::{Catalog, CatalogError, DatasetListing, DatasetView, RefreshAttempt};
use strata_query::QueryEngine;
use strata_types::dataset::{
    DEFAULT_CRON_SCHEDULE, Dataset, DatasetChange, DatasetMetadata, DatasetName, DatasetSource, DatasetVisibility,
    NewDataset, RollbackMode,
};
use strata_types::field_path::FieldPath;
use strata_types::ids::{DatasetId, RefreshAttemptId};
use strata_types::limits::{MAX_DATASET_SEARCH_CHARACTERS, MAX_RECORDS_PATH_BYTES, MAX_URL_BYTES};
use strata_types::secret::Secret;
use strata_types::user::User;
use strata_types::version::{DatasetVersion, VersionNumber};

use crate::management::{ManageError, OwnerWriter, Result};
use crate::refresh::checks::parse_checks;
use crate::{ClientNetwork, RefreshService};

const MAX_SHOWN_ATTEMPTS: u32 = 10;

#[derive(Clone, Debug)]
pub struct DatasetWithAttempts {
    pub dataset: Dataset,
    pub last_attempts: Vec<RefreshAttempt>,
    /// The checks of new versions as JSON.
    pub checks: Option<String>,
}

/// Returns a private visibility, with a new key in case the dataset was public.
pub fn new_private_visibility() -> DatasetVisibility {
    DatasetVisibility::Private { new_private_key: Secret::new_private_key(rand::random()) }
}

fn is_owner(user: Option<&User>, dataset: &Dataset) -> bool {
    user.is_some_and(|user| user.id == dataset.owner)
}

pub struct DatasetService {
    pub(crate) catalog: Catalog,
    pub(crate) owner_writer: Arc<OwnerWriter>,
    pub(crate) refreshes: Arc<RefreshService>,
    pub(crate) engine: QueryEngine,
}

impl DatasetService {
    /// Lists at most `limit` datasets of all owners with ids greater than `after`, ordered by id.
    pub async fn list_all(&self, after: Option<DatasetId>, limit: u32) -> Result<Vec<Dataset>> {
        Ok(self.catalog.datasets(after, limit).await?)
    }

    /// Lists at most `limit` versions of any dataset from `first` on, in ascending order.
    pub async fn list_versions(&self, id: DatasetId, first: VersionNumber, limit: u32) -> Result<Vec<DatasetVersion>> {
        let end = VersionNumber::new(first.get().saturating_add(limit.into()));
        let versions = self.catalog.versions(id, Some(end), limit).await?.into_iter().rev();
        Ok(versions.map(|status| status.version).filter(|version| version.number >= first).collect())
    }

    /// Returns the size of the active version's file; `None` if there is no active version or its record is damaged.
    pub async fn active_file_bytes(&self, dataset: &Dataset) -> Result<Option<u64>> {
        let Some(number) = dataset.active_version() else { return Ok(None) };
        match self.catalog.version(dataset.id, number).await {
            Ok(record) => Ok(Some(record.version.file.size_bytes)),
            // A damaged record must not make the list of all datasets fail, which helps to find the damage.
            Err(CatalogError::DamagedRecord { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a dataset. By default, it is public, has the source `push`, and is on the nightly schedule.
    pub async fn create(&self, user: &User, name: DatasetName, settings: DatasetChange) -> Result<DatasetWithAttempts> {
        self.check_settings(user, &settings).await?;
        let new = NewDataset {
            owner: user.id,
            name,
            metadata: DatasetMetadata {
                description: settings.description.flatten(),
                license: settings.licence.flatten(),
                listed: settings.listed.unwrap_or(false),
            },
            private_key: match settings.visibility {
                Some(DatasetVisibility::Private { new_private_key }) => Some(new_private_key),
                Some(DatasetVisibility::Public) | None => None,
            },
            source: settings.source.unwrap_or(DatasetSource::Push),
            format: settings.format.flatten(),
            records_path: settings.records_path.flatten(),
            publish_query: settings.publish_query.unwrap_or(false),
            infer_types: settings.infer_types.unwrap_or(false),
            schedule: settings.schedule.unwrap_or_else(|| Some(DEFAULT_CRON_SCHEDULE.to_owned())),
            index: settings.index.unwrap_or_default(),
            checks: settings.checks.flatten(),
            ping_token: Secret::new_ping_token(rand::random()),
        };
        let limit = self.refreshes.ingest.config.plans.max_active_datasets(user.plan);
        let dataset = self.owner_writer.run_write(user.id, self.catalog.create_dataset(&new, limit)).await?;
        Ok(DatasetWithAttempts { dataset, last_attempts: Vec::new(), checks: new.checks })
    }

    pub async fn update(&self, owner: &User, id: DatasetId, change: DatasetChange) -> Result<DatasetWithAttempts> {
        self.check_settings(owner, &change).await?;
        self.apply_change(owner, id, self.catalog.update_dataset(id, &change)).await
    }

    pub async fn delete(&self, owner: &User, id: DatasetId) -> Result<()> {
        self.catalog.owned_dataset(owner.id, id).await?;
        self.owner_writer.run_write(owner.id, self.catalog.delete_dataset(id)).await
    }

    /// Like [`DatasetService::list_without_attempts`], with refresh attempts, which need a look-up per dataset.
    pub async fn list_with_attempts(
        &self,
        owner: &User,
        after: Option<DatasetId>,
        limit: u32,
    ) -> Result<Vec<DatasetWithAttempts>> {
        let mut datasets = Vec::new();
        for dataset in self.list_without_attempts(owner, after, limit).await? {
            datasets.push(self.load_attempts_and_checks(dataset).await?);
        }
        Ok(datasets)
    }

    /// Lists at most `limit` datasets of the owner with ids greater than `after`, ordered by id.
    pub async fn list_without_attempts(
        &self,
        owner: &User,
        after: Option<DatasetId>,
        limit: u32,
    ) -> Result<Vec<Dataset>> {
        Ok(self.catalog.datasets_by_owner(owner.id, after, limit).await?)
    }

    /// Returns the number of datasets of a user, and the number of datasets that are not frozen.
    pub async fn count_all_and_active_datasets(&self, owner: &User) -> Result<(u64, u64)> {
        Ok(self.catalog.count_all_and_active_datasets(owner.id).await?)
    }

    pub async fn find_owned(&self, owner: &User, id: DatasetId) -> Result<Dataset> {
        Ok(self.catalog.owned_dataset(owner.id, id).await?)
    }

    /// Returns a consistent view of a dataset of the owner: the dataset, its versions and its last refresh attempts.
    pub async fn find_owned_view(&self, owner: &User, id: DatasetId) -> Result<DatasetView> {
        // Ownership is checked first: the duration of the view query would show other users that the dataset exists.
        self.catalog.owned_dataset(owner.id, id).await?;
        self.catalog.dataset_view(id).await?.ok_or(ManageError::DatasetNotFound)
    }

    /// Returns a public dataset or one of the user, frozen or not. Waits for a catalog look-up permit of the client.
    pub async fn find_visible(
        &self,
        user: Option<&User>,
        client: ClientNetwork,
        id: DatasetId,
    ) -> Result<Option<Dataset>> {
        let _permit = self.owner_writer.catalog_limits.acquire_lookup(client).await?;
        let dataset = self.catalog.dataset(id).await?;
        Ok(dataset.filter(|dataset| is_owner(user, dataset) || !dataset.is_private()))
    }

    /// Returns a view of a visible dataset; only the owner's contains refresh attempts and checks. `None` if it became
    /// invisible.
    pub async fn find_visible_view(
        &self,
        user: Option<&User>,
        client: ClientNetwork,
        dataset: &Dataset,
    ) -> Result<Option<DatasetView>> {
        let _permit = self.owner_writer.catalog_limits.acquire_lookup(client).await?;
        let Some(mut view) = self.catalog.dataset_view(dataset.id).await? else { return Ok(None) };
        if is_owner(user, &view.dataset) {
            return Ok(Some(view));
        }
        view.last_attempts.clear();
        view.checks = None;
        Ok((!view.dataset.is_private()).then_some(view))
    }

    /// Lists at most `limit` refresh attempts that are older than `before`, newest first.
    pub async fn list_attempts(
        &self,
        owner: &User,
        id: DatasetId,
        before: Option<RefreshAttemptId>,
        limit: u32,
    ) -> Result<Vec<RefreshAttempt>> {
        self.catalog.owned_dataset(owner.id, id).await?;
        Ok(self.catalog.attempts(id, before, limit).await?)
    }

    /// Replaces the key of a private dataset. The old key stops working immediately.
    pub async fn rotate_private_key(&self, owner: &User, id: DatasetId) -> Result<DatasetWithAttempts> {
        let new_private_key = Secret::new_private_key(rand::random());
        let rotated = self.apply_change(owner, id, self.catalog.rotate_key(id, &new_private_key)).await;
        rotated.map_err(|error| match error {
            ManageError::Stale => ManageError::NotPrivate,
            other => other,
        })
    }

    /// Replaces the token of the ping URL. The old URL stops working immediately.
    pub async fn rotate_ping_token(&self, owner: &User, id: DatasetId) -> Result<DatasetWithAttempts> {
        let new_token = Secret::new_ping_token(rand::random());
        self.apply_change(owner, id, self.catalog.rotate_ping_token(id, &new_token)).await
    }

    /// Pins `version` as the active version.
    pub async fn rollback(
        &self,
        owner: &User,
        id: DatasetId,
        version: VersionNumber,
        mode: RollbackMode,
    ) -> Result<DatasetWithAttempts> {
        let latest = self.catalog.owned_dataset(owner.id, id).await?.latest_version;
        let rolled_back = self.owner_writer.run_write(owner.id, self.catalog.rollback(id, version, mode)).await;
        let dataset = rolled_back.map_err(|error| error.with_version_details(version, latest))?;
        self.load_attempts_and_checks(dataset).await
    }

    pub async fn unpin(&self, owner: &User, id: DatasetId) -> Result<DatasetWithAttempts> {
        self.apply_change(owner, id, self.catalog.unpin(id)).await
    }

    /// Allows refreshes and reads of the dataset again. A pinned version remains pinned.
    pub async fn unfreeze(&self, owner: &User, id: DatasetId) -> Result<DatasetWithAttempts> {
        let limit = self.refreshes.ingest.config.plans.max_active_datasets(owner.plan);
        self.apply_change(owner, id, self.catalog.unfreeze(id, limit)).await
    }

    pub fn check_listing_query(query: Option<&str>) -> Result<()> {
        let invalid = |problem| Err(ManageError::InvalidField { field: "q", problem });
        match query {
            Some(query) if query.chars().nth(MAX_DATASET_SEARCH_CHARACTERS).is_some() => {
                invalid(format!("it is longer than {MAX_DATASET_SEARCH_CHARACTERS} characters"))
            }
            // No dataset name contains U+0000, and PostgreSQL rejects it in queries.
            Some(query) if query.contains('\0') => invalid("it must not contain the character U+0000".to_owned()),
            _ => Ok(()),
        }
    }

    /// Lists at most `limit` entries of the dataset list with ids greater than `after`, ordered by id. If `query` is
    /// set, their names or descriptions contain it, ignoring case. Waits for a look-up permit of the client.
    pub async fn search_dataset_list(
        &self,
        client: ClientNetwork,
        query: Option<&str>,
        after: Option<DatasetId>,
        limit: u32,
    ) -> Result<Vec<DatasetListing>> {
        DatasetService::check_listing_query(query)?;
        let _permit = self.owner_writer.catalog_limits.acquire_lookup(client).await?;
        Ok(self.catalog.search_listed_datasets(query, after, limit).await?)
    }

    async fn apply_change(
        &self,
        owner: &User,
        id: DatasetId,
        change: impl Future<Output = Result<Dataset, CatalogError>>,
    ) -> Result<DatasetWithAttempts> {
        self.catalog.owned_dataset(owner.id, id).await?;
        let dataset = self.owner_writer.run_write(owner.id, change).await?;
        self.load_attempts_and_checks(dataset).await
    }

    async fn load_attempts_and_checks(&self, dataset: Dataset) -> Result<DatasetWithAttempts> {
        let last_attempts = self.catalog.attempts(dataset.id, None, MAX_SHOWN_ATTEMPTS).await?;
        let checks = self.catalog.dataset_checks(dataset.id).await?;
        Ok(DatasetWithAttempts { dataset, last_attempts, checks })
    }

    /// Checks all dataset settings that do not depend on the dataset's state, and resolves the host name of the source.
    async fn check_settings(&self, owner: &User, settings: &DatasetChange) -> Result<()> {
        let invalid = |field, problem: String| Err(ManageError::InvalidField { field, problem });
        let description = settings.description.as_ref().and_then(Option::as_deref);
        let license = settings.licence.as_ref().and_then(Option::as_deref);
        if let Some((field, problem)) = DatasetMetadata::invalid_field(description, license) {
            return invalid(field, problem);
        }
        if let Some(Some(path)) = &settings.records_path {
            if path.len() > MAX_RECORDS_PATH_BYTES {
                return invalid("records_path", format!("it is longer than {MAX_RECORDS_PATH_BYTES} bytes"));
            }
            if let Err(error) = FieldPath::parse(path) {
                return invalid("records_path", error.to_string());
            }
        }
        if let Some(Some(checks)) = &settings.checks
            && let Err(error) = parse_checks(checks.clone()).await.map_err(ManageError::Storage)?
        {
            return invalid("checks", error.to_string());
        }
        let Some(DatasetSource::Url(url)) = &settings.source else { return Ok(()) };
        if url.len() > MAX_URL_BYTES {
            return invalid("source", format!("it is longer than {MAX_URL_BYTES} bytes"));
        }
        let checked = self.refreshes.ingest.source_client(owner.id).check_url(url).await;
        checked.or_else(|error| invalid("source", format!("{error}; to send the entities yourself, use push")))
    }
}
